"""Plan, catalogue layer: what is wrong, or old, in the catalogue. Pure: rows and a day in, diagnostics out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta

from fleetctl.catalog.parts import MOST_ACCELERATORS, gpu_fault, memory_fault
from fleetctl.catalog.rows import KINDS, MOST_TOKENS_PER_S, date_fault, price_fault
from fleetctl.domain.catalog import PRICE_DAYS, Catalog
from fleetctl.domain.people import Diagnostic

RECORD_DAYS, FACT_DAYS = 548, 548
"""Age from which a row is stale. Source: planning.md 3 (one chip's software moved 10 to 27 % in a year; prices were halved in one)."""


def check_catalog(catalog: Catalog, today: date) -> tuple[Diagnostic, ...]:
    """Return errors (rows that must not be used) and warnings (stale rows, prices that are missing), errors first."""
    found = [*_facts(catalog, today), *_memory(catalog), *_prices(catalog, today), *_records(catalog, today), *_unpriced(catalog)]
    return tuple(sorted(found, key=lambda d: d.severity == "warning"))


def expiry(as_of: str, days: int) -> str:
    """Return the day from which a row of that day is stale, "" where its day is not known."""
    try:
        return (date.fromisoformat(as_of) + timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return ""


def _error(code: str, text: str, path: str) -> Diagnostic:
    return Diagnostic(severity="error", code=code, text=text, path=path)


def _origin(path: str, kind: str, source: str, as_of: str, today: date) -> Iterator[Diagnostic]:
    if kind not in KINDS:
        yield _error("catalog.kind", f"{kind!r} is no kind: {', '.join(KINDS)}", path)
    if not source:
        yield _error("catalog.source", "has no source", path)
    if fault := date_fault(as_of):
        yield _error("catalog.date", fault, path)
    elif as_of > today.isoformat():
        yield _error("catalog.date", f"{as_of} is still to come", path)


def _facts(catalog: Catalog, today: date) -> Iterator[Diagnostic]:
    """GPUs and SKUs: their figures, where they are from, how old they are."""
    for g in catalog.gpus:
        if fault := gpu_fault(g):
            yield _error("catalog.fact", fault, g.name)
        yield from _origin(g.name, g.kind, g.source, g.as_of, today)
    for s in catalog.skus:
        if not 1 <= s.accelerators <= MOST_ACCELERATORS:
            yield _error("catalog.fact", f"{s.accelerators} accelerators", s.name)
        yield from _origin(s.name, s.kind, s.source, s.as_of, today)
    for what, rows in (("GPU", catalog.gpus), ("SKU", catalog.skus)):
        stale = Counter((what, r.as_of) for r in rows if _age(r.as_of, today) > timedelta(days=FACT_DAYS))
        yield from (_stale(n, name, day, FACT_DAYS, f"{name}s") for (name, day), n in sorted(stale.items()))
    for what, names in (("gpus", [g.name for g in catalog.gpus]), ("skus", [s.name for s in catalog.skus])):
        yield from (_error("catalog.twice", f"stands twice among the {what}", n) for n, c in Counter(names).items() if c > 1)


def _stale(count: int, what: str, day: str, days: int, path: str) -> Diagnostic:
    verb = "is" if count == 1 else "are"
    text = f"{count} {what}{'' if count == 1 else 's'} of {day} {verb} over {days} days old"
    return Diagnostic(severity="warning", code="catalog.stale", text=text, path=path)


def _memory(catalog: Catalog) -> Iterator[Diagnostic]:
    gpus = {g.name: g for g in catalog.gpus}
    for s in catalog.skus:
        gpu = gpus.get(s.gpu)
        if gpu is None:
            yield _error("catalog.gpu", f"there is no GPU {s.gpu}", s.name)
        elif fault := memory_fault(s.vram_gib, gpu.vram_gib, s.accelerators, s.gpu):
            yield _error("catalog.memory", fault, s.name)


def _prices(catalog: Catalog, today: date) -> Iterator[Diagnostic]:
    stale: Counter[tuple[str, str]] = Counter()
    known = {s.name for s in catalog.skus}
    for (sku, region), n in Counter((p.sku, p.region) for p in catalog.prices).items():
        if n > 1:
            yield _error("catalog.twice", f"{n} prices in {region}", sku)
    for p in catalog.prices:
        if p.sku not in known:
            yield _error("catalog.sku", f"has a price in {p.region} and no row of its own", p.sku)
        if p.usd_per_hour <= 0 or price_fault(p.usd_per_hour):
            yield _error("catalog.price", f"{p.usd_per_hour} USD per hour in {p.region}", p.sku)
        yield from _origin(f"{p.sku} in {p.region}", p.origin, p.source, p.as_of, today)
        if _age(p.as_of, today) > timedelta(days=PRICE_DAYS):
            stale[p.source, p.as_of] += 1
    yield from (_stale(n, "price", as_of, PRICE_DAYS, source) for (source, as_of), n in sorted(stale.items()))


def _records(catalog: Catalog, today: date) -> Iterator[Diagnostic]:
    known = {g.name for g in catalog.gpus}
    for r in catalog.performance:
        path = f"{r.gpu}, {r.model}"
        if r.gpu not in known:
            yield _error("catalog.gpu", f"there is no GPU {r.gpu}", path)
        if not 0 < r.tokens_per_s <= MOST_TOKENS_PER_S:
            yield _error("catalog.run", f"{r.tokens_per_s:g} tokens per second and GPU", path)
        yield from _origin(path, r.kind, r.source, r.as_of, today)
    stale = Counter(r.as_of for r in catalog.performance if _age(r.as_of, today) > timedelta(days=RECORD_DAYS))
    yield from (_stale(n, "run", as_of, RECORD_DAYS, "performance, engines have moved on") for as_of, n in sorted(stale.items()))


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
