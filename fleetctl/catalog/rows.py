"""Plan, catalogue layer: one row of a table, checked: price, SKU, GPU or run. Never I/O, never a guess: what is unclear is refused.

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
PERFORMANCE_COLUMNS = ("gpu", "model", "precision", "class", "tokens_per_s_per_gpu", "kind", "engine", "source", "as_of")
CLASSES = ("batch", "online", "realtime")
DEAREST = Decimal(100_000)
"""USD per VM and hour: more is a unit's mistake (cents, or a month's bill)."""
GIB_PER_GB = 0.931322574615
_BOOK = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def price_row(row: Mapping[str, str], skus: Collection[str]) -> tuple[Price | None, str]:
    """Return the price, or why the row is refused."""
    fault = _text_fault(row) or _date_fault(row.get("as_of", ""))
    amount = amount_of(row.get("usd_per_hour", ""))
    if not _BOOK.fullmatch(row.get("book", "")):
        fault = fault or f"{row.get('book', '')!r} is no name of a price book"
    elif row.get("sku", "") not in skus:
        fault = fault or f"there is no SKU {row.get('sku', '')!r}"
    elif not row.get("region") or not row.get("source"):
        fault = fault or "region and source must be told"
    elif amount is None:
        fault = fault or f"{row.get('usd_per_hour', '')!r} is not a price above 0; leave the row out where none is known"
    elif amount > DEAREST:
        fault = fault or f"{amount} USD per hour is past belief: cents, or a month's bill?"
    if fault or amount is None:
        return None, fault
    return (
        Price(sku=row["sku"], region=row["region"], usd_per_hour=amount, kind=row["book"], source=row["source"][:300], as_of=row["as_of"]),
        "",
    )


def performance_row(row: Mapping[str, str], gpus: Collection[str]) -> tuple[Performance | None, str]:
    """Return the record of a run, or why the row is refused."""
    fault = _text_fault(row) or _date_fault(row.get("as_of", ""))
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
        ),
        "",
    )


def vram_gib(row: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the memory of one GPU in GiB from vram_gib, vram_gb or vram_mib, or why it is unclear."""
    given = [c for c in ("vram_gib", "vram_gb", "vram_mib") if row.get(c)]
    unknown = [c for c in row if c.startswith(("vram", "memory", "mem")) and c not in ("vram_gib", "vram_gb", "vram_mib") and row[c]]
    if len(given) != 1 or unknown:
        return None, f"memory needs exactly one of vram_gib, vram_gb, vram_mib; there is {', '.join([*given, *unknown]) or 'none'}"
    amount = amount_of(row[given[0]])
    if amount is None:
        return None, f"{row[given[0]]!r} is not a size above 0"
    return float(amount) * {"vram_gib": 1.0, "vram_gb": GIB_PER_GB, "vram_mib": 1 / 1024}[given[0]], ""


def memory_fault(vram: float, gpu_vram: float, accelerators: int, name: str) -> str:
    """Return what is wrong with a SKU's memory against its GPU's, "" where they agree; a VM may show a little less than the part has."""
    if 0.9 * gpu_vram <= vram <= 1.01 * gpu_vram:
        return ""
    if accelerators > 1 and 0.9 * gpu_vram <= vram / accelerators <= 1.08 * gpu_vram:
        return f"{vram:g} GiB is the memory of all {accelerators} {name} together: write one's ({gpu_vram:g})"
    if 1.01 * gpu_vram < vram <= 1.08 * gpu_vram:
        return f"{vram:g} GiB looks like GB: {name} has {gpu_vram:g} GiB"
    return f"{vram:g} GiB is not what one {name} has ({gpu_vram:g})"


def amount_of(text: str) -> Decimal | None:
    """Return a finite amount above 0, None for anything else."""
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount > 0 else None


def _date_fault(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        return f"{text!r} is no date such as 2026-11-30"
    return ""


def _text_fault(row: Mapping[str, str]) -> str:
    bad = next((k for k, v in row.items() if any(not c.isprintable() for c in v) or len(v) > 1000), None)
    return f"{bad} has a control character or is too long" if bad else ""
