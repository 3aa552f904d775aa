"""Batch work: share by bucket, nothing lost or counted twice through kills, a poison job counted once, nothing new after a way home."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.adapters.routers.work import ledger, sqs
from fleetctl.adapters.routers.work.board import Posted, WorkSplit
from fleetctl.adapters.routers.work.ledger import Job, Ledger, bucket_of
from fleetctl.adapters.routers.work.sqs import TAG, TOKEN_TAG, Look, SqsBoard, SqsConsumer, may_take
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Served, Split
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


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 60))
def test_the_targets_consumers_never_exceed_the_share_however_many_either_side_has(bp: int, target: int, source: int) -> None:
    look = Look(posted=Posted(bp=bp), consumers={"canary": target, "baseline": source})
    canary = sum(may_take(look, "canary", i) for i in range(target))
    baseline = sum(may_take(look, "baseline", i) for i in range(source))
    assert canary + baseline >= 1, "somebody works"
    assert canary * 10_000 <= bp * (canary + baseline)
    if canary < target and bp < 10_000:  # one more of the target's would be too many, and no source's consumer idles for nothing
        assert baseline == source
        assert (canary + 1) * 10_000 > bp * (canary + 1 + baseline)
    if canary and baseline:
        assert canary == target or baseline == source
        assert baseline == source or canary * 10_000 > bp * (canary + baseline - 1), "one fewer of the source's would be too few"


@pytest.mark.parametrize("announced", [{}, {"canary": 3}, {"baseline": 3}])
def test_while_a_side_has_not_said_how_many_it_has_the_target_takes_nothing_below_the_whole_share(announced: dict[Arm, int]) -> None:
    for bp in (0, 1_000, 9_999):
        look = Look(posted=Posted(bp=bp), consumers=announced)
        assert not any(may_take(look, "canary", i) for i in range(3))
        assert sum(may_take(look, "baseline", i) for i in range(3)) == announced.get("baseline", 0)


def test_a_fifth_of_the_consumers_do_half_of_the_work_at_half_the_share() -> None:
    look = Look(posted=Posted(bp=5_000), consumers={"canary": 10, "baseline": 2})
    assert sum(may_take(look, "canary", i) for i in range(10)) == sum(may_take(look, "baseline", i) for i in range(2)) == 2


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


class Queue:
    """An SQS client in memory: hides what it gave as long as it was told to, on the clock of a batch, then gives it again."""

    def __init__(self, clock: FakeClock, messages: dict[str, str], bp: int = 10_000) -> None:
        self.clock, self.messages, self.received, self.given_back, self.looks = clock, messages, 0, 0, 0
        self.bp = self.bp_after_poll = bp
        """Share in the tag, before a message is given and from then on; -1: AWS throttles the question."""
        self.tags: dict[str, str] = {}
        self.hidden: dict[str, datetime] = {}

    def list_queue_tags(self, **_: object) -> dict[str, object]:
        self.looks += 1
        if self.bp < 0:
            raise ValueError("ThrottlingException")
        return {"Tags": self.tags | {TAG: f"{self.bp}/10000:1:9:0", TOKEN_TAG: "1"}}

    def tag_queue(self, *, QueueUrl: str, Tags: dict[str, str]) -> None:  # noqa: N803 - AWS's names
        self.tags |= Tags

    def receive_message(self, *, VisibilityTimeout: int, **_: object) -> dict[str, object]:  # noqa: N803
        shown = [i for i in self.messages if self.hidden.get(i, self.clock.now()) <= self.clock.now()][:1]
        self.received, self.bp = self.received + len(shown), self.bp_after_poll
        self.hidden |= {i: self.clock.now() + timedelta(seconds=VisibilityTimeout) for i in shown}
        return {"Messages": [{"MessageId": i, "Body": self.messages[i], "ReceiptHandle": i} for i in shown]}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:  # noqa: N803
        del self.messages[ReceiptHandle]

    def change_message_visibility(self, *, QueueUrl: str, ReceiptHandle: str, VisibilityTimeout: int) -> None:  # noqa: N803
        self.given_back += VisibilityTimeout == 0
        self.hidden[ReceiptHandle] = self.clock.now() + timedelta(seconds=VisibilityTimeout)


def consumers(batch: Batch, queue: Queue, *arms: Arm, hold_s: int = 30) -> list[SqsConsumer]:
    """Return the only consumer of each side, on one board."""
    board = SqsBoard(lambda: queue, {CELL: "http://q"}, lambda *_: Served(baseline=0, canary=0))
    return [
        SqsConsumer(
            board, queue, "http://q", CELL, arm, index=0, of=1, results=batch.ledger, hold_s=hold_s, most_tries=3, now=batch.clock.now
        )
        for arm in arms
    ]


def test_a_message_that_comes_again_after_its_result_is_not_worked_at_and_a_poison_one_counts_once_and_stays(batch: Batch) -> None:
    queue = Queue(batch.clock, {"a": "1"})
    (consumer,) = consumers(batch, queue, "canary")
    message = consumer.take()
    assert message is not None
    assert batch.ledger.note(CELL, message.id, "canary", ok=True, taken=message.at), "killed before it could delete it"
    batch.clock.advance(timedelta(seconds=31))
    assert consumer.take() is None
    assert queue.messages == {}
    queue.messages = {"poison": "2"}
    tries = []
    for _ in range(6):
        tries.append(consumer.take() is not None)
        batch.clock.advance(timedelta(seconds=31))
    assert tries == [True, True, True, False, False, False]
    assert queue.messages == {"poison": "2"}, "it is not ours to delete"
    assert queue.received == 2 + 6, "SQS counts what it gave: its redrive policy sees it"
    assert sorted((row["a"], row["st"]) for row in batch.rows()) == [("canary", 200), ("canary", 500)]
    assert batch.ledger.counts(CELL) == {"waiting": 0, "taken": 0, "good": 1, "bad": 0, "dead": 1}


def test_a_message_that_never_comes_again_is_still_a_failure_of_the_side_that_lost_it(batch: Batch) -> None:
    queue = Queue(batch.clock, {"a": "1"})
    (consumer,) = consumers(batch, queue, "canary")
    assert consumer.take() is not None
    queue.messages = {}  # a redrive policy took it
    assert consumer.take() is None
    assert batch.rows() == [], "it is held"
    batch.clock.advance(timedelta(seconds=31))
    assert [consumer.take() for _ in range(2)] == [None, None]
    assert [(row["a"], row["st"]) for row in batch.rows()] == [("canary", 500)]


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
    assert _tries(batch, "jobs") == [1]


def test_a_hold_that_lapsed_cannot_be_renewed(batch: Batch) -> None:
    batch.ledger.put(CELL, "a", b"")
    job = batch.ledger.take(CELL, "baseline", "w1")
    assert job is not None
    batch.clock.advance(timedelta(seconds=31))
    assert not batch.ledger.renew(job)
    assert batch.ledger.take(CELL, "baseline", "w2") is not None
    assert not batch.ledger.renew(job)


def test_a_message_longer_than_its_hold_is_done_once_where_its_consumer_lives(batch: Batch) -> None:
    queue = Queue(batch.clock, {"long": "1"}, bp=5_000)
    source, target = consumers(batch, queue, "baseline", "canary")
    source.is_open(), target.is_open()
    message = source.take()
    assert message is not None
    for _ in range(10):
        batch.clock.advance(timedelta(seconds=10))
        assert target.take() is None
        assert source.renew(message)
    assert _tries(batch, "holds") == [1]
    queue.hidden = {}  # SQS may give a message twice; the one who holds it keeps it
    assert target.take() is None
    assert (queue.received, queue.given_back) == (2, 0)
    assert source.done(message)
    assert queue.messages == {}
    assert [(row["a"], row["st"], row["ta"]) for row in batch.rows()] == [("baseline", 200, 100_000)]
    assert not source.renew(message)


def test_a_message_whose_hold_lapsed_is_the_others_and_its_late_consumer_is_told(batch: Batch) -> None:
    queue = Queue(batch.clock, {"a": "1"}, bp=5_000)
    source, target = consumers(batch, queue, "baseline", "canary")
    source.is_open(), target.is_open()
    first = target.take()
    assert first is not None
    batch.clock.advance(timedelta(seconds=31))
    second = source.take()
    assert second is not None
    assert not target.renew(first)
    assert source.renew(second)
    assert source.done(second)
    assert sorted((row["a"], row["st"]) for row in batch.rows()) == [("baseline", 200), ("canary", 500)]


def _tries(batch: Batch, table: str) -> list[int]:
    with closing(sqlite3.connect(batch.path)) as db:
        return [row[0] for row in db.execute(f"SELECT tries FROM {table}")]


def test_a_message_that_went_back_untouched_was_never_tried_and_a_lost_one_is_charged_to_the_side_that_had_it(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a side that was closed after the poll nor a throttled look nor a results file that fails makes a try, however often."""
    monkeypatch.setattr(sqs, "LOOK_S", 0.0)
    queue = Queue(batch.clock, {"a": "1"})
    target, source = consumers(batch, queue, "canary", "baseline")
    source.is_open()
    for _ in range(5):
        queue.bp, queue.bp_after_poll = 10_000, 0
        assert target.take() is None
    for _ in range(5):
        queue.bp, queue.bp_after_poll = 10_000, -1
        with pytest.raises(TrafficNotApplied, match="Throttling"):
            target.take()
    queue.bp = queue.bp_after_poll = 10_000
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "hand", lambda *_, **__: (_ for _ in ()).throw(TrafficNotApplied("traffic.router_down", "busy")))
        with pytest.raises(TrafficNotApplied, match="busy"):
            target.take()
    assert (queue.received, queue.given_back, queue.messages) == (11, 11, {"a": "1"})
    for _ in range(3):
        assert target.take() is not None, "and each of these consumers dies"
        batch.clock.advance(timedelta(seconds=31))
    queue.bp = queue.bp_after_poll = 0
    assert source.take() is None
    assert queue.messages == {"a": "1"}
    assert [(row["a"], row["st"]) for row in batch.rows()] == [("canary", 500)]


def test_fifty_consumers_of_a_process_ask_aws_as_often_as_one(batch: Batch) -> None:
    queue = Queue(batch.clock, {}, bp=5_000)
    board = SqsBoard(lambda: queue, {CELL: "http://q"}, lambda *_: Served(baseline=0, canary=0))
    board.announce(CELL, "baseline", 50)
    many = [SqsConsumer(board, queue, "http://q", CELL, "baseline", index=i, of=50) for i in range(50)]
    assert queue.looks == 1
    with ThreadPoolExecutor(50) as pool:
        for _ in range(4):
            began = queue.looks, time.monotonic()
            assert all(pool.map(SqsConsumer.is_open, many))
            assert queue.looks - began[0] <= 1 + (time.monotonic() - began[1]) // sqs.LOOK_S
    board._places[CELL].began -= sqs.LOOK_S
    queue.bp, before = -1, queue.looks
    for consumer in many:
        with pytest.raises(TrafficNotApplied, match="Throttling"):
            consumer.is_open()
    assert queue.looks == before + 1, "a queue that throttles is not asked by each of them"


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
