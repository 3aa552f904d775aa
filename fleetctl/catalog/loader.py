"""Assess and plan, catalogue layer: reads the shipped CSV files into domain rows. Never a network call, never a guessed price."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from typing import cast

from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import ANY_REGION, Catalog, Gpu, Performance, Price
from fleetctl.domain.pool import Sku, Vendor
from fleetctl.errors import ConfigInvalid

Row = Mapping[str, str]
GPU_FILE, SKU_FILE, PRICE_FILE, SOURCE_FILE = "gpus.csv", "skus.csv", "prices.csv", "price_sources.csv"
PERFORMANCE_FILE = "performance.csv"
CLASSES = ("batch", "online", "realtime")
"""SLO classes of records: MLPerf's offline, server and interactive."""


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
        ConfigInvalid: catalog.broken: a duplicate, an unknown GPU or source, a count below 1, a price that is not above 0.
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
        try:
            gpu = Gpu(
                name=row["gpu"],
                vendor=_vendor(row["vendor"]),
                vram_gib=float(row["vram_gib"]),
                memory_bandwidth_tb_s=_number(row["memory_bandwidth_tb_s"]),
                bf16_dense_tflops=_number(row["bf16_dense_tflops"]),
                fp8_dense_tflops=_number(row["fp8_dense_tflops"]),
                tdp_w=int(row["tdp_w"]) if row["tdp_w"] else None,
                target=row["target"],
                all_in_kw=_number(row.get("all_in_kw", "")),
                cooling=row.get("cooling") or "",
                source=row["source"],
                as_of=row["as_of"],
            )
        except ValueError as e:
            faults.append(f"{place}: {e}")
            continue
        if gpu.name in found:
            faults.append(f"{place}: {gpu.name} stands twice")
        found[gpu.name] = gpu
    return tuple(found.values())


def _prices(rows: list[tuple[str, Row]], sources: Mapping[str, Row], faults: list[str]) -> tuple[Price, ...]:
    found: dict[tuple[str, str], Price] = {}
    for place, row in rows:
        key = (row["sku"], row["region"])
        source = sources.get(row["source"])
        amount = _amount(row["usd_per_hour"])
        if source is None:
            faults.append(f"{place}: no source {row['source']!r}")
        elif amount is None:
            faults.append(f"{place}: {row['usd_per_hour']!r} is not a price above 0; leave the row out where none is known")
        elif key in found:
            faults.append(f"{place}: {key[0]} has two prices in {key[1]}")
        else:
            found[key] = Price(
                sku=key[0], region=key[1], usd_per_hour=amount, kind=source["kind"], source=source["where"], as_of=source["as_of"]
            )
    return tuple(found.values())


def _skus(rows: list[tuple[str, Row]], gpus: Mapping[str, Gpu], prices: tuple[Price, ...], faults: list[str]) -> tuple[Sku, ...]:
    by_sku: dict[str, list[Price]] = {}
    for price in prices:
        by_sku.setdefault(price.sku, []).append(price)
    found: dict[str, Sku] = {}
    for place, row in rows:
        gpu = gpus.get(row["gpu"])
        if gpu is None or not row["accelerators"].isdigit() or int(row["accelerators"]) < 1 or row["sku"] in found:
            faults.append(f"{place}: {row['sku']}: unknown GPU {row['gpu']!r}, a count below 1, or a second row")
            continue
        mine = by_sku.get(row["sku"], [])
        found[row["sku"]] = Sku(
            name=row["sku"],
            cloud=row["cloud"],
            vendor=gpu.vendor,
            gpu=gpu.name,
            accelerators=int(row["accelerators"]),
            vram_gib=float(row["vram_gib"]),
            price_usd_per_hour=min((p.usd_per_hour for p in mine), default=None),
            source=row["spec_source"],
            as_of=row["as_of"],
            region_prices=tuple((p.region, p.usd_per_hour) for p in mine if p.region != ANY_REGION),
            memory_bandwidth_tb_s=gpu.memory_bandwidth_tb_s,
        )
    return tuple(found.values())


def _performance(rows: list[tuple[str, Row]], gpus: set[str], faults: list[str]) -> tuple[Performance, ...]:
    found: dict[tuple[str, ...], Performance] = {}
    for place, row in rows:
        key = (row["gpu"], row["model"], row["precision"], row["class"], row["as_of"])
        speed = _amount(row["tokens_per_s_per_gpu"])
        if row["gpu"] not in gpus or row["class"] not in CLASSES or speed is None or key in found:
            faults.append(f"{place}: {row['gpu']}: an unknown GPU or class, a throughput that is not above 0, or a second row")
            continue
        found[key] = Performance(
            gpu=row["gpu"],
            model=row["model"],
            precision=row["precision"],
            klass=row["class"],
            tokens_per_s=float(speed),
            kind=row["kind"],
            engine=row["engine"],
            source=row["source"],
            as_of=row["as_of"],
        )
    return tuple(found.values())


def _vendor(text: str) -> Vendor:
    if text not in ("nvidia", "amd"):
        raise ValueError(f"{text!r} is no vendor that the catalogue knows")
    return cast(Vendor, text)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _amount(text: str) -> Decimal | None:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount > 0 else None
