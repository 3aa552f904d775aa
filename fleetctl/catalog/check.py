"""Plan, catalogue layer: what is wrong, or old, in the catalogue. Pure: rows and a day in, diagnostics out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta

from fleetctl.catalog.rows import DEAREST, memory_fault
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.people import Diagnostic

PRICE_DAYS, RECORD_DAYS, FACT_DAYS = 180, 548, 548
"""Age from which a row is stale. Source: planning.md 3 (one chip's software moved 10 to 27 % in a year; prices were halved in one)."""


def check_catalog(catalog: Catalog, today: date) -> tuple[Diagnostic, ...]:
    """Return errors (rows that must not be used) and warnings (stale rows, prices that are missing), errors first."""
    found = [*_memory(catalog), *_prices(catalog, today), *_records(catalog, today), *_unpriced(catalog)]
    return tuple(sorted(found, key=lambda d: d.severity == "warning"))


def _memory(catalog: Catalog) -> Iterator[Diagnostic]:
    gpus = {g.name: g for g in catalog.gpus}
    for s in catalog.skus:
        gpu = gpus.get(s.gpu)
        if gpu is None:
            yield Diagnostic(severity="error", code="catalog.gpu", text=f"there is no GPU {s.gpu}", path=s.name)
        elif fault := memory_fault(s.vram_gib, gpu.vram_gib, s.accelerators, s.gpu):
            yield Diagnostic(severity="error", code="catalog.memory", text=fault, path=s.name)


def _prices(catalog: Catalog, today: date) -> Iterator[Diagnostic]:
    stale: Counter[tuple[str, str]] = Counter()
    twice = [k for k, n in Counter((p.sku, p.region) for p in catalog.prices).items() if n > 1]
    for sku, region in twice:
        yield Diagnostic(severity="error", code="catalog.twice", text=f"two prices in {region}", path=sku)
    for p in catalog.prices:
        if not 0 < p.usd_per_hour <= DEAREST:
            yield Diagnostic(severity="error", code="catalog.price", text=f"{p.usd_per_hour} USD per hour in {p.region}", path=p.sku)
        if _age(p.as_of, today) > timedelta(days=PRICE_DAYS):
            stale[p.source, p.as_of] += 1
    for (source, as_of), n in sorted(stale.items()):
        text = f"{n} prices of {as_of} are over {PRICE_DAYS} days old"
        yield Diagnostic(severity="warning", code="catalog.stale", text=text, path=source)


def _records(catalog: Catalog, today: date) -> Iterator[Diagnostic]:
    stale = Counter(r.as_of for r in catalog.performance if _age(r.as_of, today) > timedelta(days=RECORD_DAYS))
    for as_of, n in sorted(stale.items()):
        text = f"{n} runs of {as_of} are over {RECORD_DAYS} days old: engines have moved on"
        yield Diagnostic(severity="warning", code="catalog.stale", text=text, path="performance")


def _unpriced(catalog: Catalog) -> Iterator[Diagnostic]:
    priced = {p.sku for p in catalog.prices}
    for s in catalog.skus:
        if s.name not in priced:
            yield Diagnostic(severity="warning", code="catalog.unpriced", text="no price is known; it is never counted as 0", path=s.name)
    measured = {r.gpu for r in catalog.performance}
    for g in catalog.gpus:
        if not g.target and g.name not in measured:
            yield Diagnostic(
                severity="warning", code="catalog.announced", text="announced, not measured: refused for placement", path=g.name
            )


def _age(as_of: str, today: date) -> timedelta:
    try:
        return today - date.fromisoformat(as_of)
    except ValueError:
        return timedelta.max
