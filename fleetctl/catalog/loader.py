"""Assess and plan, catalogue layer: reads the shipped CSV files into domain rows. Never a network call, never a guessed price."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from fleetctl.catalog.parts import gpu_row, sku_row
from fleetctl.catalog.rows import performance_row, price_row
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import ANY_REGION, Catalog, Gpu, Performance, Price
from fleetctl.domain.pool import Sku
from fleetctl.errors import ConfigInvalid

Row = Mapping[str, str]
GPU_FILE, SKU_FILE, PRICE_FILE, SOURCE_FILE = "gpus.csv", "skus.csv", "prices.csv", "price_sources.csv"
PERFORMANCE_FILE = "performance.csv"


@cache
def load_catalog() -> Catalog:
    """Return the shipped catalogue.

    Raises:
        ConfigInvalid: catalog.broken, with every bad row as `file:line: text`.
    """
    folder = files("fleetctl.catalog") / "data"
    tables = {
        name: (folder / name).read_text("utf-8").splitlines() for name in (GPU_FILE, SKU_FILE, PRICE_FILE, SOURCE_FILE, PERFORMANCE_FILE)
    }
    return parse_catalog(tables)


def parse_catalog(tables: Mapping[str, Iterable[str]]) -> Catalog:
    """Build a catalogue from CSV lines per file name.

    Raises:
        ConfigInvalid: catalog.broken, with every row that an importer would refuse.
    """
    faults: list[str] = []
    gpus = _gpus(_rows(tables, GPU_FILE), faults)
    prices = _prices(_rows(tables, PRICE_FILE), _sources(_rows(tables, SOURCE_FILE)), faults)
    skus = _skus(_rows(tables, SKU_FILE), {g.name: g for g in gpus}, prices, faults)
    performance = _performance(_rows(tables, PERFORMANCE_FILE), {g.name for g in gpus}, faults) if PERFORMANCE_FILE in tables else ()
    faults += [
        f"{PRICE_FILE}: {name} has a price but no row in {SKU_FILE}" for name in sorted({p.sku for p in prices} - {s.name for s in skus})
    ]
    if faults:
        raise ConfigInvalid(
            "catalog.broken", f"The catalogue has {len(faults)} bad rows.", hint="Reinstall fleetctl.", details=tuple(faults)
        )
    newest = max((p.as_of for p in prices), default="")
    return Catalog(
        id="c" + digest((gpus, skus, prices, performance))[:11],
        price_book_id=f"list-{newest}-{digest(prices)[:8]}",
        gpus=gpus,
        skus=skus,
        prices=prices,
        performance=performance,
    )


def _rows(tables: Mapping[str, Iterable[str]], name: str) -> list[tuple[str, Row]]:
    return [(f"{name}:{line}", row) for line, row in enumerate(csv.DictReader(tables[name]), start=2)]


def _sources(rows: list[tuple[str, Row]]) -> dict[str, Row]:
    return {row["source"]: row for _, row in rows}


def _gpus(rows: list[tuple[str, Row]], faults: list[str]) -> tuple[Gpu, ...]:
    found: dict[str, Gpu] = {}
    for place, row in rows:
        gpu, fault = gpu_row(row)
        if gpu is None or gpu.name in found:
            faults.append(f"{place}: {fault or row['gpu'] + ' stands twice'}")
            continue
        found[gpu.name] = gpu
    return tuple(found.values())


def _prices(rows: list[tuple[str, Row]], sources: Mapping[str, Row], faults: list[str]) -> tuple[Price, ...]:
    found: dict[tuple[str, str], Price] = {}
    known = {row["sku"] for _, row in rows}
    for place, row in rows:
        key = (row["sku"], row["region"])
        source = sources.get(row["source"])
        if source is None:
            faults.append(f"{place}: no source {row['source']!r}")
            continue
        price, fault = price_row({**row, **source, "source": source["where"]}, known)
        if price is None or key in found:
            faults.append(f"{place}: {fault or key[0] + ' has two prices in ' + key[1]}")
            continue
        found[key] = price
    return tuple(found.values())


def _skus(rows: list[tuple[str, Row]], gpus: Mapping[str, Gpu], prices: tuple[Price, ...], faults: list[str]) -> tuple[Sku, ...]:
    found: dict[str, Sku] = {}
    for place, row in rows:
        sku, fault = sku_row(row, gpus)
        if sku is None or sku.name in found:
            faults.append(f"{place}: {fault or row['sku'] + ' stands twice'}")
            continue
        found[sku.name] = sku
    return priced(found.values(), prices)


def priced(skus: Iterable[Sku], prices: Iterable[Price]) -> tuple[Sku, ...]:
    """Return the SKUs with their least price, and their price per region."""
    by_sku: dict[str, list[Price]] = {}
    for p in prices:
        by_sku.setdefault(p.sku, []).append(p)
    return tuple(
        replace(
            s,
            price_usd_per_hour=min((p.usd_per_hour for p in by_sku.get(s.name, ())), default=None),
            region_prices=tuple((p.region, p.usd_per_hour) for p in by_sku.get(s.name, ()) if p.region != ANY_REGION),
        )
        for s in skus
    )


def _performance(rows: list[tuple[str, Row]], gpus: set[str], faults: list[str]) -> tuple[Performance, ...]:
    found: dict[tuple[str, ...], Performance] = {}
    for place, row in rows:
        key = (row["gpu"], row["model"], row["precision"], row["class"], row["as_of"])
        run, fault = performance_row(row, gpus)
        if run is None or key in found:
            faults.append(f"{place}: {fault or 'a second row of this GPU, model, precision, class and date'}")
            continue
        found[key] = run
    return tuple(found.values())
