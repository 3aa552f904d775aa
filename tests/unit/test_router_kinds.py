"""Every kind of router that a fleet file may name is made, and what is missing is told by name."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.adapters.routers.httproute.router import HttpRouteRouter
from fleetctl.adapters.routers.httproute.wire import Routes
from fleetctl.adapters.routers.paper import paper_commands
from fleetctl.adapters.routers.route import backends_of
from fleetctl.cli.commands.doctor import _router_found
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.plan import Outcome, Plan
from fleetctl.domain.split import Applied, RouterCapabilities, Split
from fleetctl.errors import ConfigInvalid
from fleetctl.views.plan_calendar import fault_lines
from fleetctl.wiring.routers import KINDS, make_router
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
    ("kind", "settings", "fences", "guards"),
    [
        ("haproxy", {}, True, True),
        ("haproxy", {"fence": "single_writer"}, False, False),
        ("httproute", {}, True, False),
        ("queue", {}, True, False),
        ("envoy", {}, False, False),
        ("alb", {}, False, False),
        ("sqs", {}, False, False),
    ],
)
def test_what_a_router_promises_is_known_without_asking_it(kind: str, settings: dict[str, str], fences: bool, guards: bool) -> None:
    connection = Connection(name="edge", kind=kind, settings=settings)
    assert (connection.fences, connection.guards_leases) == (fences, guards)
    named = [connection.guards("chat", name) for name in ("", "chat_baseline", "chat_nvidia")]
    assert named == [guards, guards, False], "our Lua knows the usual backend alone"


class Written:
    """A Kubernetes client with one HTTPRoute, which a write replaces."""

    def __init__(self, route: dict[str, Any]) -> None:
        self.route = route

    def get_namespaced_custom_object(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(data=json.dumps(self.route).encode())

    def replace_namespaced_custom_object(self, group: str, version: str, space: str, plural: str, name: str, body: Any, **_: Any) -> None:
        self.route = deepcopy(body)


def test_an_httproute_of_the_inference_extension_keeps_its_pools_and_gets_their_weights() -> None:
    """Its backends are InferencePools, of a group and kind of their own; a rule without weights is read as the API says, 1 to 1."""
    pytest.importorskip("kubernetes", reason="the client for Kubernetes is not installed: pip install 'fleetctl[kubernetes]'")
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "port": 8000}
    refs = [{**pool, "name": "vllm-h100-baseline"}, {**pool, "name": "vllm-mi300x-canary"}]
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "timeouts": {"request": "300s"}, "backendRefs": refs}
    written = Written({"metadata": {"name": "chat", "resourceVersion": "7"}, "spec": {"rules": [rule]}})
    connection = Connection(name="edge", kind="httproute", settings={"route": "serving/chat"})
    router = HttpRouteRouter(connection, routes=Routes(written, "edge"), sources=SOURCES, seen_s=0.0)
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


def timed(plan: Plan) -> tuple[Outcome, ...]:
    return tuple(replace(o, fault_to_zero_s=2.0) if o.kind == "move" else o for o in plan.outcomes)
