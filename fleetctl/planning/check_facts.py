"""Plan, pure layer: what the checker stands on: the fleet's pools stage by stage, computed afresh. Shares no code with the optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from math import ceil

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.plan import Check, Fit, Outcome, Plan, Speed
from fleetctl.domain.pool import Pool, Sku
from fleetctl.domain.workload import Cell, Existing, Workload

CLOSE = 1e-6
FACILITY_OVER_TDP = 2.3
"""As planning.md 3: 1.9 to 2.5 times the TDP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the check stands on, beside fleet and catalogue.

    Args:
        vms: per stage, VMs per pool once its sources are released; hours: per cell, with both sides up.
        closed: (SKU, region) that get no more VMs.
        fit_of, speed_of: the same facts that the plan was made from; both_vendors: cells may go to NVIDIA pools too.
        sent: cells on their way, and where to; only: the one pool that a cell may go to.
        barred, egress: as `fleetctl.planning.check_barriers`; None: nothing bars, nothing costs.
    """

    vms: tuple[Mapping[PoolId, int], ...]
    hours: Mapping[CellId, float]
    closed: frozenset[tuple[str, str]]
    fit_of: Callable[[Workload, Sku], Fit]
    speed_of: Callable[[Workload, Sku, Sku], Speed]
    both_vendors: bool
    sent: Mapping[CellId, PoolId]
    barred: Callable[[Cell, Workload, Pool, Pool], bool] | None = None
    egress: Callable[[Cell, Workload, Pool, Pool], float] | None = None
    only: Mapping[CellId, PoolId] = field(default_factory=dict)


Group = tuple[int, int, bool]
"""Replicas, accelerators of each, and whether they came in an earlier stage."""


@dataclass(slots=True)
class PoolFacts:
    """One pool in one stage: what it has before, what stays in it and what comes.

    Args:
        count: VMs before the stage; fits: today's cells fit its VMs with odd sizes rounded up (else they count exactly).
    """

    pool: Pool
    sku: Sku | None
    size: int
    price: Decimal | None
    count: int
    most: int
    paid: int
    kw: float
    fits: bool = True
    base: list[Group] = field(default_factory=list)
    keep: list[Group] = field(default_factory=list)
    come: list[Group] = field(default_factory=list)
    wide_base: int = 1
    wide_keep: int = 1
    wide_come: int = 0


Facts = Mapping[PoolId, PoolFacts]


def stages_of(
    plan: Plan, fleet: Fleet, catalog: Catalog, works: Mapping[WorkloadId, Workload], ground: Ground
) -> list[dict[PoolId, PoolFacts]]:
    """Return per stage its pools, as the stage before leaves them."""
    today = plan.made_at.date().isoformat()
    stage_of, before = plan.stage_of(), {p.id: p.count for p in fleet.pools}
    out: list[dict[PoolId, PoolFacts]] = []
    for number, then in enumerate(ground.vms, 1):
        facts = _facts(fleet, catalog, ground, before)
        for c in fleet.commitments:
            if c.scope is None and c.pool in facts and c.until >= today:
                facts[c.pool].paid += c.count
        for o in plan.outcomes:
            _book(o, works[o.workload], facts, stage_of.get(o.cell, 1), number)
        for f in facts.values():
            f.fits = out[0][f.pool.id].fits if out else padded_gpus(f.base, f.size) <= f.size * f.pool.count
        out.append(facts)
        before = {name: min(then[name], peak_vms(f)) for name, f in facts.items()}
    return out


def _facts(fleet: Fleet, catalog: Catalog, ground: Ground, before: Mapping[PoolId, int]) -> dict[PoolId, PoolFacts]:
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
        size, count = 1, before[p.id]
        while sku is not None and size * 2 <= sku.accelerators:
            size *= 2
        most, kw = max(p.limit, count) if grows else count, each * (sku.accelerators if sku is not None else 0)
        out[p.id] = PoolFacts(pool=p, sku=sku, size=size, price=price, count=count, most=most, paid=0, kw=kw)
    return out


def _book(o: Outcome, w: Workload, facts: Facts, moves_in: int, stage: int) -> None:
    k, wide = w.accelerators_per_replica, 2 if w.replicas > 1 else 1
    goes = o.kind == "move" and o.target is not None
    is_there = goes and moves_in < stage
    at = facts[o.target if is_there and o.target is not None else o.source]
    group = ((o.target_replicas or w.replicas) if is_there else w.replicas, k, is_there)
    at.base.append(group)
    at.wide_base = max(at.wide_base, wide)
    if goes and moves_in == stage and o.target is not None:
        to = facts[o.target]
        to.come.append((o.target_replicas or w.replicas, k, True))
        to.wide_come = max(to.wide_come, wide)
    else:
        at.keep.append(group)
        at.wide_keep = max(at.wide_keep, wide)


def held_back(plan: Plan, fleet: Fleet, works: Mapping[WorkloadId, Workload], stage: int) -> frozenset[CellId]:
    """Return the cells that may not move in a later stage: their source ends, or a workload that waits for theirs has moved ahead."""
    if stage == 1:
        return frozenset()
    stage_of, ends = plan.stage_of(), {p.id for p in fleet.pools if p.ends}
    ahead = {o.workload for o in plan.outcomes if o.kind == "move" and stage_of.get(o.cell, 1) < stage}
    needed = {name for w in ahead for name in works[w].after}
    return frozenset(o.cell for o in plan.outcomes if o.source in ends or o.workload in needed)


def pin_of(cell: Cell, g: Ground) -> PoolId | None:
    """Return the one pool that a cell is sent to, None where it may choose."""
    if cell.id in g.sent:
        return g.sent[cell.id]
    return cell.target.pool if isinstance(cell.target, Existing) else cell.target


def fits(w: Workload, sku: Sku, g: Ground) -> bool:
    """Tell whether a replica fits the memory of its accelerators."""
    fit = g.fit_of(w, sku)
    return fit.needed_gib <= fit.available_gib


def speed_between(w: Workload, source: Sku | None, target: Sku, g: Ground) -> Speed:
    """Return the factor of a target against a source; one where the source is unknown."""
    return g.speed_of(w, source if source is not None else target, target)


def _round_up(k: int, size: int) -> int:
    if k >= size:
        return ceil(k / size) * size
    whole = 1
    while whole < k:
        whole *= 2
    return whole


def padded_gpus(groups: Iterable[Group], size: int) -> int:
    """Return the GPUs of these replicas, odd sizes rounded up to what packs."""
    return sum(replicas * _round_up(k, size) for replicas, k, _ in groups)


def held_gpus(f: PoolFacts, groups: list[Group]) -> float:
    """Return the GPUs that cells of today hold as they are counted in their pool, those that came rounded up."""
    if f.sku is None:
        return 0.0
    if f.fits:
        return float(padded_gpus(groups, f.size))
    here = sum(r * k for r, k, came in groups if not came) * f.size / f.sku.accelerators
    return here + padded_gpus([g for g in groups if g[2]], f.size)


def idle_vms(f: PoolFacts) -> int:
    """Return the VMs that serve no cell before the stage; they stay in the bill."""
    needed = max(ceil(held_gpus(f, f.base) / f.size - CLOSE), min(f.wide_base if f.base else 0, f.count))
    return max(0, f.count - needed)


def peak_vms(f: PoolFacts) -> int:
    """Return the VMs while both sides of the stage are up."""
    return max(f.count, ceil((held_gpus(f, f.base) + padded_gpus(f.come, f.size)) / f.size - CLOSE), min(f.wide_come, f.most))


def prepaid_of(fleet: Fleet, catalog: Catalog, facts: Facts, today: str) -> list[tuple[dict[PoolId, float], float]]:
    """Return per commitment by scope what a VM of each pool uses up of it, and what there is; in the order in which they apply."""
    found = []
    for c in fleet.commitments:
        s = c.scope
        if s is None or c.until < today:
            continue
        of = next((x.accelerators for x in catalog.skus if x.name == c.of), None)
        uses = {}
        for f in facts.values():
            sku, price = f.sku, f.price
            if sku is None or price is None or (s.clouds and sku.cloud not in s.clouds) or (s.regions and f.pool.region not in s.regions):
                continue
            if (s.pools and f.pool.id not in s.pools) or (s.skus and not any(fnmatchcase(f.pool.sku, x) for x in s.skus)):
                continue
            uses[f.pool.id] = float(price) * (1 - c.discount) if c.discount is not None else sku.accelerators / of if of else 1.0
        rank = (c.discount is not None, not s.skus, not s.regions)
        found.append((rank, uses, float(c.hourly.amount) if c.discount is not None else float(c.count)))
    return [(uses, most) for _, uses, most in sorted(found, key=lambda x: x[0])]


def covered_usd(prepaid: list[tuple[dict[PoolId, float], float]], facts: Facts, vms: Mapping[PoolId, int]) -> float:
    """Return USD/h of these VMs that commitments by scope pay for: the best use of each first."""
    left = {f.pool.id: max(0.0, float(vms[f.pool.id] - f.paid)) for f in facts.values()}
    usd = 0.0
    for uses, most in prepaid:
        for pool in sorted(uses, key=lambda q: -float(facts[q].price or 0) / uses[q]):
            vms_here = min(left[pool], most / uses[pool])
            left[pool] -= vms_here
            most -= vms_here * uses[pool]
            usd += vms_here * float(facts[pool].price or 0)
    return usd


def shared_limits(fleet: Fleet, facts: Facts) -> dict[str, tuple[dict[PoolId, float], float]]:
    """Return what a VM of each pool counts for each shared limit, and the most of it."""
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


def found_check(name: str, bad: list[str], good: str) -> Check:
    """Return a check that holds where nothing bad was found."""
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    return Check(name=name, ok=not bad, detail="; ".join(bad[:5]) + more if bad else good)
