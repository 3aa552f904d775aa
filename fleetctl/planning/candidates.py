"""Plan, pure layer: which pools may take which cell, with how many replicas and GPUs; and why others may not. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet, NetworkPath
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Fit, Speed
from fleetctl.domain.pool import Pool, Sku
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Cell, Existing, Workload
from fleetctl.errors import ConfigInvalid
from fleetctl.planning.options import PlanOptions
from fleetctl.planning.placement import FitOf, Refusal, hourly
from fleetctl.planning.speed import SpeedOf, replicas_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One pool that may take one cell.

    Args:
        replicas: on it; gpus: all of them together, whole per replica; padded: the same, odd sizes rounded up to what packs.
        egress: USD per hour of what crosses to another region, by the declared path.
    """

    pool: int
    replicas: int
    gpus: int
    padded: int
    fit: Fit
    speed: Speed
    egress: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A pool with what planning needs of it.

    Args:
        size: GPUs of a VM that are used (a power of two); price: None where unknown; most: VMs that may exist.
    """

    pool: Pool
    sku: Sku | None
    size: int
    price: Money | None
    most: int
    closed: CapacityVerdict | None

    @property
    def grows(self) -> bool:
        """Tell whether more VMs may be had: we make them, and nobody said no."""
        return self.pool.provisioned_by != "existing" and self.closed is None


def sites(fleet: Fleet, catalog: Catalog, capacity: tuple[CapacityVerdict, ...]) -> tuple[Site, ...]:
    """Return every pool of the fleet, in its order."""
    refused = {(v.sku, v.region): v for v in capacity if v.kind == "no"}
    skus = {s.name: s for s in catalog.skus}
    return tuple(_site(p, skus.get(p.sku), refused.get((p.sku, p.region)), catalog) for p in fleet.pools)


def refuse_overfull(fleet: Fleet, everywhere: tuple[Site, ...]) -> None:
    """Refuse a fleet file that contradicts itself.

    Raises:
        ConfigInvalid: plan.pool_overfull: cells hold more GPUs than their pool has, with a line per pool.
    """
    works = {w.id: w for w in fleet.workloads}
    held: dict[PoolId, list[tuple[str, int]]] = {}
    for c in fleet.cells:
        w = works[c.workload]
        held.setdefault(c.source, []).append((c.id, w.replicas * w.accelerators_per_replica))
    details = []
    for s in everywhere:
        mine = held.get(s.pool.id, [])
        gpus, has = sum(n for _, n in mine), s.pool.count * (s.sku.accelerators if s.sku is not None else 0)
        if s.sku is not None and gpus > has:
            names = ", ".join(name for name, _ in mine[:8]) + (f" and {len(mine) - 8} more" if len(mine) > 8 else "")
            details.append(f"pool {s.pool.id}: {s.pool.count} VMs have {has} GPUs, its cells hold {gpus}: {names}")
    if details:
        text = f"{len(details)} {'pool has' if len(details) == 1 else 'pools have'} fewer GPUs than their cells are said to hold."
        hint = "Mend count, replicas or accelerators_per_replica; a cell that has moved for good has its new pool as source."
        raise ConfigInvalid("plan.pool_overfull", text, hint=hint, details=tuple(details))


def _site(pool: Pool, sku: Sku | None, closed: CapacityVerdict | None, catalog: Catalog) -> Site:
    fixed = pool.provisioned_by == "existing" or closed is not None
    return Site(
        pool=pool,
        sku=sku,
        size=1 << ((sku.accelerators if sku is not None else 1).bit_length() - 1),
        price=hourly(pool, catalog),
        most=pool.count if fixed else max(pool.limit, pool.count),
        closed=closed if pool.provisioned_by != "existing" else None,
    )


def padded(accelerators: int, size: int) -> int:
    """Return the GPUs that a replica is counted with on VMs of `size` (a power of two): powers of two pack without loss."""
    if accelerators >= size:
        return -(-accelerators // size) * size
    return 1 << (accelerators - 1).bit_length()


class BarriersOf(Protocol):
    """What keeps cells out of pools (`fleetctl.planning.barriers`)."""

    def key(self, cell: Cell, w: Workload, source: Site) -> tuple[object, ...]:
        """Return all of a question but the target."""
        ...

    def path(self, source: Site, target: Site) -> NetworkPath | None:
        """Return the declared way between two pools, None where there is none or none is needed."""
        ...

    def egress(self, w: Workload, path: NetworkPath) -> float:
        """Return what one cell's traffic costs that crosses a path, USD per hour."""
        ...

    def against(self, cell: Cell, w: Workload, source: Site, target: Site) -> Refusal | None:
        """Return what keeps the cell out of the target, None where nothing does."""
        ...


class Candidates:
    """Finds the choices of each cell; equal cells are looked at once."""

    def __init__(
        self, fleet: Fleet, all_sites: tuple[Site, ...], fit_of: FitOf, speed_of: SpeedOf, options: PlanOptions, barriers: BarriersOf
    ) -> None:
        self.barriers = barriers
        self._sites, self._fit_of, self._speed_of, self._options = all_sites, fit_of, speed_of, options
        self._sent = options.sent
        self._index = {s.pool.id: i for i, s in enumerate(all_sites)}
        self._by_region: dict[str, list[int]] = {}
        for i, site in enumerate(all_sites):
            self._by_region.setdefault(site.pool.region, []).append(i)
        self._rooms: dict[tuple[object, ...], tuple[tuple[tuple[int, Sku, Fit, int], ...], tuple[Refusal, ...]]] = {}

    def pinned(self, cell: Cell) -> PoolId | None:
        """Return the pool that the fleet file, or a migration under way, sends the cell to."""
        if cell.id in self._sent:
            return self._sent[cell.id]
        return cell.target.pool if isinstance(cell.target, Existing) else cell.target

    def pools(self, cell: Cell) -> list[int]:
        """Return the pools to look at, in the fleet's order; none for a cell on AMD unless cells may go both ways."""
        pinned = self.pinned(cell)
        if pinned is not None:
            return [self._index[pinned]]
        if cell.id in self._options.only:
            return [self._index[self._options.only[cell.id]]]
        source = self._sites[self._index[cell.source]].pool
        found = [i for region in dict.fromkeys((cell.region, *cell.regions)) for i in self._by_region.get(region, ())]
        if self._options.both_vendors:
            return [i for i in found if self._sites[i].pool.id != source.id]
        return [i for i in found if self._sites[i].pool.vendor == "amd"] if source.vendor != "amd" else []

    def look(self, cell: Cell, workload: Workload) -> tuple[tuple[Choice, ...], tuple[Refusal, ...]]:
        """Return what could take the cell, and why the other pools could not, in the fleet's order."""
        w, pinned = workload, self.pinned(cell)
        source = self._sites[self._index[cell.source]]
        barriers = self.barriers.key(cell, w, source)
        only = self._options.only.get(cell.id)
        from_ = cell.source if self._options.both_vendors else source.pool.vendor
        key = (pinned, only, cell.region, cell.regions, from_, shape_of(w), barriers)
        if key not in self._rooms:
            answers = [self._room(cell, w, source, i) for i in self.pools(cell)]
            rooms = tuple(a for a in answers if isinstance(a, tuple))
            refusals = tuple(a for a in answers if isinstance(a, Refusal))
            self._rooms[key] = (rooms, refusals) if answers else ((), (_nowhere(cell, self._sites),))
        rooms, refusals = self._rooms[key]
        return tuple(self._choice(w, source, *room) for room in rooms), refusals

    def _choice(self, w: Workload, source: Site, i: int, sku: Sku, fit: Fit, each: int) -> Choice:
        speed = self._speed_of(w, source.sku if source.sku is not None else sku, sku)
        replicas = replicas_on(w, speed)
        gpus = replicas * w.accelerators_per_replica
        path = self.barriers.path(source, self._sites[i])
        egress = 0.0 if path is None else self.barriers.egress(w, path)
        return Choice(pool=i, replicas=replicas, gpus=gpus, padded=replicas * each, fit=fit, speed=speed, egress=egress)

    def _room(self, cell: Cell, w: Workload, source: Site, i: int) -> tuple[int, Sku, Fit, int] | Refusal:
        """Return pool, SKU, fit and the GPUs that a replica is counted with, or why the pool cannot take the cell."""
        site = self._sites[i]
        pool, sku, k = site.pool, site.sku, w.accelerators_per_replica
        if pool.region != cell.region and pool.region not in cell.regions:
            text = f"Pool {pool.id} is in {pool.region}, the cell in {cell.region}."
            return refusal("pool.region", text, f"Pin a pool of {cell.region}, or allow the region in the cell's regions.")
        if sku is None:
            return refusal("catalog.no_sku", f"SKU {pool.sku} of pool {pool.id} is not in the catalogue.", "Use a SKU of the catalogue.")
        if site.price is None:
            text = f"No price is known for {pool.sku} in {pool.region}."
            return refusal("price.missing", text, f"Declare price_usd_per_hour on pool {pool.id}.")
        barred = self.barriers.against(cell, w, source, site)
        if barred is not None:
            return barred
        fit = self._fit_of(w, sku)
        if k > sku.accelerators:
            text = f"A replica needs {k} GPUs, one VM of {sku.name} has {sku.accelerators}."
            return refusal("fit.gpus", text, "Use a SKU with more GPUs per VM, or fewer GPUs per replica.", fit)
        if fit.needed_gib > fit.available_gib:
            text = f"A replica needs {fit.needed_gib:g} GiB, its {k} {sku.gpu} have {fit.available_gib:g}."
            return refusal("fit", text, "More GPUs per replica, a smaller precision, context or concurrency.", fit)
        return i, sku, fit, padded(k, site.size)


def shape_of(w: Workload) -> tuple[object, ...]:
    """Return all of a workload that its memory depends on."""
    tokens = w.traffic.input_tokens + w.traffic.output_tokens
    return (w.model, w.accelerators_per_replica, w.concurrency, w.adapters, tokens)


def once(fit_of: FitOf) -> FitOf:
    """Return the same function that works out each shape on each SKU once."""
    known: dict[tuple[str, tuple[object, ...]], Fit] = {}

    def fit(w: Workload, sku: Sku) -> Fit:
        key = (sku.name, shape_of(w))
        found = known.get(key)
        if found is None:
            found = known[key] = fit_of(w, sku)
        return found

    return fit


def _nowhere(cell: Cell, everywhere: tuple[Site, ...]) -> Refusal:
    where = " or ".join(dict.fromkeys((cell.region, *cell.regions)))
    elsewhere = tuple(dict.fromkeys(s.pool.region for s in everywhere if s.pool.vendor == "amd"))
    if elsewhere:
        text = f"AMD pools are in {', '.join(elsewhere[:5])}, its data may be served from {where} only."
        return refusal(
            "residency", text, f"Add a region to the cell's regions where its data may be served, or an AMD pool in {cell.region}."
        )
    return refusal("pool.none", f"No AMD pool in {where}.", f"Add an AMD pool of region {cell.region} to the fleet file.")


def refusal(code: str, text: str, change: str, fit: Fit | None = None) -> Refusal:
    """Return why a pool cannot take a cell."""
    return Refusal(reason=Reason(code=code, text=text), change=change, fit=fit)
