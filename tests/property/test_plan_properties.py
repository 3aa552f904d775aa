"""Whatever the fleet: capacity is never exceeded, waves keep the policy, money adds up, the plan is deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Plan
from fleetctl.planning.candidates import padded
from fleetctl.planning.checks import gpus_used
from fleetctl.planning.make_plan import plan_id
from fleetctl.planning.placement import SPREAD
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import cell, lab_fleet, lab_policy, plan_of, pool, workload


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    limits = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    amd = [
        pool(f"m{i}", "amd", "lab-mi300x", count=0, limit=n, by="lab", price=draw(st.sampled_from(["", "40", "70"])))
        for i, n in enumerate(limits)
    ]
    works = tuple(
        workload(
            f"w{i}",
            klass=draw(st.sampled_from(["batch", "online", "realtime"])),
            rate=draw(st.sampled_from([0.001, 1.0, 150.0])),
            billions=draw(st.sampled_from([0.5, 8.0, 70.0, 405.0])),
            replicas=draw(st.integers(1, 5)),
            accelerators_per_replica=draw(st.sampled_from([1, 2, 3, 4, 8, 16])),
            apart=draw(st.sampled_from(["", "", "g"])),
        )
        for i in range(draw(st.integers(1, 4)))
    )
    cells = tuple(
        cell(
            f"c{i}",
            draw(st.sampled_from([w.id for w in works])),
            wave=draw(st.integers(0, 3)),
            target=draw(st.sampled_from([None, None, PoolId("m0")])),
        )
        for i in range(draw(st.integers(0, 9)))
    )
    each = {w.id: w.replicas * w.accelerators_per_replica for w in works}
    count = draw(st.sampled_from([100, max(2, -(-sum(each[c.workload] for c in cells) // 8) + 2 * len(cells))]))
    room = draw(st.sampled_from([None, 1.0, 2.0, 3.0]))
    power = {} if room is None else {"lab": count * 8 * 1.73 + room * 8 * 1.79 + 1.0}
    budget = draw(st.sampled_from([None, None, count * 98.32 + 100.0]))
    policy = lab_policy(wave_cells=draw(st.integers(1, 4)), power_kw=power, budget_usd_per_hour=budget)
    return lab_fleet(
        pools=(pool("nvidia-lab", "nvidia", "lab-nvidia", count=count, limit=count), *amd), workloads=works, cells=cells, policy=policy
    )


def first_fit(cells: Mapping[CellId, tuple[int, int]], size: int) -> int:
    """Return the VMs of `size` GPUs that first fit, largest first, opens; per cell (replicas, GPUs)."""
    free: list[int] = []
    holders: list[set[CellId]] = []
    for name, (replicas, gpus) in sorted(cells.items(), key=lambda item: (-item[1][1], item[0])):
        for number in range(replicas):
            apart = 0 < number < SPREAD
            fits = [i for i, left in enumerate(free) if left >= gpus and not (apart and name in holders[i])]
            if not fits:
                free.append(size)
                holders.append(set())
            at = fits[0] if fits else len(free) - 1
            free[at] -= gpus
            holders[at].add(name)
    return len(free)


@settings(max_examples=60, deadline=None)
@given(fleets())
def test_capacity_is_never_exceeded(fleet: Fleet) -> None:
    plan = plan_of(fleet)
    catalog = load_catalog()
    stages = plan.stage_of()
    used = gpus_used(fleet, plan.outcomes, stages)
    for p in fleet.pools[1:]:
        sku = catalog.sku(p.sku)
        assert sku is not None
        assert used[p.id] <= p.limit * sku.accelerators
        mine = {
            o.cell: (o.replicas, padded(fleet.workload(o.workload).accelerators_per_replica, sku.accelerators))
            for o in plan.outcomes
            if o.kind == "move" and o.target == p.id and stages[o.cell] == 1
        }
        wanted = next((s.count for s in plan.pools if s.pool == p.id), 0)
        assert wanted <= p.limit
        assert wanted <= first_fit(mine, sku.accelerators)
        assert wanted * sku.accelerators >= sum(
            replicas * fleet.workload(fleet.cell(c).workload).accelerators_per_replica for c, (replicas, _) in mine.items()
        )
    assert all(o.fit is not None and o.fit.needed_gib <= o.fit.available_gib for o in plan.outcomes if o.kind == "move")
    assert next(c for c in plan.checks if c.name == "capacity").ok


@settings(max_examples=60, deadline=None)
@given(fleets())
def test_waves_keep_the_policy(fleet: Fleet) -> None:
    plan = plan_of(fleet)
    listed = [c for w in plan.waves for c in w.cells]
    assert sorted(listed) == sorted(o.cell for o in plan.outcomes if o.kind == "move")
    assert all(1 <= len(w.cells) <= fleet.policy.wave_cells for w in plan.waves)
    assert [w.index for w in plan.waves] == list(range(1, len(plan.waves) + 1))
    rank = []
    stages = plan.stage_of()
    for c in listed:
        declared = fleet.cell(c).wave
        klass = fleet.policy.order.index(fleet.workload(fleet.cell(c).workload).klass)
        rank.append((stages[c], *((0, declared, 0) if declared else (1, 0, klass))))
    assert rank == sorted(rank)


@settings(max_examples=60, deadline=None)
@given(fleets())
def test_money_adds_up(fleet: Fleet) -> None:
    plan = plan_of(fleet)
    catalog = load_catalog()

    def price(id_: str) -> Decimal:
        p = fleet.pool(PoolId(id_))
        listed = catalog.price(p.sku, p.region)
        assert listed is not None
        return p.price_usd_per_hour if p.price_usd_per_hour is not None else listed.usd_per_hour

    assert plan.cost_now.amount == sum((p.count * price(p.id) for p in fleet.pools), Decimal(0))
    new = sum((s.count * price(s.pool) for s in plan.pools), Decimal(0))
    later = any(w.stage > 1 for w in plan.waves)
    assert new <= plan.cost_then.amount
    assert later or plan.cost_then.amount <= plan.cost_now.amount + new
    on_targets = sum((o.cost_then.amount for o in plan.outcomes if o.kind == "move" and o.cost_then), Decimal(0))
    assert later or on_targets <= new + Decimal("0.01")
    assert plan.overlap_extra is not None
    assert 0 <= plan.overlap_extra.amount <= plan.overlap_cost.amount


@settings(max_examples=40, deadline=None)
@given(fleets())
def test_the_same_inputs_give_the_same_bytes_and_every_plan_can_be_read(fleet: Fleet) -> None:
    plan = plan_of(fleet)
    assert canonical(plan) == canonical(plan_of(fleet))
    assert decode(Plan, canonical(plan)) == plan
    assert plan.id == plan_id(plan)
    text = render_plan(plan, fleet)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert (text.splitlines()[-1] == f"Nothing was changed. Next: fleetctl approve {plan.id}") != plan.is_stuck
    assert all(o.change for o in plan.outcomes if o.kind != "move")


@pytest.mark.slow
@settings(max_examples=3_000, deadline=None)
@given(fleets())
def test_the_checker_agrees_in_three_thousand_fleets(fleet: Fleet) -> None:
    plan = plan_of(fleet)
    assert all(c.ok for c in plan.checks if c.name in {"places", "whole VMs", "limits", "cash", "order", "proof"})
