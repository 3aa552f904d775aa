"""The checker: agrees with what the optimiser finds on generated fleets, and refuses every plan that somebody has bent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from fleetctl.assess import declared, memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import digest
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.units import Money
from fleetctl.errors import ConfigInvalid
from fleetctl.planning.check_facts import Ground
from fleetctl.planning.checker import check_plan
from fleetctl.planning.make_plan import make_plan
from fleetctl.planning.options import PlanOptions
from fleetctl.planning.speed import Speeds
from tests.cases.generated_fleet import Shape, generated_fleet
from tests.cases.planning_fleet import NOW, cell, lab_fleet, plan_of, pool, workload

BOTH = PlanOptions(both_vendors=True)


@pytest.fixture(scope="module")
def planned() -> tuple[Fleet, Plan, Ground]:
    """A generated fleet, its plan, and what it was checked on."""
    fleet = generated_fleet(Shape(workloads=60, regions=2), seed=3)
    caught: list[Ground] = []

    def catch(plan: Plan, fleet: Fleet, catalog: Any, ground: Ground) -> Any:
        caught.append(ground)
        return check_plan(plan, fleet, catalog, ground)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetctl.planning.make_plan.check_plan", catch)
        assessments = [declared(w, NOW) for w in fleet.workloads]
        plan = make_plan(fleet, load_catalog(), assessments, (), NOW, fleet_digest=digest(fleet), fit_of=memory_fit, options=BOTH)
    return fleet, plan, caught[0]


def failed(fleet: Fleet, plan: Plan, ground: Ground) -> set[str]:
    return {c.name for c in check_plan(plan, fleet, load_catalog(), ground) if not c.ok}


def test_a_generated_fleet_is_planned_checked_and_proven(planned: tuple[Fleet, Plan, Ground]) -> None:
    fleet, plan, ground = planned
    assert failed(fleet, plan, ground) == set()
    assert plan.certificate is not None
    assert plan.cost_then.amount < plan.cost_now.amount
    assert plan.bound is not None
    assert 0 <= (plan.gap_pct or 0.0) < 5
    assert sum(o.kind == "move" for o in plan.outcomes) > 5


def _first_move(plan: Plan, **changes: Any) -> Plan:
    at = next(i for i, o in enumerate(plan.outcomes) if o.kind == "move")
    bent = replace(plan.outcomes[at], **changes)
    return replace(plan, outcomes=(*plan.outcomes[:at], bent, *plan.outcomes[at + 1 :]))


def _cert(plan: Plan, **changes: Any) -> Plan:
    assert plan.certificate is not None
    return replace(plan, certificate=replace(plan.certificate, **changes))


def _usd(amount: str) -> Money:
    return Money(amount=Decimal(amount))


@pytest.mark.parametrize(
    ("bend", "name"),
    [
        (lambda p: _first_move(p, target=PoolId("a10-eastus2")), "places"),
        (lambda p: _first_move(p, target_replicas=0), "places"),
        (lambda p: replace(p, outcomes=p.outcomes[1:]), "places"),
        (lambda p: replace(p, cost_then=_usd("1.00")), "cash"),
        (lambda p: replace(p, cost_now=_usd("1.00")), "cash"),
        (lambda p: _cert(p, cost=_usd("1.00"), bound=_usd("0.50")), "cash"),
        (lambda p: _cert(p, price_bound=_usd("999999.00")), "proof"),
        (lambda p: _cert(p, bound=_usd("999999.00")), "proof"),
        (lambda p: _cert(p, prices=tuple(replace(y, both=y.both + 50.0, stay=-1.0) for y in p.certificate.prices)), "proof"),
    ],
)
def test_a_bent_plan_is_refused(planned: tuple[Fleet, Plan, Ground], bend: Callable[[Plan], Plan], name: str) -> None:
    fleet, plan, ground = planned
    assert name in failed(fleet, bend(plan), ground)


def test_too_few_or_too_many_vms_are_refused(planned: tuple[Fleet, Plan, Ground]) -> None:
    fleet, plan, ground = planned
    target = next(o.target for o in plan.outcomes if o.kind == "move")
    assert target is not None
    last = ground.vms[-1]
    fewer = replace(ground, vms=(*ground.vms[:-1], {**last, target: last[target] - 1}))
    more = replace(ground, vms=(*ground.vms[:-1], {**last, target: 10_000}))
    assert "whole VMs" in failed(fleet, plan, fewer)
    assert "whole VMs" in failed(fleet, plan, more)


def test_limits_hold_while_both_sides_run() -> None:
    works = tuple(workload(f"w{i}", accelerators_per_replica=8) for i in range(4))
    cells = tuple(cell(f"c{i}", f"w{i}") for i in range(4))
    pools = (pool("nvidia-lab", "nvidia", "lab-nvidia", count=4, limit=4), pool("m", "amd", "lab-mi300x", count=0, limit=4, by="x"))
    fleet = lab_fleet(workloads=works, cells=cells, pools=pools)
    assert [o.kind for o in plan_of(fleet).outcomes] == ["move"] * 4
    for change, moves in (
        ({"power_kw": {"lab": 4 * 8 * 1.73 + 2 * 8 * 1.79}}, 2),
        ({"target_gpus": 8}, 1),
        ({"budget_usd_per_hour": 4 * 98.32 + 3 * 48.0}, 3),
        ({"power_kw": {"elsewhere": 1.0}}, 4),
        ({"power_kw": {"lab": 1.0}}, 0),
    ):
        plan = plan_of(replace(fleet, policy=replace(fleet.policy, **change)), options=PlanOptions(stages=1))
        assert sum(o.kind == "move" for o in plan.outcomes) == moves
        blocked = {o.reason.code for o in plan.outcomes if o.kind == "infeasible"}
        assert blocked == ({f"limit.{next(iter(change))}"} if moves < 4 else set())


def test_a_pool_with_fewer_gpus_than_its_cells_is_an_error_that_names_them() -> None:
    fleet = lab_fleet(workloads=(workload("big", replicas=17),), cells=(cell("big-lab", "big"),))
    with pytest.raises(ConfigInvalid) as caught:
        plan_of(fleet)
    assert caught.value.code == "plan.pool_overfull"
    assert "big-lab" in caught.value.details[0]
    assert "hold 17" in caught.value.details[0]


def test_slo_class_decides() -> None:
    pools = (
        pool("h200", "nvidia", "Standard_ND96isr_H200_v5", region="eastus2", count=8, limit=8),
        pool("m", "amd", "Standard_ND96isr_MI300X_v5", region="eastus2", count=0, limit=40, by="azure"),
    )
    works = tuple(workload(k, klass=k, replicas=16, accelerators_per_replica=2) for k in ("batch", "realtime"))
    cells = tuple(cell(f"{w.id}-us", w.id, region="eastus2", source="h200") for w in works)
    plan = plan_of(lab_fleet(pools=pools, workloads=works, cells=cells))
    batch, realtime = plan.outcomes
    assert (batch.kind, batch.target_replicas) == ("move", 21)
    assert batch.speed is not None
    assert (batch.speed.kind, round(batch.speed.factor, 2)) == ("derived", 0.79)
    assert (realtime.kind, realtime.reason.code) == ("stay", "price.dearer")
    assert "0.38 x the speed" in realtime.reason.text
    assert Speeds(load_catalog())(works[0], *[s for s in load_catalog().skus if s.name == pools[0].sku] * 2).factor == 1.0
