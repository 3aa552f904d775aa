"""A router that answers half, or something else than it should: a clear error, the split unchanged, and what stands is read back.

Doubles of each router's own protocol give every cut of an answer, and answers in which any one value is another than it should be.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.adapters.aws.client import AwsAccess, AwsApi
from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.alb.router import TAG, TOKEN_TAG, AlbRouter
from fleetctl.adapters.routers.alb.wire import Elb
from fleetctl.adapters.routers.envoy.router import EnvoyRouter
from fleetctl.adapters.routers.haproxy.maps import Standing, write_standing
from fleetctl.adapters.routers.haproxy.router import HaproxyRouter
from fleetctl.adapters.routers.httproute.router import MARK, HttpRouteRouter
from fleetctl.adapters.routers.httproute.wire import Routes
from fleetctl.adapters.routers.work import sqs
from fleetctl.adapters.routers.work.board import WorkSplit
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.adapters.routers.work.sqs import SqsBoard
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Served, Split, Stale
from fleetctl.errors import TrafficNotApplied
from fleetctl.ports.traffic import Router
from tests.fakes.elb_rules import free

CELL = CellId("chat")
SOURCES = {CELL: PoolId("nvidia")}
LEASE_MS = 4_000_000_000_000
LEASE = datetime.fromtimestamp(LEASE_MS / 1_000, UTC)
STANDS = Split(cell=CELL, target_bp=1_000, cap_bp=10_000, token=Token(5), lease_until=LEASE)
ODD: tuple[Any, ...] = (None, "x", -1, ["x"], {}, 1e308)


def odd_answers(whole: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in which one node, at any depth, is something else or is gone."""

    def paths(value: Any, here: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        yield here
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield from paths(inner, (*here, key))

    for path in paths(whole, ()):
        for odd in (*ODD, KeyError):
            made = deepcopy(whole)
            if not path:
                if odd is not KeyError:
                    yield odd
                continue
            at = made
            for key in path[:-1]:
                at = at[key]
            if odd is KeyError:
                del at[path[-1]]
            else:
                at[path[-1]] = odd
            yield made


def check(router: Router, written: Callable[[], int]) -> None:
    """Every call gives an answer or the router's own error; what could not be read as it stands was not written over."""
    before = written()
    calls: tuple[Callable[[], object], ...] = (
        lambda: router.read(CELL),
        lambda: router.drain(CELL, PoolId("mi300x"), Token(5)),
        lambda: router.served(CELL, Cursor(position="", since=datetime.now(UTC) - timedelta(minutes=5))),
    )
    for call in calls:
        with suppress(TrafficNotApplied):
            call()
    assert written() == before, "reading writes nothing"
    standing = read(router)
    if isinstance(standing, str):
        assert standing in ("traffic.not_shown", "traffic.router_down", "traffic.unknown_cell")
        with pytest.raises(TrafficNotApplied):
            router.set(Split(cell=CELL, target_bp=5_000, cap_bp=10_000, token=Token(5), lease_until=LEASE))
        assert written() == before, "what cannot be read is not written over"


def read(router: Router) -> Split | str:
    """Return what the router shows, or the code of its error."""
    try:
        return router.read(CELL)
    except TrafficNotApplied as e:
        return e.code


class Custom:
    """A Kubernetes client whose reads give what they are told."""

    def __init__(self) -> None:
        self.data: bytes = b""
        self.writes = 0

    def get_namespaced_custom_object(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(data=self.data)

    def replace_namespaced_custom_object(self, *_: Any, **__: Any) -> None:
        self.writes += 1


def test_an_httproute_of_any_other_shape_and_every_cut_of_it() -> None:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    refs = [{"name": "chat-baseline", "weight": 9_000}, {"name": "chat-canary", "weight": 1_000}]
    condition = {"type": "Accepted", "status": "True", "observedGeneration": 1}
    whole = {
        "metadata": {"annotations": {MARK: f"10000:5:{LEASE_MS}:1"}, "generation": 1},
        "spec": {"rules": [{"backendRefs": refs}]},
        "status": {"parents": [{"parentRef": {"name": "edge"}, "conditions": [condition]}]},
    }
    custom = Custom()
    connection = Connection(name="edge", kind="httproute", settings={f"route.{CELL}": "serving/chat"})
    served = Served(baseline=0, canary=0)
    router = HttpRouteRouter(connection, routes=Routes(lambda: custom, "edge"), sources=SOURCES, seen_s=0.0, count=lambda *_: served)
    custom.data = json.dumps(whole).encode()
    assert router.read(CELL) == STANDS
    for odd in odd_answers(whole):
        custom.data = json.dumps(odd).encode()
        check(router, lambda: custom.writes)
    for n in range(0, len(full := json.dumps(whole).encode()), 7):
        custom.data = full[:n]
        with pytest.raises(TrafficNotApplied):
            router.read(CELL)


class Aws:
    """A client of elbv2, CloudWatch and SQS whose reads give what they are told."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        def call(**_: Any) -> Any:
            if name.startswith(("modify", "add_tags", "tag_queue")):
                self.writes += 1
                return {}
            return self.answers[name]

        return call


def test_an_albs_answers_of_any_other_shape() -> None:
    arn = "arn:aws:elasticloadbalancing:us-east-1:1:listener-rule/app/edge/1/2/3"
    groups = [{"TargetGroupArn": f"arn:x:targetgroup/chat-{arm}/1", "Weight": w} for arm, w in (("baseline", 900), ("canary", 100))]
    marks = [{"Key": TAG, "Value": f"10000:5:{LEASE_MS}:1"}, {"Key": TOKEN_TAG, "Value": "5"}]
    whole: dict[str, Any] = {
        "describe_rules": {"Rules": [{"Actions": [{"Type": "forward", "ForwardConfig": {"TargetGroups": groups}}]}]},
        "describe_tags": {"TagDescriptions": [{"Tags": marks}]},
        "describe_target_groups": {"TargetGroups": [{"LoadBalancerArns": ["arn:x:loadbalancer/app/edge/1"]}]},
        "get_metric_statistics": {"Datapoints": [{"Timestamp": datetime.now(UTC), "Sum": 3.0}]},
    }
    aws = Aws(whole)
    connection = Connection(name="edge", kind="alb", settings={f"rule.{CELL}": arn})
    router = AlbRouter(connection, elb=Elb(lambda _: aws, "edge", free), sources=SOURCES)
    assert router.read(CELL) == STANDS
    assert router.served(CELL, Cursor(position="", since=datetime.now(UTC) - timedelta(minutes=5))).canary == 3
    for name in whole:
        for odd in odd_answers(whole[name]):
            aws.answers = {**whole, name: odd}
            check(router, lambda: aws.writes)


def test_an_sqs_queues_answers_of_any_other_shape() -> None:
    whole: dict[str, Any] = {
        "list_queue_tags": {"Tags": {sqs.TAG: f"1000/10000:5:{LEASE_MS}:0", sqs.TOKEN_TAG: "5"}},
        "get_queue_attributes": {"Attributes": {"ApproximateNumberOfMessagesNotVisible": "0"}},
    }
    aws = Aws(whole)
    router = WorkSplit("nightly", SqsBoard(lambda: aws, {CELL: "http://q"}, lambda *_: Served(baseline=0, canary=0)), sources=SOURCES)
    assert router.read(CELL) == STANDS
    for name in whole:
        for odd in odd_answers(whole[name]):
            aws.answers = {**whole, name: odd}
            check(router, lambda: aws.writes)


def test_a_queue_that_stops_showing_its_tags_is_not_one_at_home() -> None:
    tags = {sqs.TAG: f"1000/10000:5:{LEASE_MS}:0", sqs.TOKEN_TAG: "5"}
    for left in ({}, {sqs.TAG: tags[sqs.TAG]}, {sqs.TOKEN_TAG: "5"}):
        aws = Aws({"list_queue_tags": {"Tags": tags}})
        board = SqsBoard(lambda aws=aws: aws, {CELL: "http://q"}, lambda *_: Served(baseline=0, canary=0))  # type: ignore[misc]
        router = WorkSplit("nightly", board, sources=SOURCES)
        assert router.read(CELL) == STANDS
        aws.answers = {"list_queue_tags": {"Tags": left}}
        check(router, lambda aws=aws: aws.writes)  # type: ignore[misc]
        assert read(router) == "traffic.not_shown"
    empty = SqsBoard(lambda: Aws({"list_queue_tags": {}}), {CELL: "http://q"}, lambda *_: Served(baseline=0, canary=0))
    fresh = WorkSplit("nightly", empty, sources=SOURCES)
    assert fresh.read(CELL).target_bp == 0, "a queue that was never split has no tags"


def test_every_cut_of_an_answer_of_sqs_is_an_error_and_never_a_share_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """With AWS's own client, which reads an answer that is cut short as one without tags."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "emulated")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "emulated")
    full = json.dumps({"Tags": {sqs.TAG: f"1000/10000:5:{LEASE_MS}:0", sqs.TOKEN_TAG: "5"}}).encode()
    with envoy_double() as told:
        client = AwsApi(AwsAccess(endpoint=told["url"])).client("sqs", "us-east-1", wait_s=2)
        told["post"] = full
        for n in (*range(0, len(full), 9), len(full)):
            told["post"] = full[:n]
            board = SqsBoard(lambda: client, {CELL: told["url"]}, lambda *_: Served(baseline=0, canary=0))
            found = read(WorkSplit("nightly", board, sources=SOURCES))
            assert found == (STANDS if n == len(full) else "traffic.router_down"), n


def test_a_queues_file_with_odd_values_or_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    ledger = Ledger(path)
    ledger.add_cell(CELL)
    router = WorkSplit("nightly", ledger, sources=SOURCES)
    for column in ("bp", "cap_bp", "token", "lease_ms"):
        for odd in ("x", "", -1, 1e308, b"\x00", 10**15):
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("UPDATE splits SET bp = 1000, cap_bp = 10000, token = 5, lease_ms = ?", (LEASE_MS,))
                db.execute(f"UPDATE splits SET {column} = ?", (odd,))
            found = read(router)
            assert found == "traffic.not_shown" or isinstance(found, Split), (column, odd)
    whole = path.read_bytes()
    for n in (50, 100, 4_096, len(whole) // 2):
        path.write_bytes(whole[:n])
        with pytest.raises(TrafficNotApplied):
            router.read(CELL)


@contextmanager
def asked_double(place: Path, answer: Callable[[str], str | bytes]) -> Iterator[None]:
    """Serve an admin socket whose answers are made as they are asked for."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(16)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    with link, suppress(OSError):
                        said = answer(link.recv(4_096).decode())
                        link.sendall(said if isinstance(said, bytes) else said.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def haproxy_double(folder: Path) -> Iterator[dict[str, bytes]]:
    """Serve an admin socket that answers by the command's first two words; what is not told is what a sound HAProxy with our Lua says."""
    stat = b"# pxname,svname,status,check_status,scur,bck\nchat_canary,c1,UP,L7OK,1,0\nchat_baseline,b1,UP,L7OK,2,0\n\n"
    state = f"ok 1000 10000 5 {LEASE_MS}\n\n".encode()
    answers = {
        "fleetctl tee": b"ok 0 0 0 0 0\n\n",
        "fleetctl read": state,
        "fleetctl set": state,
        "get map": b'type=str, case=sensitive, found=yes, idx=tree, key="chat", value="1000", type="str"\n\n',
        "show stat": stat,
    }
    with asked_double(folder / "s", lambda command: answers.get(" ".join(command.split()[:2]), b"Unknown command\n\n")):
        yield answers


def test_a_raise_that_comes_after_somebody_fenced_us_off_is_taken_home_where_haproxy_compares_nothing(tmp_path: Path) -> None:
    """Between our look at the token and our `set map` another writer fences, sets 0 and reports home: the last word is home."""
    for ours, last in (("2500", "0"), ("0", "0"), ("1000", "1000")):  # the third: the map shows another weight than the raise we lost with
        live, said = {"value": "0"}, list[str]()

        def answer(command: str, ours: str = ours, live: dict[str, str] = live, said: list[str] = said) -> str:
            words = command.split()
            if words[:2] == ["get", "map"]:
                return f'type=str, case=sensitive, found=yes, idx=tree, key="chat", value="{live["value"]}", type="str"\n\n'
            if words[:2] != ["set", "map"]:
                return "Unknown command\n\n"
            if not said:  # somebody else comes first
                write_standing(tmp_path, CELL, Standing(bp=0, cap_bp=10_000, token=6, lease_ms=LEASE_MS))
            said.append(words[-1])
            live["value"] = words[-1] if ours != "1000" else "1000"
            return "\n"

        write_standing(tmp_path, CELL, Standing(bp=0, cap_bp=10_000, token=5, lease_ms=LEASE_MS))
        wanted = 2_500 if ours == "1000" else int(ours)
        (tmp_path / "fence.map").write_text(f"chat 10000:5:{LEASE_MS}\n")
        with asked_double(tmp_path / "s", answer):
            settings = {"socket": str(tmp_path / "s"), "map_folder": str(tmp_path), "fence": "single_writer"}
            router = HaproxyRouter(Connection(name="edge", kind="haproxy", settings=settings), sources=SOURCES)
            done = router.set(Split(cell=CELL, target_bp=wanted, cap_bp=10_000, token=Token(5), lease_until=LEASE))
        assert (done, live["value"]) == (Stale(cell=CELL, seen=Token(6)), last), ours
        assert said == ([ours, "0"] if ours == "2500" else [str(wanted)])
        assert (tmp_path / "weight.map").read_text() == "chat 0\n", "the file is the other writer's"
        (tmp_path / "s").unlink()


def test_every_cut_of_haproxys_answers_is_an_error_and_never_another_weight(tmp_path: Path) -> None:
    with haproxy_double(tmp_path) as answers:
        settings = {"socket": str(tmp_path / "s"), "map_folder": str(tmp_path)}
        router = HaproxyRouter(Connection(name="edge", kind="haproxy", settings=settings), sources=SOURCES)
        single = {**settings, "fence": "single_writer"}
        plain = HaproxyRouter(Connection(name="edge", kind="haproxy", settings=single), sources=SOURCES)
        assert router.read(CELL) == STANDS
        assert plain.read(CELL).target_bp == 1_000
        assert isinstance(router.set(STANDS), Applied)
        for command, reads in (("fleetctl read", router), ("get map", plain)):
            full = answers[command]
            for n in range(len(full) - 1):
                answers[command] = full[:n]
                found = read(reads)
                assert found.target_bp == 1_000 if isinstance(found, Split) else found.startswith("traffic.")
            answers[command] = full
        full = answers["show stat"]
        for n in range(0, len(full) - 1, 3):
            answers["show stat"] = full[:n]
            with suppress(TrafficNotApplied):
                router.drain(CELL, PoolId("mi300x"), Token(5))
        answers["show stat"] = full
        full = answers["fleetctl set"]
        for n in range(len(full) - 2):
            answers["fleetctl set"] = full[:n]
            with pytest.raises(TrafficNotApplied):
                router.set(STANDS)


@contextmanager
def envoy_double() -> Iterator[dict[str, Any]]:
    """Serve an admin interface that gives what it is told; "raw": whole bytes instead, or a callable that writes them."""
    told: dict[str, Any] = {"/runtime": {}, "/clusters": {"cluster_statuses": []}, "writes": 0}

    class Handler(BaseHTTPRequestHandler):
        def _give(self) -> None:
            raw = told.get("raw")
            if callable(raw):
                raw(self.wfile)
                return
            body = raw if isinstance(raw, bytes) else json.dumps(told[self.path.partition("?")[0]]).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body) + told.get("short", 0)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            with suppress(OSError):
                self._give()

        def do_POST(self) -> None:
            told["writes"] += 1
            self.rfile.read(int(self.headers.get("content-length") or 0))
            body = told.get("post", b"OK")
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    told["url"] = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield told
    finally:
        told["over"] = True
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("configured", "mirrors"), [({}, False), ({"by": "fleetctl.shadow.other"}, False), ({"by": "fleetctl.shadow.chat"}, True)]
)
def test_an_envoy_mirrors_only_where_its_own_configuration_does(configured: dict[str, str], mirrors: bool) -> None:
    values = {f"fleetctl.weight.{CELL}_canary": "0", f"fleetctl.weight.{CELL}_baseline": "10000"}
    with envoy_double() as told:
        router = EnvoyRouter(Connection(name="edge", kind="envoy", settings={"admin": told["url"]}), sources=SOURCES)
        told["/runtime"] = {"entries": {key: {"final_value": value} for key, value in values.items()}}
        told["/config_dump"] = (
            {"request_mirror_policies": [{"runtime_fraction": {"runtime_key": configured.get("by")}}]} if configured else {}
        )
        assert router.capabilities().mirror is mirrors
        if not mirrors:
            with pytest.raises(TrafficNotApplied, match="no route of cell chat has a mirror policy"):
                router.set_shadow(CELL, 0.1)
            assert told["writes"] == 0
        router.set_shadow(CELL, 0.0)
        assert told["writes"] == 1, "what stops it is never refused"


def test_an_envoys_answers_of_any_other_shape_cut_short_or_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {f"fleetctl.weight.{CELL}_canary": "1000", f"fleetctl.weight.{CELL}_baseline": "9000"}
    values |= {f"fleetctl.token.{CELL}": "5", f"fleetctl.lease.{CELL}": f"10000:{LEASE_MS}"}
    runtime = {"entries": {key: {"final_value": value} for key, value in values.items()}}
    host = {"hostname": "c1", "health_status": {"eds_health_status": "HEALTHY"}, "stats": [{"name": "rq_active", "value": 1}]}
    clusters = {"cluster_statuses": [{"name": f"{CELL}_canary", "host_statuses": [host]}]}
    with envoy_double() as told:
        router = EnvoyRouter(Connection(name="edge", kind="envoy", settings={"admin": told["url"]}), sources=SOURCES)
        told["/runtime"], told["/clusters"] = runtime, clusters
        assert router.read(CELL) == STANDS
        for place, whole in (("/runtime", runtime), ("/clusters", clusters)):
            for odd in odd_answers(whole):
                told[place] = odd
                check(router, lambda: int(told["writes"]))
            told[place] = whole
        told["short"] = 10
        with pytest.raises(TrafficNotApplied) as refused:
            router.read(CELL)
        assert refused.value.code == "traffic.router_down"

        def trickle(out: Any) -> None:
            out.write(b"HTTP/1.1 200 OK\r\nx: ")
            while not told.get("over"):
                out.write(b"a")
                out.flush()
                time.sleep(0.05)

        told["raw"] = trickle
        monkeypatch.setattr(Deadline.__init__, "__defaults__", (0.5,))
        began = time.monotonic()
        with pytest.raises(TrafficNotApplied) as refused:
            router.read(CELL)
        assert refused.value.code == "traffic.router_down"
        assert time.monotonic() - began < 4.0, "a header that never ends keeps nobody"
        assert told["writes"] == 0
