"""Inventory, views layer: rows as CSV that no spreadsheet takes for a formula. Never I/O.

A cell that begins with what a spreadsheet obeys gets an apostrophe before it; numbers stay numbers. Line ends and other control
characters inside a cell become spaces.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import fields
from decimal import Decimal

from fleetctl.domain.merge import Thing
from fleetctl.usecases.inventory import Inventory, WorkloadRow
from fleetctl.usecases.inventory_found import FoundPool

_OBEYED = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "＝", "＋", "－", "＠")
"""Source: OWASP, CSV Injection (the first six), and the full-width forms that spreadsheets read alike."""

CELL_COLUMNS = (
    "cell workload model class region source target requests_per_s usd_per_hour replicas accelerators_per_replica engine engine_version "
    "adapters autoscaler gitops p95_ms gpu_use router lane owner cost_centre tenant data_class"
)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV (RFC 4180, UTF-8, every text quoted)."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([safe(c) for c in columns])
    for row in rows:
        writer.writerow([safe(cell) for cell in row])
    return out.getvalue()


def safe(cell: object) -> object:
    """Return a cell as a number, or as text that is only text."""
    if cell is None:
        return ""
    if isinstance(cell, (int, float, Decimal)) and not isinstance(cell, bool):
        return cell
    text = "".join(" " if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in str(cell))
    return f"'{text}" if text.lstrip().startswith(_OBEYED) or str(cell).startswith(_OBEYED) else text


def cells_csv(inventory: Inventory) -> str:
    """Return a line per cell."""
    columns = CELL_COLUMNS.split()
    names = ["klass" if c == "class" else c for c in columns]
    return csv_text(columns, ([getattr(row, n) for n in names] for row in inventory.rows))


def rows_csv(rows: Sequence[FoundPool] | Sequence[WorkloadRow], kind: type[FoundPool] | type[WorkloadRow]) -> str:
    """Return a line per row, with a column per field of its kind."""
    names = [f.name for f in fields(kind)]
    values = ([getattr(row, n) for n in names] for row in rows)
    shown = ([" ".join(v) if isinstance(v, tuple) else v for v in row] for row in values)
    return csv_text(["class" if n == "klass" else n for n in names], shown)


def things_csv(things: Sequence[Thing]) -> str:
    """Return a line per thing, with a column per fact that any of them has."""
    names = sorted({name for t in things for name in t.values})
    rows = ((t.kind, t.id, *(t.values.get(n) for n in names), t.source) for t in things)
    return csv_text(("kind", "id", *names, "source"), rows)
