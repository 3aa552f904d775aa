"""What comes late, or never, of a write: no call to a single writer's target outlasts its limit, and no late change is the last word.

For SQS (ALB's own tests stand in tests/contract/test_router_clouds.py), for the files of an HAProxy without our Lua, and for a queue's
database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers import open_writes
from fleetctl.adapters.routers.haproxy import router as haproxy
from fleetctl.adapters.routers.haproxy.maps import read_standing, write_standing
from fleetctl.adapters.routers.haproxy.router import HaproxyRouter
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import TAG, TOKEN_TAG, SqsBoard
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import HOME_TOKEN_STEP, Returned
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Applied, Served, Split, Stale
from fleetctl.errors import TrafficNotApplied
from fleetctl.usecases.home import fallback
from tests.rollouts import PERSON
from tests.unit.test_home import SOURCE, Home, way

CELL = CellId("nightly")
URL = "https://sqs.example/1/nightly"
FAR = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait as long as the product does."""
    monkeypatch.setattr(Deadline.__init__, "__defaults__", (0.6,))
    monkeypatch.setattr(open_writes, "READ_BACK_S", 0.2)
    monkeypatch.setattr(haproxy, "FENCE_LIMIT_S", 0.3)


def _split(bp: int, token: int) -> Split:
    return Split(cell=CELL, target_bp=bp, cap_bp=10_000, token=Token(token), lease_until=FAR)


class Queue:
    """A queue's tags, whose next change comes only when it may, long after everybody stopped waiting."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.is_late, self.gate, self.came = False, threading.Event(), threading.Event()

    def list_queue_tags(self, **_: Any) -> dict[str, Any]:
        return {"Tags": dict(self.tags)}

    def tag_queue(self, *, QueueUrl: str, Tags: dict[str, str]) -> None:  # noqa: N803 - the names of boto3
        if self.is_late:
            self.is_late = False
            self.gate.wait(30)
            self.tags |= Tags
            self.came.set()
        else:
            self.tags |= Tags

    def router(self) -> WorkSplit:
        board = SqsBoard(lambda: self, {CELL: URL}, lambda *_: Served(baseline=0, canary=0))
        return WorkSplit("night", board, sources={CELL: SOURCE})


def _late(queue: Queue, order: Callable[[WorkSplit], object]) -> WorkSplit:
    """Return a writer at 25 % whose next order has no answer yet and may still come."""
    router = queue.router()
    router.fence(CELL, Token(1))
    assert isinstance(router.set(_split(2_500, 1)), Applied)
    queue.is_late = True
    with pytest.raises(TrafficNotApplied, match="no answer"):
        order(router)
    return router


def _settled(queue: Queue) -> None:
    queue.gate.set()
    assert queue.came.wait(10)


def _until(found: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not found():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_raise_that_reaches_sqs_after_its_own_writer_went_home_is_taken_back_before_home_is_said() -> None:
    queue = Queue()
    router = _late(queue, lambda r: r.set(_split(5_000, 1)))
    with pytest.raises(TrafficNotApplied, match="may still come"):
        router.set(_split(0, 1))
    assert router.read(CELL).target_bp == 0, "no consumer of the target takes any more; it is not called done"
    timer = threading.Timer(0.1, queue.gate.set)
    timer.start()
    assert isinstance(router.set(_split(0, 1)), Applied)
    timer.join()
    assert queue.came.is_set()
    assert router.read(CELL).target_bp == 0


def test_a_raise_that_reaches_sqs_after_somebody_else_went_home_is_taken_back() -> None:
    queue = Queue()
    _late(queue, lambda r: r.set(_split(5_000, 1)))
    person = queue.router()
    person.fence(CELL, Token(1 + HOME_TOKEN_STEP))
    assert isinstance(person.set(_split(0, 1 + HOME_TOKEN_STEP)), Applied)
    _settled(queue)
    _until(lambda: person.read(CELL).target_bp == 0)
    assert person.read(CELL).token == 1 + HOME_TOKEN_STEP


def test_a_fence_that_reaches_sqs_late_lowers_no_floor() -> None:
    queue = Queue()
    router = _late(queue, lambda r: r.fence(CELL, Token(2)))
    person = queue.router()
    person.fence(CELL, Token(9))
    assert isinstance(person.set(_split(0, 9)), Applied)
    _settled(queue)
    assert queue.tags[TOKEN_TAG] == "2"
    assert queue.tags[TAG].startswith("0/")
    assert router.set(_split(5_000, 2)) == Stale(cell=CELL, seen=Token(9))
    assert person.read(CELL).target_bp == 0


class Socket:
    """The admin socket of an HAProxy without our Lua: one map."""

    def __init__(self, maps: Path, bp: int) -> None:
        self.bp, self._prefix = bp, f"set map {maps}/weight.map chat-lab "

    def ask(self, command: str, deadline: Deadline) -> str:
        assert command.startswith(self._prefix), command
        self.bp = int(command.removeprefix(self._prefix))
        return ""

    def map_value(self, path: Path, key: str, deadline: Deadline) -> str:
        return str(self.bp)


class Disk:
    """The disk under its maps: hangs until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.hangs, self.done = threading.Event(), "", threading.Event()
        monkeypatch.setattr(haproxy, "write_standing", lambda *given: self._at("write", write_standing, *given))
        monkeypatch.setattr(haproxy, "read_standing", lambda *given: self._at("read", read_standing, *given))

    def _at(self, what: str, action: Callable[..., Any], *given: Any) -> Any:
        if self.hangs == what:
            self.gate.wait(30)
            try:
                return action(*given)
            finally:
                self.done.set()
        return action(*given)


CHAT = CellId("chat-lab")


@pytest.fixture
def edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HaproxyRouter, Socket, Disk]]:
    (tmp_path / "weight.map").write_text("chat-lab 5000\n")
    (tmp_path / "fence.map").write_text("chat-lab 10000:7:4070908800000\n")
    settings = {"socket": str(tmp_path / "s"), "map_folder": str(tmp_path), "fence": "single_writer"}
    router = HaproxyRouter(Connection(name="edge", kind="haproxy", settings=settings), sources={CHAT: SOURCE})
    socket, disk = Socket(tmp_path, 5_000), Disk(monkeypatch)
    monkeypatch.setattr(router, "_socket", socket)
    yield router, socket, disk
    disk.gate.set()


@pytest.mark.parametrize("what", ["read", "write"])
def test_a_disk_that_hangs_holds_no_call_of_a_single_writer_up(edge: tuple[HaproxyRouter, Socket, Disk], what: str) -> None:
    router, _, disk = edge
    disk.hangs = what
    split = Split(cell=CHAT, target_bp=5_000, cap_bp=10_000, token=Token(7), lease_until=FAR)
    calls: list[Callable[[], object]] = [lambda: router.fence(CHAT, Token(8)), lambda: router.set(split), lambda: router.read(CHAT)]
    for call in calls:
        began = time.monotonic()
        with suppress(TrafficNotApplied):
            call()
        assert time.monotonic() - began < 1


def test_customers_go_home_though_the_disk_hangs_and_the_late_fence_undoes_nothing(
    edge: tuple[HaproxyRouter, Socket, Disk], tmp_path: Path
) -> None:
    router, socket, disk = edge
    home, began = Home(), time.monotonic()
    disk.hangs = "write"
    (found,) = fallback((way(CHAT),), replace(home.ports, router=lambda _: router), PERSON)
    assert isinstance(found, Returned), found
    assert (socket.bp, found.was_bp, found.left_bp) == (0, 5_000, 0)
    assert time.monotonic() - began < 2
    assert "not fenced, so a controller that still runs may raise it again" in found.reported
    disk.gate.set()
    disk.hangs = ""
    assert disk.done.wait(10)
    _until(lambda: (tmp_path / "weight.map").read_text() == "chat-lab 0\n")
    assert router.read(CHAT).target_bp == 0


def test_a_file_system_that_hangs_holds_no_call_to_a_queue_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "work.db")
    ledger.add_cell(CELL)
    router, gate = WorkSplit("night", ledger, sources={CELL: SOURCE}), threading.Event()
    router.fence(CELL, Token(1))
    real = Ledger._open
    monkeypatch.setattr(Ledger, "_open", lambda *given: (gate.wait(30), real(*given))[1])
    calls: list[Callable[[], object]] = [
        lambda: router.read(CELL),
        lambda: router.fence(CELL, Token(2)),
        lambda: router.set(_split(0, 1)),
    ]
    try:
        for call in calls:
            began = time.monotonic()
            with pytest.raises(TrafficNotApplied) as refused:
                call()
            assert refused.value.code == "traffic.router_down"
            assert time.monotonic() - began < 2
    finally:
        gate.set()
