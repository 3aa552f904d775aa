"""Who moves first, who waits for whom, who stands apart from whom."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId, WorkloadId
from fleetctl.domain.plan import Plan
from fleetctl.domain.workload import Workload
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.planning import apart, solve
from fleetctl.planning.options import PlanOptions
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import cell, lab_fleet, plan_of, pool, workload


def fleet_of(*works: Workload, limits: tuple[int, ...] = (9,), size: int = 1, price: int = 10) -> Fleet:
    pools = (
        pool("n", "nvidia", "lab-nvidia", count=len(works), limit=len(works)),
        *(pool(f"m{i}", "amd", "lab-mi300x", count=0, limit=n, by="x", price=str(price + i)) for i, n in enumerate(limits)),
    )
    fleet = lab_fleet(pools=pools, workloads=works, cells=tuple(cell(f"{w.id}-lab", w.id, source="n") for w in works))
    return replace(fleet, policy=replace(fleet.policy, wave_cells=size))


def eight(name: str, **changes: object) -> Workload:
    return workload(name, accelerators_per_replica=8, **changes)  # type: ignore[arg-type]


def order_of(plan: Plan) -> list[tuple[str, ...]]:
    return [w.cells for w in plan.waves]


def test_within_a_class_simple_and_small_goes_first() -> None:
    works = (
        eight("a", rate=900.0),
        eight("b", rate=150.0),
        eight("c", rate=150.0, route="rebuild"),
        eight("z", klass="batch", rate=2000.0),
        eight("r", klass="realtime", rate=150.0),
    )
    assert order_of(plan_of(fleet_of(*works))) == [("z-lab",), ("b-lab",), ("a-lab",), ("c-lab",), ("r-lab",)]


def test_nobody_goes_before_what_it_waits_for_nor_with_it() -> None:
    works = (
        eight("front", klass="batch", after=(WorkloadId("back"),)),
        eight("back", klass="realtime"),
        eight("free", klass="realtime"),
        eight("last", klass="batch", after=(WorkloadId("front"),)),
        eight("gone", after=(WorkloadId("stays"),)),
        eight("stays", route="stay"),
    )
    waves = order_of(plan_of(fleet_of(*works, size=9)))
    assert waves == [("gone-lab",), ("back-lab", "free-lab"), ("front-lab",), ("last-lab",)]


def test_a_circle_is_a_mistake_of_the_file_and_does_not_hang() -> None:
    text = (
        "name: x\nlineage: 3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90\npools: {}\ncells: {}\nworkloads:\n"
        "  a: {engine: vllm, class: batch, after: [b], traffic: {requests_per_s: 1, input_tokens: 1, output_tokens: 1},\n"
        "    model: {name: m, parameters_billion: 1, precision: fp8, context_tokens: 10}}\n"
        "  b: {engine: vllm, class: batch, after: [a, nobody], traffic: {requests_per_s: 1, input_tokens: 1, output_tokens: 1},\n"
        "    model: {name: m, parameters_billion: 1, precision: fp8, context_tokens: 10}}\n"
    )
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(text, file="fleet.yaml")
    assert [d.split(": ", 1)[1] for d in caught.value.details] == [
        "workloads.a.after: 'a' waits for itself: a circle",
        "workloads.b.after: 'b' waits for itself: a circle",
        "workloads.b.after[1]: no workload is named 'nobody'",
    ]
    works = (eight("a", after=(WorkloadId("b"),)), eight("b", after=(WorkloadId("a"),)))
    assert sorted(c for w in order_of(plan_of(fleet_of(*works))) for c in w) == ["a-lab", "b-lab"]


def test_cells_of_a_group_never_share_a_target() -> None:
    works = tuple(eight(f"w{i}", apart="bank") for i in range(3))
    both = plan_of(fleet_of(*works, limits=(9, 9)))
    assert sorted((o.target or "", o.reason.code) for o in both.outcomes) == [
        ("", "apart"),
        ("m0", "move.cheaper"),
        ("m1", "move.cheaper"),
    ]
    assert both.certificate is not None
    assert (both.certificate.gap_pct, both.certificate.bound) == (0.0, both.certificate.cost), "the proof knows of the group"


def test_where_the_proof_does_not_know_of_groups_the_gap_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    works = tuple(eight(f"w{i}", apart="bank") for i in range(3))
    fleet = fleet_of(*works, limits=(9, 9))
    small = plan_of(fleet).certificate
    monkeypatch.setattr(solve, "EXACT_CHOICES", 0)
    both = plan_of(fleet)
    free = plan_of(fleet_of(*(replace(w, apart="") for w in works), limits=(9, 9))).certificate
    c = both.certificate
    assert c is not None
    assert free is not None
    assert small is not None
    assert c.bound.amount <= free.cost.amount + Decimal("0.01")
    assert c.cost == small.cost
    assert c.apart is not None
    assert c.apart.amount == c.cost.amount - free.cost.amount
    assert f"keeping groups apart makes {c.apart.amount} an hour of that gap" in " ".join(render_plan(both, fleet).split())
    assert (free.apart, small.apart) == (None, None)


def test_without_a_second_solution_each_goes_to_its_next_best_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of a group, five targets at five prices: one solution puts all into the cheapest, yet five find a place."""
    monkeypatch.setattr(solve, "EXACT_CHOICES", 0)
    monkeypatch.setattr(apart, "ROUND_CELLS", 0)
    plan = plan_of(fleet_of(*(eight(f"w{i}", apart="bank") for i in range(6)), limits=(9,) * 5))
    targets = [o.target for o in plan.outcomes if o.kind == "move"]
    assert sorted(str(t) for t in targets) == [f"m{i}" for i in range(5)]
    assert all(c.ok for c in plan.checks)


def test_asked_for_at_any_cost_a_large_fleet_moves_whole_as_a_small_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(*(eight(f"w{i}") for i in range(6)), limits=(2, 2, 2), price=900)
    small = plan_of(fleet, options=PlanOptions(allow_dearer=True))
    monkeypatch.setattr(solve, "EXACT_CHOICES", 0)
    large = plan_of(fleet, options=PlanOptions(allow_dearer=True))
    assert [o.kind for o in small.outcomes] == [o.kind for o in large.outcomes] == ["move"] * 6
    assert large.cost_then == small.cost_then


def test_pins_into_one_pool_do_not_break_a_group() -> None:
    fleet = fleet_of(eight("a", apart="x"), eight("b", apart="x"), eight("c"))
    fleet = replace(fleet, cells=tuple(replace(c, target=PoolId("m0")) for c in fleet.cells))
    plan = plan_of(fleet)
    assert [(o.kind, o.reason.code) for o in plan.outcomes] == [
        ("move", "move.cheaper"),
        ("infeasible", "apart"),
        ("move", "move.cheaper"),
    ]
    (bad,) = [c for c in plan.checks if not c.ok]
    assert bad.name == "conflict"
    lines = "workloads.a.apart: x; workloads.b.apart: x; cells.a-lab.target (8 GPUs), cells.b-lab.target (8 GPUs)."
    assert f"these lines cannot all hold while both sides are up: {lines}" in bad.detail


def test_a_pin_beside_one_of_its_group_that_stays_names_where_that_stands() -> None:
    fleet = fleet_of(eight("a", apart="x"), eight("b", apart="x"))
    there = replace(fleet.pools[1], count=1, price_usd_per_hour=Decimal(1))
    cells = (replace(fleet.cells[0], source=PoolId("m0")), replace(fleet.cells[1], target=PoolId("m0")))
    plan = plan_of(replace(fleet, pools=(fleet.pools[0], there), cells=cells))
    (bad,) = [c for c in plan.checks if not c.ok]
    assert "workloads.a.apart: x; workloads.b.apart: x; cells.a-lab.source: m0; cells.b-lab.target (8 GPUs)." in bad.detail
