"""Plan, catalogue layer: price books beside list, and a workspace's own rows. Never a network call, never a guessed price.

A price stands in the first of: the workspace's rows of the book, the shipped rows of the book, the workspace's list rows (what
`fleetctl catalog refresh` wrote), the shipped list. A book says only what it knows; where it knows nothing, list prices count.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from fleetctl.catalog.loader import load_catalog, priced
from fleetctl.catalog.parts import gpu_row, sku_row
from fleetctl.catalog.rows import PERFORMANCE_COLUMNS, PRICE_COLUMNS, performance_row, price_row
from fleetctl.catalog.table import Numbered, read_table
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import ANY_REGION, Catalog, Gpu, Performance, Price
from fleetctl.domain.pool import Sku
from fleetctl.errors import ConfigInvalid

P = TypeVar("P", Gpu, Sku)

LIST = "list"
GPUS_FILE, SKUS_FILE, PRICES_FILE, PERFORMANCE_FILE = "gpus.csv", "skus.csv", "prices.csv", "performance.csv"
"""A workspace's own rows, in .fleetctl/catalog."""
HOURS_FILE, BOOK_FILE = "gpu_hours.csv", "book_prices.csv"


def book_names(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of all price books, list first."""
    mine = {p.kind for p in own_prices(folder)}
    return (LIST, *sorted({p.kind for p in _shipped_books(load_catalog().skus)} | (mine - {LIST})))


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
    base, mine = own_parts(folder), own_prices(folder)
    layers: list[Iterable[Price]] = [base.prices, [p for p in mine if p.kind == LIST]]
    if book != LIST:
        layers += [[p for p in _shipped_books(base.skus) if p.kind == book], [p for p in mine if p.kind == book]]
    prices = _merged(layers, everywhere=book != LIST)
    performance = (*base.performance, *own_performance(folder))
    if base is load_catalog() and prices == base.prices and performance == base.performance:
        return base
    newest = max((p.as_of for p in prices), default="")
    skus = priced(base.skus, prices)
    return Catalog(
        id="c" + digest((base.gpus, skus, prices, performance))[:11],
        price_book_id=f"{book}-{newest}-{digest(prices)[:8]}",
        gpus=base.gpus,
        skus=skus,
        prices=prices,
        performance=performance,
    )


def load_books(folder: Path | None = None) -> dict[str, Catalog]:
    """Return the catalogue by every price book, by its name."""
    return {name: load_book(name, folder) for name in book_names(folder)}


def own_parts(folder: Path | None) -> Catalog:
    """Return the shipped catalogue with the workspace's own GPUs and SKUs in the place of those of the same name.

    Raises:
        ConfigInvalid: catalog.own.
    """
    base = load_catalog()
    faults: list[str] = []
    gpus = {g.name: g for g in base.gpus} | _own(folder, GPUS_FILE, ("gpu", "vendor"), faults, gpu_row)
    skus = {s.name: s for s in base.skus} | _own(folder, SKUS_FILE, ("sku", "gpu"), faults, lambda row: sku_row(row, gpus))
    _refuse(faults)
    if (tuple(gpus.values()), tuple(skus.values())) == (base.gpus, base.skus):
        return base
    width = {g.name: g.memory_bandwidth_tb_s for g in gpus.values()}
    fresh = (replace(s, memory_bandwidth_tb_s=width.get(s.gpu)) for s in skus.values())
    return replace(base, gpus=tuple(gpus.values()), skus=priced(fresh, base.prices))


def _own(
    folder: Path | None, name: str, needed: Sequence[str], faults: list[str], parse: Callable[[Mapping[str, str]], tuple[P | None, str]]
) -> dict[str, P]:
    found: dict[str, P] = {}
    for line, row in _read(folder, name, needed, faults):
        part, fault = parse(row)
        if part is None or part.name in found:
            faults.append(f"{name}:{line}: {fault or 'stands twice'}")
            continue
        found[part.name] = part
    return found


def own_prices(folder: Path | None) -> tuple[Price, ...]:
    """Return the workspace's own price rows; () where it has none. Raises ConfigInvalid (catalog.own)."""
    skus = {s.name for s in own_parts(folder).skus}
    rows: list[Price] = []
    faults: list[str] = []
    seen: set[tuple[str, str, str]] = set()
    for line, row in _read(folder, PRICES_FILE, PRICE_COLUMNS, faults):
        price, fault = price_row(row, skus)
        if price is None or (key := (price.kind, price.sku, price.region)) in seen:
            faults.append(f"{PRICES_FILE}:{line}: {fault or 'a second price of this SKU and region in this book'}")
            continue
        seen.add(key)
        rows.append(price)
    _refuse(faults)
    return tuple(rows)


def own_performance(folder: Path | None) -> tuple[Performance, ...]:
    """Return the user's own runs; () where there are none. Raises ConfigInvalid (catalog.own)."""
    gpus = {g.name for g in own_parts(folder).gpus}
    rows: list[Performance] = []
    faults: list[str] = []
    for line, row in _read(folder, PERFORMANCE_FILE, PERFORMANCE_COLUMNS, faults):
        found, fault = performance_row(row, gpus)
        if found is None:
            faults.append(f"{PERFORMANCE_FILE}:{line}: {fault}")
        else:
            rows.append(found)
    _refuse(faults)
    return tuple(rows)


def _refuse(faults: list[str]) -> None:
    if faults:
        text = f"this workspace's catalogue has {len(faults)} bad {'row' if len(faults) == 1 else 'rows'}."
        raise ConfigInvalid("catalog.own", text, hint="Mend or remove them in .fleetctl/catalog", details=tuple(faults))


def _read(folder: Path | None, name: str, needed: Sequence[str], faults: list[str]) -> list[Numbered]:
    path = folder / name if folder is not None else None
    if path is None or not path.is_file():
        return []
    try:
        rows, wrong = read_table(path, needed)
    except OSError as e:
        rows, wrong = [], [f"{name}: cannot be read: {e.strerror}"]
    faults += wrong
    return rows


@cache
def _shipped_books(skus: tuple[Sku, ...]) -> tuple[Price, ...]:
    """Return the shipped books' prices of these SKUs: a price per GPU and hour is a SKU's times its GPUs."""
    folder = files("fleetctl.catalog") / "data"
    out = []
    for row in csv.DictReader((folder / HOURS_FILE).read_text("utf-8").splitlines()):
        for s in skus:
            if s.gpu == row["gpu"] and s.cloud != "lab":
                amount = Decimal(row["usd_per_gpu_hour"]) * s.accelerators
                source = f"{row['source']} (per GPU, times {s.accelerators})"
                out.append(_price(row, s.name, ANY_REGION, amount, source))
    for row in csv.DictReader((folder / BOOK_FILE).read_text("utf-8").splitlines()):
        out.append(_price(row, row["sku"], row["region"], Decimal(row["usd_per_hour"]), row["source"]))
    return tuple(out)


def _price(row: Mapping[str, str], sku: str, region: str, amount: Decimal, source: str) -> Price:
    return Price(sku=sku, region=region, usd_per_hour=amount, kind=row["book"], source=source, as_of=row["as_of"], origin=row["kind"])


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
