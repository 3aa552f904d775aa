"""Plan, pure layer: from the fleet and the choices of its cells to a program of arrays. Never solves, never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Cell, Workload
from fleetctl.planning.candidates import Choice, Site, padded
from fleetctl.planning.commitments import scoped, units_of
from fleetctl.planning.placement import SPREAD
from fleetctl.planning.power_draw import vm_kw
from fleetctl.planning.program import TINY, Floats, Ints, Program

STAY_PENALTY_USD_PER_HOUR = 1e6
"""Set on staying where a person asked for moves that are dearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One cell as the program sees it.

    Args:
        choices: pools that may take it, () where it must stay; hours: both sides run; pinned: it goes as soon as there is room.
    """

    cell: Cell
    workload: Workload
    source: int
    choices: tuple[Choice, ...]
    hours: float
    pinned: bool


def assemble(
    fleet: Fleet, catalog: Catalog, sites: Sequence[Site], asked: Sequence[Asked], now: Instant, *, allow_dearer: bool
) -> tuple[Program, Floats, tuple[str, ...]]:
    """Return the program, in which pinned cells still stay, the shared limits as declared, and their names."""
    cells, pools = len(asked), len(sites)
    size = np.array([float(s.size) for s in sites])
    price = np.array([float(s.price.amount) if s.price is not None else 0.0 for s in sites])
    start = np.array([a.source for a in asked], dtype=np.int64)
    load, least = np.zeros((cells, pools)), np.zeros((cells, pools))
    allowed, move = np.zeros((cells, pools), bool), np.zeros((cells, pools))
    spread = np.array([SPREAD if a.workload.replicas >= SPREAD else 1 for a in asked], dtype=np.int64)
    at = np.arange(cells)
    load[at, start], least[at, start] = _today(sites, asked, start, size)
    allowed[at, start] = True
    row = np.array([w for w, a in enumerate(asked) for _ in a.choices], dtype=np.int64)
    column = np.array([c.pool for a in asked for c in a.choices], dtype=np.int64)
    load[row, column] = [c.padded for a in asked for c in a.choices]
    shrink = np.array([s.size / s.sku.accelerators if s.sku is not None else 1.0 for s in sites])
    gpus = np.array([float(c.gpus) for a in asked for c in a.choices])
    least[row, column] = gpus * shrink[column]
    allowed[row, column] = [not a.pinned for a in asked for _ in a.choices]
    hours = np.array([a.hours for a in asked])
    horizon = fleet.policy.horizon.total_seconds() / 3600
    egress = np.array([c.egress for a in asked for c in a.choices])
    move[row, column] = gpus * price[column] / size[column] * hours[row] / horizon + egress
    if allow_dearer:
        free = [w for w, a in enumerate(asked) if a.choices and not a.pinned]
        move[free, start[free]] = STAY_PENALTY_USD_PER_HOUR
    count = np.array([float(s.pool.count) for s in sites])
    most = np.array([float(s.most) for s in sites])
    base = np.bincount(start, weights=load[at, start], minlength=pools)
    wide = np.zeros(pools)
    np.maximum.at(wide, start, spread.astype(float))
    needed = np.maximum(np.ceil(base / size - TINY), np.minimum(wide, count))
    caps, limits, names = shared_limits(fleet, catalog, sites)
    units, funds = units_of(scoped(fleet, now), sites, catalog)
    return (
        Program(
            load=load,
            least_load=least if bool((np.abs(least - load)[allowed] > TINY).any()) else None,
            allowed=allowed,
            move=move,
            start=start,
            spread=spread,
            size=size,
            price=price,
            count=count,
            most=most,
            idle=np.maximum(0.0, count - needed),
            paid=np.minimum(_paid(fleet, sites, now), most),
            caps=caps,
            limits=np.maximum(limits, caps @ count) if len(limits) else limits,
            units=np.array(units, dtype=np.float64).reshape(len(funds), pools),
            funds=np.array(funds, dtype=np.float64),
            group=_groups(asked),
        ),
        limits,
        names,
    )


def _groups(asked: Sequence[Asked]) -> Ints:
    """Return the number of each cell's group of those that must not share a target (`apart`), -1 for none; () where nobody has one."""
    names = {name: i for i, name in enumerate(dict.fromkeys(a.workload.apart for a in asked if a.workload.apart))}
    return np.array([names.get(a.workload.apart, -1) for a in asked] if names else [], dtype=np.int64)


def _today(sites: Sequence[Site], asked: Sequence[Asked], start: Ints, size: Floats) -> tuple[Floats, Floats]:
    """Return per cell the GPUs that it takes where it is: rounded up to what packs, and exactly."""
    exact = np.array([float(a.workload.replicas * a.workload.accelerators_per_replica) for a in asked])
    round_ = np.array(
        [float(a.workload.replicas * padded(a.workload.accelerators_per_replica, sites[a.source].size)) for a in asked], dtype=np.float64
    )
    count = np.array([float(s.pool.count) for s in sites])
    whole = np.array([float(s.sku.accelerators) if s.sku is not None else 0.0 for s in sites])
    known = whole > 0
    fits = np.bincount(start, weights=round_, minlength=len(sites)) <= size * count + TINY
    shrink = np.where(known, size / np.where(known, whole, 1.0), 0.0)
    return np.where(fits[start], round_, exact * shrink[start]) * known[start], exact * shrink[start]


def _paid(fleet: Fleet, sites: Sequence[Site], now: Instant) -> Floats:
    today = now.date().isoformat()
    paid = dict.fromkeys((s.pool.id for s in sites), 0)
    for c in fleet.commitments:
        if c.until >= today and c.scope is None and c.pool in paid:
            paid[c.pool] += c.count
    return np.array([float(paid[s.pool.id]) for s in sites])


def shared_limits(fleet: Fleet, catalog: Catalog, sites: Sequence[Site]) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Return what a VM of each pool counts for each shared limit (rows), the most of each, and their names."""
    rows: list[list[float]] = []
    limits: list[float] = []
    names: list[str] = []
    policy = fleet.policy
    for region, most in sorted(policy.power_kw.items()):
        rows.append([vm_kw(s, catalog) if s.pool.region == region else 0.0 for s in sites])
        limits.append(most)
        names.append(f"power_kw of {region}")
    if policy.target_gpus is not None:
        rows.append([float(s.sku.accelerators) if s.sku is not None and s.pool.vendor == "amd" else 0.0 for s in sites])
        limits.append(float(policy.target_gpus))
        names.append("target_gpus")
    if policy.target_share is not None:
        rows.append([float(s.sku.accelerators) if s.sku is not None and s.pool.vendor == "amd" else 0.0 for s in sites])
        limits.append(policy.target_share * sum(s.pool.count * s.sku.accelerators for s in sites if s.sku is not None))
        names.append("target_share")
    if policy.budget_usd_per_hour is not None:
        rows.append([float(s.price.amount) if s.price is not None else 0.0 for s in sites])
        limits.append(policy.budget_usd_per_hour)
        names.append("budget_usd_per_hour")
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(sites)), np.array(limits, dtype=np.float64), tuple(names)
