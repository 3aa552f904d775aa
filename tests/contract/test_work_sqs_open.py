"""SQS on moto: which jobs are still open on a side, so that a pool behind a busy queue can be given back; where a poison message ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.routers.work import board as board_module
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import LONGEST_S, SqsBoard, SqsConsumer
from fleetctl.domain.evidence import Arm
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import PoolId, Token
from fleetctl.domain.split import Applied, Drained, Served, Split
from fleetctl.errors import TrafficNotApplied
from fleetctl.wiring.routers import make_router
from tests.fakes.alb_plane import client
from tests.fakes.moto_account import moto_server
from tests.lab.haproxy_lab import CELL, SOURCE, TARGET

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("moto")) as url:
        yield url


class Busy:
    """A queue with many jobs, a consumer of each side, and the router that fleetctl makes of the fleet file's settings."""

    def __init__(self, url: str, folder: Path, *, results: bool) -> None:
        self.sqs = client(url, "sqs")
        name = folder.name.replace("_", "-")[-40:]
        self.queue = self.sqs.create_queue(QueueName=name)["QueueUrl"].replace("localhost", "127.0.0.1")
        self.results = Ledger(folder / "results.db", log=folder / "log" / "work-1.log")
        self.folder = folder
        settings = {"queue": self.queue, "region": "us-east-1", "log_folder": str(folder / "log"), "endpoint": url}
        settings |= {"results": str(folder / "results.db")} if results else {}
        connection = Connection(name="nightly", kind="sqs", settings=settings)
        self.router: WorkSplit = make_router(connection, {CELL: SOURCE}, {})  # type: ignore[assignment]
        self.router._board._client = lambda: self.sqs  # type: ignore[attr-defined]
        self.board = SqsBoard(lambda: self.sqs, {CELL: self.queue}, lambda *_: Served(baseline=0, canary=0))
        self.token = 0

    def share(self, bp: int) -> None:
        self.token += 1
        self.router.fence(CELL, Token(self.token))
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=3)
        assert isinstance(self.router.set(Split(cell=CELL, target_bp=bp, cap_bp=10_000, token=Token(self.token), lease_until=at)), Applied)
        self.board._places[CELL].found = None

    def consumer(self, arm: Arm, **more: Any) -> SqsConsumer:
        return SqsConsumer(self.board, self.sqs, self.queue, CELL, arm, index=0, of=1, results=self.results, **more)

    def put(self, n: int) -> None:
        for i in range(n):
            self.sqs.send_message(QueueUrl=self.queue, MessageBody=str(i))

    def open(self, pool: PoolId) -> int:
        found = self.router.drain(CELL, pool, Token(self.token))
        assert isinstance(found, Drained)
        return found.open_streams


@pytest.mark.parametrize("way", ["home", "over"])
def test_a_side_is_drained_once_its_own_jobs_are_over_however_busy_the_other_is(moto: str, tmp_path: Path, way: str) -> None:
    busy = Busy(moto, tmp_path, results=True)
    sides: tuple[Arm, Arm] = ("canary", "baseline") if way == "home" else ("baseline", "canary")
    left, goes_on = sides
    pools = {"canary": TARGET, "baseline": SOURCE}
    busy.put(12)
    busy.share(10_000 if left == "canary" else 0)
    consumer = busy.consumer(left)
    held = [message for _ in range(3) if (message := consumer.take()) is not None]
    assert len(held) == 3
    busy.share(0 if left == "canary" else 10_000)
    other = busy.consumer(goes_on)
    assert consumer.take() is None
    working = [message for _ in range(4) if (message := other.take()) is not None]
    assert len(working) == 4
    assert (busy.open(pools[left]), busy.open(pools[goes_on])) == (3, 4)
    for message in held:
        assert consumer.renew(message)
        assert consumer.done(message)
    assert (busy.open(pools[left]), busy.open(pools[goes_on])) == (0, 4), "a busy queue keeps no pool from being given back"


def test_a_consumer_that_died_holds_nothing_once_its_hold_is_over(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(moto, tmp_path, results=True)
    busy.put(1)
    busy.share(10_000)
    assert busy.consumer("canary", hold_s=30).take() is not None
    assert busy.open(TARGET) == 1
    at = datetime.now(UTC) + timedelta(seconds=31)
    monkeypatch.setattr(Ledger.__init__, "__kwdefaults__", {**(Ledger.__init__.__kwdefaults__ or {}), "now": lambda: at})
    assert busy.open(TARGET) == 0


def test_where_nobody_tells_whose_messages_are_in_flight_a_side_is_drained_when_sqs_lets_it_hold_none(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy(moto, tmp_path, results=False)
    assert busy.open(TARGET) == 0
    busy.put(5)
    busy.share(10_000)
    target = busy.consumer("canary")
    assert target.take() is not None
    busy.share(0)
    source = busy.consumer("baseline")
    assert source.take() is not None
    assert busy.open(TARGET) == 2, "neither is told from the other"
    real = board_module.now_ms()
    for after_s, open_jobs in ((LONGEST_S - 60, 2), (LONGEST_S + 60, 0)):
        monkeypatch.setattr("fleetctl.adapters.routers.work.sqs.now_ms", lambda after_s=after_s: real + round(after_s * 1_000))
        assert busy.open(TARGET) == open_jobs, after_s
        assert busy.open(SOURCE) == 2, "it has its share: it may hold any of them"


def test_a_results_file_that_is_not_there_is_told_and_not_made(moto: str, tmp_path: Path) -> None:
    busy = Busy(moto, tmp_path, results=True)
    busy.share(0)
    (tmp_path / "results.db").unlink()
    with pytest.raises(TrafficNotApplied, match="is not there"):
        busy.open(TARGET)
    assert not (tmp_path / "results.db").exists()


def test_a_message_that_is_dead_is_moved_to_the_named_dead_letter_queue_and_counts_once(moto: str, tmp_path: Path) -> None:
    busy = Busy(moto, tmp_path, results=True)
    dead = busy.sqs.create_queue(QueueName="dead-letters")["QueueUrl"].replace("localhost", "127.0.0.1")
    busy.share(0)
    sent = busy.sqs.send_message(QueueUrl=busy.queue, MessageBody="poison")["MessageId"]
    consumers = [busy.consumer("baseline", hold_s=1, most_tries=2, dead_letter=dead) for _ in range(2)]
    for _ in range(2):
        assert _taken(consumers[0]) == "poison", "and its consumer dies"
    assert _taken(consumers[1], until=lambda: bool(_in(busy, busy.queue) == 0)) is None
    (moved,) = busy.sqs.receive_message(QueueUrl=dead, MessageAttributeNames=["All"], WaitTimeSeconds=5)["Messages"]
    said = {name: value["StringValue"] for name, value in moved["MessageAttributes"].items()}
    assert (moved["Body"], said) == ("poison", {"fleetctl.cell": CELL, "fleetctl.message": sent})
    assert (_in(busy, busy.queue), busy.results.counts(CELL)["dead"]) == (0, 1)
    assert [one.id for one in busy.results.dead(CELL)] == [sent]
    rows = [json.loads(line) for line in (tmp_path / "log" / "work-1.log").read_text().splitlines()]
    assert [(row["id"], row["st"]) for row in rows] == [(f"{sent}/lost/baseline", 500)], "one failure of the side that lost it"


def _in(busy: Busy, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    return sum(map(int, busy.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()))


def _taken(consumer: SqsConsumer, until: Any = lambda: False) -> str | None:
    end = datetime.now(UTC) + timedelta(seconds=30)
    while datetime.now(UTC) < end and not until():
        if (message := consumer.take()) is not None:
            return message.body
    return None
