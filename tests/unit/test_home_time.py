"""What a router took to bring cells home is kept per router, shown by the plan, and a promise below it is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.domain.canonical import decode, plain
from fleetctl.domain.fleet import Connection, Fleet
from fleetctl.domain.home import HomeTime
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from fleetctl.errors import FleetctlError
from fleetctl.planning.home_time import home_s
from fleetctl.usecases.home_time import KEPT, home_times, note_home_time
from fleetctl.usecases.plan import plan
from tests.cases.planning_fleet import NOW, lab_fleet
from tests.fakes.clock import FakeClock
from tests.fakes.small import KnownCapacity
from tests.fakes.store import MemoryStore
from tests.rollouts import CELL, PERSON
from tests.simulator import Simulation, quick
from tests.unit.test_fleet_file import SMALL, mistakes
from tests.unit.test_plan_usecase import ports


def promised(seconds: float, kind: str = "haproxy") -> Fleet:
    made = lab_fleet()
    routers = tuple(replace(r, kind=kind) for r in made.routers)
    return replace(made, policy=replace(made.policy, home_within=timedelta(seconds=seconds)), routers=routers)


def test_a_plan_is_refused_where_a_router_was_measured_slower_than_what_is_promised() -> None:
    store, fleet = MemoryStore(), promised(2.0)
    router = fleet.routers[0].name
    made = plan(fleet, ports(store, KnownCapacity({})), save=False)
    (said,) = (c for c in made.checks if c.name == "time home")
    assert said.ok
    assert said.detail == f"router {router} (haproxy) takes 100 ms home, as its kind does; never measured here"
    note_home_time(store, router, 14.0, NOW)
    note_home_time(store, router, 3_500.0, NOW)
    with pytest.raises(FleetctlError) as refused:
        plan(fleet, ports(store, KnownCapacity({})), save=False)
    assert refused.value.code == "plan.home_within"
    assert f"router {router} (haproxy) takes 3.5 s home (slowest of 2, last {NOW:%Y-%m-%d}), more than policy.home_within 2 s" in str(
        refused.value.details
    )
    assert plan(promised(4.0), ports(store, KnownCapacity({})), save=False).checks
    stays = replace(fleet, cells=tuple(replace(c, lane=replace(c.lane, kind="stay", reason="r")) for c in fleet.cells))
    kept = plan(stays, ports(store, KnownCapacity({})), save=False)
    assert {o.kind for o in kept.outcomes} == {"stay"}, "nobody is moved behind it: nothing is promised"


def test_an_api_that_shows_a_weight_before_anything_acts_on_it_promises_no_less_than_its_kind() -> None:
    fast = {"edge": HomeTime(router="edge", took_ms=(40.0,), at=NOW)}
    for kind, least in (("alb", 60.0), ("httproute", 60.0), ("sqs", 1.1), ("haproxy", 0.04), ("envoy", 0.04), ("queue", 0.04)):
        assert home_s(Connection(name="edge", kind=kind), fast) == least
    with pytest.raises(FleetctlError, match="home as fast as the policy promises"):
        plan(promised(2.0, "alb"), ports(MemoryStore(), KnownCapacity({})), save=False)
    slow = plan(promised(60.0, "alb"), ports(MemoryStore(), KnownCapacity({})), save=False)
    usual = plan(promised(60.0), ports(MemoryStore(), KnownCapacity({})), save=False)
    zero = {o.cell: o.fault_to_zero_s or 0.0 for o in usual.outcomes}
    assert all((o.fault_to_zero_s or 0.0) == pytest.approx(zero[o.cell] + 59.9) for o in slow.outcomes if o.kind == "move")


def test_the_newest_twenty_are_kept_and_a_record_reads_back() -> None:
    store, fleet = MemoryStore(), lab_fleet()
    for n in range(KEPT + 5):
        note_home_time(store, fleet.routers[0].name, float(n), NOW)
    (found,) = home_times(store, fleet).values()
    assert (len(found.took_ms), found.slowest_ms, found.took_ms[0]) == (KEPT, KEPT + 4.0, 5.0)
    assert decode(HomeTime, plain(found)) == found


def test_a_tick_that_takes_a_cell_home_tells_what_it_took() -> None:
    s = Simulation(of=quick(), rate_per_s=40)
    told: list[tuple[CellId, float]] = []
    s.begin()
    s.at("canary")
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.look_now()
    real, clock = s._writer.set, s.clock

    def slow(split):  # type: ignore[no-untyped-def]
        clock.advance(timedelta(milliseconds=250))
        return real(split)

    s._writer.set = slow  # type: ignore[method-assign]
    ports_ = replace(s.ports(), timed=lambda c, ms: told.append((c, ms)))
    s.tick_once(ports=ports_)
    assert (s.bp(), told) == (0, [(CELL, 250.0)])
    assert isinstance(clock, FakeClock)


def test_a_promise_of_nothing_is_refused_with_its_line() -> None:
    text = SMALL + "policy:\n  home_within: 0s\n"
    assert any("policy.home_within" in m and m.startswith(f"f.yaml:{len(text.splitlines())}:") for m in mistakes(text)), mistakes(text)
