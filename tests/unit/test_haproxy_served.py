"""Counting who answered: by start, whole lines only, newest first, over restarts, and never a pinned request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.routers import served
from fleetctl.adapters.routers.served import count_served, last_new_request_ms
from fleetctl.domain.ids import CellId

CELL = CellId("chat-lab")
BASE = datetime(2026, 11, 30, 12, tzinfo=UTC)


def _line(at: datetime, server: str, *, cell: str = "chat-lab", pin: str = "-", active_ms: int = 5) -> str:
    t0 = round(at.timestamp() * 1_000)
    return (
        f'{{"c":"{cell}","a":"canary","srv":"{server}","st":200,"ts":"--","t0":{t0},"ta":{active_ms},"tr":1,"b":274,'
        f'"pt":5,"ct":2,"cc":-1,"bp":1000,"p":"{pin}","rc":"0"}}\n'
    )


@pytest.mark.parametrize("block", [64, 250, 1 << 20])
def test_counts_are_the_same_for_any_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(served, "_BLOCK", block)
    old = "".join(_line(BASE + timedelta(seconds=n), "b1" if n % 4 else "c1") for n in range(40))
    new = "guard chat-lab home: words\nServer x is DOWN\n" + "".join(_line(BASE + timedelta(seconds=40 + n), "b2") for n in range(40))
    new += _line(BASE + timedelta(seconds=79), "c1", pin="canary") + _line(BASE + timedelta(seconds=79), "c1", cell="other")
    new += _line(BASE + timedelta(seconds=79), "<NOSRV>") + _line(BASE + timedelta(seconds=80), "c1")[:-20]
    (tmp_path / "haproxy-9.log").write_text(old)
    (tmp_path / "haproxy-10.log").write_text(new)
    (tmp_path / "stderr-10.txt").write_text(_line(BASE, "c1"))
    whole = count_served(tmp_path, CELL, BASE)
    assert (whole.baseline, whole.canary, whole.last_canary_start) == (70, 10, BASE + timedelta(seconds=36))
    part = count_served(tmp_path, CELL, BASE + timedelta(seconds=36))
    assert (part.baseline, part.canary) == (43, 1)
    none = count_served(tmp_path, CELL, BASE + timedelta(hours=1))
    assert (none.baseline, none.canary, none.last_canary_start) == (0, 0, None)


def test_a_long_request_that_ended_after_the_cursor_but_began_before_is_left_out(tmp_path: Path) -> None:
    text = _line(BASE, "c1") + _line(BASE + timedelta(seconds=-30), "c1", active_ms=60_000) + _line(BASE + timedelta(seconds=31), "b1")
    (tmp_path / "haproxy-1.log").write_text(text)
    found = count_served(tmp_path, CELL, BASE)
    assert (found.baseline, found.canary) == (1, 1)


def test_the_last_new_request_is_measured_from_the_order(tmp_path: Path) -> None:
    (tmp_path / "haproxy-1.log").write_text(_line(BASE, "c1") + _line(BASE + timedelta(milliseconds=14), "c1"))
    assert last_new_request_ms(tmp_path, CELL, BASE) == pytest.approx(14)
    assert last_new_request_ms(tmp_path, CELL, BASE + timedelta(seconds=1)) == 0


def test_a_missing_folder_and_a_log_that_is_too_long_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="nowhere"):
        count_served(tmp_path / "nowhere", CELL, BASE)
    (tmp_path / "haproxy-1.log").write_text(_line(BASE, "c1"))
    monkeypatch.setattr(served, "READ_LIMIT_S", 0)
    with pytest.raises(TimeoutError):
        count_served(tmp_path, CELL, BASE)
