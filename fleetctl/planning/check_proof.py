"""Plan, pure layer: proves a plan's lower bound again, stage by stage, without the optimiser. Part of the checker, and as independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId, WorkloadId
from fleetctl.domain.plan import Certificate, Check, Outcome, Plan
from fleetctl.domain.pool import Sku
from fleetctl.domain.workload import Cell, Workload
from fleetctl.planning.check_facts import (
    CLOSE,
    Facts,
    Ground,
    PoolFacts,
    fits,
    found_check,
    held_back,
    idle_vms,
    pin_of,
    prepaid_of,
    shared_limits,
    speed_between,
)

FREE_CODES = frozenset({"price.dearer", "price.whole_vms", "commitment", "pool.limit", "capacity.no", "apart"})
"""Reasons of cells that the optimiser left where they are, like every `limit.*`; every other staying cell had no choice."""


def check_proof(
    plan: Plan, fleet: Fleet, catalog: Catalog, works: Mapping[WorkloadId, Workload], stages: Sequence[Facts], g: Ground
) -> Check:
    """Return whether the certificate's prices prove what it says, in every stage."""
    c = plan.certificate
    if c is None:
        return found_check("proof", [], "no cell had a choice, or moves were asked for even where dearer: nothing to prove")
    bad: list[str] = []
    if len(c.later) + 1 != len(stages):
        return found_check("proof", [f"{len(stages)} stages, {len(c.later) + 1} proofs"], "")
    prepaid = prepaid_of(fleet, catalog, stages[0], plan.made_at.date().isoformat())
    bounds = [
        _Bound(proof, plan, fleet, works, facts, g, n).least(prepaid)
        for n, (proof, facts) in enumerate(zip((c, *c.later), stages, strict=True), 1)
    ]
    for proof, bound in zip((c, *c.later), bounds, strict=True):
        bad += _wrong(proof, bound)
    if c.proof == "prices":
        good = f"pool prices prove again that no plan costs less than {c.bound.amount} USD/h"
    else:
        good = (
            f"no plan costs less than {c.bound.amount} USD/h by the solver's own search; pool prices alone prove {max(0.0, bounds[0]):.2f}"
        )
    if c.later:
        good = f"{good}, waiting for no release; then per stage " + ", ".join(f"{p.bound.amount}" for p in c.later)
    return found_check("proof", bad, good)


def _wrong(c: Certificate, bound: float) -> list[str]:
    claimed, cost = float(c.price_bound.amount), float(c.cost.amount)
    slack = 0.02 + CLOSE * abs(cost)
    bad = []
    if any(v < 0 for p in c.prices for v in (p.stay, p.both, p.peak, p.cover)) or any(v < 0 for _, v in c.caps):
        bad.append("a price is negative")
    if claimed > bound + slack:
        bad.append(f"the prices prove {bound:,.2f}, not {claimed:,.2f}")
    if float(c.bound.amount) > cost + slack or (c.proof == "prices" and float(c.bound.amount) > bound + slack):
        bad.append(f"the bound {c.bound.amount} is not proven")
    return bad


class _Bound:
    """The least that one stage's prices prove, with what the moves of earlier stages cost."""

    def __init__(
        self, c: Certificate, plan: Plan, fleet: Fleet, works: Mapping[WorkloadId, Workload], facts: Facts, g: Ground, stage: int
    ) -> None:
        self._c, self._plan, self._fleet, self._works, self._facts, self._g = c, plan, fleet, works, facts, g
        self._stage, self._stage_of = stage, plan.stage_of()
        self._y = {p.pool: p for p in c.prices}
        self._offers = _Offers(facts, g, c.horizon_hours)
        self._base = dict.fromkeys(facts, 0.0)
        self._bound_to_wait = held_back(plan, fleet, works, stage)

    def least(self, prepaid: Sequence[tuple[Mapping[PoolId, float], float]]) -> float:
        """Return the bound, USD per hour; prepaid: units per VM and funds of the commitments by scope."""
        cells = {cell.id: cell for cell in self._fleet.cells}
        total = sum(self._cell(o, cells[o.cell], self._works[o.workload]) for o in self._plan.outcomes)
        weight, limits = dict(self._c.caps), shared_limits(self._fleet, self._facts)
        for f in self._facts.values():
            total += self._pool(f, weight, limits)
        for name, (weights, limit) in limits.items():
            now = sum(weights.get(f.pool.id, 0.0) * f.count for f in self._facts.values())
            total -= weight.get(name, 0.0) * max(limit, now)
        for uses, most in prepaid:
            total -= most * max((self._worth(q) / used for q, used in uses.items()), default=0.0)
        return total

    def _worth(self, pool: PoolId) -> float:
        """Return what a VM saves beyond its price in the certificate where a commitment pays for it, never below 0."""
        return max(0.0, float(self._facts[pool].price or 0) - self._y[pool].cover)

    def _cell(self, o: Outcome, cell: Cell, w: Workload) -> float:
        moves_in = self._stage_of.get(o.cell, 1) if o.kind == "move" else None
        if moves_in is not None and moves_in < self._stage and o.target is not None:
            gpus = (o.target_replicas or 0) * w.accelerators_per_replica * _part(self._facts[o.target])
            self._base[o.target] += gpus
            spent = next((self._moving(o, cell, w, q, n, m) for q, n, m in self._offers.of(cell, w) if q == o.target), 0.0)
            return gpus * (self._y[o.target].stay + self._y[o.target].both) + spent
        gpus = w.replicas * w.accelerators_per_replica * _part(self._facts[o.source])
        self._base[o.source] += gpus
        stay = gpus * (self._y[o.source].stay + self._y[o.source].both)
        pinned = pin_of(cell, self._g) is not None
        free = o.reason.code in FREE_CODES or o.reason.code.startswith("limit.")
        may = free if moves_in is None else not pinned or moves_in == self._stage
        if not may or (pinned and moves_in is None) or (not pinned and cell.id in self._bound_to_wait):
            return stay
        y = self._y
        rest = min(
            (
                n * (y[q].both + y[q].peak) + self._moving(o, cell, w, q, n, m)
                for q, n, m in self._offers.of(cell, w)
                if pinned or self._stage == 1 or not self._facts[q].pool.ends
            ),
            default=float("inf"),
        )
        return rest if pinned else min(stay, rest)

    def _moving(self, o: Outcome, cell: Cell, w: Workload, pool: PoolId, gpus: float, usd: float) -> float:
        return gpus * usd * self._g.hours[o.cell] + self._offers.egress(cell, w, pool)

    def _pool(self, f: PoolFacts, weight: Mapping[str, float], limits: Mapping[str, tuple[dict[PoolId, float], float]]) -> float:
        p, price = self._y[f.pool.id], float(f.price) if f.price is not None else 0.0
        cover, paid = p.cover, min(f.paid, f.most)
        slope, idle = price - cover - f.size * (p.stay + p.both), idle_vms(f)
        out = min(slope * max(idle, paid), slope * f.most) + f.size * p.stay * idle + cover * paid
        tilt = sum(weight.get(name, 0.0) * weights.get(f.pool.id, 0.0) for name, (weights, _) in limits.items()) - f.size * p.peak
        return out + min(tilt * f.count, tilt * f.most) + p.peak * self._base[f.pool.id]


def _part(f: PoolFacts) -> float:
    return f.size / f.sku.accelerators if f.sku is not None else 0.0


class _Offers:
    """Every pool that could take a cell: (pool, GPUs, USD per GPU, hour of both sides up and hour of the horizon)."""

    def __init__(self, facts: Facts, g: Ground, horizon_hours: float) -> None:
        self._facts, self._g, self._horizon = facts, g, horizon_hours
        self._known: dict[tuple[object, ...], list[tuple[PoolId, Sku, float, float]]] = {}

    def of(self, cell: Cell, w: Workload) -> list[tuple[PoolId, float, float]]:
        """Return the offers for one cell."""
        traffic = w.traffic.input_tokens + w.traffic.output_tokens
        size = (
            w.accelerators_per_replica,
            w.concurrency,
            w.adapters,
            traffic,
            w.slo,
            w.klass,
            cell.router.name,
            w.serving.get("target_speed"),
        )
        key = (cell.source, cell.region, cell.regions, pin_of(cell, self._g), self._g.only.get(cell.id), w.model, size)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = [self._offer(f, f.sku) for f in self._facts.values() if f.sku is not None and self._may(cell, w, f)]
        source = self._facts[cell.source].sku
        least, k = min(2, w.replicas), w.accelerators_per_replica
        out = []
        for pool, sku, part, usd in known:
            replicas = max(least, ceil(w.replicas / speed_between(w, source, sku, self._g).factor - 1e-9))
            out.append((pool, replicas * k * part, usd))
        return out

    def egress(self, cell: Cell, w: Workload, pool: PoolId) -> float:
        """Return USD per hour of what crosses to another region."""
        g = self._g
        return 0.0 if g.egress is None else g.egress(cell, w, self._facts[cell.source].pool, self._facts[pool].pool)

    def _offer(self, f: PoolFacts, sku: Sku) -> tuple[PoolId, Sku, float, float]:
        part = f.size / sku.accelerators
        return f.pool.id, sku, part, float(f.price or 0) / part / f.size / self._horizon

    def _may(self, cell: Cell, w: Workload, f: PoolFacts) -> bool:
        pin = pin_of(cell, self._g)
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
        return vendor and w.accelerators_per_replica <= f.sku.accelerators and fits(w, f.sku, self._g)
