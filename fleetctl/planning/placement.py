"""Plan, pure layer: packs replicas into the VMs of one pool, several workloads to a VM. Never splits a replica, never I/O.

First fit, largest replica first within a class: replicas of 1, 2, 4 and 8 GPUs pack VMs of 8 without loss. Source: planning.md 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.ids import CellId, PoolId
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


@dataclass(slots=True, kw_only=True)
class Room:
    """What a pool has left while a plan is being made (never leaves this step).

    Args:
        most: VMs that may be used; free: GPUs left per opened VM; holders: cells per opened VM.
    """

    pool: Pool
    sku: Sku
    most: int
    free: list[int] = field(default_factory=list)
    holders: list[set[CellId]] = field(default_factory=list)

    def place(self, cell: CellId, replicas: int, accelerators: int) -> bool:
        """Place all replicas or none; true where all found room."""
        free, holders = list(self.free), [set(h) for h in self.holders]
        for number in range(replicas):
            at = self._slot(free, holders, cell, accelerators, fresh=0 < number < SPREAD)
            if at is None:
                return False
            free[at] -= accelerators
            holders[at].add(cell)
        self.free, self.holders = free, holders
        return True

    def _slot(self, free: list[int], holders: list[set[CellId]], cell: CellId, accelerators: int, *, fresh: bool) -> int | None:
        open_ = [i for i, left in enumerate(free) if left >= accelerators]
        away = [i for i in open_ if cell not in holders[i]]
        if away and fresh:
            return away[0]
        if open_ and not (fresh and len(free) < self.most):
            return open_[0]
        if len(free) < self.most and accelerators <= self.sku.accelerators:
            free.append(self.sku.accelerators)
            holders.append(set())
            return len(free) - 1
        return open_[0] if open_ else None


def hourly(pool: Pool, catalog: Catalog) -> Money | None:
    """Return what one VM of the pool costs per hour: the fleet file's own price, else the catalogue's, else None (never 0)."""
    if pool.price_usd_per_hour is not None:
        return Money(amount=pool.price_usd_per_hour)
    price = catalog.price(pool.sku, pool.region)
    return None if price is None else Money(amount=price.usd_per_hour)


def packed(cells: Mapping[CellId, tuple[int, int]], sku: Sku) -> int:
    """Return the VMs that these cells need; per cell (replicas, GPUs per replica)."""
    total = sum(replicas for replicas, _ in cells.values())
    room = Room(pool=_ANY, sku=sku, most=max(1, total))
    for cell, (replicas, accelerators) in sorted(cells.items(), key=lambda item: (-item[1][1], item[0])):
        room.place(cell, replicas, accelerators)
    return len(room.free)


_ANY = Pool(id=PoolId("any"), vendor="amd", sku="", region="", count=0, limit=0)
