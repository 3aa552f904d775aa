"""Copies for the shadow end with a fallback that reaches no store, by the wiring that `fleetctl fallback` uses, on HAProxy and Envoy; and
on HAProxy by themselves, when no tick asks for them any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.home.files import make_key
from fleetctl.adapters.routers.envoy.router import EnvoyRouter
from fleetctl.adapters.routers.haproxy.wire import AdminSocket
from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.home import Returned, WayHome
from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.usecases.home import fallback
from fleetctl.wiring import Wiring
from tests.fakes.paper import on_paper
from tests.lab.envoy_lab import EnvoyRig, envoy_rig
from tests.lab.haproxy_lab import CELL, PIN_KEY, SOURCE, STREAM, Rig, put, rig, until
from tests.lab.test_paper_home import needs

pytestmark = pytest.mark.lab
PERSON = Actor(kind="person", name="ada", via="cli")


@pytest.fixture(scope="module", params=["haproxy", "envoy"])
def router(request: pytest.FixtureRequest) -> Iterator[Rig | EnvoyRig]:
    if request.param == "envoy":
        with envoy_rig() as envoy:
            yield envoy
    else:
        with rig() as haproxy:
            haproxy.healthy()
            yield haproxy


def _copying(of: Rig | EnvoyRig) -> int:
    """Send ten requests that are worth a copy; return how many copies came by the time that one of another cell did."""
    for server in of.backends[STREAM].values():
        server.stream = False  # it is to be quick
    writer = of.router()
    before = len(of.collector.seen)
    for n in range(10):
        assert of.ask(CELL, key=f"copy-{n}").status == 200
    _copy_all(writer, STREAM)
    assert of.ask(STREAM, key="last").status == 200
    until(lambda: any(_is_of(path, headers, STREAM) for path, headers, _ in of.collector.seen[before:]), "the last copy")
    writer.set_shadow(STREAM, 0)
    return sum(_is_of(path, headers, CELL) for path, headers, _ in of.collector.seen[before:])


def _is_of(path: str, headers: dict[str, str], cell: str) -> bool:
    return headers.get("x-fleetctl-shadow") == cell or path == f"/shadow/{cell}"


def _copy_all(writer: object, cell: str) -> None:
    writer.set_shadow(cell, 1.0 if isinstance(writer, EnvoyRouter) else 1_000)  # type: ignore[attr-defined]


def _way(of: Rig | EnvoyRig) -> WayHome:
    return WayHome(
        fleet="lab",
        cell=CELL,
        workload=WorkloadId("chat"),
        region="lab",
        tenant="",
        klass="online",
        router=replace(of.connection, secrets={"pin_key": SecretRef(kind="env", name="LAB_PIN_KEY")}),
        source=SOURCE,
        cap_bp=10_000,
        paper=("echo",),
        made_at=datetime.now(UTC),
    )


@pytest.mark.parametrize("bp", [0, 5_000])
def test_a_fallback_without_a_store_stops_the_copies_before_and_after_the_first_step(
    router: Rig | EnvoyRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bp: int
) -> None:
    monkeypatch.setenv("LAB_PIN_KEY", PIN_KEY)
    state = tmp_path / ".fleetctl"
    state.mkdir(mode=0o700)
    make_key(state / "key")
    (state / "store.db").mkdir()  # what cannot be opened is down
    wiring = Wiring(tmp_path, lambda: tmp_path / "fleet.yaml", store=state / "store.db", actor="ada")
    put(router.router(), bp, token=router.router().read(CELL).token + 1)
    _copy_all(router.router(), CELL)
    assert _copying(router) > 0
    (found,) = fallback((_way(router),), wiring.home_ports(), PERSON)
    assert isinstance(found, Returned), found
    assert (found.was_bp, found.left_bp, router.router().read(CELL).target_bp) == (bp, 0, 0)
    assert "copies" not in found.reported
    assert _copying(router) == 0


def test_the_way_home_on_paper_stops_them_too(router: Rig | EnvoyRig) -> None:
    _copy_all(router.router(), CELL)
    assert _copying(router) > 0
    if isinstance(router, Rig):  # as its paper does by socat, which need not be here
        assert AdminSocket(router.process.socket).ask(f"fleetctl home {CELL}", Deadline()).startswith("ok 0 ")
    else:
        needs("curl", "sed", "grep")
        on_paper(router.connection, CELL)
    assert _copying(router) == 0


def test_copies_that_no_tick_asks_for_any_more_end_by_themselves_and_those_asked_for_go_on() -> None:
    with rig(copies_s=1) as own:
        own.healthy()
        own.router().set_shadow(CELL, 1_000)
        assert _copying(own) > 0

        def asked() -> int:
            own.router().set_shadow(CELL, 1_000)
            return _copying(own)

        began = datetime.now(UTC)
        while (datetime.now(UTC) - began).total_seconds() < 1.5:
            assert asked() > 0, "asked for again and again, as every tick of the phase does"
        until(lambda: _copying(own) == 0, "nobody asks, so they end")
