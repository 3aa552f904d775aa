"""Plan, pure layer: what placement speaks of: fit, refusal, spread and the hourly price of a VM. Never I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Fit
from fleetctl.domain.pool import Pool, Sku
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload

FitOf = Callable[[Workload, Sku], Fit]
SPREAD = 2
"""A cell of two or more replicas stands on two VMs at least where the pool has them: one lost VM is not a lost cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one pool cannot take one cell, and what would change that."""

    reason: Reason
    change: str
    fit: Fit | None = None


def hourly(pool: Pool, catalog: Catalog) -> Money | None:
    """Return what one VM of the pool costs per hour: the fleet file's own price, else the catalogue's, else None (never 0)."""
    if pool.price_usd_per_hour is not None:
        return Money(amount=pool.price_usd_per_hour)
    price = catalog.price(pool.sku, pool.region)
    return None if price is None else Money(amount=price.usd_per_hour)
