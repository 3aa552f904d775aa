"""End to end: a person's orders, Ctrl-C, and coming home while the store is gone."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.lab.e2e import CHAT, HALF, SUMMARY, Lab, Policy, of_kind
from tests.lab.lab_tools import until

pytestmark = pytest.mark.lab
LADDER = Policy(steps=(("canary", 40, 4), ("ramp", 50, 110), ("complete", 100, 0)))


def to_half(lab: Lab, *cells: str) -> None:
    """Bring cells to 50 %, judged."""
    lab.start("migrate", *cells, "--phase", "canary")
    for c in cells:
        lab.wait_phase(c, "canary")
        assert lab.weight(c) == 5_000


def test_pause_resume_rollback_promote_abort_and_retry(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(LADDER, ticker=True)
    since = lab.seq(CHAT)
    child = lab.start("migrate", CHAT, "--phase", "ramp")
    lab.wait_phase(CHAT, "canary")
    assert "paused, canary at 40 %" in lab.run("pause", "chat").out
    r = lab.wait(CHAT, lambda r: r.step_done, "gate passed while paused")
    assert (r.phase, r.paused, lab.weight(CHAT)) == ("canary", True, 4_000)
    lab.run("resume", "chat", "--reason", "looks well")
    lab.wait_phase(CHAT, "ramp")
    assert lab.weight(CHAT) == 5_000
    said = lab.run("rollback", "chat")
    assert "canary at 40 %" in said.out
    r = lab.wait_phase(CHAT, "canary")
    assert (r.until, lab.weight(CHAT)) == ("canary", 4_000)
    done = child.end(8, within_s=30)
    assert "canary" in done.out
    assert "--confirm" in lab.run("promote", "chat", code=2).err
    assert "error[rollout.unknown]" in lab.run("abort", "no-such-cell", code=1).err
    lab.run("promote", "chat", "--confirm", CHAT)
    lab.start("migrate", CHAT, "--phase", "ramp")
    lab.wait_phase(CHAT, "ramp")
    assert "aborted" in lab.run("abort", "chat").out
    assert lab.weight(CHAT) == 0
    refused = lab.run("migrate", CHAT, code=8)
    assert f"Run: fleetctl retry {CHAT}" in refused.err
    lab.run("retry", "chat")
    started = lab.rollout(CHAT)
    assert started is not None
    r = started
    assert (r.attempt, r.ended, r.until) == (2, "", "preflight")
    kinds = [e.kind for e in lab.events(CHAT, since) if e.kind.startswith("order.")]
    assert kinds == ["order.pause", "order.resume", "order.rollback", "order.promote", "order.advance", "order.abort"]
    assert all(e.actor.kind == "person" for e in lab.events(CHAT, since) if e.kind.startswith("order."))


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_detaches_from_a_resident_ticker(whole_lab: Lab, number: int) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    child = lab.start("migrate", CHAT, "--phase", "canary")
    lab.wait_phase(CHAT, "canary")
    child.kill(number)
    done = child.end(130, within_s=15)
    assert "Detached; the resident ticker goes on" in done.err
    assert lab.weight(CHAT) == 5_000
    r = lab.rollout(CHAT)
    assert r is not None
    assert not r.ended


def test_ctrl_c_without_a_ticker_takes_the_cells_home_first(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF)
    child = lab.start("migrate", CHAT, SUMMARY, "--phase", "canary")
    for c in (CHAT, SUMMARY):
        lab.wait_phase(c, "canary")
    child.kill(signal.SIGINT)
    done = child.end(130, within_s=20)
    assert "Home." in done.err
    for c in (CHAT, SUMMARY):
        assert lab.weight(c) == 0
        r = lab.rollout(c)
        assert r is not None
        assert r.ended == "aborted"


def test_a_detached_migration_needs_nobody_logged_in_and_outlives_a_reboot(whole_lab: Lab, tmp_path: Path) -> None:
    """With a stand-in for crontab; a reboot is a ticker killed at once, and the command of its line run again."""
    lab = whole_lab.fresh(HALF)
    table, program = tmp_path / "table", tmp_path / "bin" / "crontab"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nif [ "$1" = "-l" ]; then cat "$TABLE" 2>/dev/null || true; else cat > "$TABLE"; fi\n')
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "TABLE": str(table)}
    done = lab.run("migrate", CHAT, "--phase", "canary", "--detach", "cron", code=8, env=env)
    assert "the timer ticks" in done.err
    (line,) = table.read_text().splitlines()
    assert line.startswith("* * * * * cd ")
    assert "migrate --tick" in line
    first = lab.start("migrate", "--tick")
    lab.wait_phase(CHAT, "canary", 90.0)
    first.kill(signal.SIGKILL)
    first.end(None)
    since = lab.seq(CHAT)
    assert lab.weight(CHAT) == 5_000
    second = lab.start("migrate", "--tick")
    assert "aborted" in lab.run("abort", "chat").out, "whoever ticks now obeys"
    assert lab.weight(CHAT) == 0
    assert [e.kind for e in lab.events(CHAT, since) if e.kind == "order.abort"] == ["order.abort"]
    second.end(0, within_s=60)
    assert "removed" in lab.run("migrate", "--detach", "off", env=env).out
    assert table.read_text() == ""


def test_home_while_the_store_is_gone_then_reconciled(whole_lab: Lab, tmp_path: Path) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT, SUMMARY)
    state = lab.store_path.parent
    for path in state.glob("store.db*"):
        shutil.move(path, tmp_path / path.name)
    try:
        done = lab.run("fallback", "--all", "-o", "json")
        assert done.last["failed"] == 0
        assert done.last["ms_to_zero"] < 2_000
        assert {c: lab.weight(c) for c in (CHAT, SUMMARY)} == {CHAT: 0, SUMMARY: 0}
        assert "fleetctl fallback --reconcile" in done.err
        assert not lab.store_path.exists(), "an empty store in the place of the lost one would hide the loss"
        gone = lab.run("migrate", CHAT, code=1)
        assert "error[store." in gone.err
        assert not lab.store_path.exists()
    finally:
        for path in state.glob("store.db*"):
            path.unlink()
        for path in tmp_path.glob("store.db*"):
            shutil.move(path, state / path.name)
    said = lab.run("fallback", "--reconcile")
    assert "Store reconciled: chat-lab, stream-lab, summary-lab" in said.err
    for c in (CHAT, SUMMARY):
        lab.wait(c, lambda r: r.ended == "fell_back", "the rollout ended as fallen back")
        assert of_kind(lab.events(c), "fallback.returned")
        assert lab.weight(c) == 0
    lab.run("audit", "verify")
    lab.run("retry", CHAT)
    to_half(lab, CHAT)


@pytest.mark.slow
def test_fallback_of_one_workload_leaves_the_others(whole_lab: Lab) -> None:
    lab = whole_lab.fresh(HALF, ticker=True)
    to_half(lab, CHAT, SUMMARY)
    lab.run("fallback", "chat")
    assert (lab.weight(CHAT), lab.weight(SUMMARY)) == (0, 5_000)
    lab.wait(CHAT, lambda r: r.ended == "fell_back", "ended")
    again = lab.run("fallback", "chat")
    assert "was home already" in again.out
    until(lambda: lab.weight(SUMMARY) == 5_000, "the other stays")
