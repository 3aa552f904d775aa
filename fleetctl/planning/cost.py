"""Plan, pure layer: what the fleet costs now, then, and while both sides run. Never guesses a price, never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.pool import Pool, Sku
from fleetctl.domain.units import Instant, Money
from fleetctl.domain.workload import Workload
from fleetctl.planning.placement import hourly, packed

CENT = Decimal("0.01")
SHARE = Decimal("0.0001")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCost:
    """One pool's VMs today and after the plan, and what a VM costs; `price` None where unknown."""

    pool: PoolId
    vms_now: int
    vms_then: int
    price: Money | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The whole fleet's cost.

    Args:
        now, then: USD per hour of all priced pools; overlap: USD for the planned time with both sides up; extra: on top of today.
        unpriced: pools that are left out since no price is known.
    """

    now: Money
    then: Money
    overlap: Money
    extra: Money
    pools: tuple[PoolCost, ...]
    unpriced: tuple[PoolId, ...]


def share_of(workload: Workload, pool: Pool, catalog: Catalog) -> Money | None:
    """Return what a cell of this workload costs per hour on a pool by its share of the GPUs; None where no price is known."""
    price, sku = hourly(pool, catalog), catalog.sku(pool.sku)
    if price is None or sku is None:
        return None
    gpus = Decimal(workload.replicas * workload.accelerators_per_replica)
    return Money(amount=(price.amount * gpus / sku.accelerators).quantize(SHARE, ROUND_HALF_UP), currency=price.currency)


def fleet_cost(
    fleet: Fleet, catalog: Catalog, moved: Mapping[CellId, PoolId], opened: Mapping[PoolId, int], hours: float, now: Instant
) -> Cost:
    """Add up all pools.

    A source pool shrinks, after release, to the VMs that its remaining cells or a running commitment need; a target grows to
    what it holds; others stay. Overlap is the hourly cost of the VMs that come and of those that will go, times `hours`.

    Args:
        moved: target per moving cell; opened: VMs per pool that placing opened, both sides up.
        hours: planned time from the first wave's start to the end of the last soak.
    """
    pools = tuple(_pool_cost(p, fleet, catalog, moved, opened, now) for p in fleet.pools)
    priced = [(p, p.price) for p in pools if p.price is not None]
    both = sum((abs(p.vms_then - p.vms_now) * price.amount for p, price in priced), Decimal(0))
    more = sum((max(0, p.vms_then - p.vms_now) * price.amount for p, price in priced), Decimal(0))
    return Cost(
        now=_usd(sum((p.vms_now * price.amount for p, price in priced), Decimal(0))),
        then=_usd(sum((p.vms_then * price.amount for p, price in priced), Decimal(0))),
        overlap=_usd(both * Decimal(str(hours))),
        extra=_usd(more * Decimal(str(hours))),
        pools=pools,
        unpriced=tuple(p.pool for p in pools if p.price is None and (p.vms_now or p.vms_then)),
    )


def vms_then(pool: Pool, sku: Sku | None, fleet: Fleet, moved: Mapping[CellId, PoolId], opened: Mapping[PoolId, int], now: Instant) -> int:
    """Return the VMs that a pool has after the plan and the release of what it no longer needs."""
    out = [c for c in fleet.cells if c.source == pool.id and moved.get(c.id, pool.id) != pool.id]
    into = [c for c in fleet.cells if moved.get(c.id) == pool.id]
    if sku is None or not (out or into):
        return pool.count
    stays = [c for c in fleet.cells if c.source == pool.id and c not in out]
    workloads = {w.id: w for w in fleet.workloads}
    loads = {c.id: (workloads[c.workload].replicas, workloads[c.workload].accelerators_per_replica) for c in (*stays, *into)}
    if any(gpus > sku.accelerators for _, gpus in loads.values()):
        return pool.count
    need = packed(loads, sku)
    if into:
        need = min(need, opened.get(pool.id, need))  # placing in wave order may have packed odd sizes better
        return need if out else max(pool.count, need)
    committed = sum(c.count for c in fleet.commitments if c.pool == pool.id and c.until >= now.date().isoformat())
    return min(pool.count, max(need, committed))


def _pool_cost(
    pool: Pool, fleet: Fleet, catalog: Catalog, moved: Mapping[CellId, PoolId], opened: Mapping[PoolId, int], now: Instant
) -> PoolCost:
    then = vms_then(pool, catalog.sku(pool.sku), fleet, moved, opened, now)
    return PoolCost(pool=pool.id, vms_now=pool.count, vms_then=then, price=hourly(pool, catalog))


def _usd(amount: Decimal) -> Money:
    return Money(amount=amount.quantize(CENT, ROUND_HALF_UP))
