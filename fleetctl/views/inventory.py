"""Inventory, views layer: cells as a table, the most expensive first. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from fleetctl.usecases.inventory import Inventory, InventoryRow, WorkloadRow
from fleetctl.views.inventory_found import conflict_lines, gap_lines
from fleetctl.views.output import Column, Table, clean

COLUMNS = (
    Column(title="CELL", shrink=1, middle=True),
    Column(title="WORKLOAD", wide=True),
    Column(title="MODEL", shrink=2),
    Column(title="CLASS"),
    Column(title="SOURCE", shrink=2, middle=True),
    Column(title="TARGET", shrink=2, middle=True),
    Column(title="REQ/S", right=True),
    Column(title="USD/H", right=True),
    Column(title="REGION", wide=True),
    Column(title="REPLICAS", right=True, wide=True),
    Column(title="GPUS", right=True, wide=True),
    Column(title="ENGINE", wide=True),
    Column(title="ROUTER", wide=True),
    Column(title="LANE", wide=True),
    Column(title="OWNER", wide=True),
    Column(title="COST-CENTRE", wide=True),
    Column(title="TENANT", wide=True),
    Column(title="DATA", wide=True),
    Column(title="ADAPTERS", wide=True),
    Column(title="AUTOSCALER", wide=True),
)
BY_PLAN = "(plan)"
MOST_GAPS = 5
"""Shown below the list of cells; the scan itself shows more."""


def inventory_table(inventory: Inventory) -> Table:
    """Return the inventory as a table; a target that the plan chooses is shown as "(plan)"."""
    foot = ["", f"{_count(len(inventory.rows), 'cell')}, {_usd(inventory.usd_per_hour)} USD an hour" + _unpriced(inventory.unpriced)]
    foot += _beside(inventory)
    foot += gap_lines(inventory.gaps, MOST_GAPS)
    return Table(
        columns=COLUMNS, rows=tuple(_cells(row) for row in inventory.rows), foot=tuple(foot), empty="The fleet file declares no cells."
    )


WORKLOAD_COLUMNS = (
    Column(title="WORKLOAD", shrink=1, middle=True),
    Column(title="MODEL", shrink=2),
    Column(title="CLASS"),
    Column(title="CELLS", right=True),
    Column(title="REQ/S", right=True),
    Column(title="USD/H", right=True),
    Column(title="GPUS", right=True),
    Column(title="OWNER", shrink=2, least=12),
    Column(title="COST-CENTRE", wide=True),
    Column(title="TENANT", wide=True),
    Column(title="DATA", wide=True),
    Column(title="REGIONS", wide=True),
)


def workloads_table(rows: Sequence[WorkloadRow], inventory: Inventory) -> Table:
    """Return the workloads as a table."""
    shown = tuple(
        (
            r.workload,
            r.model,
            r.klass,
            str(r.cells),
            _rate(r.requests_per_s),
            _usd(r.usd_per_hour),
            str(r.gpus),
            r.owner or "-",
            r.cost_centre or "-",
            r.tenant or "-",
            r.data_class or "-",
            r.regions,
        )
        for r in rows
    )
    foot = ("", f"{_count(len(rows), 'workload')}, {_usd(inventory.usd_per_hour)} USD an hour" + _unpriced(inventory.unpriced))
    return Table(columns=WORKLOAD_COLUMNS, rows=shown, foot=foot, empty="The fleet file declares no workloads.")


def inventory_names(inventory: Inventory) -> tuple[str, ...]:
    """Return the lines of `-o name`."""
    return tuple(f"cell/{row.cell}" for row in inventory.rows)


def cell_text(row: InventoryRow) -> str:
    """Return everything about one cell, one field a line."""
    shown = {
        "cell": row.cell,
        "workload": row.workload,
        "model": row.model,
        "class": row.klass,
        "region": row.region,
        "source": row.source,
        "target": (row.target or BY_PLAN) + (" (existing)" if row.existing_target else ""),
        "requests/s": _rate(row.requests_per_s),
        "USD/h": _usd(row.usd_per_hour),
        "replicas": f"{row.replicas} x {_count(row.accelerators_per_replica, 'GPU')}",
        "engine": f"{row.engine} {row.engine_version}".strip(),
        "adapters": row.adapters,
        "p95 ms": "" if row.p95_ms is None else f"{row.p95_ms:g}",
        "GPU use": "" if row.gpu_use is None else f"{row.gpu_use:.0%}",
        "autoscaler": row.autoscaler,
        "owned by": row.gitops,
        "router": row.router,
        "lane": row.lane,
        "owner": row.owner,
        "cost centre": row.cost_centre,
        "tenant": row.tenant,
        "data class": row.data_class,
    }
    origin = {_ORIGIN.get(name, name.replace("_", " ")): source for name, source in row.origin.items()}
    lines = [_line(key, clean(value), origin.get(key, "")) for key, value in shown.items()]
    return "\n".join([*lines, *conflict_lines(row.conflicts)])


_ORIGIN = {"requests_per_s": "requests/s", "software": "engine", "p95_ms": "p95 ms", "gpu_use": "GPU use", "gitops": "owned by"}


def _line(key: str, value: str, source: str) -> str:
    return f"{key:<12} {value or '-'}" + (f"  ({clean(source)})" if source and value else "")


def _beside(inventory: Inventory) -> list[str]:
    """Return what was found and stands nowhere in the fleet file."""
    loose = [p for p in inventory.found.pools if not p.pool]
    lines = []
    if loose:
        cost = sum((p.usd_per_hour for p in loose if p.usd_per_hour is not None), Decimal(0))
        text = f"Not in the fleet file: {_count(sum(p.vms for p in loose), 'machine')} with {_count(sum(p.gpus for p in loose), 'GPU')}"
        lines.append(f"{text}, {_usd(cost)} USD an hour at list prices. See: fleetctl inventory list --what pools")
    if inventory.found.unclaimed:
        servers = _count(len(inventory.found.unclaimed), "running engine")
        lines.append(f"Not in the fleet file: {servers}. See: fleetctl inventory list --what engines")
    contrary = sum(bool(r.conflicts) for r in inventory.rows)
    if contrary:
        lines.append(f"Sources contradict each other about {_count(contrary, 'cell')}. See: fleetctl inventory show CELL")
    return lines


def _cells(row: InventoryRow) -> tuple[str, ...]:
    return (
        row.cell,
        row.workload,
        row.model,
        row.klass,
        row.source,
        row.target or BY_PLAN,
        _rate(row.requests_per_s),
        _usd(row.usd_per_hour),
        row.region,
        str(row.replicas),
        str(row.replicas * row.accelerators_per_replica),
        row.engine,
        row.router,
        row.lane,
        row.owner or "-",
        row.cost_centre or "-",
        row.tenant or "-",
        row.data_class or "-",
        row.adapters or "-",
        row.autoscaler or "-",
    )


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


def _usd(value: Decimal | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _unpriced(count: int) -> str:
    return f" ({_count(count, 'cell')} without a known price)" if count else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
