"""Rebalance, use-case layer: plan again from how things stand today, within limits; begin the moves only under a standing approval.

Never imports an adapter. Two plans are made: one without a limit, that says what would move; one with the limits, whose mixed program
chooses the best of those. One run at a time (a lease); cells on their way count as moved, so running again begins nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal

from fleetctl.analysis.power import planned_requests
from fleetctl.assess.memory import memory_fit
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Outcome, Plan
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.rebalance import HeldBack, Limits, RebalanceRun, Shift, Standing
from fleetctl.domain.release import Release
from fleetctl.domain.units import Instant, Money
from fleetctl.planning.make_plan import Worked, plan_id, work_out
from fleetctl.planning.options import PlanOptions
from fleetctl.planning.placement import SPREAD
from fleetctl.planning.reference import Declared, ReferredSpeed
from fleetctl.planning.speed import Speeds
from fleetctl.ports.state import Records, Store
from fleetctl.rebalance.hold import Past, holds, left
from fleetctl.rebalance.standing import Measured, View, view_of
from fleetctl.usecases.assess import current
from fleetctl.usecases.capacity import PoolHosts
from fleetctl.usecases.plan import MOST_QUESTIONS, PlanPorts, arrived, ask, migrating

RETURN = "rebalance.return"
LIMIT = "rebalance.limit"
SCOPE = "rebalance"
"""Scope of the lease of a run that begins moves."""
TTL = timedelta(hours=2)
"""Longest that a run is expected to hold it (it provisions and configures); taken from a holder that is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a run found: the record of it, the plan to run (without the returns), and cells to send home."""

    run: RebalanceRun
    plan: Plan | None
    home: tuple[CellId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Today:
    fleet: Fleet
    catalog: Catalog
    view: View
    held: Mapping[CellId, Reason]
    moving: Mapping[CellId, PoolId]
    limits: Limits
    verdicts: dict[tuple[str, str], CapacityVerdict] = field(default_factory=dict)


def propose(
    fleet: Fleet, ports: PlanPorts, catalog: Catalog, limits: Limits, measured: Mapping[CellId, Measured] | None = None
) -> Proposal:
    """Return what would move today; nothing is saved, nothing is begun.

    Args:
        catalog: today's prices and the user's own measurements; measured: what discovery saw of the cells.

    Raises:
        FleetctlError: plan.refused; ConfigInvalid: plan.pool_overfull.
    """
    now = ports.clock.now()
    there = standing(fleet, ports)
    hosts = {h.pool: len(h.hosts) for h in ports.records.all(PoolHosts)}
    view = view_of(fleet, catalog, there, measured or {}, hosts, limits.payback, SPREAD)
    moving = migrating(fleet, ports.store)
    held = {
        **_planned(fleet, moving, ports),
        **holds(fleet, past(fleet, ports.store), limits, now),
        **_homeless(fleet, there, ports.records),
    }
    today = _Today(fleet=fleet, catalog=catalog, view=view, held=held, moving=moving, limits=limits)
    free = _plan(today, ports, now)
    wanted = [o for o in free.plan.outcomes if o.kind == "move" and o.cell not in today.moving]
    moves, gpus = left(limits, ports.records.all(RebalanceRun), _gpus(view.fleet), now)
    made = free
    if len(wanted) > moves or sum(_weight(o, view.fleet) for o in wanted) > gpus:
        names = {o.cell for o in wanted}
        late = {c.id: _no_room(moves, gpus) for c in view.fleet.cells if c.id not in names and c.id not in today.moving}
        if moves < 1 or gpus < 1:
            late |= {o.cell: _no_room(moves, gpus) for o in wanted}
        made = _plan(replace(today, held={**late, **held}), ports, now, moves, gpus)
    return _proposal(today, free.plan, made, wanted, _no_room(moves, gpus), now)


def _no_room(moves: int, gpus: float) -> Reason:
    room = f"{moves} cell{'' if moves == 1 else 's'} and {gpus:.0f} GPU{'' if round(gpus) == 1 else 's'}"
    return Reason(code=LIMIT, text=f"{room} may still move in this window: too little for it, or others save more.")


def _planned(fleet: Fleet, moving: Mapping[CellId, PoolId], ports: PlanPorts) -> dict[CellId, Reason]:
    """Return the cells that people's own plan moves later, while an earlier wave of it is under way."""
    ours = {run.plan for run in ports.records.all(RebalanceRun)}
    under_way = {r.plan for c in moving if (r := ports.store.load(c)) is not None} - ours
    marked = digest(fleet)
    found: dict[CellId, Reason] = {}
    for name in sorted(under_way):
        plan = ports.records.get(Plan, name)
        if plan is not None and plan.fleet == marked:
            reason = Reason(code="rebalance.planned", text=f"Plan {name} is under way and moves it in a later wave.")
            found |= {c: reason for w in plan.waves for c in w.cells if c not in moving and not _ended(c, name, ports.store)}
    return found


def _ended(cell: CellId, plan: str, store: Store) -> bool:
    r = store.load(cell)
    return r is not None and r.plan == plan


def _homeless(fleet: Fleet, there: Mapping[CellId, Standing], records: Records) -> dict[CellId, Reason]:
    """Return the moved cells whose way home leads to a pool that was given back: no customer is ever sent to machines that are gone."""
    made = {h.pool for h in records.all(PoolHosts) if h.hosts}
    gone = {r.pool for r in records.all(Release) if r.step != "asked" and not (r.step == "done" and r.pool in made)}
    return {
        c.id: Reason(code="rebalance.no_home", text=f"{c.source} was given back. To move it on, name its pool now as source and plan.")
        for c in fleet.cells
        if c.id in there and c.source in gone
    }


def _plan(today: _Today, ports: PlanPorts, now: Instant, moves: int | None = None, gpus: float | None = None) -> Worked:
    view, catalog = today.view, today.catalog
    works = {w.id: w for w in today.fleet.workloads}
    assessed = {w.id: current(w, ports.records, ports.clock) for w in works.values()}
    assessments = [replace(assessed[view.names.get(w.id, w.id)], workload=w.id) for w in view.fleet.workloads]
    options = PlanOptions(
        both_vendors=True,
        migrating=today.moving,
        held=today.held,
        only=view.only,
        most_moves=moves,
        most_gpus=gpus,
        stages=1,
        speed_of=_speeds(view, catalog, today.fleet),
    )
    marked = digest(today.fleet)

    def draft() -> Worked:
        return work_out(
            view.fleet,
            catalog,
            assessments,
            tuple(today.verdicts.values()),
            now,
            fleet_digest=marked,
            fit_of=memory_fit,
            requests_for=planned_requests,
            options=options,
        )

    made = draft()
    exists = {p.id: p.count for p in today.fleet.pools}
    real = replace(view.fleet, pools=tuple(replace(p, count=max(p.count, exists[p.id])) for p in view.fleet.pools))
    for _ in range(MOST_QUESTIONS):
        if not ask(made.plan, real, ports.capacity, today.verdicts):
            break
        made = draft()
    return made


def _speeds(view: View, catalog: Catalog, fleet: Fleet) -> ReferredSpeed:
    skus, pools = {s.name: s for s in catalog.skus}, {p.id: p for p in fleet.pools}
    declared = {
        mine: Declared(workload=ref.workload, sku=skus[pools[ref.source].sku], replicas=ref.replicas)
        for mine, ref in view.refs.items()
        if pools[ref.source].sku in skus
    }
    return ReferredSpeed(Speeds(catalog), declared)


def standing(fleet: Fleet, ports: PlanPorts) -> dict[CellId, Standing]:
    """Return the cells that an earlier migration brought to a target for good, with the replicas that its plan gave them."""
    works = {c.id: fleet.workload(c.workload) for c in fleet.cells}
    found = {}
    for cell, pool in arrived(fleet, ports.store, ports.shown).items():
        rollout = ports.store.load(cell)
        plan = ports.records.get(Plan, rollout.plan) if rollout is not None else None
        outcome = next((o for o in plan.outcomes if o.cell == cell), None) if plan is not None else None
        replicas = outcome.target_replicas if outcome is not None and outcome.target_replicas else works[cell].replicas
        found[cell] = Standing(pool=pool, replicas=replicas, at=ports.clock.now())
    return found


def past(fleet: Fleet, store: Store) -> dict[CellId, Past]:
    """Return each cell's last rollout, and when that last did anything."""
    known = {c.id for c in fleet.cells}
    found = {}
    for cell in store.cells():
        rollout = store.load(cell) if cell in known else None
        if rollout is not None:
            at = max((e.at for e in store.events(cell, 0)), default=rollout.settled_at)
            if at is not None:
                found[cell] = Past(rollout=rollout, at=at)
    return found


def _gpus(fleet: Fleet) -> int:
    works = {w.id: w.replicas * w.accelerators_per_replica for w in fleet.workloads}
    return sum(works[c.workload] for c in fleet.cells)


def _weight(o: Outcome, fleet: Fleet) -> int:
    return o.replicas * fleet.workload(o.workload).accelerators_per_replica


def _proposal(today: _Today, free: Plan, worked: Worked, wanted: Iterable[Outcome], no_room: Reason, now: Instant) -> Proposal:
    made, both = worked.plan, _both_sides_hours(worked)
    moves = [o for o in made.outcomes if o.kind == "move" and o.cell not in today.moving]
    shifts = tuple(_shift(o, today, both.get(o.cell)) for o in moves)
    replicas = sum(s.replicas for s in shifts)
    saving = made.cost_now.amount - made.cost_then.amount
    going = {s.cell for s in shifts}
    held = [HeldBack(cell=o.cell, reason=no_room) for o in wanted if o.cell not in going]
    notes = list(today.view.notes)
    if shifts and saving / max(1, replicas) < Decimal(str(today.limits.min_saving_usd)):
        text = f"{saving:.2f} USD/h for {replicas} replicas is under {today.limits.min_saving_usd:g} USD/h a replica: nothing moves."
        notes.append(text)
        held += [HeldBack(cell=s.cell, reason=Reason(code="rebalance.saving", text=text)) for s in shifts]
        shifts, made = (), replace(made, cost_then=made.cost_now)
    held += [HeldBack(cell=c, reason=r) for c, r in today.held.items() if c not in going]
    plan = _runnable(made, today, shifts)
    key = digest({"fleet": plan.fleet, "moves": [(s.cell, s.target) for s in shifts], "at": now})[:11]
    run = RebalanceRun(
        id=f"r{key}",
        at=now,
        plan=plan.id if shifts else PlanId(""),
        price_book_id=plan.price_book_id,
        shifts=shifts,
        held=tuple(held),
        cost_now=made.cost_now,
        cost_then=made.cost_then,
        unlimited=sum(1 for o in free.outcomes if o.kind == "move" and o.cell not in today.moving),
        gap_pct=made.gap_pct,
        notes=tuple(notes),
        on_top=made.overlap_extra if shifts else None,
        earned_at=made.calendar.payback_at if shifts and made.calendar is not None else None,
        under_way=len(today.moving),
    )
    return Proposal(run=run, plan=plan if shifts else None, home=tuple(s.cell for s in shifts if s.order == "home"))


def _both_sides_hours(worked: Worked) -> dict[CellId, float]:
    """Return per cell the hours in which both sides are paid for: its own steps, or its wave's dates where that waits for a freeze."""
    found = {a.cell.id: a.hours for a in worked.asked}
    calendar = worked.plan.calendar
    dates = {d.index: d for d in calendar.waves if d.waits} if calendar is not None else {}
    for wave in worked.plan.waves:
        d = dates.get(wave.index)
        if d is not None:
            found |= dict.fromkeys(wave.cells, (d.end - d.start).total_seconds() / 3600)
    return found


def _shift(o: Outcome, today: _Today, hours: float | None) -> Shift:
    """Return one move; `hours`: in which both sides are paid for, to the end of its soak."""
    vendor = {p.id: p.vendor for p in today.fleet.pools}
    target = PoolId(o.target or "")
    saving = None if o.cost_now is None or o.cost_then is None else o.cost_now.amount - o.cost_then.amount
    both = None if o.cost_then is None or not hours else o.cost_then.amount * Decimal(str(hours))
    payback = float(both / saving) if saving is not None and both is not None and saving > 0 else None
    return Shift(
        cell=o.cell,
        source=o.source,
        target=target,
        to=vendor[target],
        vendor=vendor[o.source],
        order="home" if o.cell in today.view.only else "migrate",
        replicas=o.replicas,
        target_replicas=o.target_replicas or o.replicas,
        gpus=_weight(o, today.view.fleet),
        saving_usd_per_hour=None if saving is None else Money(amount=saving),
        payback_hours=None if payback is None else round(payback, 1),
    )


def _runnable(made: Plan, today: _Today, shifts: tuple[Shift, ...]) -> Plan:
    """Return the plan with the fleet file's names and counts; cells that go home by order are in no wave of it."""
    view, declared = today.view, {p.id: p for p in today.fleet.pools}
    home = {s.cell: s.target for s in shifts if s.order == "home"}
    going = {s.cell for s in shifts} - set(home)
    outcomes = []
    for o in made.outcomes:
        o = replace(o, workload=view.names.get(o.workload, o.workload))
        if o.cell in home:
            text = f"It goes home to {home[o.cell]} by order, within the same run."
            o = replace(o, kind="stay", target=None, target_replicas=None, reason=Reason(code=RETURN, text=text))
        outcomes.append(o)
    waves = [replace(w, cells=tuple(c for c in w.cells if c in going)) for w in made.waves]
    kept = [w for w in waves if w.cells]
    pools = tuple(
        replace(s, count=max(s.count, declared[s.pool].count), stack=declared[s.pool].provisioned_by)
        for s in made.pools
        if declared[s.pool].provisioned_by != "existing"
    )
    plan = replace(made, outcomes=tuple(outcomes), waves=tuple(replace(w, index=i) for i, w in enumerate(kept, 1)), pools=pools)
    return replace(plan, id=plan_id(plan))


def runs_of(records: Records) -> tuple[RebalanceRun, ...]:
    """Return every run that began something, oldest first."""
    return records.all(RebalanceRun)
