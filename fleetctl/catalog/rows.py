"""Plan, catalogue layer: one row of a table, checked: a price or a run (parts.py: GPUs, SKUs). Never a guess: what is unclear is refused.

Units are in the column's name and nowhere else: vram_gib or vram_gb, usd_per_hour (a VM) or usd_per_gpu_hour.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation

from fleetctl.domain.catalog import Performance, Price

KINDS = {
    "measured": "by a third party or by yourself",
    "vendor": "by who sells it",
    "derived": "computed from such a row; the source says how",
    "bound": "a roofline: no run is known to reach it",
    "own": "your own run (fleetctl bench)",
}
PRICE_COLUMNS = ("book", "sku", "region", "usd_per_hour", "source", "as_of")
"""That a file of prices must have; `kind` may stand beside them."""
PERFORMANCE_COLUMNS = ("gpu", "model", "precision", "class", "tokens_per_s_per_gpu", "kind", "engine", "source", "as_of")
CLASSES = ("batch", "online", "realtime")
"""SLO classes of records: MLPerf's offline, server and interactive."""
CHEAPEST, DEAREST = Decimal("0.01"), Decimal(100_000)
"""USD per VM and hour: less or more is a unit's mistake (a second's price; cents, or a month's bill)."""
MOST_TOKENS_PER_S = 1_000_000
"""Per accelerator; 20 times the fastest record of the catalogue: more is a whole cluster's."""
_BOOK = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_REGION = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def price_row(row: Mapping[str, str], skus: Collection[str]) -> tuple[Price | None, str]:
    """Return the price, or why the row is refused."""
    fault = text_fault(row) or date_fault(row.get("as_of", ""))
    amount = amount_of(row.get("usd_per_hour", ""))
    kind = row.get("kind") or "vendor"
    if not _BOOK.fullmatch(row.get("book", "")):
        fault = fault or f"{row.get('book', '')!r} is no name of a price book"
    elif row.get("sku", "") not in skus:
        fault = fault or f"there is no SKU {row.get('sku', '')!r}"
    elif not row.get("region") or not row.get("source"):
        fault = fault or "region and source must be told"
    elif not _REGION.fullmatch(row["region"]):
        fault = fault or f"{row['region']!r} is no name of a region, nor * for any"
    elif kind not in KINDS:
        fault = fault or f"{kind!r} is no kind: {', '.join(KINDS)}"
    elif amount is None:
        fault = fault or f"{row.get('usd_per_hour', '')!r} is not a price above 0; leave the row out where none is known"
    else:
        fault = fault or price_fault(amount)
    if fault or amount is None:
        return None, fault
    source = row["source"][:300]
    price = Price(
        sku=row["sku"], region=row["region"], usd_per_hour=amount, kind=row["book"], source=source, as_of=row["as_of"], origin=kind
    )
    return price, ""


def price_fault(amount: Decimal) -> str:
    """Return why an amount of USD per VM and hour cannot be one, "" where it can."""
    if amount > DEAREST:
        return f"{amount} USD per hour is past belief: cents, or a month's bill?"
    return f"{amount} USD per hour is past belief: a second's price, or thousands?" if amount < CHEAPEST else ""


def performance_row(row: Mapping[str, str], gpus: Collection[str]) -> tuple[Performance | None, str]:
    """Return the record of a run, or why the row is refused."""
    fault = text_fault(row) or date_fault(row.get("as_of", ""))
    speed = amount_of(row.get("tokens_per_s_per_gpu", ""))
    if row.get("gpu", "") not in gpus:
        fault = fault or f"there is no GPU {row.get('gpu', '')!r}"
    elif row.get("class", "") not in CLASSES:
        fault = fault or f"{row.get('class', '')!r} is no class: {', '.join(CLASSES)}"
    elif row.get("kind", "") not in KINDS:
        fault = fault or f"{row.get('kind', '')!r} is no kind: {', '.join(KINDS)}"
    elif not row.get("model") or not row.get("engine") or not row.get("source"):
        fault = fault or "model, engine (with its version) and source must be told"
    elif speed is None:
        fault = fault or f"{row.get('tokens_per_s_per_gpu', '')!r} is not a throughput above 0"
    elif speed > MOST_TOKENS_PER_S:
        fault = fault or f"{speed} tokens per second is not one GPU's: that of all together?"
    if fault or speed is None:
        return None, fault
    return (
        Performance(
            gpu=row["gpu"],
            model=row["model"],
            precision=row.get("precision", ""),
            klass=row["class"],
            tokens_per_s=float(speed),
            kind=row["kind"],
            engine=row["engine"],
            source=row["source"][:300],
            as_of=row["as_of"],
            ttft_p95_ms=_ms(row, "ttft_p95_ms"),
            tpot_p95_ms=_ms(row, "tpot_p95_ms"),
        ),
        "",
    )


def _ms(row: Mapping[str, str], column: str) -> float | None:
    amount = amount_of(row.get(column, ""))
    return None if amount is None else float(amount)


def amount_of(text: str) -> Decimal | None:
    """Return an amount above 0 that a float can hold, None for anything else."""
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and Decimal("1e-15") <= amount <= Decimal("1e15") else None


def date_fault(text: str) -> str:
    """Return why a text is no date, "" where it is one."""
    try:
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    return "" if is_day else f"{text!r} is no date such as 2026-11-30"


def text_fault(row: Mapping[str, str]) -> str:
    """Return which cell holds what no table may, "" where none does."""
    bad = next((k for k, v in row.items() if any(not c.isprintable() for c in v) or len(v) > 1000), None)
    return f"{bad!r} has a control character or is too long" if bad else ""


def unknown_fault(row: Mapping[str, str], known: Collection[str]) -> str:
    """Return which filled columns nobody reads (their unit may be another), "" where there are none."""
    odd = [k for k, v in row.items() if v and k not in known]
    return f"unknown column {', '.join(repr(k[:40]) for k in odd[:5])}; known are {', '.join(dict.fromkeys(known))}" if odd else ""
