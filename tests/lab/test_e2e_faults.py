"""End to end: each fault of the lab ends as it should, HAProxy killed in mid-migration promotes nothing, and A/A is left in peace."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.lab.e2e import CHAT, HALF, SHIPPED, SUMMARY, Lab, Policy, of_kind
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab
PASSABLE = Policy(steps=(("canary", 50, 2), ("ramp", 60, 110), ("complete", 100, 0)), margins=SHIPPED)
"""The margins of the lab at 50 %: a good target passes within some 15 s at this traffic."""


def good_and_tailed(lab: Lab, watch_s: float) -> None:
    """One cell's sides are alike, the other's target answers 5 % three times as slowly: only the first may ever PASS."""
    lab.fresh(PASSABLE, ticker=True)
    seqs = {c: lab.seq(c) for c in (CHAT, SUMMARY)}
    lab.fault("tail", SUMMARY, "--share", "0.05", "--factor", "3")
    lab.start("migrate", CHAT, SUMMARY, "--phase", "ramp")
    lab.wait_phase(CHAT, "ramp", within_s=watch_s)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 5 or lab.rollout(CHAT).ended != "", "a while at the next step", 20.0)  # type: ignore[union-attr]
    a_a, tailed = lab.rollout(CHAT), lab.rollout(SUMMARY)
    assert a_a is not None
    assert tailed is not None
    assert (a_a.phase, a_a.ended, a_a.latched) == ("ramp", "", None)
    assert tailed.phase == "canary", "a tail three times as slow has PASSed"
    assert not [e for e in of_kind(lab.events(SUMMARY, seqs[SUMMARY]), "rollout.step") if e.data["step"] == 2]
    assert not of_kind(lab.events(CHAT, seqs[CHAT]), "verdict.fail")


def test_alike_sides_pass_and_a_heavier_tail_never_does(whole_lab: Lab) -> None:
    good_and_tailed(whole_lab, 60.0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_alike_sides_are_never_rolled_back_10_of_10(whole_lab: Lab) -> None:
    for _ in range(10):
        good_and_tailed(whole_lab, 90.0)


HARD = [
    (("hang",), ("crash",)),
    pytest.param(("latency", "--factor", "4"), ("errors", "--ratio", "1"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("chat", "summary"), HARD)
def test_a_target_that_breaks_is_rolled_back(whole_lab: Lab, chat: tuple[str, ...], summary: tuple[str, ...]) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    child = lab.start("migrate", CHAT, SUMMARY, "--phase", "canary")
    for c in (CHAT, SUMMARY):
        lab.wait_phase(c, "canary")
    lab.fault(chat[0], CHAT, *chat[1:])
    lab.fault(summary[0], SUMMARY, *summary[1:])
    done = child.end(5, within_s=40)
    for c in (CHAT, SUMMARY):
        r = lab.rollout(c)
        assert r is not None
        assert r.ended == "rolled_back", done.err
        assert r.latched is not None
        assert lab.weight(c) == 0


def test_haproxy_killed_holds_says_so_once_and_goes_on(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(Policy(steps=(("canary", 50, 8), ("complete", 100, 0))), ticker=True)
    since = lab.seq(CHAT)
    child = lab.start("migrate", CHAT, "--phase", "canary")
    lab.wait_phase(CHAT, "canary")
    killed = time.time()
    os.kill(lab.haproxy_pid(), signal.SIGKILL)
    r = lab.wait(CHAT, lambda r: r.hold_reason == "traffic.router_down", "held, since the router does not answer")
    assert r.phase == "canary"
    assert "HELD (traffic.router_down)" in lab.run("status").out
    down = lab.run("fallback", "chat", code=1)
    assert "error[traffic.router_down]" in down.out + down.err
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 9, "longer than the bake time", 12.0)
    r = lab.wait(CHAT, lambda r: not r.ended, "still there")
    assert (r.phase, r.step_done) == ("canary", False)
    lab.run("lab", "up", "--no-llm", "--no-ticker")
    assert lab.weight(CHAT) == 5_000
    done = child.end(0, within_s=60)
    assert done.err.count("traffic.router_down") == 1
    events = lab.events(CHAT, since)
    holds = [e.text for e in of_kind(events, "rollout.hold") if e.at.timestamp() > killed]
    assert len(holds) == 1, holds
    assert "verdict.pass" in [e.kind for e in events]


def test_an_order_given_while_haproxy_is_gone_stands(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    lab.start("migrate", CHAT, "--phase", "canary")
    lab.wait_phase(CHAT, "canary")
    os.kill(lab.haproxy_pid(), signal.SIGKILL)
    said = lab.run("abort", "chat", code=1, within_s=30)
    assert said.err.count("error[") == 1
    assert "error[traffic.order_waits]" in said.err
    lab.run("lab", "up", "--no-llm", "--no-ticker")
    lab.wait(CHAT, lambda r: r.ended == "aborted", "aborted, as ordered")
    assert lab.weight(CHAT) == 0


def test_a_dead_server_keeps_customers_away_until_it_is_back(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    lab.fault("crash", CHAT)
    lab.start("migrate", CHAT, "--phase", "canary")
    until(lambda: "target answers on 0%" in lab.run("status", "-o", "json").out, "status says why it waits", 20.0)
    r = lab.rollout(CHAT)
    assert r is not None
    assert (r.phase, lab.weight(CHAT)) == ("preflight", 0)
    lab.clear(CHAT)
    lab.wait_phase(CHAT, "canary")
    assert lab.weight(CHAT) == 5_000
