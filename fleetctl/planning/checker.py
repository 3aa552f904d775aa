"""Plan, pure layer: checks a finished plan afresh. Shares no code with the optimiser (no arrays, no solver), so that it can disagree.

Everything is computed again from the fleet file, the catalogue and the plan's own words: places, memory, speed, VMs, quotas, shared
limits, cash, order, and the lower bound. Each stage (waves between two releases) is checked on what the one before leaves. The bound is
weak duality: for prices s, b, k >= 0 per GPU (stay, both, peak) and c >= 0 per cap,

    sum over cells of the cheapest choice: own pool: gpus (s + b); another: gpus (b + k) + its move
    + sum over pools of: the cheaper end of n in [max(idle, paid), most]:  (price - size (s + b)) n,  + size s idle
    + sum over pools of: the cheaper end of m in [count, most]:            (c . weights - size k) m,  + k (GPUs of today's cells)
    - sum over caps of c limit

never exceeds the cost of any plan that keeps the rules. Source: Lagrangian relaxation of the program in fleetctl.planning.program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import ceil

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.plan import Check, Outcome, Plan
from fleetctl.domain.workload import Cell, Workload
from fleetctl.planning.check_facts import (
    CLOSE,
    Facts,
    Ground,
    Group,
    PoolFacts,
    covered_usd,
    fits,
    found_check,
    held_back,
    held_gpus,
    idle_vms,
    padded_gpus,
    peak_vms,
    pin_of,
    prepaid_of,
    shared_limits,
    speed_between,
    stages_of,
)
from fleetctl.planning.check_proof import check_proof


def check_plan(plan: Plan, fleet: Fleet, catalog: Catalog, ground: Ground) -> tuple[Check, ...]:
    """Return the checks, failed ones among them; a plan with a failed one must not be offered."""
    works = {w.id: w for w in fleet.workloads}
    cells = {c.id: c for c in fleet.cells}
    stages = stages_of(plan, fleet, catalog, works, ground)
    return (
        _places(plan, cells, works, stages[0], ground),
        _vms(stages, ground),
        _shared(fleet, stages),
        _cash(plan, fleet, catalog, stages, ground),
        _order(plan, fleet, works, cells, ground),
        check_proof(plan, fleet, catalog, works, stages, ground),
    )


def _places(plan: Plan, cells: Mapping[CellId, Cell], works: Mapping[WorkloadId, Workload], facts: Facts, g: Ground) -> Check:
    bad = _together(plan, works)
    if sorted(o.cell for o in plan.outcomes) != sorted(cells):
        bad.append("the outcomes do not name every cell once")
    for o in plan.outcomes:
        if o.kind != "move":
            continue
        cell, w = cells[o.cell], works[o.workload]
        at = facts.get(o.target) if o.target is not None else None
        pin = pin_of(cell, g)
        if at is None or at.sku is None or at.price is None:
            bad.append(f"{o.cell}: its target has no SKU or price")
        elif at.pool.region != cell.region and at.pool.region not in cell.regions:
            bad.append(f"{o.cell}: {at.pool.region} is not a region that its data may be served from")
        elif g.barred is not None and g.barred(cell, w, facts[o.source].pool, at.pool):
            bad.append(f"{o.cell}: {at.pool.id} is barred to it by path, cooling or the end of its capacity")
        elif pin is not None and pin != at.pool.id:
            bad.append(f"{o.cell}: pinned to {pin}")
        elif g.only.get(o.cell, at.pool.id) != at.pool.id:
            bad.append(f"{o.cell}: may go to {g.only[o.cell]} alone")
        elif pin is None and at.pool.vendor != "amd" and not g.both_vendors:
            bad.append(f"{o.cell}: {at.pool.id} is not AMD")
        elif w.accelerators_per_replica > at.sku.accelerators or not fits(w, at.sku, g):
            bad.append(f"{o.cell}: does not fit {at.sku.gpu}")
        elif (o.target_replicas or 0) * speed_between(w, facts[o.source].sku, at.sku, g).factor < w.replicas - CLOSE:
            bad.append(f"{o.cell}: {o.target_replicas} replicas are too slow for its SLO")
    return found_check("places", bad, "region, pin, memory and replicas at their speed hold for every moving cell")


def _together(plan: Plan, works: Mapping[WorkloadId, Workload]) -> list[str]:
    """Return cells that enter a pool where another of their group already is or enters too."""
    there: dict[tuple[str, PoolId], list[Outcome]] = {}
    for o in plan.outcomes:
        if works[o.workload].apart:
            there.setdefault((works[o.workload].apart, o.target if o.kind == "move" and o.target else o.source), []).append(o)
    return [
        f"{o.cell}: shares {pool} with its group {group!r}"
        for (group, pool), members in there.items()
        if len(members) > 1
        for o in members
        if o.kind == "move"
    ]


def _bins(groups: Iterable[Group], f: PoolFacts) -> int:
    """Return VMs that hold these replicas: by sizes rounded up, or by putting the largest first where it fits tightest."""
    groups = list(groups)
    by_size = ceil(padded_gpus(groups, f.size) / f.size - CLOSE)
    whole = f.sku.accelerators if f.sku is not None else 1
    free: dict[int, int] = {}
    opened = 0
    for replicas, k, _ in sorted(groups, key=lambda item: -item[1]):
        if k > whole:
            opened += replicas * ceil(k / whole)
            continue
        for _ in range(replicas):
            room = min((left for left, many in free.items() if left >= k and many), default=0)
            if room:
                free[room] -= 1
            else:
                room, opened = whole, opened + 1
            free[room - k] = free.get(room - k, 0) + 1
    return min(by_size, opened)


def _least(f: PoolFacts) -> int:
    """Return the VMs that the program asks for after the stage (see its module): idle ones stay, spread cells stand on two."""
    kept = max(ceil(held_gpus(f, f.keep) / f.size - CLOSE), min(f.wide_keep if f.keep else 0, f.count))
    every = max(ceil((held_gpus(f, f.keep) + padded_gpus(f.come, f.size)) / f.size - CLOSE), min(f.wide_come if f.come else 0, f.most))
    return max(idle_vms(f) + kept, every, min(f.paid, f.most))


def _vms(stages: Sequence[Facts], g: Ground) -> Check:
    bad = []
    for facts, then in zip(stages, g.vms, strict=True):
        for f in facts.values():
            name, vms = f.pool.id, then[f.pool.id]
            if vms > f.most:
                bad.append(f"{name}: {vms} VMs, at most {f.most} may be had")
            if f.come and _bins([*f.keep, *f.come], f) > vms:
                bad.append(f"{name}: its replicas do not fit {vms} VMs")
            if f.come and peak_vms(f) > f.most:
                bad.append(f"{name}: no room for both sides on {f.most} VMs")
            if vms < _least(f):
                bad.append(f"{name}: {vms} VMs are fewer than stay in use, idle or paid for")
    return found_check("whole VMs", bad, "replicas fit whole VMs, quotas hold with both sides up, prepaid and idle VMs stay in the bill")


def _shared(fleet: Fleet, stages: Sequence[Facts]) -> Check:
    bad = []
    for facts in stages:
        for name, (weights, limit) in shared_limits(fleet, facts).items():
            now = sum(weights.get(f.pool.id, 0.0) * f.count for f in facts.values())
            peak = sum(weights.get(f.pool.id, 0.0) * peak_vms(f) for f in facts.values())
            if peak > max(limit, now) * (1 + CLOSE) + CLOSE:
                bad.append(f"{name}: {peak:,.1f} of {limit:,.1f}")
    some = shared_limits(fleet, stages[0])
    over = [
        name
        for name, (weights, limit) in some.items()
        if sum(weights.get(f.pool.id, 0.0) * f.count for f in stages[0].values()) > limit * (1 + CLOSE) + CLOSE
    ]
    if over:
        return found_check(
            "limits", bad, f"today exceeds {', '.join(over)}, and no move adds to it; other limits hold while both sides run"
        )
    text = "power, GPU and budget limits hold while both sides run" if some else "no power, GPU or budget limit is declared"
    return found_check("limits", bad, text)


def _order(plan: Plan, fleet: Fleet, works: Mapping[WorkloadId, Workload], cells: Mapping[CellId, Cell], g: Ground) -> Check:
    """Check that every moving cell is in one wave, and that a later stage begins when what it waits for can be released."""
    bad = []
    listed = sorted(c for w in plan.waves for c in w.cells)
    if listed != sorted(o.cell for o in plan.outcomes if o.kind == "move" and not o.arrived):
        bad.append("the waves do not name every moving cell once")
    numbers = [w.stage for w in plan.waves]
    if numbers != sorted(numbers) or any(not 1 <= n <= len(g.vms) for n in numbers):
        bad.append("the stages are out of order")
    dates = {d.index: d for d in plan.calendar.waves} if plan.calendar is not None else {}
    for w in plan.waves:
        before = [dates[x.index].end for x in plan.waves if x.stage < w.stage and x.index in dates] if w.stage > 1 else []
        if before and w.index in dates and dates[w.index].start < max(before):
            bad.append(f"wave {w.index} begins before the soak of stage {w.stage - 1} is over")
    ends = {p.id for p in fleet.pools if p.ends}
    target = {o.cell: o.target for o in plan.outcomes}
    for stage in range(2, len(g.vms) + 1):
        late = held_back(plan, fleet, works, stage)
        mine = [c for w in plan.waves if w.stage == stage for c in w.cells if pin_of(cells[c], g) is None]
        bad += [f"{c} may not wait for a release" for c in mine if c in late or target[c] in ends]
    text = "every moving cell is in one wave"
    return found_check("order", bad, text + (", later stages wait for their releases" if len(g.vms) > 1 else ""))


def _cash(plan: Plan, fleet: Fleet, catalog: Catalog, stages: Sequence[Facts], g: Ground) -> Check:
    bad, facts = [], stages[0]
    cent = Decimal("0.005")
    priced = [(f.pool.id, f.price, f.count) for f in facts.values() if f.price is not None]
    now = sum((price * count for _, price, count in priced), Decimal(0))
    bills = [sum((price * then[pool] for pool, price, _ in priced), Decimal(0)) for then in g.vms]
    for name, said, found in (("now", plan.cost_now, now), ("then", plan.cost_then, bills[-1])):
        if abs(said.amount - found) > cent:
            bad.append(f"{name} is {found:.2f}, not {said.amount}")
    c = plan.certificate
    prepaid = prepaid_of(fleet, catalog, facts, plan.made_at.date().isoformat())
    for proof, bill, then, own in zip((c, *c.later) if c is not None else (), bills, g.vms, stages, strict=False):
        less = covered_usd(prepaid, own, then)
        if abs(float(proof.cost.amount) - float(bill) + less - float(proof.moving.amount)) > 0.02:
            what = f"{bill:.2f} less {less:.2f} and {proof.moving.amount} for moving"
            bad.append(f"the certificate's cost {proof.cost.amount} is not {what}")
        if abs(less - float(proof.covered.amount if proof.covered is not None else 0)) > 0.02:
            bad.append(f"commitments pay for {less:.2f}, not {proof.covered.amount if proof.covered is not None else 0}")
    return found_check("cash", bad, "both totals are what the VMs cost")
