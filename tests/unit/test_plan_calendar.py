"""Waves in time: overlapping soaks, freeze windows, releases, what both sides cost, deadline; the bill by three ways of counting."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.domain.calendar import Calendar, ReadyTime
from fleetctl.domain.fleet import Fleet, FreezeWindow, PhaseSpec
from fleetctl.domain.ids import PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Commitment
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Lane
from fleetctl.planning.calendar import _on_top
from fleetctl.planning.options import PlanOptions
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import ANA, NOW, cell, guardrails, lab_fleet, lab_policy, plan_of, pool, workload

H = timedelta(hours=1)
SIGNED = Lane(kind="accepted", reason="signed", actor=ANA)


def slow_steps(soak: timedelta = 24 * H) -> tuple[PhaseSpec, ...]:
    """One hour of canary, two of ramp, then soak; nothing waits for evidence in the lane `accepted`."""
    g = guardrails(0.02, 0.25)
    return (
        PhaseSpec(phase="preflight", weight_bp=0, bake=1 * H),
        PhaseSpec(phase="canary", weight_bp=1000, bake=1 * H, guardrails=g),
        PhaseSpec(phase="ramp", weight_bp=5000, bake=2 * H, guardrails=g),
        PhaseSpec(phase="soak", weight_bp=9500, bake=soak, guardrails=g),
        PhaseSpec(phase="complete", weight_bp=10_000, bake=0 * H),
    )


def fleet_of(*freeze: FreezeWindow, **changes: object) -> Fleet:
    """Two cells of eight GPUs in two waves, each frees one source pool."""
    values: dict[str, object] = {
        "pools": (
            pool("a", "nvidia", "lab-nvidia", count=1, limit=1, price="100"),
            pool("b", "nvidia", "lab-nvidia", count=1, limit=1, price="100"),
            pool("m", "amd", "lab-mi300x", count=0, limit=4, by="lab", price="50"),
        ),
        "workloads": (workload("x", accelerators_per_replica=8), workload("y", accelerators_per_replica=8)),
        "cells": (cell("x-lab", "x", source="a", wave=1, lane=SIGNED), cell("y-lab", "y", source="b", wave=2, lane=SIGNED)),
        "policy": lab_policy(steps=slow_steps(), warm_up=timedelta(0), freeze=freeze),
    }
    return lab_fleet(**(values | changes))


def calendar_of(plan: Plan) -> Calendar:
    assert plan.calendar is not None
    return plan.calendar


def test_a_wave_begins_when_the_one_before_is_in_soak_and_soaks_overlap() -> None:
    calendar = calendar_of(plan_of(fleet_of()))
    first, second = calendar.waves
    assert (first.start, first.soak, first.end) == (NOW, NOW + 4 * H, NOW + 28 * H)
    assert (second.start, second.soak, second.end) == (NOW + 4 * H, NOW + 8 * H, NOW + 32 * H)
    assert (calendar.start, calendar.end) == (NOW, NOW + 32 * H)


def test_source_vms_are_given_back_wave_by_wave_and_cost_until_then() -> None:
    plan = plan_of(fleet_of())
    calendar = calendar_of(plan)
    assert [(r.pool, r.vms, r.wave, r.at) for r in calendar.releases] == [("a", 1, 1, NOW + 28 * H), ("b", 1, 2, NOW + 32 * H)]
    assert plan.overlap_extra is not None
    assert plan.overlap_extra.amount == Decimal(2 * 50 * 28), "from then on what is given back pays for both that came"
    assert plan.overlap_cost.amount == Decimal(2 * 50 * 28 + 100 * 28 + 100 * 32)
    assert calendar.validation.amount == Decimal(2 * 50)
    assert calendar.payback_hours == pytest.approx(2 * 50 * 28 / 100)
    assert calendar.payback_at == NOW + 32 * H + 28 * H
    said = " ".join(render_plan(plan, fleet_of()).split())
    assert "paid back in 28.0 h of the saving of 100.00 USD an hour; if begun now, by 2026-12-03 00:00" in said


def test_new_vms_cost_on_top_until_the_source_is_given_back_not_until_their_own_soak_is_over() -> None:
    """Both leave one pool for one each; its VMs are given back only once the second has soaked."""
    pools = (
        pool("a", "nvidia", "lab-nvidia", count=2, limit=2, price="100"),
        pool("m", "amd", "lab-mi300x", count=0, limit=1, by="lab", price="50"),
        pool("o", "amd", "lab-mi300x", count=0, limit=1, by="lab", price="50"),
    )
    cells = tuple(replace(c, source=PoolId("a")) for c in fleet_of().cells)
    plan = plan_of(fleet_of(pools=pools, cells=cells))
    assert [(r.pool, r.vms, r.at) for r in calendar_of(plan).releases] == [("a", 2, NOW + 32 * H)]
    assert plan.overlap_extra is not None
    assert plan.overlap_extra.amount == Decimal((50 + 50) * 32)
    assert calendar_of(plan).payback_at == NOW + 64 * H


def test_the_time_that_a_freeze_holds_a_wave_is_in_what_it_costs_and_when_it_is_paid_back() -> None:
    """The second wave's canary ends inside it: it goes on 20 h later, and its source is held, and paid for, as long."""
    fleet = fleet_of(FreezeWindow(name="fair", start=NOW + 5.5 * H, end=NOW + 26 * H))
    plan, free = plan_of(fleet), plan_of(fleet_of())
    calendar = calendar_of(plan)
    assert [d.end for d in calendar.waves] == [NOW + 28 * H, NOW + 52 * H]
    assert plan.overlap_extra is not None
    assert plan.overlap_extra.amount == Decimal(2 * 50 * 28), "the first source pays for both until the second is given back"
    assert plan.overlap_cost.amount - free.overlap_cost.amount == Decimal(100 * 20)
    assert calendar.payback_at == NOW + (52 + 28) * H
    assert "(what waiting for fair costs is in it)" in " ".join(render_plan(plan, fleet).split())
    assert calendar.extra_then is None, "begun later it would cost as much: the first source pays for both"


def test_what_it_would_cost_on_top_if_begun_after_the_freeze_is_said() -> None:
    """Begun now both soaks end inside it: new VMs cost on top for 200 h instead of 28."""
    fleet = fleet_of(FreezeWindow(name="fair", start=NOW + 20 * H, end=NOW + 200 * H))
    plan = plan_of(fleet)
    calendar = calendar_of(plan)
    assert plan.overlap_extra is not None
    assert plan.overlap_extra.amount == Decimal(2 * 50 * 200)
    assert calendar.after_freeze == NOW + 200 * H
    assert calendar.extra_then is not None
    assert calendar.extra_then.amount == Decimal(2 * 50 * 28)
    said = " ".join(render_plan(plan, fleet).split())
    assert "begun after that, on 2026-12-08 20:00: 2,800.00 USD on top of today's bill instead" in said
    free = calendar_of(plan_of(fleet_of()))
    assert (free.after_freeze, free.extra_then) == (None, None)


def test_where_no_vm_has_to_come_nothing_is_on_top() -> None:
    fleet = fleet_of(pools=(*fleet_of().pools[:2], pool("m", "amd", "lab-mi300x", count=2, limit=2, by="lab", price="50")))
    plan = plan_of(fleet)
    assert plan.overlap_extra is not None
    assert plan.overlap_extra.amount == 0
    assert calendar_of(plan).payback_at is None
    assert "nothing comes on top of today's bill, so each hour saves" in " ".join(render_plan(plan, fleet).split())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(-4, 4)), min_size=1, max_size=5))
def test_on_top_is_what_adding_up_hour_by_hour_gives(flows: list[tuple[int, int]]) -> None:
    most, earned = _on_top([(NOW + at * H, Decimal(usd)) for at, usd in flows])
    so_far, highest, last, end = 0, 0, 0, max(at for at, _ in flows)
    for hour in range(1, 260):
        so_far += sum(usd for at, usd in flows if at < hour)
        highest, last = max(highest, so_far if hour <= end else 0), hour if so_far > 0 else last
    assert most == highest
    if earned is None:
        assert sum(usd for _, usd in flows) > 0 or so_far > 0 or highest == 0
    else:
        assert last <= (earned - NOW) / H <= last + 1


@pytest.mark.parametrize(
    ("begins", "ends", "start", "soak"),
    [
        (NOW - H, NOW + H, NOW + H, NOW + 5 * H),  # open now: nothing begins before it ends
        (NOW + 1.5 * H, NOW + 10 * H, NOW, NOW + 12 * H),  # canary ends inside it: the ramp waits, the bake itself does not
        (NOW + 2.5 * H, NOW + 3 * H, NOW, NOW + 4 * H),  # a window inside one step binds nothing
    ],
)
def test_a_freeze_binds_advance_alone(begins: datetime, ends: datetime, start: datetime, soak: datetime) -> None:
    fleet = fleet_of(FreezeWindow(name="fair", start=begins, end=ends))
    plan = plan_of(fleet)
    first = calendar_of(plan).waves[0]
    assert (first.start, first.soak) == (start, soak)
    assert ("fair" in first.waits) == (soak != NOW + 4 * H)
    assert ("waves wait for it" in " ".join(render_plan(plan, fleet).split())) == bool(first.waits)


def test_what_ends_after_the_deadline_is_named_and_still_planned() -> None:
    fleet = fleet_of()
    plan = plan_of(fleet, options=PlanOptions(deadline=NOW + 30 * H))
    assert calendar_of(plan).late == ("y-lab",)
    assert [o.kind for o in plan.outcomes] == ["move", "move"]
    assert "1 cell of 1 wave will not fit, from wave 2" in " ".join(render_plan(plan, fleet).split())
    fits = plan_of(fleet, options=PlanOptions(deadline=NOW + 32 * H))
    assert calendar_of(fits).late == ()
    assert "everything fits" in render_plan(fits, fleet)


def test_no_wave_begins_before_its_new_hosts_can_be_ready_and_the_deadline_counts_that() -> None:
    fleet = fleet_of()
    took = ReadyTime(pool=PoolId("m"), seconds=2 * 3600, models_seconds=1800, at=NOW - 9 * H)
    other = ReadyTime(pool=PoolId("a"), seconds=99 * 3600, models_seconds=0, at=NOW)  # gets no VM, so nobody waits for it
    options = PlanOptions(deadline=NOW + 32 * H, ready={PoolId("m"): took, PoolId("a"): other})
    plan = plan_of(fleet, options=options)
    calendar = calendar_of(plan)
    assert [w.start for w in calendar.waves] == [NOW + 2 * H, NOW + 6 * H], "the second wave's hosts came up meanwhile"
    assert calendar.end == NOW + 34 * H
    assert calendar.ready == (took,)
    assert calendar.late == ("y-lab",)
    assert plan.overlap_extra is not None
    assert plan.overlap_extra.amount == Decimal(2 * 50 * 30), "VMs are paid for while they get ready"
    said = " ".join(render_plan(plan, fleet).split())
    assert "hosts of m count as ready after 2.0 h, 30 min of it for models, as measured on" in said


def test_a_freeze_in_which_hosts_become_ready_holds_the_wave_until_its_end() -> None:
    window = FreezeWindow(name="fair", start=NOW + H, end=NOW + 3 * H)
    took = ReadyTime(pool=PoolId("m"), seconds=2 * 3600, models_seconds=0, at=NOW)
    plan = plan_of(fleet_of(window), options=PlanOptions(ready={PoolId("m"): took}))
    first = calendar_of(plan).waves[0]
    assert (first.start, first.waits) == (NOW + 3 * H, ("fair",))
    assert plan.overlap_extra is not None
    assert plan.overlap_extra.amount == Decimal(2 * 50 * (28 + 2)), "from two hours before the first wave, in which hosts get ready"


@pytest.mark.parametrize("days", [1, 3650])
def test_a_window_before_the_first_wave_costs_nothing_since_no_side_is_up_yet(days: int) -> None:
    window = FreezeWindow(name="fair", start=NOW - H, end=NOW + days * 24 * H)
    frozen, free = plan_of(fleet_of(window)), plan_of(fleet_of())
    assert (frozen.overlap_cost, frozen.overlap_extra) == (free.overlap_cost, free.overlap_extra)
    assert calendar_of(frozen).payback_hours == calendar_of(free).payback_hours


@pytest.mark.parametrize(("hours", "size"), [(29, 4), (33, 2), (37, 2), (27, 0)])
def test_a_deadline_that_is_missed_names_the_wave_size_that_would_meet_it(hours: int, size: int) -> None:
    """Four cells one by one: each wave takes 4 h to soak and 28 h in all, so n waves are over after 24 + 4 n hours."""
    works = tuple(workload(f"w{i}", accelerators_per_replica=8) for i in range(4))
    cells = tuple(cell(f"c{i}", f"w{i}", source="a", lane=SIGNED) for i in range(4))
    pools = (replace(fleet_of().pools[0], count=4, limit=4), *fleet_of().pools[1:])
    fleet = fleet_of(workloads=works, cells=cells, pools=pools)
    fleet = replace(fleet, policy=replace(fleet.policy, wave_cells=1))
    plan = plan_of(fleet, options=PlanOptions(deadline=NOW + hours * H))
    calendar = calendar_of(plan)
    assert len(calendar.waves) == 4
    text = " ".join(render_plan(plan, fleet).split())
    if size:
        assert (calendar.wave_cells, bool(calendar.late)) == (size, True)
        assert f"it would be met with policy.wave_cells: {size} (now 1)" in text
        bigger = replace(fleet, policy=replace(fleet.policy, wave_cells=size))
        assert calendar_of(plan_of(bigger, options=PlanOptions(deadline=NOW + hours * H))).late == ()
        smaller = replace(fleet, policy=replace(fleet.policy, wave_cells=size - 1))
        assert calendar_of(plan_of(smaller, options=PlanOptions(deadline=NOW + hours * H))).late
    else:
        assert calendar.wave_cells == 0
        assert "no number of cells a wave would meet it" in text


def test_nothing_moves_no_calendar() -> None:
    fleet = fleet_of(workloads=(workload("x", route="stay"), workload("y", route="stay")))
    plan = plan_of(fleet)
    assert plan.calendar is None
    assert plan.overlap_cost.amount == 0
    assert "Calendar: nothing moves" in render_plan(plan, fleet)


def test_the_bill_by_list_by_contract_and_after_commitments() -> None:
    paid = (Commitment(pool=PoolId("a"), count=1, hourly=Money(amount=Decimal(60)), until="2027-06-30"),)
    plan = plan_of(fleet_of(commitments=paid))
    lines = {c.name: (c.now, c.then) for c in plan.cash}
    listed = plan_of(fleet_of(pools=tuple(replace(p, price_usd_per_hour=None) for p in fleet_of().pools)))
    assert lines["list"] == (listed.cost_now, Money(amount=Decimal("98.32") + 1 * Decimal("48.00")))
    assert lines["contract"] == (Money(amount=Decimal("200.00")), Money(amount=Decimal("150.00")))
    assert lines["commitments"] == (Money(amount=Decimal("160.00")), Money(amount=Decimal("110.00")))
    over = replace(paid[0], until="2026-01-01")
    assert [c.name for c in plan_of(fleet_of(commitments=(over,))).cash] == ["list", "contract"]


def test_a_price_that_is_not_in_the_catalogue_leaves_the_list_unknown_never_zero() -> None:
    fleet = fleet_of(pools=(pool("a", "nvidia", "p5e.48xlarge", count=1, limit=1, price="100"), *fleet_of().pools[1:]))
    plan = plan_of(fleet)
    listed = next(c for c in plan.cash if c.name == "list")
    assert (listed.now, listed.then) == (None, None)
    assert "unknown" in render_plan(plan, fleet)


def test_a_freeze_that_makes_both_sides_cost_more_than_the_horizon_earns_is_a_failed_check() -> None:
    """The canary ends inside it, so both sides are up for a year; the proof counts steps alone and says so."""
    fleet = fleet_of(FreezeWindow(name="fair", start=NOW + 1.5 * H, end=NOW + 365 * 24 * H))
    plan = plan_of(fleet)
    (bad,) = [c for c in plan.checks if c.name == "payback"]
    assert not bad.ok
    assert "policy.horizon is 90.0" in bad.detail
    assert "freeze windows (fair)" in bad.detail
    assert "the bounds leave freeze windows out (fair)" in " ".join(render_plan(plan, fleet).split())
    assert [c for c in plan_of(fleet_of()).checks if c.name == "payback"] == []
    assert "leave freeze windows out" not in render_plan(plan_of(fleet_of()), fleet_of())


def test_a_deadline_that_has_passed_is_said() -> None:
    plan = plan_of(fleet_of(), options=PlanOptions(deadline=NOW - H))
    assert "it has passed already" in render_plan(plan, fleet_of())


def test_a_price_book_that_is_too_old_is_named() -> None:
    fleet = fleet_of(
        pools=(
            pool("a", "nvidia", "Standard_ND96isr_H100_v5", region="eastus2", count=2, limit=2),
            pool("m", "amd", "Standard_ND96isr_MI300X_v5", region="eastus2", count=0, limit=4, by="azure"),
        ),
        workloads=(workload("x", accelerators_per_replica=8),),
        cells=(cell("x-lab", "x", region="eastus2", source="a", lane=SIGNED),),
    )

    def aged(now: datetime) -> list[str]:
        return [c.detail for c in plan_of(fleet, now=now).checks if c.name == "price age" and not c.ok]

    assert aged(NOW) == []
    (text,) = aged(NOW + timedelta(days=400))
    assert "over 180 days old for Standard_ND96isr_H100_v5" in text
