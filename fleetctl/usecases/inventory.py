"""Inventory, use case layer: what runs where, what it costs, and where each fact came from. Read-only: never changes a fleet.

Sources are asked by the port Discovery; a source that could not tell is stated as a gap. What the fleet file leaves out, discovery fills
in; where they contradict each other both are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.merge import Conflict
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.pool import Pool
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Cell, Existing, Workload
from fleetctl.ports.capacity import Discovery
from fleetctl.usecases.inventory_found import CellFacts, Found

Price = Callable[[Workload, Pool], Money | None]
"""USD per hour of one workload's replicas on a pool; None where no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryRow:
    """One cell as the inventory shows it.

    Args:
        target: the pool it would go to, "" where the plan chooses; usd_per_hour: of its replicas on the source, None where unknown.
        p95_ms, gpu_use: measured, None where nobody measures; origin: where a fact that is not the fleet file's comes from.
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
    engine_version: str = ""
    adapters: str = ""
    autoscaler: str = ""
    gitops: str = ""
    p95_ms: float | None = None
    gpu_use: float | None = None
    origin: Mapping[str, str] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The whole answer: rows (most expensive first, then most called), gaps, provenance, and what was found beside the fleet file."""

    fleet: str
    lineage: str
    serial: int
    rows: tuple[InventoryRow, ...]
    usd_per_hour: Decimal
    unpriced: int
    gaps: tuple[Gap, ...]
    provenance: tuple[Facts, ...]
    found: Found = field(default_factory=Found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """One workload over all its cells.

    Args:
        requests_per_s, gpus: of all cells; usd_per_hour: of those with a known price, None where none has one.
        owner, cost_centre, tenant, data_class: joined by ", " where cells differ.
    """

    workload: str
    model: str
    klass: str
    cells: int
    regions: str
    requests_per_s: float
    usd_per_hour: Decimal | None
    gpus: int
    owner: str
    cost_centre: str
    tenant: str
    data_class: str


def by_workload(inventory: Inventory) -> tuple[WorkloadRow, ...]:
    """Return the workloads, the most expensive first, then the most called: those decide where to begin."""
    of: dict[str, list[InventoryRow]] = {}
    for row in inventory.rows:
        of.setdefault(row.workload, []).append(row)
    rows = [_workload(name, cells) for name, cells in of.items()]
    return tuple(sorted(rows, key=lambda r: (r.usd_per_hour is None, -(r.usd_per_hour or Decimal(0)), -r.requests_per_s, r.workload)))


def _workload(name: str, cells: list[InventoryRow]) -> WorkloadRow:
    priced = [c.usd_per_hour for c in cells if c.usd_per_hour is not None]

    def all_of(what: str) -> str:
        return ", ".join(dict.fromkeys(str(getattr(c, what)) for c in cells if getattr(c, what)))

    return WorkloadRow(
        workload=name,
        model=all_of("model"),
        klass=all_of("klass"),
        cells=len(cells),
        regions=all_of("region"),
        requests_per_s=round(sum(c.requests_per_s for c in cells), 4),
        usd_per_hour=sum(priced, Decimal(0)) if priced else None,
        gpus=sum(c.replicas * c.accelerators_per_replica for c in cells),
        owner=all_of("owner"),
        cost_centre=all_of("cost_centre"),
        tenant=all_of("tenant"),
        data_class=all_of("data_class"),
    )


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


def list_inventory(fleet: Fleet, price: Price, gaps: Iterable[Gap] = (), found: Found | None = None) -> Inventory:
    """Return every cell, the most expensive first, then the most called; cells without a price come last, then by name."""
    found = found or Found()
    workloads, pools = {w.id: w for w in fleet.workloads}, {p.id: p for p in fleet.pools}
    rows = [_row(cell, workloads[cell.workload], pools[cell.source], price, found.by_cell.get(cell.id)) for cell in fleet.cells]
    rows.sort(key=lambda r: (r.usd_per_hour is None, -(r.usd_per_hour or Decimal(0)), -r.requests_per_s, r.cell))
    return Inventory(
        fleet=fleet.name,
        lineage=fleet.lineage,
        serial=fleet.serial,
        rows=tuple(rows),
        usd_per_hour=sum((r.usd_per_hour for r in rows if r.usd_per_hour is not None), Decimal(0)),
        unpriced=sum(r.usd_per_hour is None for r in rows),
        gaps=tuple(gaps),
        provenance=fleet.provenance,
        found=found,
    )


def _row(cell: Cell, workload: Workload, source: Pool, price: Price, facts: CellFacts | None) -> InventoryRow:
    facts = facts or CellFacts(chosen={}, others={})
    cost = price(workload, source)
    target = cell.target.pool if isinstance(cell.target, Existing) else cell.target or ""
    return InventoryRow(
        cell=cell.id,
        workload=workload.id,
        model=facts.text("model", workload.model.name),
        klass=workload.klass,
        region=cell.region,
        source=cell.source,
        target=target,
        existing_target=isinstance(cell.target, Existing),
        requests_per_s=_known(facts.number("requests_per_s"), workload.traffic.requests_per_s),
        usd_per_hour=None if cost is None else cost.amount,
        replicas=workload.replicas,
        accelerators_per_replica=workload.accelerators_per_replica,
        engine=facts.text("software", workload.engine),
        router=cell.router.name,
        lane=cell.lane.kind,
        owner=facts.text("owner", workload.owner),
        cost_centre=facts.text("cost_centre", workload.cost_centre),
        tenant=facts.text("tenant", workload.tenant),
        data_class=facts.text("data_class", workload.data_class),
        engine_version=facts.text("engine_version", workload.engine_version),
        adapters=facts.text("adapters", " ".join(workload.adapters)),
        autoscaler=facts.text("autoscaler"),
        gitops=facts.text("gitops"),
        p95_ms=facts.number("p95_ms"),
        gpu_use=facts.number("gpu_use"),
        origin={name: said.source for name, said in sorted(facts.chosen.items()) if not said.source.startswith("file ")},
        conflicts=tuple(Conflict(field=name, chosen=facts.chosen[name], others=others) for name, others in sorted(facts.others.items())),
    )


def _known(found: float | None, declared: float) -> float:
    return declared if found is None else found
