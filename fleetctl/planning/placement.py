"""Plan, pure layer: puts cells onto pools in integer VMs, whole GPUs, several workloads to a VM. Never splits a replica, never I/O.

First fit, largest replica first within a class: replicas of 1, 2, 4 and 8 GPUs pack VMs of 8 without loss. Source: planning.md 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Fit
from fleetctl.domain.pool import Pool, Sku
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Cell, Existing, Workload

FitOf = Callable[[Workload, Sku], Fit]
SPREAD = 2
"""A cell of two or more replicas stands on two VMs at least where the pool has them: one lost VM is not a lost cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one pool cannot take one cell, and what would change that."""

    reason: Reason
    change: str
    fit: Fit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One cell on one pool."""

    pool: Pool
    sku: Sku
    fit: Fit


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


class Placer:
    """Places cells one by one; the same cells in the same order always give the same places."""

    def __init__(self, fleet: Fleet, catalog: Catalog, capacity: tuple[CapacityVerdict, ...], fit_of: FitOf) -> None:
        self._fleet, self._catalog, self._fit_of = fleet, catalog, fit_of
        self._closed = {(v.sku, v.region): v for v in capacity if v.kind == "no"}
        self.rooms: dict[PoolId, Room] = {}
        workloads = {w.id: w for w in fleet.workloads}
        for pool in fleet.pools:
            sku = catalog.sku(pool.sku)
            if sku is None:
                continue
            room = Room(pool=pool, sku=sku, most=self._most(pool))
            for cell in sorted((c for c in fleet.cells if c.source == pool.id), key=lambda c: c.id):
                w = workloads[cell.workload]
                room.place(cell.id, w.replicas, w.accelerators_per_replica)
            self.rooms[pool.id] = room

    def _most(self, pool: Pool) -> int:
        if pool.provisioned_by == "existing" or (pool.sku, pool.region) in self._closed:
            return pool.count
        return pool.limit

    def candidates(self, cell: Cell) -> tuple[Pool, ...]:
        """Return the pools that may take this cell: the pinned one, else the region's pools of the other vendor, cheapest GPU first."""
        pinned = cell.target.pool if isinstance(cell.target, Existing) else cell.target
        if pinned is not None:
            return (self._fleet.pool(pinned),)
        vendor = self._fleet.pool(cell.source).vendor
        if vendor == "amd":
            return ()
        return tuple(sorted((p for p in self._fleet.pools if p.vendor == "amd" and p.region == cell.region), key=self._rank))

    def _rank(self, pool: Pool) -> tuple[bool, float, str]:
        price, sku = hourly(pool, self._catalog), self._catalog.sku(pool.sku)
        per_gpu = float(price.amount) / sku.accelerators if price is not None and sku is not None else 0.0
        return (price is None, per_gpu, pool.id)

    def place(self, cell: Cell, workload: Workload) -> Placed | Refusal:
        """Place a cell on the first candidate that takes it, else return why the first one does not."""
        refusals = []
        for pool in self.candidates(cell):
            answer = self._try(cell, workload, pool)
            if isinstance(answer, Placed):
                return answer
            refusals.append(answer)
        if refusals:
            return refusals[0]
        return Refusal(
            reason=Reason(code="pool.none", text=f"No AMD pool in {cell.region}."),
            change=f"Add an AMD pool of region {cell.region} to the fleet file.",
        )

    def _try(self, cell: Cell, workload: Workload, pool: Pool) -> Placed | Refusal:
        sku = self._catalog.sku(pool.sku)
        if sku is None:
            return _refuse("catalog.no_sku", f"SKU {pool.sku} of pool {pool.id} is not in the catalogue.", "Use a SKU of the catalogue.")
        if pool.region != cell.region:
            return _refuse(
                "pool.region", f"Pool {pool.id} is in {pool.region}, the cell in {cell.region}.", f"Pin a pool of {cell.region}."
            )
        if hourly(pool, self._catalog) is None:
            return _refuse(
                "price.missing", f"No price is known for {pool.sku} in {pool.region}.", f"Declare price_usd_per_hour on pool {pool.id}."
            )
        fit = self._fit_of(workload, sku)
        if workload.accelerators_per_replica > sku.accelerators:
            text = f"A replica needs {workload.accelerators_per_replica} GPUs, one VM of {sku.name} has {sku.accelerators}."
            return _refuse("fit.gpus", text, "Use a SKU with more GPUs per VM, or fewer GPUs per replica.", fit)
        if fit.needed_gib > fit.available_gib:
            text = f"A replica needs {fit.needed_gib:g} GiB, its {workload.accelerators_per_replica} {sku.gpu} have {fit.available_gib:g}."
            return _refuse("fit", text, "More GPUs per replica, a smaller precision, context or concurrency.", fit)
        if self.rooms[pool.id].place(cell.id, workload.replicas, workload.accelerators_per_replica):
            return Placed(pool=pool, sku=sku, fit=fit)
        return self._full(pool, workload, fit)

    def _full(self, pool: Pool, workload: Workload, fit: Fit) -> Refusal:
        gpus = workload.replicas * workload.accelerators_per_replica
        closed = self._closed.get((pool.sku, pool.region))
        if closed is not None and pool.provisioned_by != "existing":
            text = f"No capacity for {pool.sku} in {pool.region}: {closed.reason}"
            return _refuse("capacity.no", text, "Reserve capacity, or pin a pool of another SKU.", fit)
        what = "count" if pool.provisioned_by == "existing" else "limit"
        text = f"Pool {pool.id} is full: its {what} of {self._most(pool)} VMs leaves no room for {gpus} more GPUs."
        return _refuse("pool.limit", text, f"Raise the {what} of pool {pool.id}.", fit)


def _refuse(code: str, text: str, change: str, fit: Fit | None = None) -> Refusal:
    return Refusal(reason=Reason(code=code, text=text), change=change, fit=fit)


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
