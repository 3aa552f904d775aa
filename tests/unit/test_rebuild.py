"""A source that was given back is made anew by a person's order: which way is taken, what fails keeps traffic where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, HostId, PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.release import Release
from fleetctl.errors import ConfigureFailed, Interrupted
from fleetctl.usecases.capacity import CapacityPorts, PoolHosts
from fleetctl.usecases.home_choice import Failure
from fleetctl.usecases.provision import provision
from fleetctl.usecases.rebuild import Rebuild, RebuildPorts, chosen, rebuild
from tests.cases.planning_fleet import cell, lab_fleet, plan_of, pool, workload
from tests.fakes.clock import FakeClock
from tests.fakes.cloud import FakeCloud, RefusingProvisioner
from tests.fakes.configurator import FakeConfigurator
from tests.fakes.store import MemoryStore
from tests.rollouts import PERSON, T0
from tests.unit.test_home import way as way_of

SOURCE, OTHER = PoolId("nvidia-lab"), PoolId("h200-lab")
CHAT, SUMMARY = CellId("chat-lab"), CellId("summary-lab")


def fleet_of(by: str = "lab", count: int = 0, *, more: bool = False) -> Fleet:
    pools = [pool(SOURCE, "nvidia", "lab-nvidia", count=count, by=by), pool("mi300x-lab", "amd", "lab-mi300x", count=2, by="lab")]
    if more:
        pools.append(pool(OTHER, "nvidia", "lab-nvidia", count=2))
    cells = tuple(cell(c, c.removesuffix("-lab")) for c in (CHAT, SUMMARY))
    return lab_fleet(pools=tuple(pools), workloads=(workload("chat"), workload("summary")), cells=cells)


def ways() -> tuple[WayHome, ...]:
    return tuple(replace(way_of(c), released=True) for c in (CHAT, SUMMARY))


@dataclass
class World:
    """A store, a cloud that may refuse, and hosts to prepare."""

    folder: Path
    fleet: Fleet = field(default_factory=fleet_of)
    refusals: list[str] = field(default_factory=list)
    prepared: list[PoolId] = field(default_factory=list)
    made: list[PoolId] = field(default_factory=list)
    unprepared: int = 0
    stops: bool = False
    run: int = 0

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock.now)
        self.cloud = FakeCloud()
        self.provisioner = RefusingProvisioner(self.cloud, self.refusals)
        plan = plan_of(lab_fleet())
        self.store.put(plan.id, plan)
        hosts = (HostId("nvidia-lab-1"), HostId("nvidia-lab-2"))
        self.store.put(SOURCE, Release(pool=SOURCE, kind="ours", hosts=hosts, role="source", asked_by=PERSON, at=T0, step="done"))
        self.store.put(SOURCE, PoolHosts(pool=SOURCE, hosts=()))

    def ports(self) -> RebuildPorts:
        return RebuildPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            actor=PERSON,
            make=self._make,
            prepare=self._prepare,
            made=self.made.append,
        )

    def _make(self, plan: Plan) -> None:
        self.run += 1
        if self.stops:
            raise Interrupted("provision.interrupted", "stopped")
        ports = CapacityPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            provisioner=lambda _: self.provisioner,
            configurator=FakeConfigurator(),
            holder="ada@here",
            actor=PERSON,
            leftovers=lambda _: self.cloud,
        )
        provision(plan, self.fleet, self.folder / str(self.run), ports, lambda _: None)

    def _prepare(self, plan: Plan) -> None:
        if self.unprepared:
            self.unprepared -= 1
            raise ConfigureFailed("configure.failed", "1 of 2 hosts are not ready.")
        self.prepared += [p.pool for p in plan.pools]

    def choose(self) -> tuple[tuple[Rebuild, ...], tuple[Failure, ...]]:
        return chosen(ways(), self.fleet, self.ports())

    def rebuild(self, wanted: Sequence[Rebuild] = ()) -> tuple[Failure, ...]:
        return rebuild(wanted or self.choose()[0], self.fleet, self.ports())

    def hosts(self) -> list[str]:
        found = self.store.get(PoolHosts, SOURCE)
        return [h.id for h in found.hosts] if found is not None else []

    def events(self) -> list[str]:
        return [e.kind for e in self.store.events(None, 0) if e.kind.startswith("fallback.")]


def test_the_source_itself_is_made_anew_as_large_as_it_was(tmp_path: Path) -> None:
    w = World(tmp_path)
    (one,), failed = w.choose()
    assert failed == ()
    assert (one.spec.pool, one.spec.count, one.spec.sku, one.spec.stack) == (SOURCE, 2, "lab-nvidia", "lab")
    assert [x.cell for x in one.cells] == [CHAT, SUMMARY]
    assert one.passed == ()
    assert w.rebuild() == ()
    assert w.hosts() == ["nvidia-lab-1", "nvidia-lab-2"]
    assert (w.prepared, w.made) == ([SOURCE], [SOURCE])
    assert w.events() == ["fallback.rebuild", "fallback.rebuilt"]


def test_what_the_fleet_file_says_goes_before_what_was_given_back(tmp_path: Path) -> None:
    w = World(tmp_path, fleet_of(count=1))
    assert w.choose()[0][0].spec.count == 1


def test_a_better_way_that_needs_a_plan_is_told_and_not_taken(tmp_path: Path) -> None:
    w = World(tmp_path, fleet_of(more=True))
    (one,), _ = w.choose()
    assert one.spec.pool == SOURCE
    assert one.passed == ("move it to pool h200-lab: its machines stand",)


def test_what_others_built_is_not_made_here_and_what_is_left_is_ranked(tmp_path: Path) -> None:
    w = World(tmp_path, fleet_of(by="existing", more=True))
    found, failed = w.choose()
    assert found == ()
    assert {f.error.code for f in failed} == {"fallback.cannot_rebuild"}
    assert [f.cell for f in failed] == [CHAT, SUMMARY]
    assert "others built nvidia-lab" in failed[0].error.message
    assert failed[0].error.details[0] == "1. move it to pool h200-lab: its machines stand"
    assert failed[0].error.hint
    assert w.hosts() == []


def test_a_pool_of_unknown_size_is_not_guessed(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.store.put(SOURCE, Release(pool=SOURCE, kind="ours", hosts=(), role="source", asked_by=PERSON, at=T0, step="done"))
    found, failed = w.choose()
    assert (found, {f.error.code for f in failed}) == ((), {"fallback.cannot_rebuild"})
    assert "count in the fleet file" in failed[0].error.message


def test_a_cloud_that_refuses_leaves_everybody_where_they_are(tmp_path: Path) -> None:
    w = World(tmp_path, refusals=["AllocationFailed: no capacity"] * 20)
    failed = w.rebuild()
    assert [f.cell for f in failed] == [CHAT, SUMMARY]
    assert failed[0].error.code.startswith("capacity.")
    assert (w.prepared, w.made, w.hosts()) == ([], [], [])
    assert w.events() == ["fallback.rebuild", "fallback.not_rebuilt"]
    w.refusals.clear()
    w.clock.advance(timedelta(days=1))  # a place that refused is left alone for a while
    assert w.rebuild() == ()
    assert w.made == [SOURCE]


def test_hosts_that_could_not_be_prepared_are_gone_on_with_and_nobody_calls_them_a_source(tmp_path: Path) -> None:
    w = World(tmp_path, unprepared=1)
    failed = w.rebuild()
    assert {f.error.code for f in failed} == {"configure.failed"}
    assert (len(w.hosts()), w.made) == (2, [])
    applied = w.provisioner.applied
    assert w.rebuild() == ()
    assert w.provisioner.applied == applied, "nothing was made twice"
    assert (w.prepared, w.made) == ([SOURCE], [SOURCE])


def test_one_source_that_fails_keeps_no_other_from_being_made(tmp_path: Path) -> None:
    w = World(tmp_path, unprepared=1)
    (one,), _ = w.choose()
    other = replace(one, spec=replace(one.spec, pool=OTHER), cells=one.cells[1:])
    failed = w.rebuild((replace(one, cells=one.cells[:1]), other))
    assert [f.cell for f in failed] == [CHAT]
    assert w.made == [OTHER]


def test_without_any_plan_nothing_is_made(tmp_path: Path) -> None:
    w = World(tmp_path)
    (one,), _ = w.choose()
    w.store = MemoryStore(w.clock.now)
    assert {f.error.code for f in w.rebuild((one,))} == {"fallback.cannot_rebuild"}
    assert w.hosts() == []


def test_whoever_stops_it_stops_it(tmp_path: Path) -> None:
    w = World(tmp_path, stops=True)
    with pytest.raises(Interrupted):
        w.rebuild()
    assert w.made == []
