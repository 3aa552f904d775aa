"""Stages: what the release of source VMs makes room for is placed in later waves, proven, checked, dated, and never begun too early."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fleetctl.assess import declared, memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import decode, digest, plain
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.plan import Plan
from fleetctl.domain.rollout import Rollout
from fleetctl.errors import FleetctlError
from fleetctl.planning import stages
from fleetctl.planning.check_facts import Ground
from fleetctl.planning.checker import check_plan
from fleetctl.planning.explain import explain
from fleetctl.planning.make_plan import work_out
from fleetctl.planning.options import PlanOptions
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.usecases.migrate import chosen_cells
from fleetctl.views.plan import render_plan
from fleetctl.views.plan_explain import render_explained
from tests.cases.planning_fleet import NOW, cell, lab_fleet, plan_of, pool, workload
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore
from tests.rollouts import JUDGE_STATE

KW_NVIDIA, KW_AMD = 8 * 1.73, 8 * 1.79


def powered(extra_vms: float, *, cells: int = 4, target: str = "", **changes: Any) -> Fleet:
    """Cells of one whole VM each; power for so many AMD VMs beside today's, and a little for what an AMD VM draws more."""
    works = tuple(workload(f"w{i}", accelerators_per_replica=8, **changes.get(f"w{i}", {})) for i in range(cells))
    pools = (
        pool("n", "nvidia", "lab-nvidia", count=cells, limit=cells),
        pool("m", "amd", "lab-mi300x", count=0, limit=cells, by="x", price="10"),
    )
    listed = tuple(cell(f"c{i}", f"w{i}", source="n", target=PoolId(target) if target else None) for i in range(cells))
    fleet = lab_fleet(pools=pools, workloads=works, cells=listed)
    power = {"lab": cells * KW_NVIDIA + extra_vms * KW_AMD + 2.0}
    return replace(fleet, policy=replace(fleet.policy, power_kw=power, wave_cells=cells))


def stages_of(plan: Plan) -> list[tuple[int, int]]:
    return [(w.stage, len(w.cells)) for w in plan.waves]


def refused(plan: Plan, fleet: Fleet) -> set[str]:
    """Return what the checker says of a plan, on the ground that the planner gave it for the same fleet."""
    caught: list[tuple[Any, ...]] = []

    def catch(*args: Any) -> Any:
        caught.append(args)
        return check_plan(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetctl.planning.make_plan.check_plan", catch)
        plan_of(fleet)
    _, _, catalog, ground = caught[0]
    assert isinstance(ground, Ground)
    return {c.name for c in check_plan(plan, fleet, catalog, ground) if not c.ok}


def test_what_a_release_makes_room_for_moves_in_a_later_stage() -> None:
    fleet = powered(2)
    alone, plan = plan_of(fleet, options=PlanOptions(stages=1)), plan_of(fleet)
    assert stages_of(alone) == [(1, 2)]
    assert stages_of(plan) == [(1, 2), (2, 2)]
    assert {o.reason.code for o in alone.outcomes if o.kind != "move"} == {"limit.power_kw"}
    assert plan.cost_then.amount < alone.cost_then.amount
    assert [s.count for s in plan.pools] == [2]  # provision makes what may run now
    assert plan.certificate is not None
    assert alone.certificate is not None
    assert (plan.certificate.bound, plan.gap_pct) == (alone.certificate.bound, 0.0)
    assert [c.bound for c in plan.certificate.later] == [c.cost for c in plan.certificate.later]
    assert decode(Plan, plain(plan)) == plan


def test_each_stage_waits_for_the_soak_of_the_one_before() -> None:
    plan = plan_of(powered(1))
    assert plan.calendar is not None
    assert stages_of(plan) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    dates = plan.calendar.waves
    assert [d.start for d in dates[1:]] == [d.end for d in dates[:-1]]
    assert [d.after for d in dates] == [(), *[(PoolId("n"),)] * 3]
    assert [(r.pool, r.vms) for r in plan.calendar.releases] == [("n", 1)] * 4
    hours = [(d.end - d.start) / timedelta(hours=1) for d in dates]
    assert plan.overlap_extra is not None
    assert float(plan.overlap_extra.amount) == pytest.approx(10 * hours[0], abs=0.05), "what a stage saves pays for the next one's VMs"
    going = float(plan.cost_now.amount) / 4  # of one VM
    assert float(plan.overlap_cost.amount) == pytest.approx(10 * hours[0] + going * sum(hours), abs=0.05)


def test_no_more_than_the_most_stages() -> None:
    plan = plan_of(powered(1, cells=6))
    assert stages_of(plan) == [(n, 1) for n in (1, 2, 3, 4)]
    assert [o.reason.code for o in plan.outcomes if o.kind != "move"] == ["limit.power_kw"] * 2


def test_a_fleet_too_large_for_stages_says_so_where_a_release_might_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "LINEAR_CELLS", 3)
    monkeypatch.setattr(stages, "EXACT_CHOICES", -99)  # so that prices tell whether room is scarce, as in large fleets
    fleet = powered(1)
    plan = plan_of(fleet)
    assert stages_of(plan) == [(1, 1)]
    said = " ".join(render_plan(plan, fleet).split())
    assert "one stage only: with 4 cells (over 12,000) the room that releases make is not planned" in said
    roomy = powered(4)
    assert "one stage only" not in render_plan(plan_of(roomy), roomy), "all move, nothing waits"


def test_a_pinned_cell_waits_for_its_room() -> None:
    plan = plan_of(powered(3, target="m"))
    assert stages_of(plan) == [(1, 3), (2, 1)]
    assert all(c.ok for c in plan.checks)
    never = plan_of(powered(0, target="m"))
    assert {o.reason.code for o in never.outcomes} == {"limit.power_kw"}
    assert [c.name for c in never.checks if not c.ok] == ["conflict"]


def test_a_workload_that_others_wait_for_is_not_left_behind_them() -> None:
    """w1 waits for w0: where w1 may move first and w0 would have to wait for a release, w0 stays."""
    fleet = powered(2, cells=3)
    works = (replace(fleet.workloads[0], replicas=2), replace(fleet.workloads[1], after=(WorkloadId("w0"),)), fleet.workloads[2])
    pools = (replace(fleet.pools[0], count=4, limit=4), fleet.pools[1])
    fleet = replace(fleet, workloads=works, pools=(pools[0], replace(pools[1], limit=9)))
    fleet = replace(fleet, policy=replace(fleet.policy, power_kw={"lab": 4 * KW_NVIDIA + KW_AMD + 0.1}))
    plan = plan_of(fleet)
    stage = plan.stage_of()
    waves = {c: w.index for w in plan.waves for c in w.cells}
    if "c0" in stage and "c1" in stage:
        assert waves[CellId("c0")] < waves[CellId("c1")]
    assert all(c.ok for c in plan.checks)


def test_capacity_that_ends_waits_for_no_release() -> None:
    fleet = powered(2)
    ending = replace(fleet, pools=(replace(fleet.pools[0], ends="2027-06-30"), fleet.pools[1]))
    assert stages_of(plan_of(ending)) == [(1, 2)]
    ending = replace(fleet, pools=(fleet.pools[0], replace(fleet.pools[1], ends="2027-06-30")))
    assert stages_of(plan_of(ending)) == [(1, 2)]


def bent_stage(plan: Plan, stage: int) -> Plan:
    return replace(plan, waves=tuple(replace(w, stage=stage) if w.stage > 1 else w for w in plan.waves))


def test_the_checker_refuses_stages_that_do_not_hold() -> None:
    fleet = powered(2)
    plan = plan_of(fleet)
    assert refused(plan, fleet) == set()
    assert "limits" in refused(bent_stage(plan, 1), fleet)
    assert "order" in refused(bent_stage(plan, 3), fleet)
    assert plan.calendar is not None
    assert plan.certificate is not None
    first, last = plan.calendar.waves
    early = replace(plan.calendar, waves=(first, replace(last, start=NOW)))
    assert refused(replace(plan, calendar=early), fleet) == {"order"}
    assert refused(replace(plan, certificate=replace(plan.certificate, later=())), fleet) >= {"proof"}
    later = plan.certificate.later[0]
    better = replace(later, price_bound=replace(later.price_bound, amount=later.price_bound.amount + 50))
    assert refused(replace(plan, certificate=replace(plan.certificate, later=(better,))), fleet) == {"proof"}


def test_migrate_never_begins_a_later_stage() -> None:
    fleet = powered(2)
    plan = plan_of(fleet)
    first, later = plan.waves
    store = MemoryStore(FakeClock().now)
    assert chosen_cells(plan, store, ()) == first.cells
    with pytest.raises(FleetctlError) as caught:
        chosen_cells(plan, store, [later.cells[0]])
    assert caught.value.code == "pending.release"
    for c in first.cells:
        spec = spec_for(plan, fleet, c)
        soak = next(i for i, phase in enumerate(spec.phases) if phase.phase == "soak")
        rollout = Rollout(cell=c, plan=plan.id, spec=spec, judge=JUDGE_STATE, until="complete", step=soak)
        store.start(rollout, ())
    assert chosen_cells(plan, store, ()) == first.cells  # soak goes on
    store = MemoryStore(FakeClock().now)
    for c in first.cells:
        rollout = Rollout(cell=c, plan=plan.id, spec=spec_for(plan, fleet, c), judge=JUDGE_STATE, until="complete", ended="complete")
        store.start(rollout, ())
    with pytest.raises(FleetctlError) as caught:
        chosen_cells(plan, store, ())
    assert caught.value.code == "pending.release"
    assert "capacity of n is given back" in str(caught.value)


def test_after_the_release_the_next_plan_begins_with_what_was_a_later_stage() -> None:
    fleet = powered(2)
    plan = plan_of(fleet)
    went = {c for w in plan.waves if w.stage == 1 for c in w.cells}
    cells = tuple(replace(c, source=PoolId("m")) if c.id in went else c for c in fleet.cells)
    pools = (replace(fleet.pools[0], count=2), replace(fleet.pools[1], count=2))
    after = plan_of(replace(fleet, cells=cells, pools=pools))
    assert stages_of(after) == [(1, 2)]
    assert {c for w in after.waves for c in w.cells} == {c for w in plan.waves if w.stage == 2 for c in w.cells}
    assert after.cost_then == plan.cost_then


def test_it_is_said_at_80_columns() -> None:
    fleet = powered(2)
    text = render_plan(plan_of(fleet), fleet)
    assert max(len(line) for line in text.splitlines()) <= 80
    said = " ".join(text.split())
    assert "with all of today's VMs held, no plan costs less than" in said
    assert "on what stage 1 releases, none less than" in said
    assert "wave 2 (2 cells): stage 2, on what stage 1 releases (n)." in said
    assert "Not begun by this plan: after the release run fleetctl plan again" in said
    worked = work_out(
        fleet,
        load_catalog(),
        [declared(w, NOW) for w in fleet.workloads],
        (),
        NOW,
        fleet_digest=digest(fleet),
        fit_of=memory_fit,
    )
    late = next(c for c, stage in worked.plan.stage_of().items() if stage == 2)
    assert "in stage 2: there is room for it once what stage 1 leaves is given back" in render_explained(worked.plan, explain(worked, late))
