"""Batch work with real consumers that are killed at random: every job ends once, and none begins on the target after the way home."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import TAG, TOKEN_TAG, Message, SqsBoard, SqsConsumer
from fleetctl.domain.split import Served
from tests.fakes.alb_plane import client
from tests.fakes.moto_account import moto_server
from tests.lab.haproxy_lab import until
from tests.lab.work_kills import CELL, Killed, kills, sqs_kills

pytestmark = [pytest.mark.lab, pytest.mark.crash]


def test_consumers_killed_at_random_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    assert kills(tmp_path, jobs=200, rounds=6, seed=1) == Killed(jobs=200, lost=0, double=0, late=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_consumers_killed_many_times_lose_nothing_and_do_nothing_twice(tmp_path: Path, seed: int) -> None:
    assert kills(tmp_path, jobs=3_000, rounds=50, seed=seed) == Killed(jobs=3_000, lost=0, double=0, late=0)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n == 0 else pytest.mark.slow) for n in range(10)])
def test_consumers_of_sqs_killed_at_random_lose_nothing_and_no_result_counts_twice(tmp_path: Path, seed: int) -> None:
    with moto_server(tmp_path) as url:
        assert sqs_kills(tmp_path, url, jobs=40, rounds=6, seed=seed) == Killed(jobs=40, lost=0, double=0, late=0)


def test_a_poison_message_ends_in_the_queues_redrive_and_a_long_one_is_done_once(tmp_path: Path) -> None:
    """At one message every consumer dies; the other takes longer than two holds, which a thread beside it renews."""
    with moto_server(tmp_path) as url:
        sqs = client(url, "sqs")
        dead = sqs.create_queue(QueueName="dead")["QueueUrl"].replace("localhost", "127.0.0.1")
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "4"})
        made = sqs.create_queue(QueueName="nightly", Attributes={"RedrivePolicy": policy})
        queue = made["QueueUrl"].replace("localhost", "127.0.0.1")
        sqs.tag_queue(QueueUrl=queue, Tags={TAG: "10000/10000:1:9:0", TOKEN_TAG: "1"})
        results = Ledger(tmp_path / "results.db", log=tmp_path / "log" / "work-1.log")
        board = SqsBoard(lambda: sqs, {CELL: queue}, lambda *_: Served(baseline=0, canary=0))
        first, second = (SqsConsumer(board, sqs, queue, CELL, "canary", index=i, of=2, results=results, hold_s=2) for i in range(2))

        sqs.send_message(QueueUrl=queue, MessageBody="long")
        held = list[Message]()

        def is_taken() -> bool:
            held.extend(m for m in [first.take()] if m is not None)
            return bool(held)

        until(is_taken, "it is taken", 10.0)
        (message,) = held
        with beating(first, message) as renewals:
            while first._now() < message.at + timedelta(seconds=5):
                assert second.take() is None
        assert renewals
        assert all(renewals)
        assert first.done(message)

        sent = sqs.send_message(QueueUrl=queue, MessageBody="poison")["MessageId"]
        tries = list[Message]()

        def is_dead() -> bool:
            tries.extend(m for m in [first.take()] if m is not None)
            return _waiting(sqs, dead) == 1

        until(is_dead, "it is in the dead-letter queue", 30.0)
        assert [one.id for one in tries] == [sent] * 3
        assert _waiting(sqs, queue) == 0
        rows = [json.loads(line) for line in (tmp_path / "log" / "work-1.log").read_text().splitlines()]
        assert [(row["id"], row["st"]) for row in rows] == [(message.id, 200), (f"{sent}/lost/canary", 500)]


@contextmanager
def beating(consumer: SqsConsumer, message: Message) -> Iterator[list[bool]]:
    """Renew a message's hold as long as the block runs; what each renewal answered."""
    stop, answers = threading.Event(), list[bool]()

    def beat() -> None:
        while not stop.wait(0.2):
            answers.append(consumer.renew(message))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


def _waiting(sqs: Any, queue: str) -> int:
    name = "ApproximateNumberOfMessages"
    return int(sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])["Attributes"][name])
