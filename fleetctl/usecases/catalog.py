"""Plan, use-case layer: bring foreign prices and runs into the workspace's own rows, each checked. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from fleetctl.catalog.rows import CLASSES, PERFORMANCE_COLUMNS, PRICE_COLUMNS, amount_of, performance_row, price_row
from fleetctl.domain.catalog import Catalog
from fleetctl.errors import ConfigInvalid, FleetctlError
from fleetctl.ports.prices import PriceFeed, Quote

PRICE_KEY = ("book", "sku", "region")
RUN_COLUMNS = (*PERFORMANCE_COLUMNS, "sku", "tp", "low", "high", "requests_per_s", "p50_ms", "p95_ms", "p99_ms")
RUN_KEY = ("gpu", "model", "precision", "class", "engine", "sku", "tp", "requests_per_s", "as_of")
PRICES_FILE, RUNS_FILE = "prices.csv", "performance.csv"
HOURS = {"1 hour": 1, "hrs": 1, "hours": 1, "hour": 1, "hr": 1}
"""Units of a price that are understood: hours; anything else (a month, a GPU's second) is refused."""
__all__ = ["CLASSES", "Brought", "Rows", "import_prices", "import_runs", "refresh"]


class Rows(Protocol):
    """Keeps the workspace's own rows. Raises StoreUnavailable (catalog.unwritable)."""

    def merge(self, name: str, columns: Sequence[str], key: Sequence[str], rows: Iterable[Mapping[str, str]]) -> tuple[int, int]:
        """Put rows into a file; returns how many are new, and how many have changed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What came in, what was refused and why, and feeds that did not answer."""

    new: int
    changed: int
    rows: int
    refused: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def refresh(feeds: Mapping[str, PriceFeed], catalog: Catalog, clouds: Mapping[str, tuple[str, ...]], rows: Rows) -> Brought:
    """Ask every feed for the SKUs of its clouds and keep what it says; a feed that does not answer changes nothing.

    Args:
        feeds: by name; clouds: whose SKUs a feed is asked for, by the feed's name.
    """
    good: dict[tuple[str, str, str], Mapping[str, str]] = {}
    refused: list[str] = []
    failed: list[str] = []
    skus = {s.name for s in catalog.skus}
    for name, feed in feeds.items():
        wanted = [s.name for s in catalog.skus if s.cloud in clouds[name]]
        fresh: dict[tuple[str, str, str], Mapping[str, str]] = {}
        try:
            for q in feed.quotes(wanted):
                row, fault = _row(q)
                fault = fault or price_row(row, skus)[1]
                if fault:
                    refused.append(f"{q.sku} {q.region} ({q.source}): {fault}")
                    continue
                key = (row["book"], row["sku"], row["region"])
                if key in fresh and fresh[key]["usd_per_hour"] != row["usd_per_hour"]:
                    refused.append(f"{q.sku} {q.region} ({q.source}): a second {q.book} price, the dearer one is kept")
                    if q.amount <= Decimal(fresh[key]["usd_per_hour"]):
                        continue
                fresh[key] = row
        except FleetctlError as e:
            failed.append(f"{name}: {e.message}")
            continue
        good |= fresh
    new, changed = rows.merge(PRICES_FILE, PRICE_COLUMNS, PRICE_KEY, good.values()) if good else (0, 0)
    return Brought(new=new, changed=changed, rows=len(good), refused=tuple(refused), failed=tuple(failed))


def _row(q: Quote) -> tuple[dict[str, str], str]:
    fault = "" if q.currency == "USD" else f"{q.currency or 'no currency'} is not USD"
    if q.unit.strip().lower() not in HOURS:
        fault = fault or f"the unit {q.unit!r} is not an hour"
    row = {
        "book": q.book,
        "sku": q.sku,
        "region": q.region,
        "usd_per_hour": str(q.amount),
        "source": "".join(c if c.isprintable() else "?" for c in q.source),
        "as_of": q.as_of,
    }
    return row, fault


def import_prices(table: Sequence[Mapping[str, str]], catalog: Catalog, rows: Rows, *, book: str, source: str, as_of: str) -> Brought:
    """Check and keep a table of prices: sku, region, usd_per_hour or usd_per_gpu_hour; book, source and as_of of each row or of all.

    Raises:
        ConfigInvalid: catalog.import, with every bad row; then nothing is kept.
    """
    sizes = {s.name: s.accelerators for s in catalog.skus}
    good: dict[tuple[str, str, str], Mapping[str, str]] = {}
    faults: list[str] = []
    for number, given in enumerate(table, start=2):
        row, fault = _import_row(given, sizes, {"book": book, "source": source, "as_of": as_of})
        fault = fault or price_row(row, sizes)[1]
        key = (row["book"], row["sku"], row["region"])
        if not fault and key in good:
            fault = "a second price of this SKU and region"
        if fault:
            faults.append(f"line {number}: {fault}")
        good[key] = row
    _refuse(faults)
    new, changed = rows.merge(PRICES_FILE, PRICE_COLUMNS, PRICE_KEY, good.values())
    return Brought(new=new, changed=changed, rows=len(good))


def _import_row(given: Mapping[str, str], sizes: Mapping[str, int], default: Mapping[str, str]) -> tuple[dict[str, str], str]:
    row = {k: given.get(k) or v for k, v in default.items()} | {"sku": given.get("sku", ""), "region": given.get("region") or "*"}
    amounts = [k for k in given if k.startswith(("usd", "price", "eur", "cost")) and given[k]]
    known = [k for k in amounts if k in ("usd_per_hour", "usd_per_gpu_hour")]
    row["usd_per_hour"] = given.get("usd_per_hour") or ""
    if len(amounts) != 1 or not known:
        return row, f"needs exactly one of usd_per_hour (a VM) and usd_per_gpu_hour; there is {', '.join(amounts) or 'none'}"
    if known == ["usd_per_gpu_hour"]:
        each, size = amount_of(given["usd_per_gpu_hour"]), sizes.get(row["sku"])
        if each is None or size is None:
            return row, f"{given['usd_per_gpu_hour']!r} per GPU of {row['sku']!r} is no price"
        row["usd_per_hour"] = str((each * size).quantize(Decimal("0.0001")))
    return row, ""


def import_runs(table: Sequence[Mapping[str, str]], catalog: Catalog, rows: Rows, *, source: str, as_of: str) -> Brought:
    """Check and keep records of runs, with the columns of performance.csv.

    Raises:
        ConfigInvalid: catalog.import, with every bad row; then nothing is kept.
    """
    gpus = {g.name for g in catalog.gpus}
    good: list[Mapping[str, str]] = []
    faults: list[str] = []
    for number, given in enumerate(table, start=2):
        row = {**given, "kind": given.get("kind") or "own", "source": given.get("source") or source, "as_of": given.get("as_of") or as_of}
        fault = performance_row(row, gpus)[1]
        if fault:
            faults.append(f"line {number}: {fault}")
        good.append(row)
    _refuse(faults)
    new, changed = rows.merge(RUNS_FILE, RUN_COLUMNS, RUN_KEY, good)
    return Brought(new=new, changed=changed, rows=len(good))


def _refuse(faults: list[str]) -> None:
    if faults:
        text = f"{len(faults)} {'row is' if len(faults) == 1 else 'rows are'} refused; nothing was kept."
        raise ConfigInvalid("catalog.import", text, hint="Mend the file, then run the same command again", details=tuple(faults))
