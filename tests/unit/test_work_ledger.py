"""Batch work: share by bucket, nothing lost or counted twice through kills, a poison job counted once, nothing new after a way home."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.adapters.routers.work import ledger
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Job, Ledger, bucket_of
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Split
from fleetctl.errors import TrafficNotApplied
from tests.fakes.clock import FakeClock
from tests.lab.work_kills import MEMORY

CELL = CellId("nightly")
SOURCE = PoolId("nvidia")


class Batch:
    """A queue of one cell on a made-up clock."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.clock = FakeClock()
        self.log = folder / "log" / "work-1.log"
        self.path = folder / "work.db"
        self.ledger = Ledger(self.path, log=self.log, hold_s=30.0, now=self.clock.now, **options)  # type: ignore[arg-type]
        self.ledger.add_cell(CELL)
        self.split = WorkSplit("nightly", self.ledger, sources={CELL: SOURCE})

    def share(self, bp: int) -> None:
        token = Token(self.split.read(CELL).token + 1)
        assert isinstance(self.split.fence(CELL, token), Split)
        until = self.clock.now() + timedelta(minutes=3)
        assert isinstance(self.split.set(Split(cell=CELL, target_bp=bp, cap_bp=10_000, token=token, lease_until=until)), Applied)

    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path)


def test_ten_percent_of_the_buckets_are_the_targets_and_more_moves_new_ones_only(batch: Batch) -> None:
    for n in range(800):
        assert batch.ledger.put(CELL, f"job-{n}", b"{}")
    batch.share(1_000)
    on_10 = set()
    while (job := batch.ledger.take(CELL, "canary", "w")) is not None:
        on_10.add(job.id)
        assert batch.ledger.finish(job, ok=True)
    assert 0.08 <= len(on_10) / 800 <= 0.12
    assert on_10 == {f"job-{n}" for n in range(800) if bucket_of(f"job-{n}") < 1_000}
    batch.share(2_500)
    taken = batch.ledger.take(CELL, "canary", "w")
    assert taken is not None
    assert 1_000 <= bucket_of(taken.id) < 2_500


def test_jobs_of_one_key_stay_together(batch: Batch) -> None:
    for n in range(50):
        batch.ledger.put(CELL, f"part-{n}", b"{}", key="document-7")
    batch.share(5_000)
    side: Arm = "canary" if bucket_of("document-7") < 5_000 else "baseline"
    other: Arm = "baseline" if side == "canary" else "canary"
    assert batch.ledger.take(CELL, other, "w") is None
    assert sum(batch.ledger.take(CELL, side, "w") is not None for _ in range(50)) == 50


def test_the_same_job_is_added_once_and_done_once(batch: Batch) -> None:
    assert batch.ledger.put(CELL, "a", b"1")
    assert not batch.ledger.put(CELL, "a", b"2")
    job = batch.ledger.take(CELL, "baseline", "w")
    assert job is not None
    assert job.body == b"1"
    assert batch.ledger.take(CELL, "baseline", "w2") is None
    assert batch.ledger.finish(job, ok=True)
    assert not batch.ledger.finish(job, ok=True)
    assert batch.ledger.counts(CELL) == {"waiting": 0, "taken": 0, "good": 1, "bad": 0, "dead": 0}


def test_a_consumer_that_comes_back_too_late_is_not_believed(batch: Batch) -> None:
    batch.ledger.put(CELL, "a", b"")
    first = batch.ledger.take(CELL, "baseline", "w1")
    batch.clock.advance(timedelta(seconds=31))
    second = batch.ledger.take(CELL, "baseline", "w2")
    assert first is not None
    assert second is not None
    assert second.claim != first.claim
    assert not batch.ledger.finish(first, ok=False)
    assert batch.ledger.finish(second, ok=True)
    assert sorted((row["a"], row["st"]) for row in batch.rows()) == [("baseline", 200), ("baseline", 500)], "the lost try is a failure"


def test_a_poison_job_is_dead_after_three_tries_and_counts_once_as_a_failure(batch: Batch) -> None:
    batch.share(10_000)
    batch.ledger.put(CELL, "poison", b"")
    for _ in range(3):
        assert batch.ledger.take(CELL, "canary", "w") is not None
        batch.clock.advance(timedelta(seconds=31))
    assert batch.ledger.take(CELL, "canary", "w") is None
    assert batch.ledger.counts(CELL)["dead"] == 1
    assert batch.ledger.tell() == 1
    assert batch.ledger.tell() == 0
    assert [(row["a"], row["st"], row["ta"]) for row in batch.rows()] == [("canary", 500, 30_000)]


@pytest.mark.parametrize(("bp", "after"), [(1_000, 1_000), (1_000, 0), (9_990, 9_990), (10_000, 0), (10_000, 5_000)])
@pytest.mark.parametrize("most_tries", [1, 3])
def test_a_job_that_only_the_target_lost_is_done_by_the_source_at_last(tmp_path: Path, bp: int, after: int, most_tries: int) -> None:
    """At a share of both, where the target has all and lost it until it was dead, and after going home."""
    batch = Batch(tmp_path, most_tries=most_tries)
    batch.share(bp)
    ours = next(f"job-{n}" for n in range(1_000_000) if bucket_of(f"job-{n}") < 1_000)
    batch.ledger.put(CELL, ours, b"")
    for _ in range(5):
        batch.ledger.take(CELL, "canary", "w")
        batch.clock.advance(timedelta(seconds=31))
    batch.share(after)
    assert batch.ledger.take(CELL, "canary", "w") is None
    job = batch.ledger.take(CELL, "baseline", "w")
    assert job is not None
    assert batch.ledger.finish(job, ok=True)
    assert sorted((row["a"], row["st"]) for row in batch.rows()) == [("baseline", 200), ("canary", 500)]


def test_what_both_sides_lost_is_dead_and_stays_so_wherever_the_share_goes(batch: Batch) -> None:
    batch.share(5_000)
    poison = next(f"job-{n}" for n in range(1_000) if bucket_of(f"job-{n}") < 5_000)
    batch.ledger.put(CELL, poison, b"")
    tried = []
    for bp in (5_000, 5_000, 5_000, 0, 10_000, 5_000, 0):
        batch.share(bp)
        for arm in ("canary", "baseline"):
            tried += [arm] if batch.ledger.take(CELL, arm, "w") is not None else []
            batch.clock.advance(timedelta(seconds=31))
    assert tried == ["canary", "baseline", "baseline"]
    assert batch.ledger.counts(CELL)["dead"] == 1


def test_consumers_that_die_on_the_target_show_in_its_evidence(batch: Batch) -> None:
    batch.share(5_000)
    for n in range(120):
        batch.ledger.put(CELL, f"job-{n}", b"{}")
    for _ in range(3):
        while (job := batch.ledger.take(CELL, "canary", "w")) is not None:
            if int(job.id.partition("-")[2]) % 3 or not job.claim.endswith("#1"):
                batch.ledger.finish(job, ok=True)
        batch.clock.advance(timedelta(seconds=31))
    batch.ledger.tell()
    target = [row["st"] for row in batch.rows() if row["a"] == "canary"]
    assert 0.15 <= target.count(500) / len(target) <= 0.4


def test_a_log_that_cannot_be_written_holds_up_neither_work_nor_going_home(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    batch.share(5_000)
    batch.log.parent.write_text("a file where the folder should be")
    batch.ledger.put(CELL, "a", b"")
    job = batch.ledger.take(CELL, "canary", "w") or batch.ledger.take(CELL, "baseline", "w")
    assert job is not None
    assert batch.ledger.finish(job, ok=True)
    again = WorkSplit("nightly", Ledger(batch.path, log=batch.log, now=batch.clock.now), sources={CELL: SOURCE})
    assert again.read(CELL).target_bp == 5_000
    batch.log.parent.unlink()
    assert batch.ledger.tell() == 1


def test_after_a_way_home_no_job_is_begun_on_the_target_and_what_runs_there_may_end(batch: Batch) -> None:
    for n in range(100):
        batch.ledger.put(CELL, f"job-{n}", b"{}")
    batch.share(10_000)
    held = [job for _ in range(5) if (job := batch.ledger.take(CELL, "canary", "w")) is not None]
    token = batch.split.read(CELL).token
    assert batch.ledger.open_jobs(CELL, on_target=True) == 5
    batch.share(0)
    assert batch.ledger.take(CELL, "canary", "w") is None
    assert batch.ledger.finish(held[0], ok=True)
    batch.clock.advance(timedelta(seconds=31))
    rest = sum(batch.ledger.take(CELL, "baseline", "w") is not None for _ in range(100))
    assert rest == 99, "what the target held too long is the source's now"
    assert batch.split.read(CELL).token > token


def test_the_log_is_evidence_and_a_crash_before_it_is_made_good(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    batch.share(5_000)
    batch.log.parent.mkdir()
    source = RouterLogEvidence(batch.log.parent, now=batch.clock.now)
    mark = source.mark(CELL)
    source.read(CELL, mark)
    for n in range(60):
        batch.ledger.put(CELL, f"job-{n}", b"{}")
    monkeypatch.setattr(Ledger, "_append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    n = 0
    for arm in ("canary", "baseline"):
        while (job := batch.ledger.take(CELL, arm, "w")) is not None:
            n += 1
            with pytest.raises(KeyboardInterrupt):
                batch.ledger.finish(job, ok=arm == "baseline" or n % 5 != 0)
    assert batch.rows() == []
    monkeypatch.undo()
    Ledger(batch.path, log=batch.log, now=batch.clock.now)
    counts = source.read(CELL, mark).arms
    assert counts["canary"].attempts + counts["baseline"].attempts == 60
    assert counts["baseline"].errors == 0
    assert counts["canary"].errors > 0


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_nothing_is_lost_or_done_twice_whoever_dies_when(tmp_path_factory: pytest.TempPathFactory, seed: int, jobs: int) -> None:
    history(tmp_path_factory, seed, jobs)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_nothing_is_lost_or_done_twice_in_many_histories(tmp_path_factory: pytest.TempPathFactory, seed: int, jobs: int) -> None:
    history(tmp_path_factory, seed, jobs)


def history(tmp_path_factory: pytest.TempPathFactory, seed: int, jobs: int) -> None:
    """Play one; in memory where there is such a place: on a slow disk 400 of them take longer than any test may."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path_factory.mktemp("work")) as fast:
        _history(Batch(Path(fast), most_tries=1_000), seed, jobs)


def _history(batch: Batch, seed: int, jobs: int) -> None:
    rng = random.Random(seed)
    for n in range(jobs):
        batch.ledger.put(CELL, f"job-{n}", b"{}")
    counted: list[str] = []
    held: list[Job] = []
    arms: tuple[Arm, Arm] = ("baseline", "canary")
    for _ in range(10_000):
        if batch.ledger.counts(CELL)["good"] == jobs:
            break
        match rng.choice(("take", "take", "finish", "finish", "die", "time", "share", "renew")):
            case "take":
                job = batch.ledger.take(CELL, rng.choice(arms), f"w{rng.randrange(4)}")
                held += [job] if job is not None else []
            case "finish" if held:
                job = held.pop(rng.randrange(len(held)))
                counted += [job.id] if batch.ledger.finish(job, ok=True) else []
                if rng.random() < 0.2:
                    assert not batch.ledger.finish(job, ok=True), "a result that is told twice counts once"
            case "die" if held:
                held.pop(rng.randrange(len(held)))
            case "renew" if held:
                batch.ledger.renew(rng.choice(held))
            case "time":
                batch.clock.advance(timedelta(seconds=rng.choice((1, 10, 31))))
            case "share":
                batch.share(rng.choice((0, 1_000, 5_000, 10_000)))
            case _:
                pass
    assert sorted(counted) == sorted(f"job-{n}" for n in range(jobs))
    assert len([row for row in batch.rows() if row["st"] == 200]) == jobs
    assert len(batch.rows()) <= 3 * jobs, "a lost try counts once per job and side"


def test_the_file_is_its_owners_alone_and_a_broken_one_is_told(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    assert batch.path.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(batch.path) as db:
        db.execute("DROP TABLE jobs")
    db.close()
    with pytest.raises(Exception, match="no such table") as told:
        batch.ledger.take(CELL, "canary", "w")
    assert getattr(told.value, "code", "") == "traffic.router_down"


def test_going_home_finds_its_moment_among_consumers_that_write_all_the_time(tmp_path: Path) -> None:
    batch, stop = Batch(tmp_path), threading.Event()

    def hog() -> None:
        """Write for 50 ms and leave the file free for a moment, again and again, as a busy consumer on a slow disk does."""
        db = sqlite3.connect(batch.path, isolation_level=None, timeout=20)
        while not stop.is_set():
            db.execute("BEGIN IMMEDIATE")
            time.sleep(0.05)
            db.execute("COMMIT")
            time.sleep(0.001)
        db.close()

    hogs = [threading.Thread(target=hog) for _ in range(2)]
    for one in hogs:
        one.start()
    try:
        for bp in (5_000, 0, 5_000, 0):
            began = time.monotonic()
            batch.share(bp)
            assert time.monotonic() - began < 2.0, "P3: home within 2 s"
    finally:
        stop.set()
        for one in hogs:
            one.join()
    assert batch.split.read(CELL).target_bp == 0


def test_what_came_of_a_job_of_another_queue_counts_once_and_is_evidence(batch: Batch) -> None:
    began = batch.clock.now()
    assert batch.ledger.note(CELL, "message-1", "canary", ok=True, taken=began)
    assert not batch.ledger.note(CELL, "message-1", "baseline", ok=False, taken=began)
    assert batch.ledger.note(CELL, "message-2", "canary", ok=False, taken=began)
    tried = [batch.ledger.hand(CELL, f"message-{n}", "canary", began, hold_s=30, most_tries=3) for n in (1, 3, 3)]
    assert tried == ["ended", "given", "held"]
    assert sorted((row["a"], row["st"]) for row in batch.rows()) == [("canary", 200), ("canary", 500)]


def test_a_job_of_the_ledger_longer_than_its_hold_is_done_once_where_its_consumer_lives(batch: Batch) -> None:
    batch.ledger.put(CELL, "long", b"")
    job = batch.ledger.take(CELL, "baseline", "w")
    assert job is not None
    for _ in range(20):
        batch.clock.advance(timedelta(seconds=10))
        assert batch.ledger.take(CELL, "baseline", "other") is None
        assert batch.ledger.renew(job)
    assert batch.ledger.finish(job, ok=True)
    assert not batch.ledger.renew(job)
    assert [(row["a"], row["st"], row["ta"]) for row in batch.rows()] == [("baseline", 200, 200_000)]
    assert tries_at(batch, "jobs") == [1]


def test_a_hold_that_lapsed_cannot_be_renewed(batch: Batch) -> None:
    batch.ledger.put(CELL, "a", b"")
    job = batch.ledger.take(CELL, "baseline", "w1")
    assert job is not None
    batch.clock.advance(timedelta(seconds=31))
    assert not batch.ledger.renew(job)
    assert batch.ledger.take(CELL, "baseline", "w2") is not None
    assert not batch.ledger.renew(job)


def tries_at(batch: Batch, table: str) -> list[int]:
    with closing(sqlite3.connect(batch.path)) as db:
        return [row[0] for row in db.execute(f"SELECT tries FROM {table}")]


@pytest.mark.parametrize("kept", [-1, 0, 1, 40, 10_000])
def test_results_that_were_written_but_not_committed_when_a_consumer_was_killed_stand_once(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Killed after all bytes of its lines, or after `kept` of them, or all but one."""
    for n in range(5):
        batch.ledger.put(CELL, f"job-{n}", b"{}")
    first = batch.ledger.take(CELL, "baseline", "w")
    assert first is not None
    batch.ledger.finish(first, ok=True)
    real = Ledger._append

    def dies(ledger: Ledger, lines: list[bytes]) -> None:
        before = batch.log.stat().st_size
        real(ledger, lines)
        after = batch.log.stat().st_size
        os.truncate(batch.log, min(after, before + kept) if kept >= 0 else after + kept)
        raise KeyboardInterrupt

    for ok in (True, False):
        job = batch.ledger.take(CELL, "baseline", "w")
        assert job is not None
        with monkeypatch.context() as killed:
            killed.setattr(Ledger, "_append", dies)
            with pytest.raises(KeyboardInterrupt):
                batch.ledger.finish(job, ok=ok)
    job = batch.ledger.take(CELL, "baseline", "w")
    assert job is not None
    batch.ledger.finish(job, ok=True)
    assert [(row["id"], row["st"]) for row in batch.rows()] == [("job-0", 200), ("job-1", 200), ("job-2", 500), ("job-3", 200)]


def test_a_result_of_which_a_full_disk_takes_only_a_part_at_a_time_is_written_whole(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    batch.ledger.put(CELL, "a", b"")
    job = batch.ledger.take(CELL, "baseline", "w")
    assert job is not None
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, text: write(handle, bytes(text)[:7]))
    assert batch.ledger.finish(job, ok=True)
    assert [row["id"] for row in batch.rows()] == ["a"]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "lustre"])
def test_a_queue_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(ledger, "network_filesystem", lambda path: kind if path == str(tmp_path / "work.db") else None)
    with pytest.raises(TrafficNotApplied, match=f"network file system .{kind}.") as refused:
        Ledger(tmp_path / "work.db")
    assert refused.value.code == "traffic.router_down"
    assert not (tmp_path / "work.db").exists()
    Ledger(tmp_path / "other.db")
