"""The use case of planning: what is asked of capacity, cells on their way, what is saved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.analysis.breaker import failures_to_trip, note_outcomes
from fleetctl.analysis.memory import BreakerMemory
from fleetctl.domain.evidence import Arm, Counts, Cursor, Evidence
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Priority
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.errors import TrafficNotApplied
from fleetctl.ports.capacity import Capacity
from fleetctl.usecases.plan import FaultTimes, PlanPorts, arrived, plan
from tests.cases.planning_fleet import ANA, NOW, cell, lab_fleet, pool, workload
from tests.fakes.clock import FakeClock
from tests.fakes.rollouts import rollout
from tests.fakes.small import KnownCapacity
from tests.fakes.store import MemoryStore


class CountedCapacity:
    """Remembers what it was asked."""

    def __init__(self, inner: Capacity) -> None:
        self._inner = inner
        self.asked: list[tuple[str, int]] = []

    def verdict(self, sku: str, region: str, count: int, priority: Priority) -> CapacityVerdict:
        self.asked.append((sku, count))
        return self._inner.verdict(sku, region, count, priority)


def ports(store: MemoryStore, capacity: Capacity) -> PlanPorts:
    return PlanPorts(store=store, records=store, clock=FakeClock(), capacity=capacity, actor=ANA)


def test_capacity_is_asked_for_what_the_draft_needs_and_the_next_pool_is_taken_on_no() -> None:
    pools = (
        pool("nvidia-lab", "nvidia", "lab-nvidia"),
        pool("cheap", "amd", "lab-mi300x", count=0, limit=9, by="x"),
        pool("dear", "amd", "Standard_ND96isr_MI300X_v5", count=0, limit=9, by="x", price="60"),
    )
    fleet = lab_fleet(pools=pools, workloads=(workload("a", replicas=2),), cells=(cell("a-lab", "a"),))
    capacity = CountedCapacity(KnownCapacity({"lab-mi300x": 1}))
    store = MemoryStore()
    made = plan(fleet, ports(store, capacity))
    assert capacity.asked == [("lab-mi300x", 2), ("Standard_ND96isr_MI300X_v5", 2)]
    assert made.outcomes[0].target == "dear"
    assert store.newest(Plan) == made


def test_a_cell_on_its_way_keeps_its_target_and_its_pool_is_held() -> None:
    pools = (
        pool("nvidia-lab", "nvidia", "lab-nvidia"),
        pool("cheap", "amd", "lab-mi300x", count=0, limit=9, by="x"),
        pool("dear", "amd", "lab-mi300x", count=0, limit=9, by="x", price="60"),
    )
    fleet = lab_fleet(pools=pools, workloads=(workload("a", replicas=2),), cells=(cell("a-lab", "a"),))
    store = MemoryStore()
    moving = rollout(CellId("a-lab"))
    store.start(replace(moving, spec=replace(moving.spec, target=PoolId("dear"))), ())
    made = plan(fleet, ports(store, KnownCapacity({})), save=False)
    assert made.outcomes[0].target == "dear"
    assert [(s.pool, s.hold) for s in made.pools] == [("dear", True)]
    assert store.newest(Plan) is None


def completed(target: str = "mi300x-lab") -> MemoryStore:
    """A store in which chat-lab has gone to its target for good."""
    store = MemoryStore()
    done = rollout(CellId("chat-lab"))
    spec = replace(done.spec, source=PoolId("nvidia-lab"), target=PoolId(target))
    store.start(replace(done, ended="complete", spec=spec), ())
    return store


def test_a_cell_that_an_earlier_plan_brought_is_arrived_and_begins_no_wave() -> None:
    made = plan(lab_fleet(), ports(completed(), KnownCapacity({})), save=False)
    there = next(o for o in made.outcomes if o.cell == "chat-lab")
    assert (there.kind, there.arrived, there.target) == ("move", True, "mi300x-lab")
    assert "chat-lab" not in [c for w in made.waves for c in w.cells]
    assert [s.pool for s in made.pools] == ["mi300x-lab"]


def test_what_the_router_shows_wins_over_the_record_and_an_unreachable_one_does_not() -> None:
    def unreachable(_: CellId) -> int:
        raise TrafficNotApplied("traffic.unreachable", "no answer")

    store = completed()
    assert arrived(lab_fleet(), store, lambda _: 0) == {}
    assert arrived(lab_fleet(), store, lambda _: 10_000) == {"chat-lab": "mi300x-lab"}
    assert arrived(lab_fleet(), store, unreachable) == {"chat-lab": "mi300x-lab"}
    assert arrived(lab_fleet(), completed("gone"), None) == {}
    pinned = replace(lab_fleet().cells[0], target=PoolId("elsewhere"))
    assert arrived(replace(lab_fleet(), cells=(pinned,)), store, None) == {}


def test_time_from_a_fault_to_no_traffic_is_that_of_the_slowest_step() -> None:
    policy = lab_fleet().policy
    times = FaultTimes(policy)
    failures = failures_to_trip(0.005)
    assert times(150.0, 0.005) == round(failures / (150 * 0.1) + 1, 3)  # 10 % is the smallest share; looks every second
    assert times(0.0, 0.005) is None
    soak = replace(policy, steps=tuple(replace(s, bake=timedelta(days=7)) if s.phase == "soak" else s for s in policy.steps))
    assert (FaultTimes(soak)(150.0, 0.005) or 0) > 60
    assert all(o.fault_to_zero_s for o in plan(lab_fleet(), ports(MemoryStore(), KnownCapacity({})), save=False).outcomes)


@pytest.mark.parametrize("ratio", [0.0, 0.005, 0.02, 0.1])
def test_the_breaker_trips_after_as_many_failures_as_it_says(ratio: float) -> None:
    memory = BreakerMemory()
    base = Counts(attempts=100_000, errors=int(100_000 * ratio))
    for seen, outcome in enumerate("." * 200 + "x" * failures_to_trip(ratio), start=1):
        assert not memory.tripped
        arms: dict[Arm, Counts] = {"baseline": base, "canary": Counts(attempts=seen, errors=0)}
        note_outcomes(
            memory, Evidence(cell=CellId("c"), at=NOW, arms=arms, state={}, cursor=Cursor(position="", since=NOW), canary_outcomes=outcome)
        )
    assert memory.tripped
