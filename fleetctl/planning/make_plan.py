"""Plan, pure layer: fleet, catalogue, assessments and capacity in, one plan value out. Never I/O, never a clock.

This is the first planner: cells are placed greedily in wave order. The optimiser replaces what is inside, not the signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PlanId, PoolId, Sha256
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Assessment, Outcome, Plan, StepNeed
from fleetctl.domain.pool import PoolSpec, Sku
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Instant, Money
from fleetctl.domain.workload import Cell, Workload
from fleetctl.planning.checks import make_checks
from fleetctl.planning.cost import Cost, fleet_cost, share_of
from fleetctl.planning.evidence_need import (
    LANE_LIMIT_HOURS,
    Baseline,
    PlannedRequests,
    baseline_of,
    hours_to_soak,
    planned_requests,
    step_needs,
)
from fleetctl.planning.placement import FitOf, Placed, Placer
from fleetctl.planning.waves import finite, make_waves, wave_key


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    fleet: Fleet
    catalog: Catalog
    assessments: Mapping[str, Assessment]
    baselines: Mapping[str, Baseline]
    requests_for: PlannedRequests


def make_plan(
    fleet: Fleet,
    catalog: Catalog,
    assessments: Iterable[Assessment],
    capacity: Iterable[CapacityVerdict],
    now: Instant,
    *,
    fleet_digest: Sha256,
    fit_of: FitOf,
    baselines: Mapping[str, Baseline] | None = None,
    requests_for: PlannedRequests = planned_requests,
) -> Plan:
    """Decide per cell whether it moves, where, in which wave, with what evidence, at what cost.

    Args:
        assessments: one per workload; a workload without one stays.
        capacity: answers for more VMs of a SKU in a region; only "no" binds, "unknown" is named in the checks.
        now: aware UTC; fleet_digest: of the fleet as saved, kept in the plan so that a changed fleet is noticed.
        fit_of: `fleetctl.assess.memory_fit`; baselines: measured per workload id, else declared or assumed ones are used.

    Returns:
        a plan; the same inputs give the same bytes.
    """
    given = _Inputs(
        fleet=fleet,
        catalog=catalog,
        assessments={a.workload: a for a in assessments},
        baselines=baselines or {},
        requests_for=requests_for,
    )
    verdicts = tuple(capacity)
    placer = Placer(fleet, catalog, verdicts, fit_of)
    outcomes: dict[CellId, Outcome] = {}
    needs: dict[CellId, tuple[StepNeed, ...]] = {}
    for cell in _in_order(fleet):
        outcomes[cell.id] = _outcome(cell, given, placer, needs)
    moving = tuple(c for c in fleet.cells if outcomes[c.id].kind == "move")
    waves = make_waves(fleet, moving, needs)
    moved = {c: o.target for c, o in outcomes.items() if o.kind == "move" and o.target is not None}
    opened = {pool: len(room.free) for pool, room in placer.rooms.items()}
    cost = fleet_cost(fleet, catalog, moved, opened, sum(w.hours for w in waves), now)
    ordered = tuple(outcomes[c.id] for c in fleet.cells)
    plan = Plan(
        id=PlanId(""),
        lineage=fleet.lineage,
        serial=fleet.serial,
        fleet=fleet_digest,
        made_at=now,
        outcomes=ordered,
        pools=_pool_specs(fleet, moved, cost),
        waves=waves,
        cost_now=cost.now,
        cost_then=cost.then,
        overlap_cost=cost.overlap,
        overlap_extra=cost.extra,
        catalog_id=catalog.id,
        price_book_id=catalog.price_book_id,
        checks=make_checks(fleet, catalog, ordered, waves, cost, verdicts, given.baselines),
    )
    return replace(plan, id=plan_id(plan))


def plan_id(plan: Plan) -> PlanId:
    """Return the id that a plan's content gives: "p" and 11 hex digits of the digest of all else."""
    return PlanId("p" + digest(replace(plan, id=PlanId("")))[:11])


def _in_order(fleet: Fleet) -> tuple[Cell, ...]:
    workloads = {w.id: w for w in fleet.workloads}

    def key(cell: Cell) -> tuple[object, ...]:
        w = workloads[cell.workload]
        return (cell.target is None, wave_key(cell, w.klass, fleet.policy), -w.accelerators_per_replica, cell.id)

    return tuple(sorted(fleet.cells, key=key))


def _outcome(cell: Cell, given: _Inputs, placer: Placer, needs: dict[CellId, tuple[StepNeed, ...]]) -> Outcome:
    workload = given.fleet.workload(cell.workload)
    source = given.fleet.pool(cell.source)
    base = Outcome(
        cell=cell.id,
        workload=workload.id,
        kind="stay",
        source=source.id,
        target=None,
        replicas=workload.replicas,
        reason=Reason(code="", text=""),
        cost_now=share_of(workload, source, given.catalog),
    )
    early = _before_placing(cell, workload, base, given)
    if early is not None:
        return early
    steps = step_needs(cell, workload, given.fleet.policy, baseline_of(workload, given.baselines), given.requests_for)
    hours = hours_to_soak(steps)
    if cell.lane.kind == "own" and hours > LANE_LIMIT_HOURS:
        return _too_slow(cell, workload, base, hours, given)
    answer = placer.place(cell, workload)
    if not isinstance(answer, Placed):
        return replace(base, kind="infeasible", reason=answer.reason, change=answer.change, fit=answer.fit)
    needs[cell.id] = finite(steps)
    then = share_of(workload, answer.pool, given.catalog)
    return replace(
        base,
        kind="move",
        target=answer.pool.id,
        fit=answer.fit,
        cost_then=then,
        hours=round(hours, 6) if isfinite(hours) else None,
        reason=_move_reason(cell, base.cost_now, then, answer.sku),
    )


def _before_placing(cell: Cell, workload: Workload, base: Outcome, given: _Inputs) -> Outcome | None:
    """Return the outcome of a cell that needs no placing, None for one that does."""
    assessment = given.assessments.get(workload.id)
    source = given.fleet.pool(cell.source)

    def stay(code: str, text: str, change: str) -> Outcome:
        return replace(base, reason=Reason(code=code, text=text), change=change, cost_then=base.cost_now)

    if cell.lane.kind == "stay":
        text = f"Its lane is stay: {cell.lane.reason}." if cell.lane.reason else "Its lane is stay."
        return stay("lane.stay", text.replace("..", "."), "Set another lane in the fleet file.")
    if cell.target is None and source.vendor == "amd":
        return stay("vendor.already", f"It runs on AMD already ({source.id}).", "Pin a target to move it elsewhere.")
    if assessment is None:
        return stay("assess.missing", f"Workload {workload.id} has no assessment.", "Run: fleetctl assess")
    waived = {w.rule for w in assessment.waived}
    blocking = [f for f in assessment.blocking if f.severity == "blocking" and f.rule not in waived]
    if blocking:
        more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
        reason = Reason(code=f"assess.{blocking[0].rule}", text=f"{blocking[0].text}{more}.".replace("..", "."))
        return replace(base, kind="infeasible", reason=reason, change="Choose another route, or waive the finding with a reason.")
    if assessment.route == "stay":
        return stay("route.stay", "Its route is stay.", "Declare another route for the workload.")
    return None


def _too_slow(cell: Cell, workload: Workload, base: Outcome, hours: float, given: _Inputs) -> Outcome:
    rate = workload.traffic.requests_per_s
    took = f"{hours:,.0f} h" if isfinite(hours) else "no end"
    text = f"Own evidence at {rate:g} requests/s needs {took}, the limit is {LANE_LIMIT_HOURS:.0f} h."
    twins = [c for c in given.fleet.cells if c.workload == workload.id and c.id != cell.id]
    pooled_hours = hours / (len(twins) + 1)
    if twins and pooled_hours <= LANE_LIMIT_HOURS:
        change = f"Lane `pooled` with its {len(twins)} equal cells would take {pooled_hours:,.0f} h."
    else:
        change = "Lane `accepted` (signed, with reason and actor) fits; so does `replay` of recorded traffic."
    planned = round(hours, 6) if isfinite(hours) else None
    return replace(base, kind="infeasible", reason=Reason(code="lane.too_slow", text=text), change=change, hours=planned)


def _move_reason(cell: Cell, now: Money | None, then: Money | None, sku: Sku) -> Reason:
    why = "pinned in the fleet file" if cell.target is not None else "cheapest AMD pool of the region that fits"
    if now is None or then is None:
        return Reason(code="move.unpriced", text=f"{sku.gpu}, {why}; the saving is unknown.")
    delta = then.amount - now.amount
    if delta > 0:
        return Reason(code="move.dearer", text=f"{sku.gpu}, {why}; costs {delta:.2f} USD/h more.")
    return Reason(code="move.cheaper", text=f"{sku.gpu}, {why}; saves {-delta:.2f} USD/h.")


def _pool_specs(fleet: Fleet, moved: Mapping[CellId, PoolId], cost: Cost) -> tuple[PoolSpec, ...]:
    targets = set(moved.values())
    then = {p.pool: p.vms_then for p in cost.pools}
    return tuple(
        PoolSpec(
            pool=p.id,
            vendor=p.vendor,
            sku=p.sku,
            region=p.region,
            count=max(p.count, then[p.id]),
            priority=p.priority,
            hold=p.count > 0 or any(c.source == p.id for c in fleet.cells),
            stack=p.provisioned_by,
        )
        for p in fleet.pools
        if p.id in targets and p.provisioned_by != "existing"
    )
