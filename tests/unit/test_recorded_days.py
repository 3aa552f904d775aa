"""Recordings by day: old ones are removed, never those that a running step rests on, and a new process counts as the old one did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleetctl.adapters.recording.evidence import RecordedEvidence
from fleetctl.adapters.recording.files import KEPT_DAYS, Recorder
from fleetctl.domain.evidence import ARMS, Cursor, Evidence
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt

CELL = CellId("chat")
START = datetime(2026, 12, 1, 12, tzinfo=UTC)


class World:
    """A recorder and its source, a pair of records a day."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, START
        self.source = self.again()
        self.recorder = Recorder(folder, needed=lambda c: self.source.needed(c), now=lambda: self.now)

    def again(self) -> RecordedEvidence:
        """Return the source as another process has it."""
        return RecordedEvidence(self.folder, now=lambda: self.now, may_begin=True)

    def days(self, count: int, cursor: Cursor | None = None) -> None:
        for _ in range(count):
            at = round(self.now.timestamp() * 1_000)
            pair = [Attempt(cell=CELL, arm=a, started_ms=at, ended_ms=at + 50, failed=False, latency_ms=50.0) for a in ARMS]
            self.recorder.add(pair)
            if cursor is not None:
                self.source.read(CELL, cursor)
            self.now += timedelta(days=1)

    def files(self) -> int:
        return len(list(self.folder.iterdir()))


def counted(e: Evidence) -> tuple[int, set[str]]:
    return e.arms["canary"].attempts, set(e.state.values())


def test_a_step_that_stands_for_weeks_keeps_its_records_and_a_new_process_counts_them_all(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.days(5)
    cursor = w.source.mark(CELL)
    w.days(30, cursor)
    w.now -= timedelta(days=1)
    assert counted(w.source.read(CELL, cursor)) == (30, {"ok"})
    assert counted(w.again().read(CELL, cursor)) == (30, {"ok"})


def test_what_was_removed_from_before_a_step_is_no_reset_to_a_new_process(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.days(6)
    cursor = w.source.mark(CELL)
    w.days(KEPT_DAYS, cursor)
    w.now -= timedelta(days=1)
    assert not (tmp_path / f"{CELL}-{START:%Y%m%d}.jsonl").exists(), "the first days are gone"
    assert counted(w.again().read(CELL, cursor)) == counted(w.source.read(CELL, cursor)) == (KEPT_DAYS, {"ok"})


def test_a_file_of_the_step_itself_that_is_gone_is_a_reset(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.days(2)
    w.now -= timedelta(days=1)
    cursor = w.source.mark(CELL)
    w.now += timedelta(days=1)
    w.days(3, cursor)
    (tmp_path / f"{CELL}-{cursor.since:%Y%m%d}.jsonl").unlink()
    assert counted(w.again().read(CELL, cursor))[1] == {"reset"}


def test_a_recording_that_somebody_removed_is_written_anew(tmp_path: Path) -> None:
    w = World(tmp_path)
    cursor = w.source.mark(CELL)
    w.days(1, cursor)
    w.now -= timedelta(hours=23)
    next(tmp_path.iterdir()).unlink()
    w.now -= timedelta(minutes=1)
    w.days(1)
    w.now -= timedelta(days=1)
    assert counted(w.source.read(CELL, cursor)) == (2, {"reset"})
    assert counted(w.source.read(CELL, cursor)) == (2, {"ok"})


def test_days_that_no_step_rests_on_are_removed(tmp_path: Path) -> None:
    w = World(tmp_path)
    for _ in range(4):
        w.days(6, w.source.mark(CELL))
    assert w.files() <= KEPT_DAYS + 1
    before = w.files()
    w.source = w.again()
    w.days(3)
    assert w.files() == before + 3, "nobody has read yet what is still needed"
