"""Plan, pure layer: fleet, catalogue, assessments and capacity in, one plan value out. Never I/O, never a clock.

Cells that may move are placed by the optimiser (fleetctl.planning.solve) at the least cost of whole VMs plus the moves' own cost;
the plan carries the proof, and the checker (fleetctl.planning.checker) must agree before a plan is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING

from fleetctl.domain.calendar import Calendar
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PlanId, PoolId, Sha256
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Assessment, Certificate, Check, Outcome, Plan, StepNeed, Wave
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
from fleetctl.planning.checker import Ground, check_plan
from fleetctl.planning.checks import make_checks
from fleetctl.planning.conflict import Limit, conflict, conflict_check
from fleetctl.planning.cost import Cost, fleet_cost, share
from fleetctl.planning.evidence_need import Baseline, Costs, PlannedFails, PlannedRequests, baseline_of, hours_to_soak, planned_requests
from fleetctl.planning.lanes import Asking, Given, assign_lanes, what_would_fit
from fleetctl.planning.options import DEFAULT, PlanOptions
from fleetctl.planning.order import wave_key
from fleetctl.planning.outcomes import apart, before_placing, full, moved, noisy, stays, too_slow
from fleetctl.planning.path_use import path_uses
from fleetctl.planning.placement import FitOf
from fleetctl.planning.power_draw import gpu_kw
from fleetctl.planning.release import with_releases
from fleetctl.planning.speed import SpeedOf, Speeds
from fleetctl.planning.waves import finite, make_waves

if TYPE_CHECKING:
    from fleetctl.planning.assemble import Asked
    from fleetctl.planning.program import Floats

WHOLE = ", yet the fleet's whole VMs cost less with it there."
FaultTime = Callable[[float, float], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What the optimiser decided.

    Args:
        vms: per pool after the plan; extra: USD/h of a move itself per (cell, pool), spread over the horizon; () where nothing was asked.
        rooms: GPUs that each pool could still take while both sides are up; capped: pool -> the shared limit that keeps it from growing.
    """

    vms: tuple[int, ...]
    certificate: Certificate | None = None
    extra: Floats | None = None
    rooms: Sequence[float] = ()
    capped: Mapping[int, str] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    fleet: Fleet
    catalog: Catalog
    sites: tuple[Site, ...]
    index: Mapping[PoolId, int]
    workloads: Mapping[str, Workload]
    assessments: Mapping[str, Assessment]
    baselines: Mapping[str, Baseline]
    costs: Costs
    candidates: Candidates
    options: PlanOptions
    sent: Mapping[CellId, PoolId]
    fault_time: FaultTime | None
    kw: tuple[float | None, ...]
    now: Instant
    pins: dict[CellId, Choice] = field(default_factory=dict)


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
    given = _Inputs(
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


def _worked(given: _Inputs, fleet_digest: Sha256, verdicts: tuple[CapacityVerdict, ...], fit_of: FitOf) -> Worked:
    """Ask, place, date, write and check."""
    fleet, everywhere, options, now = given.fleet, given.sites, given.options, given.now
    outcomes, asked, steps = _ask(given)
    placed = _place(given, outcomes, asked, steps)
    moving = tuple(c for c in fleet.cells if outcomes[c.id].kind == "move" and c.id not in options.arrived)
    ends = {id(s): finite(s) for s in steps.values()}
    needs = {c.id: ends[id(steps[c.id])] for c in moving}
    waves = make_waves(fleet, moving, needs, {c.id: lane.group for c in moving if (lane := outcomes[c.id].lane) is not None})
    then = {s.pool.id: int(n) for s, n in zip(everywhere, placed.vms, strict=True)}
    cost = fleet_cost(everywhere, then)
    saving = cost.now.amount - cost.then.amount
    freeze, asked_for = fleet.policy.freeze, options.deadline
    times = make_calendar(waves, outcomes, needs, cost.pools, freeze, now, saving=saving, deadline=asked_for, ready=options.ready)
    choices = {a.cell.id: a.choices for a in asked}
    outcomes = with_releases(outcomes, choices, times[0], everywhere, cost.pools, _limits(given) if times[0] is not None else ())
    ordered = tuple(outcomes[c.id] for c in fleet.cells)
    plan = _written(given, fleet_digest, ordered, waves, cost, times, placed.certificate, verdicts)
    plan = replace(plan, checks=(*_conflicts(given), *plan.checks, *_checked(plan, given, steps, then, fit_of)))
    return Worked(
        plan=replace(plan, id=plan_id(plan)),
        fleet=fleet,
        sites=everywhere,
        asked=asked,
        candidates=given.candidates,
        assessments=given.assessments,
        placed=placed,
        kw=given.kw,
    )


def _conflicts(given: _Inputs) -> tuple[Check, ...]:
    """Return the failed check that names a smallest set of lines that conflict, where pinned cells cannot all be taken."""
    if not given.pins:
        return ()
    base = [0.0] * len(given.sites)
    for cell in given.fleet.cells:
        w = given.workloads[cell.workload]
        base[given.index[cell.source]] += w.replicas * w.accelerators_per_replica
    return conflict_check(conflict(given.sites, base, given.pins, _limits(given)), given.pins)


def _limits(given: _Inputs) -> tuple[Limit, ...]:
    from fleetctl.planning.assemble import shared_limits

    rows, most, names = shared_limits(given.fleet, given.catalog, given.sites)
    return tuple(Limit(name=n, weights=row.tolist(), most=float(m)) for n, row, m in zip(names, rows, most, strict=True))


def _written(
    given: _Inputs,
    fleet_digest: Sha256,
    ordered: tuple[Outcome, ...],
    waves: tuple[Wave, ...],
    cost: Cost,
    times: tuple[Calendar | None, Money, Money],
    certificate: Certificate | None,
    verdicts: tuple[CapacityVerdict, ...],
) -> Plan:
    """Return the plan as a value, still without its id and the checker's findings."""
    fleet, catalog = given.fleet, given.catalog
    calendar, overlap, extra = times
    return Plan(
        id=PlanId(""),
        lineage=fleet.lineage,
        serial=fleet.serial,
        fleet=fleet_digest,
        made_at=given.now,
        outcomes=ordered,
        pools=_pool_specs(given, ordered, cost),
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
        checks=make_checks(fleet, catalog, ordered, waves, cost, verdicts, given.baselines),
        cash=cash_lines(fleet.pools, cost.pools, fleet.commitments, catalog, given.now),
        calendar=calendar,
        paths=path_uses(ordered, given.sites, given.index, given.workloads, given.candidates.barriers),
    )


def _checked(
    plan: Plan, given: _Inputs, steps: Mapping[CellId, tuple[StepNeed, ...]], then: Mapping[PoolId, int], fit_of: FitOf
) -> tuple[Check, ...]:
    """Return the checker's findings. Raises FleetctlError (plan.refused) where it does not agree."""
    barriers = BarrierCheck(given.fleet, given.catalog, given.now)
    ground = Ground(
        vms=then,
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


def _ask(given: _Inputs) -> tuple[dict[CellId, Outcome], tuple[Asked, ...], dict[CellId, tuple[StepNeed, ...]]]:
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
    return outcomes, _admitted(given, outcomes, asked), steps


def _base(cell: Cell, workload: Workload, given: _Inputs) -> Outcome:
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


def _before_placing(cell: Cell, workload: Workload, base: Outcome, given: _Inputs) -> Outcome | None:
    site = given.sites[given.index[cell.source]]
    may_return = given.options.both_vendors or cell.id in given.sent
    early = before_placing(cell, workload, base, site, given.assessments.get(workload.id), may_return=may_return)
    if early is None and cell.id in given.options.held:
        return replace(base, reason=given.options.held[cell.id], cost_then=base.cost_now)
    return early


def _asking(cell: Cell, workload: Workload, given: _Inputs) -> Asking:
    pinned = given.candidates.pinned(cell)
    return Asking(
        cell=cell,
        workload=workload,
        baseline=baseline_of(workload, given.baselines),
        source_sku=given.sites[given.index[cell.source]].pool.sku,
        target_sku=given.sites[given.index[pinned]].pool.sku if pinned is not None else "",
    )


def _early(
    a: Asking, lane: Given, base: Outcome, given: _Inputs, steps: dict[CellId, tuple[StepNeed, ...]]
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
        return stays(base, choices, given.sites, {}, (), {}), ()
    return base, choices


def _speeds(catalog: Catalog, options: PlanOptions) -> SpeedOf:
    return options.speed_of or Speeds(catalog, amd_factor=options.amd_factor)


def _admitted(given: _Inputs, outcomes: dict[CellId, Outcome], asked: list[Asked]) -> tuple[Asked, ...]:
    """Let pinned cells in by wave until their pool is full; the others are refused, so that what is left can always stay."""
    held = [0.0] * len(given.sites)
    for a in asked:
        held[a.source] += a.workload.replicas * a.workload.accelerators_per_replica
    taken = {(a.workload.apart, a.source) for a in asked if a.workload.apart}
    order = sorted((i for i, a in enumerate(asked) if a.pinned), key=lambda i: _rank(asked[i], given))
    for i in order:
        choice = asked[i].choices[0]
        site = given.sites[choice.pool]
        group = (asked[i].workload.apart, choice.pool)
        if group[0] and group in taken:
            outcomes[asked[i].cell.id] = apart(outcomes[asked[i].cell.id], asked[i].workload)
            asked[i] = replace(asked[i], choices=(), pinned=False)
        elif held[choice.pool] + choice.padded > site.most * site.size:
            outcomes[asked[i].cell.id] = full(outcomes[asked[i].cell.id], choice, site)
            asked[i] = replace(asked[i], choices=(), pinned=False)
        else:
            taken.update([group] if group[0] else [])
            held[choice.pool] += choice.padded
    return tuple(asked)


def _rank(a: Asked, given: _Inputs) -> tuple[object, ...]:
    first = a.cell.id not in given.sent
    return (first, wave_key(a.cell, a.workload.klass, given.fleet.policy), -a.workload.accelerators_per_replica, a.cell.id)


def _place(
    given: _Inputs, outcomes: dict[CellId, Outcome], asked: tuple[Asked, ...], steps: Mapping[CellId, tuple[StepNeed, ...]]
) -> Placed:
    """Let the optimiser decide, write every outcome, and return the VMs per pool and the proof."""
    if not any(a.choices for a in asked):
        return Placed(vms=tuple(s.pool.count for s in given.sites))
    from fleetctl.planning.apart import kept_apart
    from fleetctl.planning.assemble import assemble
    from fleetctl.planning.certificate import certificate_of, rooms_of
    from fleetctl.planning.solve import solve

    program, caps = assemble(given.fleet, given.catalog, given.sites, asked, given.now, allow_dearer=given.options.allow_dearer)
    if given.options.most_moves is not None or given.options.most_gpus is not None:
        most, gpus = given.options.most_moves, given.options.most_gpus
        program = replace(program, most_moves=inf if most is None else float(most), most_gpus=inf if gpus is None else gpus)
    whole, (program, answer) = program, kept_apart(program, asked, solve)
    rooms, capped = rooms_of(program, answer, caps)
    for w, a in enumerate(asked):
        if not a.choices:
            continue
        base, to = outcomes[a.cell.id], int(answer.pool[w])
        chosen = next((c for c in a.choices if c.pool == to), None)
        if chosen is not None:
            why = "pinned in the fleet file" if a.cell.target is not None else "cheapest place in whole VMs"
            there = a.cell.id in given.options.arrived
            moves = moved(base, chosen, given.sites[to], why, hours_to_soak(steps[a.cell.id]), given.kw[to], there=there)
            if moves.reason.code == "move.dearer" and not a.pinned and not given.options.allow_dearer:
                moves = replace(moves, reason=Reason(code="move.whole_vms", text=moves.reason.text.removesuffix(".") + WHOLE))
            outcomes[a.cell.id] = replace(moves, fault_to_zero_s=_fault_time(a, given))
        else:
            extra = {c.pool: float(program.move[w, c.pool]) for c in a.choices}
            open_ = [c for c in a.choices if program.allowed[w, c.pool]]
            outcomes[a.cell.id] = stays(base, open_, given.sites, extra, rooms, capped) if open_ else apart(base, a.workload)
    certificate = None if given.options.allow_dearer else certificate_of(given.sites, given.fleet.policy, whole, answer, caps)
    return Placed(vms=tuple(int(n) for n in answer.vms), certificate=certificate, extra=program.move, rooms=rooms, capped=capped)


def _fault_time(a: Asked, given: _Inputs) -> float | None:
    ratio = baseline_of(a.workload, given.baselines).error_ratio
    return given.fault_time(a.workload.traffic.requests_per_s, ratio) if given.fault_time is not None else None


def _pool_specs(given: _Inputs, outcomes: tuple[Outcome, ...], cost: Cost) -> tuple[PoolSpec, ...]:
    targets = {o.target for o in outcomes if o.kind == "move"}
    sources = {c.source for c in given.fleet.cells}
    held = set(given.sent.values())
    then = {p.pool: p.vms_then for p in cost.pools}
    return tuple(
        PoolSpec(
            pool=p.id,
            vendor=p.vendor,
            sku=p.sku,
            region=p.region,
            count=max(p.count, then[p.id]),
            priority=p.priority,
            hold=p.count > 0 or p.id in sources or p.id in held,
            stack=p.provisioned_by,
        )
        for p in given.fleet.pools
        if p.id in targets and p.provisioned_by != "existing"
    )
