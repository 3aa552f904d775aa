"""Inventory, use case layer: what runs where, what it costs, and where each fact came from. Read-only: never changes a fleet.

Sources are asked by the port Discovery; this release asks the fleet file and the lab, and states a gap where a source could not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.pool import Pool
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Cell, Existing, Workload
from fleetctl.ports.capacity import Discovery

Price = Callable[[Workload, Pool], Money | None]
"""USD per hour of one workload's replicas on a pool; None where no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryRow:
    """One cell as the inventory shows it.

    Args:
        target: the pool it would go to, "" where the plan chooses; usd_per_hour: of its replicas on the source, None where unknown.
    """

    cell: str
    workload: str
    model: str
    klass: str
    region: str
    source: str
    target: str
    existing_target: bool
    requests_per_s: float
    usd_per_hour: Decimal | None
    replicas: int
    accelerators_per_replica: int
    engine: str
    router: str
    lane: str
    owner: str
    cost_centre: str
    tenant: str
    data_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The whole answer: rows (most expensive first), gaps, and provenance."""

    fleet: str
    lineage: str
    serial: int
    rows: tuple[InventoryRow, ...]
    usd_per_hour: Decimal
    unpriced: int
    gaps: tuple[Gap, ...]
    provenance: tuple[Facts, ...]


def scan_fleet(fleet: Fleet, sources: Sequence[Discovery], scope: str = "") -> tuple[Fleet, tuple[Gap, ...]]:
    """Ask every source and return the fleet with their facts beside it, and what they could not tell."""
    facts: list[Facts] = []
    gaps: list[Gap] = []
    for source in sources:
        for found in source.scan(scope):
            if isinstance(found, Facts):
                facts.append(found)
            else:
                gaps.append(found)
    return replace(fleet, provenance=(*fleet.provenance, *facts)), tuple(gaps)


def list_inventory(fleet: Fleet, price: Price, gaps: Iterable[Gap] = ()) -> Inventory:
    """Return every cell, the most expensive first; cells without a price come last, then by name."""
    workloads, pools = {w.id: w for w in fleet.workloads}, {p.id: p for p in fleet.pools}
    rows = [_row(cell, workloads[cell.workload], pools[cell.source], price) for cell in fleet.cells]
    rows.sort(key=lambda r: (r.usd_per_hour is None, -(r.usd_per_hour or Decimal(0)), r.cell))
    return Inventory(
        fleet=fleet.name,
        lineage=fleet.lineage,
        serial=fleet.serial,
        rows=tuple(rows),
        usd_per_hour=sum((r.usd_per_hour for r in rows if r.usd_per_hour is not None), Decimal(0)),
        unpriced=sum(r.usd_per_hour is None for r in rows),
        gaps=tuple(gaps),
        provenance=fleet.provenance,
    )


def _row(cell: Cell, workload: Workload, source: Pool, price: Price) -> InventoryRow:
    cost = price(workload, source)
    target = cell.target.pool if isinstance(cell.target, Existing) else cell.target or ""
    return InventoryRow(
        cell=cell.id,
        workload=workload.id,
        model=workload.model.name,
        klass=workload.klass,
        region=cell.region,
        source=cell.source,
        target=target,
        existing_target=isinstance(cell.target, Existing),
        requests_per_s=workload.traffic.requests_per_s,
        usd_per_hour=None if cost is None else cost.amount,
        replicas=workload.replicas,
        accelerators_per_replica=workload.accelerators_per_replica,
        engine=workload.engine,
        router=cell.router.name,
        lane=cell.lane.kind,
        owner=workload.owner,
        cost_centre=workload.cost_centre,
        tenant=workload.tenant,
        data_class=workload.data_class,
    )
