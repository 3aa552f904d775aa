"""Plan, pure layer: what the fleet costs now and then. Never guesses a price, never I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import Pool
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload
from fleetctl.planning.candidates import Site
from fleetctl.planning.placement import hourly

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
        now, then: USD per hour of all priced pools.
        unpriced: pools that are left out since no price is known.
    """

    now: Money
    then: Money
    pools: tuple[PoolCost, ...]
    unpriced: tuple[PoolId, ...]


def share_of(workload: Workload, pool: Pool, catalog: Catalog) -> Money | None:
    """Return what a cell of this workload costs per hour on a pool by its share of the GPUs; None where no price is known."""
    price, sku = hourly(pool, catalog), catalog.sku(pool.sku)
    if price is None or sku is None:
        return None
    return share(price, workload.replicas * workload.accelerators_per_replica, sku.accelerators)


def share(price: Money, gpus: int, of: int) -> Money:
    """Return the part of a VM's price that `gpus` of its `of` GPUs make."""
    return Money(amount=(price.amount * gpus / of).quantize(SHARE, ROUND_HALF_UP), currency=price.currency)


def fleet_cost(sites: Sequence[Site], then: Mapping[PoolId, int]) -> Cost:
    """Add up all pools.

    Args:
        then: VMs per pool after the plan and the release of what it no longer needs; a pool that is not named keeps its own.
    """
    pools = tuple(PoolCost(pool=s.pool.id, vms_now=s.pool.count, vms_then=then.get(s.pool.id, s.pool.count), price=s.price) for s in sites)
    priced = [(p, p.price) for p in pools if p.price is not None]
    return Cost(
        now=_usd(sum((p.vms_now * price.amount for p, price in priced), Decimal(0))),
        then=_usd(sum((p.vms_then * price.amount for p, price in priced), Decimal(0))),
        pools=pools,
        unpriced=tuple(p.pool for p in pools if p.price is None and (p.vms_now or p.vms_then)),
    )


def _usd(amount: Decimal) -> Money:
    return Money(amount=amount.quantize(CENT, ROUND_HALF_UP))


def stage_costs(sites: Sequence[Site], vms: Sequence[Mapping[PoolId, int]]) -> tuple[tuple[PoolCost, ...], ...]:
    """Return per stage its pools: VMs before it and once its sources are released."""
    before = {s.pool.id: s.pool.count for s in sites}
    out = []
    for then in vms:
        out.append(tuple(PoolCost(pool=s.pool.id, vms_now=before[s.pool.id], vms_then=then[s.pool.id], price=s.price) for s in sites))
        before = dict(then)
    return tuple(out)
