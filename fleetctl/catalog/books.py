"""Plan, catalogue layer: price books beside list, and a workspace's own rows. Never a network call, never a guessed price.

A price stands in the first of: the workspace's rows of the book, the shipped rows of the book, the workspace's list rows (what
`fleetctl catalog refresh` wrote), the shipped list. A book says only what it knows; where it knows nothing, list prices count.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path

from fleetctl.catalog.loader import load_catalog
from fleetctl.catalog.rows import KINDS, PERFORMANCE_COLUMNS, PRICE_COLUMNS, performance_row, price_row
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import ANY_REGION, Catalog, Performance, Price
from fleetctl.errors import ConfigInvalid

LIST = "list"
PRICES_FILE, PERFORMANCE_FILE = "prices.csv", "performance.csv"
"""A workspace's own rows, in .fleetctl/catalog."""
GPU_HOURS_FILE, BOOK_FILE = "gpu_hours.csv", "book_prices.csv"


def book_names(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of all price books, list first."""
    mine = {p.kind for p in own_prices(folder)}
    return (LIST, *sorted({p.kind for p in _shipped_books()} | (mine - {LIST})))


def load_book(book: str = LIST, folder: Path | None = None) -> Catalog:
    """Return the catalogue by one price book.

    Args:
        folder: of the workspace's own rows, None for none.

    Raises:
        ConfigInvalid: catalog.no_book; catalog.own, with every bad row of the workspace's files as `file:line: text`.
    """
    known = book_names(folder)
    if book not in known:
        raise ConfigInvalid("catalog.no_book", f"there is no price book {book!r}.", hint=f"Known are: {', '.join(known)}")
    base, mine = load_catalog(), own_prices(folder)
    layers: list[Iterable[Price]] = [base.prices, [p for p in mine if p.kind == LIST]]
    if book != LIST:
        layers += [[p for p in _shipped_books() if p.kind == book], [p for p in mine if p.kind == book]]
    prices = _merged(layers, everywhere=book != LIST)
    performance = (*base.performance, *own_performance(folder))
    if prices == base.prices and performance == base.performance:
        return base
    return _priced(base, prices, performance, book)


def load_books(folder: Path | None = None) -> dict[str, Catalog]:
    """Return the catalogue by every price book, by its name."""
    return {name: load_book(name, folder) for name in book_names(folder)}


def own_prices(folder: Path | None) -> tuple[Price, ...]:
    """Return the workspace's own price rows; () where it has none. Raises ConfigInvalid (catalog.own)."""
    skus = {s.name for s in load_catalog().skus}
    rows: list[Price] = []
    faults: list[str] = []
    seen: set[tuple[str, str, str]] = set()
    for place, row in _read(folder, PRICES_FILE, PRICE_COLUMNS, faults):
        price, fault = price_row(row, skus)
        if price is None or (key := (price.kind, price.sku, price.region)) in seen:
            faults.append(f"{place}: {fault or 'a second price of this SKU and region in this book'}")
            continue
        seen.add(key)
        rows.append(price)
    _refuse(faults)
    return tuple(rows)


def own_performance(folder: Path | None) -> tuple[Performance, ...]:
    """Return the user's own runs; () where there are none. Raises ConfigInvalid (catalog.own)."""
    gpus = {g.name for g in load_catalog().gpus}
    rows: list[Performance] = []
    faults: list[str] = []
    for place, row in _read(folder, PERFORMANCE_FILE, PERFORMANCE_COLUMNS, faults):
        found, fault = performance_row(row, gpus)
        if found is None:
            faults.append(f"{place}: {fault}")
        else:
            rows.append(found)
    _refuse(faults)
    return tuple(rows)


def _refuse(faults: list[str]) -> None:
    if faults:
        text = f"this workspace's catalogue has {len(faults)} bad {'row' if len(faults) == 1 else 'rows'}."
        raise ConfigInvalid("catalog.own", text, hint="Mend or remove them in .fleetctl/catalog", details=tuple(faults))


def _read(folder: Path | None, name: str, columns: tuple[str, ...], faults: list[str]) -> list[tuple[str, dict[str, str]]]:
    path = folder / name if folder is not None else None
    if path is None or not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as text:
        reader = csv.DictReader(text)
        missing = [c for c in columns if c not in (reader.fieldnames or ())]
        if missing:
            faults.append(f"{name}:1: lacks the column {', '.join(missing)}")
            return []
        return [(f"{name}:{line}", {k: v or "" for k, v in row.items() if k}) for line, row in enumerate(reader, start=2)]


@cache
def _shipped_books() -> tuple[Price, ...]:
    folder = files("fleetctl.catalog") / "data"
    skus = load_catalog().skus
    out = []
    for row in csv.DictReader((folder / GPU_HOURS_FILE).read_text("utf-8").splitlines()):
        for s in skus:
            if s.gpu == row["gpu"] and s.cloud != "lab":
                amount = Decimal(row["usd_per_gpu_hour"]) * s.accelerators
                source = f"{row['source']} (per GPU, times {s.accelerators})"
                out.append(Price(sku=s.name, region=ANY_REGION, usd_per_hour=amount, kind=row["book"], source=source, as_of=row["as_of"]))
    for row in csv.DictReader((folder / BOOK_FILE).read_text("utf-8").splitlines()):
        amount = Decimal(row["usd_per_hour"])
        out.append(
            Price(sku=row["sku"], region=row["region"], usd_per_hour=amount, kind=row["book"], source=row["source"], as_of=row["as_of"])
        )
    return tuple(out)


def _merged(layers: Iterable[Iterable[Price]], *, everywhere: bool) -> tuple[Price, ...]:
    """Return one price per SKU and region, later layers first. A book's price for any region stands for all of them."""
    found: dict[tuple[str, str], Price] = {}
    for layer in layers:
        for p in layer:
            if everywhere and p.region == ANY_REGION and p.kind != LIST:
                for key in [k for k in found if k[0] == p.sku and found[k].kind == LIST]:
                    del found[key]
            found[p.sku, p.region] = p
    return tuple(found.values())


def _priced(base: Catalog, prices: tuple[Price, ...], performance: tuple[Performance, ...], book: str) -> Catalog:
    by_sku: dict[str, list[Price]] = {}
    for p in prices:
        by_sku.setdefault(p.sku, []).append(p)
    skus = tuple(
        replace(
            s,
            price_usd_per_hour=min((p.usd_per_hour for p in by_sku.get(s.name, ())), default=None),
            region_prices=tuple((p.region, p.usd_per_hour) for p in by_sku.get(s.name, ()) if p.region != ANY_REGION),
        )
        for s in base.skus
    )
    newest = max((p.as_of for p in prices), default="")
    return Catalog(
        id="c" + digest((base.gpus, skus, prices, performance))[:11],
        price_book_id=f"{book}-{newest}-{digest(prices)[:8]}",
        gpus=base.gpus,
        skus=skus,
        prices=prices,
        performance=performance,
    )


def kinds() -> Mapping[str, str]:
    """Return the kinds of rows and what they mean."""
    return KINDS
