"""Every kind of router that a fleet file may name is made, and what is missing is told by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.adapters.routers.paper import paper_commands
from fleetctl.adapters.routers.route import backends_of
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.errors import ConfigInvalid
from fleetctl.wiring.routers import KINDS, make_router

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
