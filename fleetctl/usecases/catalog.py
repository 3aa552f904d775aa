"""Plan, use-case layer: bring foreign prices and runs into the workspace's own rows, each checked. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Protocol

from fleetctl.catalog.books import GPUS_FILE, PRICES_FILE, SKUS_FILE
from fleetctl.catalog.books import PERFORMANCE_FILE as RUNS_FILE
from fleetctl.catalog.parts import GPU_COLUMNS, SKU_COLUMNS, gpu_row, memory_fault, sku_row
from fleetctl.catalog.rows import DEAREST, PERFORMANCE_COLUMNS, PRICE_COLUMNS, amount_of, performance_row, price_row, unknown_fault
from fleetctl.catalog.table import Numbered
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.pool import Sku
from fleetctl.errors import ConfigInvalid, FleetctlError
from fleetctl.ports.prices import PriceFeed, Quote

PRICE_KEY = ("book", "sku", "region")
PRICE_FILE_COLUMNS = (*PRICE_COLUMNS, "kind")
NUMBERS_OF_RUN = ("tp", "low", "high", "requests_per_s", "p50_ms", "p95_ms", "p99_ms", "ttft_p95_ms", "tpot_p95_ms")
RUN_COLUMNS = (*PERFORMANCE_COLUMNS, "sku", *NUMBERS_OF_RUN)
RUN_KEY = ("gpu", "model", "precision", "class", "engine", "sku", "tp", "requests_per_s", "as_of")
MOST_FAULTS = 50
"""Bad rows that an error names."""
HOURS = {"1 hour": 1, "hrs": 1, "hours": 1, "hour": 1, "hr": 1}
"""Units of a price that are understood: hours; anything else (a month, a GPU's second) is refused."""


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
    new, changed = rows.merge(PRICES_FILE, PRICE_FILE_COLUMNS, PRICE_KEY, good.values()) if good else (0, 0)
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
        "kind": "vendor",
    }
    return row, fault


def import_prices(
    table: Sequence[Numbered], catalog: Catalog, rows: Rows, *, book: str, source: str, as_of: str, today: date | None = None
) -> Brought:
    """Check and keep a table of prices: sku, region, usd_per_hour or usd_per_gpu_hour; book, source and as_of of each row or of all.

    Args:
        today: a row of a later day is refused; None: none is.

    Raises:
        ConfigInvalid: catalog.import, with every bad row; then nothing is kept.
    """
    sizes = {s.name: s.accelerators for s in catalog.skus}

    def checked(given: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
        row, fault = _import_row(given, sizes, {"book": book, "source": source, "as_of": as_of})
        return row, fault or price_row(row, sizes)[1]

    return _import(table, rows, checked, PRICES_FILE, PRICE_FILE_COLUMNS, PRICE_KEY, today, "a second price of this SKU and region")


PRICE_EXTRAS = ("book", "sku", "region", "source", "as_of", "kind", "currency", "unit", "usd_per_hour", "usd_per_gpu_hour")


def _import_row(given: Mapping[str, str], sizes: Mapping[str, int], default: Mapping[str, str]) -> tuple[dict[str, str], str]:
    row = {k: given.get(k) or v for k, v in default.items()} | {"sku": given.get("sku", ""), "region": given.get("region") or "*"}
    row["kind"] = given.get("kind") or "vendor"
    amounts = [k for k in given if k.startswith(("usd", "price", "eur", "cost")) and given[k]]
    known = [k for k in amounts if k in ("usd_per_hour", "usd_per_gpu_hour")]
    row["usd_per_hour"] = given.get("usd_per_hour") or ""
    if len(amounts) != 1 or not known:
        return row, f"needs exactly one of usd_per_hour (a VM) and usd_per_gpu_hour; there is {', '.join(amounts) or 'none'}"
    if given.get("currency", "").upper() not in ("", "USD"):
        return row, f"{given['currency']!r} is not USD"
    if given.get("unit", "").lower() not in ("", *HOURS):
        return row, f"the unit {given['unit']!r} is not an hour"
    if odd := unknown_fault(given, PRICE_EXTRAS):
        return row, odd
    if known == ["usd_per_gpu_hour"]:
        each, size = amount_of(given["usd_per_gpu_hour"]), sizes.get(row["sku"])
        if each is None or size is None:
            return row, f"{given['usd_per_gpu_hour']!r} per GPU of {row['sku']!r} is no price"
        if each > DEAREST:
            return row, f"{each} USD per GPU and hour is past belief: cents, or a month's bill?"
        row["usd_per_hour"] = str((each * size).quantize(Decimal("0.0001")))
    return row, ""


def import_runs(table: Sequence[Numbered], catalog: Catalog, rows: Rows, *, source: str, as_of: str, today: date | None = None) -> Brought:
    """Check and keep records of runs, with the columns of performance.csv.

    Raises:
        ConfigInvalid: catalog.import, with every bad row; then nothing is kept.
    """
    gpus, skus = {g.name for g in catalog.gpus}, {s.name: s.gpu for s in catalog.skus}

    def checked(given: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
        row = {**given, "kind": given.get("kind") or "own", "source": given.get("source") or source, "as_of": given.get("as_of") or as_of}
        fault = unknown_fault(given, RUN_COLUMNS) or performance_row(row, gpus)[1] or _curve_fault(row)
        sku = row.get("sku", "")
        if not fault and sku and sku not in skus:
            fault = f"there is no SKU {sku!r}"
        elif not fault and sku and skus[sku] != row["gpu"]:
            fault = f"SKU {sku!r} has {skus[sku]}, not {row['gpu']}"
        return row, fault

    return _import(table, rows, checked, RUNS_FILE, RUN_COLUMNS, RUN_KEY, today, "a second run of the same at the same rate and date")


def _curve_fault(row: Mapping[str, str]) -> str:
    """Return what is wrong with the optional figures of a run, "" where nothing is."""
    for column in NUMBERS_OF_RUN:
        text = row.get(column, "")
        if text and amount_of(text) is None and text.strip("0.") != "":
            return f"{text!r} is no {column} of 0 or more"
    low, high = (amount_of(row.get(c, "")) for c in ("low", "high"))
    speed = amount_of(row.get("tokens_per_s_per_gpu", ""))
    if speed is not None and ((low is not None and low > speed) or (high is not None and high < speed)):
        return f"{speed} tokens/s are outside their own range, {row.get('low')} to {row.get('high')}"
    order = [(c, a) for c in ("p50_ms", "p95_ms", "p99_ms") if (a := amount_of(row.get(c, ""))) is not None]
    wrong = next(((a, b) for a, b in pairwise(order) if a[1] > b[1]), None)
    return f"{wrong[0][0]} is above {wrong[1][0]}" if wrong else ""


def import_gpus(table: Sequence[Numbered], catalog: Catalog, rows: Rows, *, source: str, as_of: str, today: date | None = None) -> Brought:
    """Check and keep a table of GPUs: gpu, vendor, memory of one with its unit, kind; what is not known stays empty.

    A row must agree with the SKUs that have this GPU.

    Raises:
        ConfigInvalid: catalog.import, with every bad row; then nothing is kept.
    """

    sold: dict[str, list[Sku]] = {}
    for sku in catalog.skus:
        sold.setdefault(sku.gpu, []).append(sku)

    def checked(given: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
        row = {**given, "source": given.get("source") or source, "as_of": given.get("as_of") or as_of}
        gpu, fault = gpu_row(row)
        if gpu is None:
            return row, fault
        for s in sold.get(gpu.name, ()):
            if wrong := memory_fault(s.vram_gib, gpu.vram_gib, s.accelerators, gpu.name) or ("" if s.vendor == gpu.vendor else s.vendor):
                return row, f"SKU {s.name} says otherwise: {wrong}. Another part needs another name"
        width = "" if gpu.memory_bandwidth_tb_s is None else f"{gpu.memory_bandwidth_tb_s:g}"
        return {**row, "vram_gib": f"{gpu.vram_gib:g}", "memory_bandwidth_tb_s": width}, ""

    return _import(table, rows, checked, GPUS_FILE, GPU_COLUMNS, ("gpu",), today, "a second row of this GPU")


def import_skus(table: Sequence[Numbered], catalog: Catalog, rows: Rows, *, source: str, as_of: str, today: date | None = None) -> Brought:
    """Check and keep a table of SKUs: cloud, sku, gpu, accelerators, memory of one GPU with its unit, kind.

    Raises:
        ConfigInvalid: catalog.import, with every bad row; then nothing is kept.
    """
    gpus = {g.name: g for g in catalog.gpus}

    def checked(given: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
        row = {**given, "source": given.get("source") or source, "as_of": given.get("as_of") or as_of}
        sku, fault = sku_row(row, gpus)
        return (row, fault) if sku is None else ({**row, "vram_gib": f"{sku.vram_gib:g}"}, "")

    return _import(table, rows, checked, SKUS_FILE, SKU_COLUMNS, ("sku",), today, "a second row of this SKU")


def _import(
    table: Sequence[Numbered],
    rows: Rows,
    checked: Callable[[Mapping[str, str]], tuple[Mapping[str, str], str]],
    file: str,
    columns: Sequence[str],
    key: Sequence[str],
    today: date | None,
    twice: str,
) -> Brought:
    """Take all rows or none."""
    good: dict[tuple[str, ...], Mapping[str, str]] = {}
    faults: list[str] = []
    if not table:
        raise ConfigInvalid("catalog.import", "the table has no row; nothing was kept.", hint="Put rows under its head")
    for line, given in table:
        row, fault = checked(given)
        name = tuple(row.get(k, "") for k in key)
        if not fault and today is not None and row["as_of"] > today.isoformat():
            fault = f"{row['as_of']} is still to come"
        if not fault and name in good:
            fault = twice
        if fault:
            faults.append(f"line {line}: {fault}")
        good.setdefault(name, row)
    _refuse(faults)
    new, changed = rows.merge(file, columns, key, good.values())
    return Brought(new=new, changed=changed, rows=len(good))


def _refuse(faults: Sequence[str]) -> None:
    if not faults:
        return
    text = f"{len(faults)} {'row is' if len(faults) == 1 else 'rows are'} refused; nothing was kept."
    shown = list(faults[:MOST_FAULTS]) + ([f"and {len(faults) - MOST_FAULTS:,} more"] if len(faults) > MOST_FAULTS else [])
    raise ConfigInvalid("catalog.import", text, hint="Mend the file, then run the same command again", details=tuple(shown))
