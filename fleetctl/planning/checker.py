"""Plan, pure layer: checks a finished plan afresh. Shares no code with the optimiser (no arrays, no solver), so that it can disagree.

Everything is computed again from the fleet file, the catalogue and the plan's own words: places, memory, speed, VMs, quotas, shared
limits, cash, and the lower bound. The bound is weak duality: for prices s, b, k >= 0 per GPU (stay, both, peak) and c >= 0 per cap,

    sum over cells of the cheapest choice: own pool: gpus (s + b); another: gpus (b + k) + its move
    + sum over pools of: the cheaper end of n in [max(idle, paid), most]:  (price - size (s + b)) n,  + size s idle
    + sum over pools of: the cheaper end of m in [count, most]:            (c . weights - size k) m,  + k (GPUs of today's cells)
    - sum over caps of c limit

never exceeds the cost of any plan that keeps the rules. Source: Lagrangian relaxation of the program in fleetctl.planning.program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.plan import Certificate, Check, Fit, Outcome, Plan, Speed
from fleetctl.domain.pool import Pool, Sku
from fleetctl.domain.workload import Cell, Existing, Workload

FREE_CODES = frozenset({"price.dearer", "price.whole_vms", "pool.limit", "capacity.no", "apart"})
"""Reasons of cells that the optimiser left where they are, like every `limit.*`; every other staying cell had no choice."""
CLOSE = 1e-6
FACILITY_OVER_TDP = 2.3
"""As planning.md 3: 1.9 to 2.5 times the TDP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the check stands on, beside fleet and catalogue.

    Args:
        vms: per pool after the plan; hours: per cell, with both sides up; closed: (SKU, region) that get no more VMs.
        fit_of, speed_of: the same facts that the plan was made from; both_vendors: cells may go to NVIDIA pools too.
        sent: cells on their way, and where to; only: the one pool that a cell may go to.
        barred, egress: as `fleetctl.planning.check_barriers`; None: nothing bars, nothing costs.
    """

    vms: Mapping[PoolId, int]
    hours: Mapping[CellId, float]
    closed: frozenset[tuple[str, str]]
    fit_of: Callable[[Workload, Sku], Fit]
    speed_of: Callable[[Workload, Sku, Sku], Speed]
    both_vendors: bool
    sent: Mapping[CellId, PoolId]
    barred: Callable[[Cell, Workload, Pool, Pool], bool] | None = None
    egress: Callable[[Cell, Workload, Pool, Pool], float] | None = None
    only: Mapping[CellId, PoolId] = field(default_factory=dict)


@dataclass(slots=True)
class _PoolFacts:
    pool: Pool
    sku: Sku | None
    size: int
    price: Decimal | None
    most: int
    paid: int
    kw: float
    base: list[tuple[int, int]]
    keep: list[tuple[int, int]]
    come: list[tuple[int, int]]
    wide_base: int = 1
    wide_keep: int = 1
    wide_come: int = 0
    wide_all: int = 1


def check_plan(plan: Plan, fleet: Fleet, catalog: Catalog, ground: Ground) -> tuple[Check, ...]:
    """Return the checks, failed ones among them; a plan with a failed one must not be offered."""
    works = {w.id: w for w in fleet.workloads}
    cells = {c.id: c for c in fleet.cells}
    facts = _facts(fleet, catalog, ground)
    today = plan.made_at.date().isoformat()
    for c in fleet.commitments:
        if c.pool in facts and c.until >= today:
            facts[c.pool].paid += c.count
    for o in plan.outcomes:
        _book(o, works[o.workload], facts)
    return (
        _places(plan, cells, works, facts, ground),
        _vms(facts, ground),
        _shared(fleet, facts, ground),
        _cash(plan, facts, ground),
        _proof(plan, fleet, works, facts, ground),
    )


def _facts(fleet: Fleet, catalog: Catalog, ground: Ground) -> dict[PoolId, _PoolFacts]:
    skus = {s.name: s for s in catalog.skus}
    gpus = {g.name: g for g in catalog.gpus}
    out = {}
    for p in fleet.pools:
        sku = skus.get(p.sku)
        listed = catalog.price(p.sku, p.region)
        price = p.price_usd_per_hour if p.price_usd_per_hour is not None else (listed.usd_per_hour if listed is not None else None)
        grows = p.provisioned_by != "existing" and (p.sku, p.region) not in ground.closed
        gpu = gpus.get(sku.gpu) if sku is not None else None
        each = 0.0 if gpu is None else (gpu.all_in_kw if gpu.all_in_kw is not None else (gpu.tdp_w or 0) * FACILITY_OVER_TDP / 1000)
        size = 1
        while sku is not None and size * 2 <= sku.accelerators:
            size *= 2
        out[p.id] = _PoolFacts(
            pool=p,
            sku=sku,
            size=size,
            price=price,
            most=max(p.limit, p.count) if grows else p.count,
            paid=0,
            kw=each * (sku.accelerators if sku is not None else 0),
            base=[],
            keep=[],
            come=[],
        )
    return out


def _book(o: Outcome, w: Workload, facts: Mapping[PoolId, _PoolFacts]) -> None:
    k, wide = w.accelerators_per_replica, 2 if w.replicas > 1 else 1
    source = facts[o.source]
    source.base.append((w.replicas, k))
    source.wide_base = max(source.wide_base, wide)
    if o.kind == "move" and o.target is not None:
        facts[o.target].come.append((o.target_replicas or w.replicas, k))
        facts[o.target].wide_all = max(facts[o.target].wide_all, wide)
        facts[o.target].wide_come = max(facts[o.target].wide_come, wide)
    else:
        source.keep.append((w.replicas, k))
        source.wide_keep = max(source.wide_keep, wide)
        source.wide_all = max(source.wide_all, wide)


def _places(
    plan: Plan, cells: Mapping[CellId, Cell], works: Mapping[WorkloadId, Workload], facts: Mapping[PoolId, _PoolFacts], g: Ground
) -> Check:
    bad = _together(plan, works)
    if sorted(o.cell for o in plan.outcomes) != sorted(cells):
        bad.append("the outcomes do not name every cell once")
    for o in plan.outcomes:
        if o.kind != "move":
            continue
        cell, w = cells[o.cell], works[o.workload]
        at = facts.get(o.target) if o.target is not None else None
        pin = _pin(cell, g)
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
        elif w.accelerators_per_replica > at.sku.accelerators or not _fits(w, at.sku, g):
            bad.append(f"{o.cell}: does not fit {at.sku.gpu}")
        elif (o.target_replicas or 0) * _speed(w, facts[o.source].sku, at.sku, g).factor < w.replicas - CLOSE:
            bad.append(f"{o.cell}: {o.target_replicas} replicas are too slow for its SLO")
    return _check("places", bad, "region, pin, memory and replicas at their speed hold for every moving cell")


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


def _pin(cell: Cell, g: Ground) -> PoolId | None:
    if cell.id in g.sent:
        return g.sent[cell.id]
    return cell.target.pool if isinstance(cell.target, Existing) else cell.target


def _fits(w: Workload, sku: Sku, g: Ground) -> bool:
    fit = g.fit_of(w, sku)
    return fit.needed_gib <= fit.available_gib


def _speed(w: Workload, source: Sku | None, target: Sku, g: Ground) -> Speed:
    return g.speed_of(w, source if source is not None else target, target)


def _round_up(k: int, size: int) -> int:
    if k >= size:
        return ceil(k / size) * size
    whole = 1
    while whole < k:
        whole *= 2
    return whole


def _padded(groups: Iterable[tuple[int, int]], size: int) -> int:
    return sum(replicas * _round_up(k, size) for replicas, k in groups)


def _bins(groups: Iterable[tuple[int, int]], f: _PoolFacts) -> int:
    """Return VMs that hold these replicas: by sizes rounded up, or by putting the largest first where it fits tightest."""
    groups = list(groups)
    by_size = ceil(_padded(groups, f.size) / f.size - CLOSE)
    whole = f.sku.accelerators if f.sku is not None else 1
    free: dict[int, int] = {}
    opened = 0
    for replicas, k in sorted(groups, key=lambda item: -item[1]):
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


def _least(f: _PoolFacts) -> int:
    """Return the VMs that the program asks for after the plan (see its module): idle ones stay, spread cells stand on two."""
    kept = max(ceil(_held(f, f.keep) / f.size - CLOSE), min(f.wide_keep if f.keep else 0, f.pool.count))
    every = max(ceil((_held(f, f.keep) + _padded(f.come, f.size)) / f.size - CLOSE), min(f.wide_all if f.keep or f.come else 0, f.most))
    return max(_idle(f) + kept, every, min(f.paid, f.most))


def _held(f: _PoolFacts, groups: list[tuple[int, int]]) -> float:
    if f.sku is None:
        return 0.0
    if _padded(f.base, f.size) <= f.size * f.pool.count:
        return float(_padded(groups, f.size))
    return sum(r * k for r, k in groups) * f.size / f.sku.accelerators


def _idle(f: _PoolFacts) -> int:
    needed = max(ceil(_held(f, f.base) / f.size - CLOSE), min(f.wide_base if f.base else 0, f.pool.count))
    return max(0, f.pool.count - needed)


def _peak(f: _PoolFacts) -> int:
    return max(f.pool.count, ceil((_held(f, f.base) + _padded(f.come, f.size)) / f.size - CLOSE), min(f.wide_come, f.most))


def _vms(facts: Mapping[PoolId, _PoolFacts], g: Ground) -> Check:
    bad = []
    for f in facts.values():
        name, vms = f.pool.id, g.vms[f.pool.id]
        if vms > f.most:
            bad.append(f"{name}: {vms} VMs, at most {f.most} may be had")
        if f.come and _bins([*f.keep, *f.come], f) > vms:
            bad.append(f"{name}: its replicas do not fit {vms} VMs")
        if f.come and _peak(f) > f.most:
            bad.append(f"{name}: no room for both sides on {f.most} VMs")
        if vms < _least(f):
            bad.append(f"{name}: {vms} VMs are fewer than stay in use, idle or paid for")
    return _check("whole VMs", bad, "replicas fit whole VMs, quotas hold with both sides up, prepaid and idle VMs stay in the bill")


def _shared(fleet: Fleet, facts: Mapping[PoolId, _PoolFacts], g: Ground) -> Check:
    bad = []
    for name, (weights, limit) in _limits(fleet, facts).items():
        now = sum(weights.get(f.pool.id, 0.0) * f.pool.count for f in facts.values())
        peak = sum(weights.get(f.pool.id, 0.0) * _peak(f) for f in facts.values())
        if peak > max(limit, now) * (1 + CLOSE) + CLOSE:
            bad.append(f"{name}: {peak:,.1f} of {limit:,.1f}")
    text = (
        "power, GPU and budget limits hold while both sides run" if _limits(fleet, facts) else "no power, GPU or budget limit is declared"
    )
    return _check("limits", bad, text)


def _limits(fleet: Fleet, facts: Mapping[PoolId, _PoolFacts]) -> dict[str, tuple[dict[PoolId, float], float]]:
    every = list(facts.values())
    out: dict[str, tuple[dict[PoolId, float], float]] = {
        f"power_kw of {region}": ({f.pool.id: f.kw for f in every if f.pool.region == region}, most)
        for region, most in fleet.policy.power_kw.items()
    }
    if fleet.policy.target_gpus is not None:
        amd = {f.pool.id: float(f.sku.accelerators) for f in every if f.sku is not None and f.pool.vendor == "amd"}
        out["target_gpus"] = (amd, float(fleet.policy.target_gpus))
    if fleet.policy.target_share is not None:
        amd = {f.pool.id: float(f.sku.accelerators) for f in every if f.sku is not None and f.pool.vendor == "amd"}
        today = sum(f.pool.count * f.sku.accelerators for f in every if f.sku is not None)
        out["target_share"] = (amd, fleet.policy.target_share * today)
    if fleet.policy.budget_usd_per_hour is not None:
        out["budget_usd_per_hour"] = ({f.pool.id: float(f.price or 0) for f in every}, fleet.policy.budget_usd_per_hour)
    return out


def _cash(plan: Plan, facts: Mapping[PoolId, _PoolFacts], g: Ground) -> Check:
    bad = []
    cent = Decimal("0.005")
    now = sum((f.price * f.pool.count for f in facts.values() if f.price is not None), Decimal(0))
    then = sum((f.price * g.vms[f.pool.id] for f in facts.values() if f.price is not None), Decimal(0))
    for name, said, found in (("now", plan.cost_now, now), ("then", plan.cost_then, then)):
        if abs(said.amount - found) > cent:
            bad.append(f"{name} is {found:.2f}, not {said.amount}")
    c = plan.certificate
    if c is not None and abs(float(c.cost.amount) - float(then) - float(c.moving.amount)) > 0.02:
        bad.append(f"the certificate's cost {c.cost.amount} is not {then:.2f} and {c.moving.amount} for moving")
    return _check("cash", bad, "both totals are what the VMs cost")


def _proof(plan: Plan, fleet: Fleet, works: Mapping[WorkloadId, Workload], facts: Mapping[PoolId, _PoolFacts], g: Ground) -> Check:
    c = plan.certificate
    if c is None:
        return _check("proof", [], "no cell had a choice, or moves were asked for even where dearer: nothing to prove")
    bound = _bound(c, plan, fleet, works, facts, g)
    claimed, cost = float(c.price_bound.amount), float(c.cost.amount)
    slack = 0.02 + CLOSE * abs(cost)
    bad = []
    if any(v < 0 for p in c.prices for v in (p.stay, p.both, p.peak)) or any(v < 0 for _, v in c.caps):
        bad.append("a price is negative")
    if claimed > bound + slack:
        bad.append(f"the prices prove {bound:,.2f}, not {claimed:,.2f}")
    if float(c.bound.amount) > cost + slack or (c.proof == "prices" and float(c.bound.amount) > bound + slack):
        bad.append(f"the bound {c.bound.amount} is not proven")
    if c.proof == "prices":
        return _check("proof", bad, f"pool prices prove again that no plan costs less than {c.bound.amount} USD/h")
    text = f"no plan costs less than {c.bound.amount} USD/h by the solver's own search; pool prices alone prove {max(0.0, bound):.2f}"
    return _check("proof", bad, text)


def _bound(
    c: Certificate, plan: Plan, fleet: Fleet, works: Mapping[WorkloadId, Workload], facts: Mapping[PoolId, _PoolFacts], g: Ground
) -> float:
    y = {p.pool: p for p in c.prices}
    cells = {cell.id: cell for cell in fleet.cells}
    offers = _Offers(facts, g, c.horizon_hours)
    total, base = 0.0, dict.fromkeys(facts, 0.0)
    for o in plan.outcomes:
        cell, w = cells[o.cell], works[o.workload]
        own = facts[o.source]
        gpus = w.replicas * w.accelerators_per_replica * (own.size / own.sku.accelerators if own.sku is not None else 0.0)
        base[o.source] += gpus
        stay = gpus * (y[o.source].stay + y[o.source].both)
        moved, pinned = o.kind == "move", _pin(cell, g) is not None
        if not moved and (pinned or not (o.reason.code in FREE_CODES or o.reason.code.startswith("limit."))):
            total += stay
            continue
        hours = g.hours[o.cell]
        rest = min(
            (n * (y[q].both + y[q].peak) + n * m * hours + offers.egress(cell, w, q) for q, n, m in offers.of(cell, w)),
            default=float("inf"),
        )
        total += rest if pinned else min(stay, rest)
    weight = dict(c.caps)
    limits = _limits(fleet, facts)
    for f in facts.values():
        p, price = y[f.pool.id], float(f.price) if f.price is not None else 0.0
        slope, idle = price - f.size * (p.stay + p.both), _idle(f)
        total += min(slope * max(idle, min(f.paid, f.most)), slope * f.most) + f.size * p.stay * idle
        tilt = sum(weight.get(name, 0.0) * weights.get(f.pool.id, 0.0) for name, (weights, _) in limits.items()) - f.size * p.peak
        total += min(tilt * f.pool.count, tilt * f.most) + p.peak * base[f.pool.id]
    for name, (weights, limit) in limits.items():
        now = sum(weights.get(f.pool.id, 0.0) * f.pool.count for f in facts.values())
        total -= weight.get(name, 0.0) * max(limit, now)
    return total


class _Offers:
    """Every pool that could take a cell: (pool, GPUs, USD per GPU, hour of both sides up and hour of the horizon)."""

    def __init__(self, facts: Mapping[PoolId, _PoolFacts], g: Ground, horizon_hours: float) -> None:
        self._facts, self._g, self._horizon = facts, g, horizon_hours
        self._known: dict[tuple[object, ...], list[tuple[PoolId, Sku, float, float]]] = {}

    def of(self, cell: Cell, w: Workload) -> list[tuple[PoolId, float, float]]:
        """Return the offers for one cell."""
        traffic = w.traffic.input_tokens + w.traffic.output_tokens
        size = (w.accelerators_per_replica, w.concurrency, w.adapters, traffic, w.slo.latency_ms, w.klass, cell.router.name)
        key = (cell.source, cell.region, cell.regions, _pin(cell, self._g), self._g.only.get(cell.id), w.model, size)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = [self._offer(f, f.sku) for f in self._facts.values() if f.sku is not None and self._may(cell, w, f)]
        source = self._facts[cell.source].sku
        least, k = min(2, w.replicas), w.accelerators_per_replica
        out = []
        for pool, sku, part, usd in known:
            replicas = max(least, ceil(w.replicas / _speed(w, source, sku, self._g).factor - 1e-9))
            out.append((pool, replicas * k * part, usd))
        return out

    def egress(self, cell: Cell, w: Workload, pool: PoolId) -> float:
        """Return USD per hour of what crosses to another region."""
        g = self._g
        return 0.0 if g.egress is None else g.egress(cell, w, self._facts[cell.source].pool, self._facts[pool].pool)

    def _offer(self, f: _PoolFacts, sku: Sku) -> tuple[PoolId, Sku, float, float]:
        part = f.size / sku.accelerators
        return f.pool.id, sku, part, float(f.price or 0) / part / f.size / self._horizon

    def _may(self, cell: Cell, w: Workload, f: _PoolFacts) -> bool:
        pin = _pin(cell, self._g)
        here = f.pool.region == cell.region or f.pool.region in cell.regions
        if f.sku is None or f.price is None or not here or f.pool.id == cell.source:
            return False
        if self._g.barred is not None and self._g.barred(cell, w, self._facts[cell.source].pool, f.pool):
            return False
        if pin is not None:
            return pin == f.pool.id
        if self._g.only.get(cell.id, f.pool.id) != f.pool.id:
            return False
        vendor = f.pool.vendor == "amd" or self._g.both_vendors
        return vendor and w.accelerators_per_replica <= f.sku.accelerators and _fits(w, f.sku, self._g)


def _check(name: str, bad: list[str], good: str) -> Check:
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    return Check(name=name, ok=not bad, detail="; ".join(bad[:5]) + more if bad else good)
