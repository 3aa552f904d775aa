"""Report, view layer: planned against realised as CSV for finance, and as a table. Never I/O, never a decision; formulas are inert."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from fleetctl.domain.finance import FinanceRow
from fleetctl.domain.plan import Plan
from fleetctl.views.inventory_csv import csv_text

COLUMNS: tuple[tuple[str, str], ...] = (
    ("row", "row"),
    ("cost_centre", "cost_centre"),
    ("cells", "cells"),
    ("workload", "workload"),
    ("cell", "cell"),
    ("outcome", "outcome"),
    ("reason", "reason"),
    ("from_pool", "source"),
    ("to_pool", "target"),
    ("wave", "wave"),
    ("now_usd_per_hour", "now"),
    ("then_usd_per_hour", "then"),
    ("saving_usd_per_hour", "saving"),
    ("planned_overlap_usd", "planned_overlap"),
    ("planned_overlap_on_top_usd", "planned_extra"),
    ("planned_validation_usd", "planned_validation"),
    ("planned_overlap_kwh", "planned_kwh"),
    ("now_kw_estimated", "kw_now"),
    ("then_kw_estimated", "kw_then"),
    ("state", "state"),
    ("started_utc", "started"),
    ("ended_utc", "ended"),
    ("realised_hours_both_sides", "hours_both"),
    ("realised_overlap_usd", "realised_overlap"),
    ("realised_overlap_on_top_usd", "realised_extra"),
    ("realised_validation_usd", "realised_validation"),
    ("realised_overlap_kwh_estimated", "realised_kwh"),
    ("realised_saving_usd_per_hour", "realised_saving"),
)
"""Heading in the file, field of a row."""


def finance_csv(plan: Plan, rows: Sequence[FinanceRow]) -> str:
    """Return one line per row; each names its plan and price book, so that lines can be put together from several reports."""
    head = ("plan", "price_book", *(name for name, _ in COLUMNS))
    return csv_text(head, ((plan.id, plan.price_book_id, *(_value(r, field) for _, field in COLUMNS)) for r in rows))


def _value(row: FinanceRow, field: str) -> object:
    value = getattr(row, field) if hasattr(row, field) else getattr(row.amounts, field)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return value if isinstance(value, (int, float, Decimal)) else value or ""
