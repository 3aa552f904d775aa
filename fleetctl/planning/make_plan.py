"""Plan, pure layer: fleet, catalogue, assessments and capacity in, one plan value out. Never I/O, never a clock.

Cells that may move are placed by the optimiser (fleetctl.planning.solve) at the least cost of whole VMs plus the moves' own cost;
the plan carries the proof, and the checker (fleetctl.planning.checker) must agree before a plan is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING

from fleetctl.domain.calendar import Calendar
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet, Policy
from fleetctl.domain.ids import CellId, PlanId, PoolId, Sha256
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Assessment, Check, Outcome, Plan, StepNeed, Wave
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Instant, Money
from fleetctl.domain.workload import Cell, Workload
from fleetctl.errors import FleetctlError
from fleetctl.planning.barriers import Barriers, ends_too_soon
from fleetctl.planning.calendar import make_calendar
from fleetctl.planning.candidates import Candidates, Choice, Site, once, refuse_overfull, sites
from fleetctl.planning.cash import cash_lines
from fleetctl.planning.check_barriers import BarrierCheck
from fleetctl.planning.check_facts import Ground
from fleetctl.planning.checker import check_plan
from fleetctl.planning.checks import asked_check, make_checks, payback_check, stages_check
from fleetctl.planning.conflict import Limit, apart_conflict, conflict, conflict_check, limits_today
from fleetctl.planning.cost import Cost, fleet_cost, share, stage_costs
from fleetctl.planning.deadline import least_wave_cells
from fleetctl.planning.evidence_need import (
    Baseline,
    Costs,
    PlannedFails,
    PlannedRequests,
    baseline_of,
    planned_requests,
    probed_of,
)
from fleetctl.planning.given import FaultTime, Inputs, Placed
from fleetctl.planning.lanes import Asking, Given, assign_lanes, what_would_fit
from fleetctl.planning.options import DEFAULT, PlanOptions
from fleetctl.planning.outcomes import before_placing, noisy, stays, too_slow
from fleetctl.planning.path_use import path_uses
from fleetctl.planning.place import place
from fleetctl.planning.placement import FitOf
from fleetctl.planning.power_draw import gpu_kw
from fleetctl.planning.speed import SpeedOf, Speeds
from fleetctl.planning.waves import finite, make_waves

if TYPE_CHECKING:
    from fleetctl.planning.assemble import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """A plan with what it was made from, for those who explain it (never saved)."""

    plan: Plan
    fleet: Fleet
    sites: tuple[Site, ...]
    asked: tuple[Asked, ...]
    candidates: Candidates
    assessments: Mapping[str, Assessment]
    placed: Placed
    kw: tuple[float | None, ...]
    any_cost: bool = False


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
    fails_for: PlannedFails | None = None,
    fault_time: FaultTime | None = None,
    options: PlanOptions = DEFAULT,
) -> Plan:
    """Decide per cell whether it moves, where, in which wave, with what evidence, at what cost; arguments as `work_out`."""
    return work_out(
        fleet,
        catalog,
        assessments,
        capacity,
        now,
        fleet_digest=fleet_digest,
        fit_of=fit_of,
        baselines=baselines,
        requests_for=requests_for,
        fails_for=fails_for,
        fault_time=fault_time,
        options=options,
    ).plan


def work_out(
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
    fails_for: PlannedFails | None = None,
    fault_time: FaultTime | None = None,
    options: PlanOptions = DEFAULT,
) -> Worked:
    """Make a plan and return it with what it was made from.

    Args:
        assessments: one per workload; a workload without one stays.
        capacity: answers for more VMs of a SKU in a region; only "no" binds, "unknown" is named in the checks.
        now: aware UTC; fleet_digest: of the fleet as saved, kept in the plan so that a changed fleet is noticed.
        fit_of: `fleetctl.assess.memory_fit`; baselines: measured per workload id, else declared or assumed ones are used.
        requests_for, fails_for: canary requests to a PASS, and to a FAIL (`fleetctl.analysis.power`).
        fault_time: (requests/s, error ratio) -> seconds from a fault to no traffic; None leaves it out.

    Returns:
        a plan that the checker accepts; fleets that are decided exactly (up to about 600 choices) always give the same bytes.

    Raises:
        ConfigInvalid: plan.pool_overfull; FleetctlError: plan.refused, where the checker does not agree.
    """
    verdicts, fit_of = tuple(capacity), once(fit_of)
    everywhere = sites(fleet, catalog, verdicts)
    refuse_overfull(fleet, everywhere)
    given = Inputs(
        fleet=fleet,
        catalog=catalog,
        sites=everywhere,
        index={s.pool.id: i for i, s in enumerate(everywhere)},
        workloads={w.id: w for w in fleet.workloads},
        assessments={a.workload: a for a in assessments},
        baselines=baselines or {},
        costs=Costs(passes=cache(requests_for), fails=cache(fails_for) if fails_for is not None else None),
        candidates=Candidates(fleet, everywhere, fit_of, _speeds(catalog, options), options, Barriers(fleet, catalog, now)),
        options=options,
        sent=options.sent,
        fault_time=fault_time,
        kw=tuple(gpu_kw(s, catalog) for s in everywhere),
        now=now,
    )
    return _worked(given, fleet_digest, verdicts, fit_of)


def _worked(given: Inputs, fleet_digest: Sha256, verdicts: tuple[CapacityVerdict, ...], fit_of: FitOf) -> Worked:
    """Ask, place, date, write and check."""
    fleet, everywhere, options, now = given.fleet, given.sites, given.options, given.now
    outcomes, asked, steps = _ask(given)
    placed = place(given, outcomes, asked, steps)
    moving = tuple(c for c in fleet.cells if outcomes[c.id].kind == "move" and c.id not in options.arrived)
    ends = {id(s): finite(s) for s in steps.values()}
    needs = {c.id: ends[id(steps[c.id])] for c in moving}
    groups = {c.id: lane.group for c in moving if (lane := outcomes[c.id].lane) is not None}
    vms = [dict(zip(given.index, stage.then, strict=True)) for stage in placed.stages]
    cost = fleet_cost(everywhere, vms[-1])
    saving = cost.now.amount - cost.then.amount
    costs = stage_costs(everywhere, vms)

    def dated(size: int, begin: Instant = now) -> tuple[tuple[Wave, ...], tuple[Calendar | None, Money, Money]]:
        made = make_waves(fleet, moving, needs, groups, placed.stage_of, size=size)
        freeze, until = fleet.policy.freeze, options.deadline
        return made, make_calendar(made, outcomes, needs, costs, freeze, begin, saving=saving, deadline=until, ready=options.ready)

    waves, times = dated(fleet.policy.wave_cells)
    thawed = _after_freeze(times[0], fleet.policy)
    if times[0] is not None and thawed is not None:
        extra = dated(fleet.policy.wave_cells, thawed)[1][2]
        if extra.amount < times[2].amount:
            times = (replace(times[0], after_freeze=thawed, extra_then=extra), *times[1:])
    if times[0] is not None and times[0].late:
        least = least_wave_cells(lambda n: _is_late(dated(n)[1][0]), fleet.policy.wave_cells, len(moving))
        times = (replace(times[0], wave_cells=least), *times[1:])
    ordered = tuple(outcomes[c.id] for c in fleet.cells)
    plan = _written(given, fleet_digest, ordered, waves, cost, times, placed, verdicts)
    early = (
        *_conflicts(given, outcomes),
        *limits_today(given.sites, _limits(given)),
        *payback_check(times[0], fleet.policy),
        *asked_check(options),
        *stages_check(placed, len(asked)),
    )
    plan = replace(plan, checks=(*early, *plan.checks, *_checked(plan, given, steps, vms, fit_of)))
    return Worked(
        plan=replace(plan, id=plan_id(plan)),
        fleet=fleet,
        sites=everywhere,
        asked=asked,
        candidates=given.candidates,
        assessments=given.assessments,
        placed=placed,
        kw=given.kw,
        any_cost=options.allow_dearer,
    )


def _after_freeze(calendar: Calendar | None, policy: Policy) -> Instant | None:
    """Return when the last freeze window is over that a wave waits for, None where none waits."""
    names = {name for d in calendar.waves for name in d.waits} if calendar is not None else set()
    return max((w.end for w in policy.freeze if w.name in names and calendar is not None and w.start < calendar.end), default=None)


def _is_late(calendar: Calendar | None) -> bool:
    return calendar is not None and bool(calendar.late)


def _conflicts(given: Inputs, outcomes: Mapping[CellId, Outcome]) -> tuple[Check, ...]:
    """Return the failed check that names a smallest set of lines that conflict, where pinned cells are not all taken, ever."""
    if all(outcomes[c].kind == "move" for c in given.pins):
        return ()
    base = [0.0] * len(given.sites)
    for cell in given.fleet.cells:
        w = given.workloads[cell.workload]
        base[given.index[cell.source]] += w.replicas * w.accelerators_per_replica
    found = conflict(given.sites, base, given.pins, _limits(given))
    if found is None:
        refused = [c for c in given.pins if outcomes[c].reason.code == "apart"]
        stands = {c: given.index[o.target if o.kind == "move" and o.target else o.source] for c, o in outcomes.items()}
        works = {c.id: given.workloads[c.workload] for c in given.fleet.cells}
        found = apart_conflict(given.sites, given.pins, stands, works, refused)
    return conflict_check(found, given.pins)


def _limits(given: Inputs) -> tuple[Limit, ...]:
    from fleetctl.planning.assemble import shared_limits

    rows, most, names = shared_limits(given.fleet, given.catalog, given.sites)
    return tuple(Limit(name=n, weights=row.tolist(), most=float(m)) for n, row, m in zip(names, rows, most, strict=True))


def _written(
    given: Inputs,
    fleet_digest: Sha256,
    ordered: tuple[Outcome, ...],
    waves: tuple[Wave, ...],
    cost: Cost,
    times: tuple[Calendar | None, Money, Money],
    placed: Placed,
    verdicts: tuple[CapacityVerdict, ...],
) -> Plan:
    """Return the plan as a value, still without its id and the checker's findings."""
    fleet, catalog = given.fleet, given.catalog
    calendar, overlap, extra = times
    certificate = placed.certificate
    return Plan(
        id=PlanId(""),
        lineage=fleet.lineage,
        serial=fleet.serial,
        fleet=fleet_digest,
        made_at=given.now,
        outcomes=ordered,
        pools=_pool_specs(given, ordered, placed),
        waves=waves,
        cost_now=cost.now,
        cost_then=cost.then,
        overlap_cost=overlap,
        overlap_extra=extra,
        catalog_id=catalog.id,
        price_book_id=catalog.price_book_id,
        bound=certificate.bound if certificate else None,
        gap_pct=certificate.gap_pct if certificate else None,
        certificate=certificate,
        checks=make_checks(fleet, catalog, ordered, waves, cost, verdicts, given.baselines, given.now, given.options.home),
        cash=cash_lines(fleet, given.sites, cost.pools, catalog, given.now),
        calendar=calendar,
        paths=path_uses(ordered, given.sites, given.index, given.workloads, given.candidates.barriers),
    )


def _checked(
    plan: Plan, given: Inputs, steps: Mapping[CellId, tuple[StepNeed, ...]], vms: Sequence[Mapping[PoolId, int]], fit_of: FitOf
) -> tuple[Check, ...]:
    """Return the checker's findings. Raises FleetctlError (plan.refused) where it does not agree."""
    barriers = BarrierCheck(given.fleet, given.catalog, given.now)
    ground = Ground(
        vms=tuple(vms),
        hours={c: 0.0 if c in given.options.arrived else sum(n.hours for n in s if isfinite(n.hours)) for c, s in steps.items()},
        closed=frozenset((s.pool.sku, s.pool.region) for s in given.sites if s.closed is not None),
        fit_of=fit_of,
        speed_of=_speeds(given.catalog, given.options),
        both_vendors=given.options.both_vendors,
        sent=given.options.sent,
        barred=barriers.barred,
        egress=barriers.egress if given.fleet.paths else None,
        only=given.options.only,
    )
    checks = check_plan(plan, given.fleet, given.catalog, ground)
    bad = tuple(f"{c.name}: {c.detail}" for c in checks if not c.ok)
    if bad:
        text = "the checker does not agree with the plan that was found; it is not offered."
        raise FleetctlError("plan.refused", text, hint="Report it with the fleet file: fleetctl plan --debug", details=bad)
    return checks


def plan_id(plan: Plan) -> PlanId:
    """Return the id that a plan's content gives: "p" and 11 hex digits of the digest of all else."""
    return PlanId("p" + digest(replace(plan, id=PlanId("")))[:11])


def _ask(given: Inputs) -> tuple[dict[CellId, Outcome], tuple[Asked, ...], dict[CellId, tuple[StepNeed, ...]]]:
    """Return a first outcome per cell, what the program has to decide, and the steps of the cells that may move."""
    from fleetctl.planning.assemble import Asked

    outcomes: dict[CellId, Outcome] = {}
    asking: dict[CellId, Asking] = {}
    for cell in given.fleet.cells:
        workload = given.workloads[cell.workload]
        base = _base(cell, workload, given)
        early = _before_placing(cell, workload, base, given)
        outcomes[cell.id] = early or base
        if early is None:
            asking[cell.id] = _asking(cell, workload, given)
    lanes = assign_lanes(tuple(asking.values()), given.fleet.policy, given.costs)
    steps: dict[CellId, tuple[StepNeed, ...]] = {}
    asked: list[Asked] = []
    for cell in given.fleet.cells:
        workload, source = given.workloads[cell.workload], given.index[cell.source]
        choices: tuple[Choice, ...] = ()
        if cell.id in asking:
            outcomes[cell.id], choices = _early(asking[cell.id], lanes[cell.id], outcomes[cell.id], given, steps)
        hours = 0.0 if cell.id in given.options.arrived else sum(n.hours for n in steps.get(cell.id, ()) if isfinite(n.hours))
        pinned = bool(choices) and given.candidates.pinned(cell) is not None
        if pinned:
            given.pins[cell.id] = choices[0]
        asked.append(Asked(cell=cell, workload=workload, source=source, choices=choices, hours=hours, pinned=pinned))
    return outcomes, tuple(asked), steps


def _base(cell: Cell, workload: Workload, given: Inputs) -> Outcome:
    site = given.sites[given.index[cell.source]]
    gpus = workload.replicas * workload.accelerators_per_replica
    kw = given.kw[given.index[cell.source]]
    return Outcome(
        cell=cell.id,
        workload=workload.id,
        kind="stay",
        source=cell.source,
        target=None,
        replicas=workload.replicas,
        reason=Reason(code="", text=""),
        cost_now=share(site.price, gpus, site.sku.accelerators) if site.price is not None and site.sku is not None else None,
        kw_now=None if kw is None else round(kw * gpus, 4),
    )


def _before_placing(cell: Cell, workload: Workload, base: Outcome, given: Inputs) -> Outcome | None:
    site = given.sites[given.index[cell.source]]
    may_return = given.options.both_vendors or cell.id in given.sent
    early = before_placing(cell, workload, base, site, given.assessments.get(workload.id), may_return=may_return)
    if early is None and cell.id in given.options.held:
        return replace(base, reason=given.options.held[cell.id], cost_then=base.cost_now)
    return early


def _asking(cell: Cell, workload: Workload, given: Inputs) -> Asking:
    pinned = given.candidates.pinned(cell)
    return Asking(
        cell=cell,
        workload=workload,
        baseline=baseline_of(workload, given.baselines),
        source_sku=given.sites[given.index[cell.source]].pool.sku,
        target_sku=given.sites[given.index[pinned]].pool.sku if pinned is not None else "",
        probed=probed_of(cell, given.fleet.evidence),
    )


def _early(
    a: Asking, lane: Given, base: Outcome, given: Inputs, steps: dict[CellId, tuple[StepNeed, ...]]
) -> tuple[Outcome, tuple[Choice, ...]]:
    """Return the outcome of a cell whose evidence or fit refuses it, else its choices."""
    cell, workload = a.cell, a.workload
    base = replace(base, lane=lane.plan)
    if cell.id not in given.options.arrived:
        site = given.sites[given.index[cell.source]]
        refused = noisy(a, base, given.fleet.policy)
        if refused is not None:
            return refused, ()
        if lane.plan.kind == "stay":
            return too_slow(workload, base, lane, what_would_fit(a, given.fleet.policy, given.costs, lane.plan)), ()
        gone = ends_too_soon(site, sum(n.hours for n in lane.steps if isfinite(n.hours)), given.now) if site.pool.ends else None
        if gone is not None:
            return replace(base, kind="infeasible", reason=gone, change=f"Extend the capacity of {site.pool.id}, or shorten the steps."), ()
    choices, refusals = given.candidates.look(cell, workload)
    if not choices:
        first = refusals[0]
        return replace(base, kind="infeasible", reason=first.reason, change=first.change, fit=first.fit), ()
    steps[cell.id] = lane.steps
    if base.cost_now is None and given.candidates.pinned(cell) is None:
        return stays(base, choices, given.sites, {}, None), ()
    return base, choices


def _speeds(catalog: Catalog, options: PlanOptions) -> SpeedOf:
    return options.speed_of or Speeds(catalog, amd_factor=options.amd_factor)


def _pool_specs(given: Inputs, outcomes: tuple[Outcome, ...], placed: Placed) -> tuple[PoolSpec, ...]:
    """Return what provision is asked for: the pools of the first stage, with what they need while both sides are up."""
    targets = {o.target for o in outcomes if o.kind == "move" and o.cell not in placed.stage_of}
    sources = {c.source for c in given.fleet.cells}
    held = set(given.sent.values())
    first = placed.stages[0]
    most = {s.pool.id: max(n) for s, n in zip(given.sites, zip(first.peak, first.then, strict=True), strict=True)}
    return tuple(
        PoolSpec(
            pool=p.id,
            vendor=p.vendor,
            sku=p.sku,
            region=p.region,
            count=max(p.count, most[p.id]),
            priority=p.priority,
            hold=p.count > 0 or p.id in sources or p.id in held,
            stack=p.provisioned_by,
        )
        for p in given.fleet.pools
        if p.id in targets and p.provisioned_by != "existing"
    )
