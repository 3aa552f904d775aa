"""Contract of ports.traffic.Router, over the fake, a real HAProxy, a real Envoy, an ALB of moto, HTTPRoutes of an API double,
and over the work split of a SQLite queue and of SQS (moto).

ALB and HTTPRoutes carry no traffic here: named doubles of a data plane count who would have answered."""

from __future__ import annotations

import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from fleetctl.adapters.routers.alb.router import AlbRouter
from fleetctl.adapters.routers.alb.wire import Elb
from fleetctl.adapters.routers.httproute.router import HttpRouteRouter
from fleetctl.adapters.routers.httproute.wire import Routes
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import SqsBoard, SqsConsumer
from fleetctl.domain.evidence import Arm, Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Drained, Served, Split, Stale
from fleetctl.errors import TrafficNotApplied
from fleetctl.ports.traffic import Router
from tests.fakes.alb_plane import AlbPlane, client
from tests.fakes.elb_rules import free
from tests.fakes.gateway_api import NAMESPACE, gateway_api
from tests.fakes.moto_account import moto_server
from tests.fakes.router import FakeRouter, Target
from tests.lab.envoy_lab import envoy_rig
from tests.lab.haproxy_lab import CELL, SOURCE, STREAM, TARGET, rig, until


@dataclass
class Case:
    """A router under test and the outside of it."""

    router: Router
    another: Callable[[], Router]
    send: Callable[[int], None]
    kill: Callable[[], None]
    begin: Callable[[], None] | None = None
    """Begins a request on the target that does not end; None where the lab's own tests hold streams open."""
    tells_open: bool = True
    """Else it tells no open request, and a side that gets customers, or got some lately, counts as having one."""
    moment: Callable[[], datetime] | None = None
    """Returns a moment between what was sent and what comes, on the router's own clock."""


def _fake() -> Iterator[Case]:
    sources = {CELL: SOURCE, STREAM: SOURCE}
    target = Target(sources)
    first = FakeRouter(sources, target=target)

    def send(n: int) -> None:
        bp = target.splits[CELL].target_bp
        for i in range(n):
            first.record(CELL, "c1" if i * 10_000 < bp * n else "b1", datetime.now(UTC))

    def kill() -> None:
        target.down = True

    def begin() -> None:
        target.open_streams[CELL, "c"] += 1

    yield Case(first, lambda: FakeRouter(sources, target=target), send, kill, begin)


def _haproxy(*, lua: bool) -> Iterator[Case]:
    with rig(lua=lua) as found:

        def send(n: int) -> None:
            for i in range(n):
                assert found.ask(key=f"k{i}").status == 200
            until(lambda: len(found.log()) >= n, "all requests logged")

        yield Case(found.router(), found.router, send, lambda: (found.process.stop(), None)[1])


def _envoy() -> Iterator[Case]:
    with envoy_rig() as found:

        def send(n: int) -> None:
            for i in range(n):
                assert found.ask(key=f"k{i}").status == 200
            until(lambda: len(found.log()) >= n, "all requests logged")

        yield Case(found.router(), found.router, send, found.stop)


def _alb(url: str) -> Iterator[Case]:
    plane = AlbPlane(url, (CELL, STREAM))
    settings = {f"rule.{cell}": arn for cell, arn in plane.rules.items()}
    dead: list[bool] = []

    def make() -> Router:
        elb = Elb(lambda service: client("http://127.0.0.1:9" if dead else url, service), "lab", free)
        return AlbRouter(Connection(name="lab", kind="alb", settings=settings), elb=elb, sources={CELL: SOURCE, STREAM: SOURCE})

    class Late:
        """A router whose calls fail from the moment that AWS is gone."""

        def __init__(self) -> None:
            self._made = make()

        def __getattr__(self, name: str) -> Any:
            return getattr(make() if dead else self._made, name)

    yield Case(cast(Router, Late()), make, lambda n: plane.send(CELL, n), lambda: dead.append(True), lambda: None, False, plane.later)


def _httproute() -> Iterator[Case]:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    with gateway_api((CELL, STREAM)) as api:
        settings = {f"route.{cell}": f"{NAMESPACE}/{cell}" for cell in (CELL, STREAM)}

        def make() -> Router:
            connection = Connection(name="lab", kind="httproute", settings=settings)
            return HttpRouteRouter(connection, routes=Routes(api.custom, "lab"), count=api.count, sources={CELL: SOURCE, STREAM: SOURCE})

        yield Case(make(), make, lambda n: api.send(CELL, n), api.close, lambda: None, tells_open=False)


def _ledger() -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work.db"

        def make() -> Router:
            return WorkSplit("lab", Ledger(path), sources={CELL: SOURCE, STREAM: SOURCE})

        ledger, sent = Ledger(path), [0]
        for cell in (CELL, STREAM):
            ledger.add_cell(cell)

        def send(n: int) -> None:
            for _ in range(n):
                sent[0] += 1
                ledger.put(CELL, f"job-{sent[0]}", b"{}")
                job = ledger.take(CELL, "canary", "w") or ledger.take(CELL, "baseline", "w")
                assert job is not None
                assert ledger.finish(job, ok=True)

        def kill() -> None:
            path.unlink()
            path.mkdir()

        def begin() -> None:
            ledger.put(CELL, "open", b"{}")
            assert ledger.take(CELL, "canary", "w") is not None

        yield Case(make(), make, send, kill, begin)


def _sqs(url: str) -> Iterator[Case]:
    sqs, counts = client(url, "sqs"), list[tuple[bool, datetime]]()
    urls = {cell: sqs.create_queue(QueueName=cell)["QueueUrl"] for cell in (CELL, STREAM)}
    urls = {cell: found.replace("localhost", "127.0.0.1") for cell, found in urls.items()}

    def count(_: CellId, since: datetime) -> Served:
        found = [(on_target, at) for on_target, at in counts if at >= since]
        canary = [at for on_target, at in found if on_target]
        return Served(baseline=len(found) - len(canary), canary=len(canary), last_canary_start=max(canary, default=None))

    board = SqsBoard(lambda: sqs, urls, count)

    def make() -> Router:
        return WorkSplit("lab", board, sources={CELL: SOURCE, STREAM: SOURCE})

    def send(n: int) -> None:
        for i in range(n):
            sqs.send_message(QueueUrl=urls[CELL], MessageBody=str(i))
        arms: tuple[Arm, ...] = ("canary", "baseline")
        consumers = [SqsConsumer(board, sqs, urls[CELL], CELL, arm, index=0, of=1) for arm in arms]
        for _ in range(n):
            taken = [(arm, message) for arm, consumer in zip(arms, consumers, strict=True) if (message := consumer.take()) is not None]
            for arm, message in taken:
                counts.append((arm == "canary", datetime.now(UTC)))
                consumers[arms.index(arm)].done(message)

    def kill() -> None:
        board._client = lambda: client("http://127.0.0.1:9", "sqs")

    def begin() -> None:
        sqs.send_message(QueueUrl=urls[CELL], MessageBody="open")
        assert SqsConsumer(board, sqs, urls[CELL], CELL, "canary", index=0, of=1).take() is not None

    yield Case(make(), make, send, kill, begin)


_CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "fake": _fake,
    "haproxy": lambda: _haproxy(lua=True),
    "haproxy-single-writer": lambda: _haproxy(lua=False),
    "envoy-single-writer": _envoy,
    "httproute": _httproute,
    "work-ledger": _ledger,
}
_ON_MOTO: dict[str, Callable[[str], Iterator[Case]]] = {"alb-single-writer": _alb, "work-sqs-single-writer": _sqs}
NO_MIRROR, NO_LEASE = ("haproxy-single-writer", "alb-single-writer", "httproute", "work"), ("single-writer", "httproute", "work")

KEYLESS_OFF = {"haproxy": 3, "envoy": 5}
"""By how many requests of a run the share of those without a key may be off; the others draw them, or have jobs."""


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_server(tmp_path_factory.mktemp("moto")) as url:
        yield url


@pytest.fixture(
    params=[name if name == "fake" else pytest.param(name, marks=pytest.mark.lab) for name in (*_CASES, *_ON_MOTO)],
)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param in _ON_MOTO:
        url = request.getfixturevalue("moto")
        urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST"), timeout=10).close()
        yield from _ON_MOTO[request.param](url)
    else:
        yield from _CASES[request.param]()


def _a_moment_apart() -> datetime:
    """Return a time with two clear milliseconds on either side, since a router's log counts in whole ones."""
    began = datetime.now(UTC)
    until(lambda: datetime.now(UTC) - began > timedelta(milliseconds=2), "two milliseconds before it")
    at = datetime.now(UTC)
    until(lambda: datetime.now(UTC) - at > timedelta(milliseconds=2), "two milliseconds after it")
    return at


def _split(bp: int, token: int, *, cap: int = 10_000, minutes: int = 60) -> Split:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=minutes)
    return Split(cell=CELL, target_bp=bp, cap_bp=cap, token=Token(token), lease_until=at)


def test_a_new_cell_is_at_home_and_unfenced(case: Case) -> None:
    found = case.router.read(CELL)
    assert (found.target_bp, found.cap_bp, found.token) == (0, 0, 0)


def test_fence_raises_the_floor_and_returns_what_stands(case: Case) -> None:
    assert isinstance(case.router.fence(CELL, Token(3)), Split)
    assert case.router.read(CELL).token == 3
    assert case.router.fence(CELL, Token(3)) == case.router.read(CELL), "the same call again answers the same"
    assert case.another().fence(CELL, Token(3)) == Stale(cell=CELL, seen=Token(3)), "another writer may not share a token"
    assert case.router.fence(CELL, Token(2)) == Stale(cell=CELL, seen=Token(3))


def test_set_is_read_back_and_idempotent(case: Case) -> None:
    case.router.fence(CELL, Token(1))
    wanted = _split(1_000, 1, cap=2_500)
    assert case.router.set(wanted) == Applied(split=wanted)
    assert case.router.set(wanted) == Applied(split=wanted)
    assert case.router.read(CELL) == wanted
    assert case.another().read(CELL) == wanted
    assert case.router.read(STREAM).target_bp == 0, "the other cell stays where it was"


def test_a_writer_that_was_fenced_off_is_refused_and_nothing_moves(case: Case) -> None:
    case.router.fence(CELL, Token(1))
    case.router.set(_split(1_000, 1))
    assert isinstance(case.another().fence(CELL, Token(2)), Split)
    assert case.router.set(_split(5_000, 1)) == Stale(cell=CELL, seen=Token(2))
    assert case.router.read(CELL).target_bp == 1_000


def test_a_set_above_the_floor_needs_its_fence_first(case: Case) -> None:
    assert case.router.set(_split(1_000, 7)) == Stale(cell=CELL, seen=Token(0))
    assert case.router.read(CELL).target_bp == 0


def test_drain_counts_and_checks_the_token(case: Case) -> None:
    case.router.fence(CELL, Token(4))
    assert case.router.drain(CELL, TARGET, Token(4)) == Drained(open_streams=0)
    assert case.router.drain(CELL, SOURCE, Token(4)) == Drained(open_streams=0 if case.tells_open else 1), "all of it is there"
    assert case.router.drain(CELL, TARGET, Token(3)) == Stale(cell=CELL, seen=Token(4))


def test_a_side_that_may_hold_an_open_request_is_not_drained(case: Case) -> None:
    if case.begin is None:
        pytest.skip("the lab's own tests hold streams open: test_haproxy_split, test_envoy_split")
    case.router.fence(CELL, Token(4))
    case.router.set(_split(10_000, 4))
    case.begin()
    assert isinstance(case.router.set(_split(0, 4)), Applied)
    found = case.router.drain(CELL, TARGET, Token(4))
    assert isinstance(found, Drained)
    assert found.open_streams == 1, "a rollback cuts nothing: what has begun there is still open"


def test_served_counts_by_the_server_that_answered_since_the_cursor(case: Case) -> None:
    case.router.fence(CELL, Token(1))
    case.router.set(_split(10_000, 1))
    case.send(10)
    between = case.moment() if case.moment else _a_moment_apart()
    done = case.router.set(_split(0, 1))
    assert isinstance(done, Applied)
    case.send(15)
    until(lambda: case.router.served(CELL, Cursor(position="", since=between)).baseline == 15, "15 on the source")
    found = case.router.served(CELL, Cursor(position="", since=between))
    assert (found.baseline, found.canary, found.last_canary_start) == (15, 0, None)
    whole = case.router.served(CELL, Cursor(position="", since=between - timedelta(minutes=5)))
    assert (whole.baseline, whole.canary) == (15, 10)
    assert whole.last_canary_start is not None
    assert whole.last_canary_start <= between


@pytest.mark.parametrize("name", ["nobody", "x; shutdown frontend fleetctl", "x\nset map y z 1", "", "UPPER", "a" * 64])
def test_unknown_and_hostile_names_are_refused(case: Case, name: str) -> None:
    cell = CellId(name)
    calls: list[Callable[[], Any]] = [
        lambda: case.router.read(cell),
        lambda: case.router.fence(cell, Token(1)),
        lambda: case.router.set(Split(cell=cell, target_bp=0, cap_bp=0, token=Token(1), lease_until=datetime.now(UTC))),
        lambda: case.router.drain(cell, PoolId("p"), Token(1)),
    ]
    for call in calls:
        with pytest.raises(TrafficNotApplied) as refused:
            call()
        assert refused.value.code == "traffic.unknown_cell"
    assert case.router.read(CELL).target_bp == 0


def test_a_dead_router_is_told_within_its_time(case: Case) -> None:
    case.kill()
    with pytest.raises(TrafficNotApplied) as refused:
        case.router.read(CELL)
    assert refused.value.code == "traffic.router_down"
    with pytest.raises(TrafficNotApplied):
        case.router.set(_split(0, 0))


def test_capabilities_tell_who_compares(case: Case, request: pytest.FixtureRequest) -> None:
    found = case.router.capabilities()
    name = request.node.name
    assert found.fence == ("single_writer" if "single-writer" in name else "target")
    assert found.weight_lease == ("none" if any(word in name for word in NO_LEASE) else "router")
    assert found.mirror is not any(word in name for word in NO_MIRROR)
    assert found.keyless_off == next((off for word, off in KEYLESS_OFF.items() if word in name), None)


def test_switch_time_is_measured_once_there_was_a_set(case: Case) -> None:
    case.router.fence(CELL, Token(1))
    case.router.set(_split(500, 1))
    measured = case.router.capabilities().switch_ms
    assert measured is not None
    assert 0 <= measured < 2_000
