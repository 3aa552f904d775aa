"""End to end: two labs side by side, one taken down without a trace while the other serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.lab.record import read_record
from tests.lab.e2e import CHAT, HALF, Lab, make_lab

pytestmark = pytest.mark.lab


def processes_naming(*texts: str) -> list[str]:
    """Return the command lines that name any of the texts."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if any(t in line for t in texts):
                found.append(line)
    return found


@pytest.mark.slow
def test_two_labs_side_by_side_and_one_goes_without_a_trace(whole_lab: Lab, tmp_path: Path) -> None:
    first = whole_lab.fresh(HALF)
    errors, pid = first.all_errors(), first.haproxy_pid()
    second = Lab(tmp_path)
    second.run("lab", "up", "--no-llm", "--scale", "0.1")
    try:
        record = second.record
        mine = {p for c in record.cells for p in (*c.baseline, *c.canary)} | {record.router_port, record.collector_port}
        theirs = {p for c in first.record.cells for p in (*c.baseline, *c.canary)} | {first.record.router_port, first.record.collector_port}
        assert not mine & theirs
        assert record.run != first.record.run
        assert "haproxy" in second.run("lab", "status").out
        assert second.run("lab", "up", "--no-llm").err.count("It was up already.") == 1
        second.run("plan")
        assert processes_naming(record.run)
    finally:
        second.run("lab", "down")
    assert processes_naming(record.run, str(tmp_path)) == []
    assert not Path(record.run).exists()
    assert read_record(tmp_path) is None
    assert (tmp_path / ".fleetctl" / "store.db").exists(), "plans and events stay"
    assert "nothing was up" in second.run("lab", "down").out
    assert first.haproxy_pid() == pid
    assert first.weight(CHAT) == 0
    assert first.all_errors() == errors


@pytest.mark.slow
def test_a_lab_that_was_down_in_mid_migration_raises_nothing_and_goes_home_at_once(tmp_path: Path) -> None:
    for lab in make_lab(tmp_path):
        lab.fresh(HALF, ticker=True)
        lab.start("migrate", CHAT, "--phase", "canary")
        lab.wait_phase(CHAT, "canary")
        lab.end_children()
        before = lab.record.run
        lab.run("lab", "down")
        lab.run("lab", "up", "--no-llm", within_s=120)
        assert lab.record.run != before
        lab.wait(CHAT, lambda r: r.hold_reason == "target.not_ready", "held, since its target is gone")
        assert lab.weight(CHAT) == 0
        assert "ways home" in lab.run("doctor", code=None).out
        assert lab.run("fallback", "chat", "-o", "json").last["failed"] == 0, "the way home knows where the router stands now"
        lab.wait(CHAT, lambda r: r.ended == "fell_back", "home, as ordered")
        assert lab.all_errors() == 0
