"""The use case of planning: what is asked of capacity, cells on their way, what is saved."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Priority
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.ports.capacity import Capacity
from fleetctl.usecases.plan import PlanPorts, plan
from tests.cases.planning_fleet import ANA, cell, lab_fleet, pool, workload
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
