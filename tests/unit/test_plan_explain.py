"""Why a plan does what it does: reasons by name, every pool looked at, what would change it; two plans against each other."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from fleetctl.assess import declared, memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import digest
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.portability import LicenceAcceptance
from fleetctl.errors import UsageError
from fleetctl.planning.difference import difference
from fleetctl.planning.explain import Explained, explain
from fleetctl.planning.make_plan import Worked, work_out
from fleetctl.planning.options import DEFAULT, PlanOptions
from fleetctl.views.plan import render_plan, why_word
from fleetctl.views.plan_difference import render_difference
from fleetctl.views.plan_explain import render_explained
from tests.cases.planning_fleet import ANA, NOW, cell, lab_fleet, plan_of, pool, workload

POOLS = (
    pool("n", "nvidia", "lab-nvidia", price="40"),
    pool("dear", "amd", "lab-mi300x", count=0, by="x", price="60"),
    pool("small", "amd", "lab-mi300x", count=0, limit=0, by="x", price="8"),
    pool("odd", "amd", "no-such", by="x"),
    pool("far", "amd", "lab-mi300x", region="elsewhere", by="x"),
)


def fleet_of(*names: str, **changes: object) -> Fleet:
    works = tuple(workload(n, accelerators_per_replica=8) for n in names)
    return lab_fleet(pools=POOLS, workloads=works, cells=tuple(cell(f"{n}-lab", n, source="n") for n in names), **changes)


def worked(fleet: Fleet, options: PlanOptions = DEFAULT) -> Worked:
    assessments = [declared(w, NOW) for w in fleet.workloads]
    return work_out(fleet, load_catalog(), assessments, (), NOW, fleet_digest=digest(fleet), fit_of=memory_fit, options=options)


def one(fleet: Fleet, name: str = "a", options: PlanOptions = DEFAULT) -> Explained:
    (found,) = explain(worked(fleet, options), name)
    return found


def test_every_pool_of_the_region_is_named_with_what_speaks_against_it() -> None:
    found = one(fleet_of("a"))
    assert [(look.pool, look.code) for look in found.looks] == [
        ("n", "here"),
        ("dear", "price.dearer"),
        ("small", "pool.limit"),
        ("odd", "catalog.no_sku"),
    ]
    dear, small = found.looks[1], found.looks[2]
    assert (dear.usd_per_hour, dear.replicas, dear.gpus) == (Decimal(60), 1, 8)
    assert dear.per_usd == pytest.approx(40 / 60, abs=1e-3)
    assert dear.per_watt == pytest.approx(1.73 / 1.79, abs=1e-3)
    assert "1 more VM would do" in small.text
    assert found.outcome.reason.code == "pool.limit"
    assert any(c.startswith("Quota: 1 more VM of small (0 may exist)") for c in found.changes)


def test_the_price_and_the_speed_that_would_turn_it_do() -> None:
    fleet = replace(fleet_of("a"), pools=POOLS[:2])
    found = one(fleet)
    assert found.outcome.reason.code == "price.dearer"
    price = next(c for c in found.changes if c.startswith("Price"))
    at = Decimal(price.split("below ")[1].split(" ")[0])
    cheaper = replace(fleet, pools=(POOLS[0], replace(POOLS[1], price_usd_per_hour=at - Decimal("0.01"))))
    assert one(cheaper).outcome.kind in ("move", "stay")
    assert one(cheaper).outcome.reason.code != "price.dearer"
    assert one(replace(fleet, pools=(POOLS[0], replace(POOLS[1], price_usd_per_hour=at + 1)))).outcome.reason.code == "price.dearer"


@pytest.mark.parametrize(("replicas", "price"), [(2, 33), (3, 29), (5, 60), (7, 90)])
def test_the_speed_that_is_said_is_enough_to_the_digit(replicas: int, price: int) -> None:
    """At 0.33 two replicas need seven, at a third six: what is said is rounded up."""
    pools = (
        pool("n", "nvidia", "Standard_ND96isr_H100_v5", region="eastus2", count=9, limit=9, price="100"),
        pool("m", "amd", "Standard_ND96isr_MI300X_v5", region="eastus2", count=0, limit=99, by="azure", price=str(price)),
    )
    work = workload("a", accelerators_per_replica=8, replicas=replicas, serving={"target_speed": "0.05"})
    fleet = lab_fleet(pools=pools, workloads=(work,), cells=(cell("a-lab", "a", region="eastus2", source="n"),))
    found = one(fleet)
    assert found.outcome.reason.code == "price.dearer"
    said = next(c for c in found.changes if c.startswith("Speed")).split("do ")[1].split(" ")[0]
    assert one(with_speed(fleet, said)).outcome.reason.code != "price.dearer"
    assert one(with_speed(fleet, str(Decimal(said) - Decimal("0.02")))).outcome.reason.code == "price.dearer"


def with_speed(fleet: Fleet, factor: str) -> Fleet:
    return replace(fleet, workloads=(replace(fleet.workloads[0], serving={"target_speed": factor}),))


def test_what_was_chosen_and_what_was_not() -> None:
    pools = (*POOLS[:2], pool("best", "amd", "lab-mi300x", count=0, by="x", price="20"))
    found = one(replace(fleet_of("a"), pools=pools))
    assert [(look.pool, look.code) for look in found.looks] == [("n", "here"), ("dear", "price.other"), ("best", "chosen")]
    assert found.changes == ()


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(UsageError) as caught:
        explain(worked(fleet_of("a")), "nobody")
    assert caught.value.code == "plan.unknown_workload"


def test_the_text_fits_80_columns_and_hostile_names_do_not_act() -> None:
    made = worked(fleet_of("a", "b"))
    text = render_explained(made.plan, explain(made, "a-lab"))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "a-lab: blocked, quota (pool.limit)" in text
    assert "b-lab" not in text


def test_residency_is_named_where_amd_is_elsewhere_only() -> None:
    outcome = one(replace(fleet_of("a"), pools=(POOLS[0], POOLS[4]))).outcome
    assert (outcome.kind, outcome.reason.code) == ("infeasible", "residency")
    assert "elsewhere" in outcome.reason.text
    opened = replace(fleet_of("a"), pools=(POOLS[0], replace(POOLS[4], count=0, price_usd_per_hour=Decimal(1), provisioned_by="x")))
    opened = replace(opened, cells=(cell("a-lab", "a", source="n", regions=("elsewhere",)),))
    assert one(opened).outcome.kind == "move"


def test_scale_waits_for_a_licence_on_record() -> None:
    work = workload("a", accelerators_per_replica=8, route="scale")
    blocked = declared(work, NOW)
    licence = LicenceAcceptance(licence="scale", reference="C-17", actor=ANA, at=NOW)
    fleet = replace(fleet_of("a"), workloads=(work,))
    assert one(fleet).outcome.reason.code == "licence"
    assert "--accept-licence" in (one(fleet).outcome.change or "")
    accepted = declared(work, NOW, licence)
    assert (len(blocked.blocking), accepted.blocking, accepted.licence) == (1, (), "C-17")


def test_reasons_have_a_word_and_changes_stand_once_per_group() -> None:
    assert [why_word(c) for c in ("assess.R012", "lane.too_slow", "limit.power_kw", "fit.gpus")] == [
        "not portable",
        "too little traffic for evidence",
        "power",
        "memory fit",
    ]
    fleet = replace(fleet_of("a", "b", "c"), pools=(pool("n", "nvidia", "lab-nvidia", count=3, limit=3, price="40"), *POOLS[1:2]))
    text = render_plan(plan_of(fleet), fleet)
    assert "stay: 3 cells, price book (price.dearer)" in text
    assert text.count("to change it:") == 1
    assert " ".join(text.split()).count("would cost") == 1


def test_arrived_cells_are_shown_as_arrived_and_stand_in_no_wave() -> None:
    fleet = lab_fleet()
    plan = plan_of(fleet, options=PlanOptions(arrived={CellId("chat-lab"): PoolId("mi300x-lab")}))
    there = next(o for o in plan.outcomes if o.cell == "chat-lab")
    assert (there.kind, there.arrived, there.target) == ("move", True, "mi300x-lab")
    assert "chat-lab" not in [c for w in plan.waves for c in w.cells]
    assert [s.pool for s in plan.pools] == ["mi300x-lab"]
    text = " ".join(render_plan(plan, fleet).split())
    assert "3 move, 0 stay, 0 blocked, 1 arrived" in text
    assert "the source held until it is released: chat-lab (mi300x-lab)" in text


def test_two_plans_against_each_other() -> None:
    fleet = fleet_of("a", "b")
    old = plan_of(fleet)
    cheaper = replace(fleet, serial=2, pools=(POOLS[0], replace(POOLS[1], price_usd_per_hour=Decimal(10))), cells=fleet.cells[:1])
    found = difference(old, plan_of(cheaper))
    assert (found.same_fleet, found.old_serial, found.new_serial, found.inputs) == (False, 1, 2, ())
    assert [(c.cell, c.before, c.after) for c in found.cells] == [
        ("a-lab", "blocked, pool.limit", "move to dear, 1 replicas"),
        ("b-lab", "blocked, pool.limit", ""),
    ]
    text = render_difference(found)
    assert "+ a-lab: move to dear, 1 replicas" in text
    assert "the old plan is stale" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    same = difference(old, plan_of(fleet))
    assert (same.cells, same.same_fleet) == ((), True)
    assert "No cell otherwise" in render_difference(same)
