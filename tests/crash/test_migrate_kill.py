"""`fleetctl migrate` is killed with SIGKILL in every phase, then run again: same end state, each step once, the log's chains hold."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.lab.e2e import CHAT, QUICK, Lab, of_kind

pytestmark = [pytest.mark.crash, pytest.mark.lab]
PHASES = ("preflight", "shadow", "canary", "ramp", "full", "soak")
STEPS = [1, 2, 3, 4, 5, 6]
WEIGHTS = [4000, 5000, 9500, 10_000]


def killed_in(lab: Lab, phase: str, linger_s: float = 0.0, *, ticker: bool = False) -> str:
    """Run migrate, kill it (and a resident ticker) in a phase, and return the phase that it was really in."""
    if ticker:
        lab.ticker(on=True)
    child = lab.start("migrate", CHAT, "--wait")
    lab.wait(CHAT, lambda r: r.phase == phase or bool(r.ended), phase, within_s=60.0)
    time.sleep(linger_s)
    if ticker:
        os.kill(lab.ticker_pid(), signal.SIGKILL)
    child.kill()
    assert child.end(None).code == -signal.SIGKILL
    r = lab.rollout(CHAT)
    assert r is not None
    return r.phase


def ended_the_same(lab: Lab, since: int) -> None:
    """Hold the end state and the whole story against those of a migration that nobody disturbed."""
    r = lab.rollout(CHAT)
    assert r is not None
    assert (r.ended, r.phase, r.weight_bp, r.attempt, r.latched) == ("complete", "complete", 10_000, 1, None)
    assert lab.weight(CHAT) == 10_000
    events = lab.events(CHAT, since)
    assert len(of_kind(events, "rollout.start")) == 1
    assert [e.data["step"] for e in of_kind(events, "rollout.step")] == STEPS
    assert sorted({int(str(e.data["to_bp"])) for e in of_kind(events, "traffic.set")} - {0}) == WEIGHTS
    assert len(of_kind(events, "rollout.complete")) == 1
    lab.run("audit", "verify")


def test_killed_in_each_phase_of_one_migration(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(QUICK)
    since = lab.seq(CHAT)
    assert [killed_in(lab, phase, ticker=phase == "ramp") for phase in PHASES] == list(PHASES)
    lab.run("migrate", CHAT, "--wait", within_s=90)
    ended_the_same(lab, since)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("phase", PHASES)
def test_killed_three_times_in_one_phase(whole_lab: Lab, phase: str) -> None:
    lab = whole_lab.fresh(QUICK)
    since = lab.seq(CHAT)
    chance = random.Random(phase)
    for _ in range(3):
        if killed_in(lab, phase, chance.uniform(0.0, 0.4)) == phase:
            continue
    lab.run("migrate", CHAT, "--wait", within_s=120)
    ended_the_same(lab, since)


@pytest.mark.slow
def test_the_ticker_is_killed_and_migrate_takes_over(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(QUICK, ticker=True)
    since = lab.seq(CHAT)
    child = lab.start("migrate", CHAT, "--wait")
    lab.wait_phase(CHAT, "canary")
    os.kill(lab.ticker_pid(), signal.SIGKILL)
    child.end(0, within_s=90)
    ended_the_same(lab, since)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("phase", PHASES)
def test_ticker_and_migrate_are_killed_together(whole_lab: Lab, phase: str) -> None:
    lab = whole_lab.fresh(QUICK, ticker=True)
    since = lab.seq(CHAT)
    killed_in(lab, phase, ticker=True)
    lab.run("migrate", CHAT, "--wait", within_s=120)
    ended_the_same(lab, since)
