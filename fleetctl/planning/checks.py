"""Plan, pure layer: what a finished plan was checked for, computed afresh from its outcomes. Never I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from fleetctl.domain.calendar import Calendar
from fleetctl.domain.catalog import PRICE_DAYS, Catalog
from fleetctl.domain.fleet import Fleet, Policy
from fleetctl.domain.home import HomeTime
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Check, Outcome, Wave
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Cell
from fleetctl.planning.cost import Cost
from fleetctl.planning.evidence_need import LANE_LIMIT_HOURS, Baseline, baseline_of
from fleetctl.planning.given import Placed
from fleetctl.planning.home_time import home_check
from fleetctl.planning.options import PlanOptions


def make_checks(
    fleet: Fleet,
    catalog: Catalog,
    outcomes: tuple[Outcome, ...],
    waves: tuple[Wave, ...],
    cost: Cost,
    verdicts: tuple[CapacityVerdict, ...],
    baselines: Mapping[str, Baseline],
    now: Instant,
    home: Mapping[str, HomeTime],
) -> tuple[Check, ...]:
    """Return every check, the failed ones among them; a failed check is shown, it does not stop the plan."""
    return (
        _capacity(fleet, catalog, outcomes, {c: w.stage for w in waves for c in w.cells}),
        _asked(fleet, outcomes, verdicts),
        _prices(fleet, catalog, cost),
        *_price_age(fleet, catalog, now),
        _fit(outcomes),
        _waves(fleet, outcomes, waves),
        _lanes(fleet, outcomes, waves),
        _margins(fleet, outcomes),
        _baselines(fleet, outcomes, baselines),
        _speed(outcomes),
        *_idle(fleet, catalog),
        *_cohorts(fleet, outcomes),
        *home_check(fleet, outcomes, home),
    )


def gpus_used(fleet: Fleet, outcomes: tuple[Outcome, ...], stage_of: Mapping[CellId, int] | None = None) -> Mapping[PoolId, int]:
    """Return the most GPUs held per pool while both sides run.

    Every cell is on its source, those of the stage on their target too; those of earlier stages on their target alone.
    """
    each = {w.id: w.accelerators_per_replica for w in fleet.workloads}
    stages = stage_of or {}
    used: dict[PoolId, int] = {p.id: 0 for p in fleet.pools}
    for stage in range(1, max(stages.values(), default=1) + 1):
        held: Counter[PoolId] = Counter()
        for o in outcomes:
            mine = stages.get(o.cell, 1)
            if o.kind != "move" or mine >= stage:
                held[o.source] += o.replicas * each[o.workload]
            if o.kind == "move" and o.target is not None and mine <= stage:
                held[o.target] += (o.target_replicas or o.replicas) * each[o.workload]
        used = {p: max(most, held[p]) for p, most in used.items()}
    return used


def _idle(fleet: Fleet, catalog: Catalog) -> tuple[Check, ...]:
    """Name VMs that serve no cell of the fleet file: no move is credited with them."""
    each = {w.id: w.replicas * w.accelerators_per_replica for w in fleet.workloads}
    held: dict[PoolId, int] = {}
    spread: set[PoolId] = set()
    for c in fleet.cells:
        held[c.source] = held.get(c.source, 0) + each[c.workload]
        spread.update([c.source] if each[c.workload] > 1 else [])
    found = []
    for pool in fleet.pools:
        sku = catalog.sku(pool.sku)
        if sku is None:
            continue
        free = pool.count - max(-(-held.get(pool.id, 0) // sku.accelerators), 2 if pool.id in spread else 0)
        if free > 0:
            found.append(f"{free} of {pool.id}")
    if not found:
        return ()
    return (
        Check(name="idle VMs", ok=True, detail=f"{_named(found)} serve no cell of the fleet file: in both totals, credited to no move"),
    )


def _cohorts(fleet: Fleet, outcomes: tuple[Outcome, ...]) -> tuple[Check, ...]:
    """Say per cell that has cohorts which requests go first, and what of it stays: then the split itself is the end."""
    parts_of: dict[CellId, list[Cell]] = {}
    for c in fleet.cells:
        if c.cohort is not None:
            parts_of.setdefault(c.cohort.of, []).append(c)
    if not parts_of:
        return ()
    of = {o.cell: o for o in outcomes}
    found = []
    for whole in fleet.cells:
        parts = parts_of.get(whole.id)
        if not parts or whole.id not in of:
            continue
        moving = [c for c in parts if c.id in of and of[c.id].kind == "move"]
        named = ", ".join(f"{c.id} ({c.cohort.key}: {' '.join(c.cohort.values)})" for c in moving if c.cohort is not None)
        rest = "the rest moves after them" if of[whole.id].kind == "move" else f"the rest stays on {whole.source}: a split that stays"
        found.append(f"{whole.id}: {named} first; {rest}" if moving else f"{whole.id}: none of its cohorts moves")
    return (Check(name="cohorts", ok=True, detail="; ".join(found)),) if found else ()


def _speed(outcomes: tuple[Outcome, ...]) -> Check:
    kinds = Counter(o.speed.kind for o in outcomes if o.kind == "move" and o.speed is not None)
    if not kinds:
        return Check(name="speed", ok=True, detail="nothing moves")
    words = {
        "measured": "measured on this model",
        "declared": "declared in the fleet file",
        "derived": "derived from another model's records",
        "bound": "bounded for want of records",
        "emulated": "emulated, replicas as declared",
    }
    text = "; ".join(f"{count:,} {'cell' if count == 1 else 'cells'} {words[kind]}" for kind, count in sorted(kinds.items()))
    return Check(name="speed", ok=True, detail=f"target against source: {text}")


def _capacity(fleet: Fleet, catalog: Catalog, outcomes: tuple[Outcome, ...], stage_of: Mapping[CellId, int]) -> Check:
    used = gpus_used(fleet, outcomes, stage_of)
    over = []
    for pool in fleet.pools:
        sku = catalog.sku(pool.sku)
        most = pool.count if pool.provisioned_by == "existing" else pool.limit
        if sku is not None and used[pool.id] > most * sku.accelerators:
            over.append(f"{pool.id} holds {used[pool.id]} of {most * sku.accelerators} GPUs")
    return Check(name="capacity", ok=not over, detail="; ".join(over) or "no pool holds more GPUs than it may have, both sides up")


def _asked(fleet: Fleet, outcomes: tuple[Outcome, ...], verdicts: tuple[CapacityVerdict, ...]) -> Check:
    known = {(v.sku, v.region) for v in verdicts if v.kind == "yes"}
    targets = {o.target for o in outcomes if o.kind == "move"}
    new = [p for p in fleet.pools if p.id in targets and p.provisioned_by != "existing"]
    unknown = [p.id for p in new if (p.sku, p.region) not in known]
    if not new:
        return Check(name="availability", ok=True, detail="no new VMs are needed")
    if unknown:
        return Check(name="availability", ok=True, detail=f"not known for {', '.join(unknown)}; provision will tell")
    return Check(name="availability", ok=True, detail=f"the provider says yes for {', '.join(p.id for p in new)}")


def _prices(fleet: Fleet, catalog: Catalog, cost: Cost) -> Check:
    if cost.unpriced:
        return Check(
            name="prices", ok=False, detail=f"no price for {_named(list(cost.unpriced))}: left out of both totals, not counted as 0"
        )
    own = [p.id for p in fleet.pools if p.price_usd_per_hour is not None]
    more = f"; the fleet file's own for {_named(list(own))}" if own else ""
    found = [(p, catalog.price(p.sku, p.region)) for p in fleet.pools if p.price_usd_per_hour is None]
    emulated = [
        f"{p.sku} = {price.source.split(';')[0].removeprefix('emulated: ')}" for p, price in found if price and "emulated" in price.source
    ]
    more += f"; emulated machines: {_named(emulated)}" if emulated else ""
    return Check(name="prices", ok=True, detail=f"price book {catalog.price_book_id} (list prices, no quote){more}")


def _price_age(fleet: Fleet, catalog: Catalog, now: Instant) -> tuple[Check, ...]:
    """Name list prices that are too old to decide by."""
    last = (now - timedelta(days=PRICE_DAYS)).date().isoformat()
    found = {p.sku: price for p in fleet.pools if p.price_usd_per_hour is None and (price := catalog.price(p.sku, p.region)) is not None}
    old = sorted(sku for sku, price in found.items() if price.as_of < last and "emulated" not in price.source)
    if not old:
        return ()
    text = f"price book {catalog.price_book_id} is over {PRICE_DAYS} days old for {_named(old)}. Run: fleetctl catalog refresh"
    return (Check(name="price age", ok=False, detail=text),)


def asked_check(options: PlanOptions) -> tuple[Check, ...]:
    """Return what was asked for beside the fleet file, () where nothing was."""
    if not options.allow_dearer:
        return ()
    text = "--allow-dearer: as many cells move as have a place and room, also where staying costs less; so no least cost is proven"
    return (Check(name="asked", ok=True, detail=text),)


def stages_check(placed: Placed, cells: int) -> tuple[Check, ...]:
    """Return that a release might make room for more, which the plan of so large a fleet does not look at; () where it did look."""
    if not placed.unstaged:
        return ()
    text = (
        f"one stage only: with {cells:,} cells (over {placed.unstaged:,}) the room that releases make is not planned; some of the cells "
        "that wait for room may have it then: release, and plan again"
    )
    return (Check(name="stages", ok=True, detail=text),)


def payback_check(calendar: Calendar | None, policy: Policy) -> tuple[Check, ...]:
    """Return the failed check that the plan is not earned back within the horizon, () where it is or saves nothing."""
    days = policy.horizon / timedelta(days=1)
    if calendar is None or calendar.payback_hours is None or calendar.payback_hours <= 24 * days:
        return ()
    names = ", ".join(dict.fromkeys(name for d in calendar.waves for name in d.waits))
    why = f"freeze windows ({names})" if names else "waiting for other waves"
    text = (
        f"both sides up are earned back in {calendar.payback_hours / 24:,.1f} days, policy.horizon is {days:,.1f}: the optimiser and its "
        f"proof count each move's own steps, without {why}"
    )
    return (Check(name="payback", ok=False, detail=text),)


def _fit(outcomes: tuple[Outcome, ...]) -> Check:
    moves = [o for o in outcomes if o.kind == "move" and o.fit is not None]
    tight = [o.cell for o in moves if o.fit is not None and o.fit.needed_gib > 0.9 * o.fit.available_gib]
    text = f"memory of {len(moves)} moving cells fits, runtime share estimated"
    return Check(name="memory", ok=True, detail=text + (f"; over 90 % full: {_named([str(c) for c in tight])}" if tight else ""))


def _waves(fleet: Fleet, outcomes: tuple[Outcome, ...], waves: tuple[Wave, ...]) -> Check:
    placed = sorted(c for w in waves for c in w.cells)
    moving = sorted(o.cell for o in outcomes if o.kind == "move" and not o.arrived)
    ok = placed == moving and all(len(w.cells) <= max(1, fleet.policy.wave_cells) for w in waves)
    return Check(name="waves", ok=ok, detail=f"each moving cell once, at most {fleet.policy.wave_cells} cells a wave")


def _lanes(fleet: Fleet, outcomes: tuple[Outcome, ...], waves: tuple[Wave, ...]) -> Check:
    """Hold each pooled cell against what really moves beside it: same wave, same SKU on the target."""
    sku = {p.id: p.sku for p in fleet.pools}
    moves = {o.cell: o for o in outcomes if o.kind == "move" and not o.arrived}
    wave_of = {c: w.index for w in waves for c in w.cells}
    per_workload = {w.id: w.traffic.requests_per_s for w in fleet.workloads}
    rate = {c.id: per_workload[c.workload] for c in fleet.cells}
    short = []
    for o in moves.values():
        if o.lane is None or o.lane.kind != "pooled" or o.target is None:
            continue
        there = [moves[c] for c in o.lane.group if c in moves]
        beside = [x for x in there if x.target is not None and sku[x.target] == sku[o.target] and wave_of[x.cell] == wave_of[o.cell]]
        option = next((p for p in o.lane.options if p.kind == "pooled"), None)
        left = sum(rate[x.cell] for x in beside) / max(1e-12, sum(rate[c] for c in o.lane.group))
        if option is None or option.hours is None or option.hours > LANE_LIMIT_HOURS * left:
            short.append(str(o.cell))
    kinds = Counter(o.lane.kind for o in moves.values() if o.lane is not None)
    text = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items())) or "nothing moves"
    if short:
        return Check(
            name="lanes", ok=False, detail=f"too few equal cells move beside {_named(sorted(short))}: INCONCLUSIVE is to be expected"
        )
    return Check(name="lanes", ok=True, detail=text)


def _margins(fleet: Fleet, outcomes: tuple[Outcome, ...]) -> Check:
    margins = {g.name for s in fleet.policy.steps for g in s.guardrails}
    moving = {o.workload for o in outcomes if o.kind == "move"}
    missing = sorted(f"{w.id}: {g}" for w in fleet.workloads if w.id in moving for g in w.guardrails if g not in margins)
    return Check(
        name="guardrails", ok=not missing, detail="no margin in the policy for " + _named(missing) if missing else "all have margins"
    )


def _baselines(fleet: Fleet, outcomes: tuple[Outcome, ...], baselines: Mapping[str, Baseline]) -> Check:
    origins: dict[str, list[str]] = {}
    works = {w.id: w for w in fleet.workloads}
    for name in sorted({o.workload for o in outcomes if o.kind == "move"}):
        origins.setdefault(baseline_of(works[name], baselines).origin, []).append(name)
    text = "; ".join(f"{origin} for {_named(names)}" for origin, names in sorted(origins.items()))
    return Check(name="baseline", ok=True, detail=f"error ratio and latency spread {text}" if text else "nothing moves")


def _named(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
