"""Every kind of router that a fleet file may name is made, and what is missing is told by name."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.httproute.router import HttpRouteRouter
from fleetctl.adapters.routers.httproute.wire import Routes
from fleetctl.adapters.routers.paper import paper_commands
from fleetctl.adapters.routers.route import backends_of
from fleetctl.cli.commands.doctor import _router_found
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.plan import Outcome, Plan
from fleetctl.domain.split import Applied, RouterCapabilities, Split
from fleetctl.errors import ConfigInvalid, TrafficNotApplied
from fleetctl.usecases.router_promises import ask_routers
from fleetctl.views.plan_calendar import fault_lines
from fleetctl.wiring.routers import KINDS, make_router, set_shadow_rate
from tests.cases.planning_fleet import lab_fleet, plan_of

CELL = CellId("chat")
SOURCES = {CELL: PoolId("nvidia")}
ARN = "arn:aws:elasticloadbalancing:us-east-1:1:listener-rule/app/edge/1/2/3"


def settings(kind: str, folder: Path) -> dict[str, str]:
    config = folder / "kubeconfig"
    config.write_text(
        '{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],'
        ' "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}]}'
    )
    return {
        "alb": {"rule": ARN},
        "envoy": {"admin": "http://127.0.0.1:9"},
        "haproxy": {"socket": "/tmp/none.sock", "map_folder": str(folder)},
        "httproute": {"route": "serving/chat", "kubeconfig": str(config)},
        "queue": {"path": str(folder / "work.db")},
        "sqs": {"queue": "http://127.0.0.1:9/1/chat", "region": "us-east-1", "log_folder": str(folder)},
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_made_of_its_settings(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "httproute":
        pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "emulated")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "emulated")
    connection = Connection(name="edge", kind=kind, settings=settings(kind, tmp_path))
    made = make_router(connection, SOURCES, {})
    assert all(callable(getattr(made, name)) for name in ("capabilities", "read", "fence", "set", "drain", "served"))
    papers = paper_commands(connection, CELL, backends_of({}, CELL))
    assert len(papers) >= 4, "every kind has a way on paper"


@pytest.mark.parametrize("kind", ["envoy", "haproxy", "queue", "sqs"])
def test_what_is_missing_is_told_by_name(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        make_router(Connection(name="edge", kind=kind), SOURCES, {})
    assert refused.value.code == "config.router"
    assert "edge" in refused.value.message


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ConfigInvalid, match="known are alb, envoy, haproxy, httproute, queue, sqs"):
        make_router(Connection(name="edge", kind="nginx"), SOURCES, {})


@pytest.mark.parametrize(
    ("kind", "settings", "fences", "guards", "mirrors"),
    [
        ("haproxy", {}, True, True, True),
        ("haproxy", {"fence": "single_writer"}, False, False, False),
        ("httproute", {}, True, False, False),
        ("queue", {}, True, False, False),
        ("envoy", {}, False, False, True),
        ("alb", {}, False, False, False),
        ("sqs", {}, False, False, False),
    ],
)
def test_what_a_router_promises_is_known_without_asking_it(
    kind: str, settings: dict[str, str], fences: bool, guards: bool, mirrors: bool
) -> None:
    connection = Connection(name="edge", kind=kind, settings=settings)
    assert (connection.fences, connection.guards_leases, connection.mirrors) == (fences, guards, mirrors)
    named = [connection.guards("chat", name) for name in ("", "chat_baseline", "chat_nvidia")]
    assert named == [guards, guards, False], "our Lua knows the usual backend alone"


@pytest.mark.parametrize("kind", ["alb", "queue", "sqs"])
def test_what_a_router_can_is_what_was_known_and_one_that_cannot_copy_says_so_when_it_is_asked_to(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "emulated")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "emulated")
    connection = Connection(name="edge", kind=kind, settings=settings(kind, tmp_path))
    made = make_router(connection, SOURCES, {})
    can = made.capabilities()
    assert (can.fence == "target", can.weight_lease == "router", can.mirror) == (
        connection.fences,
        connection.guards_leases,
        connection.mirrors,
    )
    set_shadow_rate(made, CELL, 0.0, 5.0, 1.0)
    with pytest.raises(ConfigInvalid, match="cannot copy requests"):
        set_shadow_rate(made, CELL, 2.0, 5.0, 1.0)


@pytest.mark.parametrize(("fence", "lease"), [("single_writer", "none"), ("target", "none"), ("single_writer", "router")])
def test_nothing_starts_behind_a_router_that_does_less_than_its_settings_say_and_the_line_to_add_is_told(fence: Any, lease: Any) -> None:
    fleet = lab_fleet()
    asked: list[CellId] = []

    def router(c: CellId) -> Any:
        asked.append(c)
        can = RouterCapabilities(switch_ms=None, streaming=True, mirror=False, fence=fence, weight_lease=lease)
        return SimpleNamespace(capabilities=lambda: can)

    cells = [c.id for c in fleet.cells]
    with pytest.raises(ConfigInvalid) as refused:
        ask_routers(cells, fleet, router)
    name = fleet.routers[0].name
    assert refused.value.code == "config.router_promise"
    assert f"router {name} `fence: single_writer`" in refused.value.hint
    assert len(asked) == 1, "each router is asked once"
    bare = replace(fleet, routers=tuple(replace(r, settings={**r.settings, "fence": "single_writer"}) for r in fleet.routers))
    ask_routers(cells, bare, router)
    assert len(asked) == 1, "the settings say so: nobody needs to ask"
    fence, lease = "target", "router"
    ask_routers(cells, fleet, router)


@pytest.mark.parametrize("kind", ["alb", "httproute"])
def test_nothing_starts_behind_a_router_that_would_raise_no_weight_and_doctor_says_why(kind: str) -> None:
    fleet = lab_fleet()
    fleet = replace(fleet, routers=tuple(replace(r, kind=kind) for r in fleet.routers))
    why, can = [""], RouterCapabilities(switch_ms=None, streaming=True, mirror=False, fence="target")
    stands = SimpleNamespace(target_bp=0)
    port: Any = SimpleNamespace(capabilities=lambda: can, refusal=lambda c: why[0], read=lambda c: stands)
    cells = [c.id for c in fleet.cells]
    ask_routers(cells, fleet, lambda c: port)
    why[0] = "gateway edge refuses it: RefNotPermitted"
    with pytest.raises(TrafficNotApplied, match=r"would raise no weight of .*: gateway edge refuses it") as refused:
        ask_routers(cells, fleet, lambda c: port)
    assert refused.value.code == "traffic.refused"
    app: Any = SimpleNamespace(wiring=SimpleNamespace(router_of=lambda c: port), fleet=lambda: fleet)
    found = _router_found(app, list(fleet.cells))
    assert (found.state, "no weight would be raised" in found.detail, "RefNotPermitted" in found.detail) == ("warn", True, True)


STATUS = {"parents": [{"parentRef": {"name": "edge"}, "conditions": [{"type": "Accepted", "status": "True"}]}]}
"""What a gateway that serves a route says of it; this double counts no generations."""


class Written:
    """A Kubernetes client with one HTTPRoute, which a write replaces, and a gateway that takes it."""

    def __init__(self, route: dict[str, Any]) -> None:
        self.route = route

    def get_namespaced_custom_object(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(data=json.dumps(self.route).encode())

    def replace_namespaced_custom_object(self, group: str, version: str, space: str, plural: str, name: str, body: Any, **_: Any) -> None:
        self.route = {**deepcopy(body), "status": STATUS}


def test_an_httproute_of_the_inference_extension_keeps_its_pools_and_gets_their_weights() -> None:
    """Its backends are InferencePools, of a group and kind of their own; a rule without weights is read as the API says, 1 to 1."""
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "port": 8000}
    refs = [{**pool, "name": "vllm-h100-baseline"}, {**pool, "name": "vllm-mi300x-canary"}]
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "timeouts": {"request": "300s"}, "backendRefs": refs}
    written = Written({"metadata": {"name": "chat", "resourceVersion": "7"}, "spec": {"rules": [rule]}, "status": STATUS})
    connection = Connection(name="edge", kind="httproute", settings={"route": "serving/chat"})
    router = HttpRouteRouter(connection, routes=Routes(lambda: written, "edge"), sources=SOURCES, seen_s=0.0)
    assert router.read(CELL).target_bp == 5_000
    assert isinstance(router.fence(CELL, Token(1)), Split)
    lease = datetime.now(UTC) + timedelta(minutes=3)
    for bp in (0, 1_000):
        assert isinstance(router.set(Split(cell=CELL, target_bp=bp, cap_bp=2_500, token=Token(1), lease_until=lease)), Applied)
        found = written.route["spec"]["rules"][0]
        assert found["backendRefs"] == [{**refs[0], "weight": 10_000 - bp}, {**refs[1], "weight": bp}]
        assert {k: v for k, v in found.items() if k != "backendRefs"} == {k: v for k, v in rule.items() if k != "backendRefs"}
    assert written.route["metadata"]["resourceVersion"] == "7", "the API server compares it"


def test_an_haproxy_without_our_lua_is_named_a_single_writer_by_plan_and_doctor() -> None:
    fleet = lab_fleet()
    bare = tuple(replace(r, settings={**r.settings, "fence": "single_writer"}) for r in fleet.routers)
    made = plan_of(fleet)
    assert "no stale writer is refused" not in " ".join(fault_lines(replace(made, outcomes=timed(made)), fleet, 100, 40))
    alone = replace(fleet, routers=bare)
    made = plan_of(alone)
    said = " ".join(" ".join(fault_lines(replace(made, outcomes=timed(made)), alone, 100, 40)).split())
    assert f"no stale writer is refused by router {bare[0].name}: let one process write there" in said
    assert f"(router {bare[0].name} keeps no lease)" in said

    can = RouterCapabilities(switch_ms=None, streaming=True, mirror=False, fence="single_writer")
    stands = SimpleNamespace(target_bp=0)
    port = SimpleNamespace(capabilities=lambda: can, read=lambda _: stands)
    app: Any = SimpleNamespace(wiring=SimpleNamespace(router_of=lambda _: port), fleet=lambda: alone)
    found = _router_found(app, list(alone.cells))
    assert (found.state, "fence: single_writer; lease: none" in found.detail) == ("warn", True)
    assert "fleetctl.lua" in found.mend


@pytest.mark.parametrize(("kind", "off", "named"), [("haproxy", 3, "off by at most 3 requests"), ("alb", None, "drawn by chance")])
def test_whether_a_share_without_a_key_is_a_draw_is_said_by_plan_and_doctor(kind: str, off: int | None, named: str) -> None:
    fleet = lab_fleet()
    fleet = replace(
        fleet,
        routers=tuple(replace(r, kind=kind) for r in fleet.routers),
        cells=tuple(replace(c, affinity=None) for c in fleet.cells),
    )
    made = plan_of(fleet)
    lines = " ".join(fault_lines(replace(made, outcomes=timed(made)), fleet, 100, 40))
    assert ("no affinity key, so the router draws each request's side by chance: " in lines) is (off is None)
    can = RouterCapabilities(switch_ms=None, streaming=True, mirror=False, fence="target", keyless_off=off)
    port = SimpleNamespace(capabilities=lambda: can, read=lambda _: SimpleNamespace(target_bp=0))
    app: Any = SimpleNamespace(wiring=SimpleNamespace(router_of=lambda _: port), fleet=lambda: fleet)
    assert named in _router_found(app, list(fleet.cells)).detail


def timed(plan: Plan) -> tuple[Outcome, ...]:
    return tuple(replace(o, fault_to_zero_s=2.0) if o.kind == "move" else o for o in plan.outcomes)


def test_a_kubeconfig_whose_program_for_the_credential_hangs_holds_up_neither_making_nor_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    gate, begun = threading.Event(), threading.Event()

    def hangs(*_: Any, **__: Any) -> None:
        begun.set()
        gate.wait(30)
        raise OSError("ended")

    monkeypatch.setattr("kubernetes.config.load_kube_config", hangs)
    monkeypatch.setattr(Deadline.__init__, "__defaults__", (0.3,))
    router = make_router(Connection(name="stuck", kind="httproute", settings=settings("httproute", tmp_path)), SOURCES, {})
    assert not begun.is_set(), "making it asks nobody"
    try:
        calls: tuple[Callable[[], object], ...] = (lambda: router.read(CELL), lambda: router.fence(CELL, Token(1)))
        for call in calls:
            began = time.monotonic()
            with pytest.raises(TrafficNotApplied, match="no answer within"):
                call()
            assert time.monotonic() - began < 3.0
        assert begun.wait(10)
    finally:
        gate.set()
