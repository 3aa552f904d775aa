"""SQS: the share by both sides' consumers, holds that are renewed, what is lost, poison messages, and how often AWS is asked."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.adapters.routers.work import sqs
from fleetctl.adapters.routers.work.board import Posted
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import TAG, TOKEN_TAG, Look, SqsBoard, SqsConsumer, may_take
from fleetctl.domain.evidence import Arm
from fleetctl.domain.split import Served
from fleetctl.errors import TrafficNotApplied
from tests.fakes.clock import FakeClock
from tests.unit.test_work_ledger import CELL, Batch, tries_at


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path)


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
    board = SqsBoard(lambda: queue, {CELL: "http://q"}, lambda *_: Served(baseline=0, canary=0), now=batch.clock.now)
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
    assert tries_at(batch, "holds") == [1]
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
    assert target.take() is None
    assert queue.messages == {"a": "1"}
    assert [(row["a"], row["st"]) for row in batch.rows()] == [("canary", 500)]


@pytest.mark.parametrize(("bp", "dies"), [(5_000, 1), (10_000, 1), (10_000, 5)])
def test_a_message_that_only_the_target_lost_is_done_by_the_source_and_by_nobody_else_while_it_has_a_share(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, bp: int, dies: int
) -> None:
    monkeypatch.setattr(sqs, "LOOK_S", 0.0)
    queue = Queue(batch.clock, {"a": "1"}, bp=bp)
    target, source = consumers(batch, queue, "canary", "baseline")
    source.is_open(), target.is_open()
    for _ in range(dies):
        target.take()
        batch.clock.advance(timedelta(seconds=31))
    queue.bp = queue.bp_after_poll = 5_000
    assert target.take() is None, "the target gets it again from SQS and leaves it"
    batch.clock.advance(timedelta(seconds=31))
    message = source.take()
    assert message is not None
    assert source.done(message)
    assert queue.messages == {}
    assert sorted((row["a"], row["st"]) for row in batch.rows()) == [("baseline", 200), ("canary", 500)]
    assert batch.ledger.counts(CELL)["good"] == 1


def test_a_message_that_both_sides_lost_is_dead(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs, "LOOK_S", 0.0)
    queue = Queue(batch.clock, {"poison": "1"}, bp=5_000)
    target, source = consumers(batch, queue, "canary", "baseline")
    source.is_open(), target.is_open()
    tried = []
    for consumer in (target, source, source, source, target, source):
        tried.append(consumer.take() is not None)
        batch.clock.advance(timedelta(seconds=31))
    assert tried == [True, True, True, False, False, False]
    assert batch.ledger.counts(CELL)["dead"] == 1


def test_fifty_consumers_of_a_process_ask_aws_as_often_as_one(batch: Batch) -> None:
    queue = Queue(batch.clock, {}, bp=5_000)
    board = SqsBoard(lambda: queue, {CELL: "http://q"}, lambda *_: Served(baseline=0, canary=0))
    board.announce(CELL, "baseline", 50, 300)
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


@pytest.mark.parametrize("hold_s", [1, 60, 300, 43_200])
@pytest.mark.parametrize("bp", [100, 1_000, 5_000, 9_900])
def test_a_target_whose_source_has_died_takes_nothing_below_the_whole_share_and_again_when_it_is_back(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, hold_s: int, bp: int
) -> None:
    monkeypatch.setattr(sqs, "LOOK_S", 0.0)
    queue = Queue(batch.clock, {}, bp=bp)
    target, source = consumers(batch, queue, "canary", "baseline", hold_s=hold_s)
    queue.tags |= {sqs.COUNT_TAG["canary"]: "1"}  # what a consumer has told that knows no time
    source._of = 9_999
    assert source.is_open()
    target._of = 1
    assert target.is_open()
    for _ in range(20):  # the source lives: it takes, or works at something and renews it
        batch.clock.advance(timedelta(seconds=100))
        assert source.is_open()
        assert target.is_open()
    died = batch.clock.now()
    while target.is_open():  # and dies
        batch.clock.advance(timedelta(seconds=30))
    assert timedelta(seconds=120) <= batch.clock.now() - died <= timedelta(seconds=390)
    for _ in range(5):
        batch.clock.advance(timedelta(minutes=10))
        assert not target.is_open()
    queue.bp = 10_000
    assert target.is_open(), "everything is the target's"
    queue.bp = bp
    assert source.is_open()
    assert target.is_open()


def test_a_side_that_works_and_renews_lives_and_tells_so_once_a_minute(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs, "LOOK_S", 0.0)
    queue = Queue(batch.clock, {"long": "1"}, bp=5_000)
    told: list[dict[str, str]] = []
    tag = queue.tag_queue

    def noting(**given: Any) -> None:
        told.append(given["Tags"])
        tag(**given)

    monkeypatch.setattr(queue, "tag_queue", noting)
    source, target = consumers(batch, queue, "baseline", "canary", hold_s=60)
    message = source.take()
    assert message is not None
    for _ in range(60):
        batch.clock.advance(timedelta(seconds=30))
        assert source.renew(message)
        assert target.is_open()
    for arm in ("baseline", "canary"):
        assert 25 <= sum(sqs.COUNT_TAG[arm] in t for t in told) <= 32


@pytest.mark.parametrize("until", ["", "x", "-5", "0", "99999999999"])
def test_what_a_side_has_told_without_a_time_that_can_be_is_nothing(batch: Batch, until: str) -> None:
    queue = Queue(batch.clock, {}, bp=5_000)
    queue.tags = {sqs.COUNT_TAG["baseline"]: "5", sqs.UNTIL_TAG["baseline"]: until}
    (target,) = consumers(batch, queue, "canary")
    assert not target.is_open()
