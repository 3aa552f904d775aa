"""Plan, view layer: rows of the catalogue as tables and text. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from fleetctl.catalog.check import FACT_DAYS, RECORD_DAYS, expiry
from fleetctl.domain.catalog import PRICE_DAYS, Catalog, Gpu, Performance, Price
from fleetctl.domain.people import Diagnostic
from fleetctl.domain.pool import Sku
from fleetctl.views.columns import WIDTH, clean, columns, counted, wrapped
from fleetctl.views.output import Column, Table

WHAT = ("gpus", "skus", "prices", "performance", "books")
MOST_FOUND = 30
"""Of one kind of errors, or of warnings, that are shown one by one."""


def table_of(what: str, catalog: Catalog, today: date, books: Sequence[tuple[str, int, str]] = ()) -> Table:
    """Return one kind of rows as a table of at most 80 columns, all of it with `-o wide`.

    Args:
        books: name, prices of its own, newest date.
    """
    match what:
        case "gpus":
            return _gpus(catalog.gpus, today)
        case "skus":
            return _skus(catalog.skus, today)
        case "prices":
            return _prices(catalog.prices, today)
        case "performance":
            return _runs(catalog.performance, today)
        case _:
            rows = tuple((name, f"{n:,}", newest, until(newest, PRICE_DAYS, today)) for name, n, newest in books)
            return Table(columns=(*_columns("BOOK", "PRICES>", "NEWEST", "EXPIRES"),), rows=rows)


def until(as_of: str, days: int, today: date) -> str:
    """Return the day from which a row of that day is stale, "expired" where that is over."""
    day = expiry(as_of, days)
    return "expired" if day and day <= today.isoformat() else day or "unknown"


def _columns(*titles: str) -> tuple[Column, ...]:
    """Make columns: ">" aligns right, "+" shows with wide alone, "~" is cut in its middle where there is no room."""
    return tuple(
        Column(title=t.strip(">+~"), right=t.endswith(">"), wide=t.startswith("+"), shrink=int(t.startswith("~")), middle=t.startswith("~"))
        for t in titles
    )


def _gpus(gpus: Sequence[Gpu], today: date) -> Table:
    heads = ("GPU", "VENDOR", "GiB>", "TB/s>", "BF16 TF>", "KW>", "KIND", "EXPIRES")
    wide = ("+FP8 TF>", "+TDP W>", "+COOLING", "+TARGET", "+AS OF", "+SOURCE")
    rows = [
        (
            *(g.name, g.vendor, f"{g.vram_gib:g}", _n(g.memory_bandwidth_tb_s), _n(g.bf16_dense_tflops), _n(g.all_in_kw), g.kind),
            *(until(g.as_of, FACT_DAYS, today), _n(g.fp8_dense_tflops), _n(g.tdp_w), g.cooling or "-", g.target or "announced"),
            *(g.as_of, g.source),
        )
        for g in gpus
    ]
    return Table(columns=_columns(*heads, *wide), rows=tuple(rows))


def _skus(skus: Sequence[Sku], today: date) -> Table:
    heads = ("~SKU", "GPU", "GPUS>", "USD/H>", "EXPIRES", "+CLOUD", "+GiB EACH>", "+KIND", "+AS OF", "+SOURCE")
    rows = [
        (
            *(s.name, s.gpu, str(s.accelerators), _money(s.price_usd_per_hour), until(s.as_of, FACT_DAYS, today)),
            *(s.cloud, f"{s.vram_gib:g}", s.kind, s.as_of, s.source),
        )
        for s in skus
    ]
    return Table(columns=_columns(*heads), rows=tuple(rows), foot=("USD/H: the least of all regions.",))


def _prices(prices: Sequence[Price], today: date) -> Table:
    heads = ("~SKU", "REGION", "USD/H>", "BOOK", "EXPIRES", "+KIND", "+AS OF", "+SOURCE")
    rows = [
        (p.sku, p.region, f"{p.usd_per_hour:,.2f}", p.kind, until(p.as_of, PRICE_DAYS, today), p.origin, p.as_of, p.source) for p in prices
    ]
    return Table(columns=_columns(*heads), rows=tuple(rows))


def _runs(runs: Sequence[Performance], today: date) -> Table:
    heads = ("~GPU", "~MODEL", "PREC", "CLASS", "TOK/S/GPU>", "KIND", "EXPIRES", "+ENGINE", "+AS OF", "+SOURCE")
    rows = [
        (
            *(r.gpu, r.model, r.precision, r.klass, f"{r.tokens_per_s:,.0f}", r.kind, until(r.as_of, RECORD_DAYS, today)),
            *(r.engine, r.as_of, r.source),
        )
        for r in runs
    ]
    return Table(columns=_columns(*heads), rows=tuple(rows))


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _money(value: object) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


def render_checks(found: Sequence[Diagnostic], name: str, *, width: int = WIDTH) -> str:
    """Return what was found as text."""
    errors = [d for d in found if d.severity == "error"]
    warnings = [d for d in found if d.severity != "error"]
    lines = [f"Price book {clean(name)}: {counted(len(errors), 'error')}, {counted(len(warnings), 'warning')}"]
    for some in (errors, warnings):
        for d in some[:MOST_FOUND]:
            lines += wrapped(f"{d.severity}[{d.code}]: {clean(d.path)}: {clean(d.text)}", width, "  ")
        if len(some) > MOST_FOUND:
            lines.append(f"  and {len(some) - MOST_FOUND:,} more: -o json")
    return "\n".join(lines) + "\n"


def render_part(catalog: Catalog, name: str, today: date, *, width: int = WIDTH) -> str | None:
    """Return all that is known of a SKU or GPU, with the source of each figure; None where it is not known."""
    sku, gpu = catalog.sku(name), catalog.gpu(name)
    if gpu is None and sku is not None:
        gpu = catalog.gpu(sku.gpu)
    if sku is None and gpu is None:
        return None
    lines = [] if sku is None else [*_sku_lines(sku, catalog, today, width), ""]
    if gpu is not None:
        lines += _gpu_lines(gpu, catalog, today, width)
    if sku is None and gpu is not None:
        sold = [(s.name, s.cloud, str(s.accelerators), _money(s.price_usd_per_hour)) for s in catalog.skus if s.gpu == gpu.name]
        lines += ["", *columns([("SKU", "CLOUD", "GPUS", "USD/H FROM"), *sold], right=(2, 3), width=width)]
        lines += [] if sold else ["  no SKU has it: it is placed nowhere"]
    return "\n".join(lines) + "\n"


def _from(kind: str, source: str, as_of: str, days: int, today: date, width: int) -> list[str]:
    return wrapped(f"{kind or 'unknown'}: {clean(source)}, {as_of}; expires: {until(as_of, days, today)}", width, "  ")


def _sku_lines(sku: Sku, catalog: Catalog, today: date, width: int) -> list[str]:
    lines = wrapped(f"{clean(sku.name)}: {sku.accelerators} x {clean(sku.gpu)} ({sku.cloud}), {sku.vram_gib:g} GiB each", width)
    lines += _from(sku.kind, sku.source, sku.as_of, FACT_DAYS, today, width)
    prices = [
        (p.region, f"{p.usd_per_hour:,.2f}", p.kind, until(p.as_of, PRICE_DAYS, today), p.origin, p.source)
        for p in catalog.prices
        if p.sku == sku.name
    ]
    lines += ["", *columns([("REGION", "USD/H", "BOOK", "EXPIRES", "KIND", "SOURCE"), *prices], right=(1,), width=width)]
    return lines if prices else [*lines[:-1], "  no price is known: never counted as 0, and nothing is placed there"]


def _gpu_lines(gpu: Gpu, catalog: Catalog, today: date, width: int) -> list[str]:
    lines = wrapped(
        f"{clean(gpu.name)} ({gpu.vendor}, {clean(gpu.target) or 'announced: no compiler target'}): {gpu.vram_gib:g} GiB", width
    )
    facts = (
        ("TB/s", gpu.memory_bandwidth_tb_s),
        ("dense bf16 TFLOPS", gpu.bf16_dense_tflops),
        ("dense fp8 TFLOPS", gpu.fp8_dense_tflops),
        ("W TDP", gpu.tdp_w),
        ("kW all-in", gpu.all_in_kw),
    )
    lines += wrapped(", ".join(f"{value:g} {unit}" for unit, value in facts if value is not None) or "nothing else is known", width, "  ")
    lines += _from(gpu.kind, gpu.source, gpu.as_of, FACT_DAYS, today, width)
    runs = [
        (r.model, r.precision, r.klass, f"{r.tokens_per_s:,.0f}", r.kind, until(r.as_of, RECORD_DAYS, today), r.engine)
        for r in catalog.performance
        if r.gpu == gpu.name
    ]
    if runs:
        lines += ["", *columns([("MODEL", "PREC", "CLASS", "TOK/S/GPU", "KIND", "EXPIRES", "ENGINE"), *runs], right=(3,), width=width)]
    elif gpu.target:
        lines += wrapped("no run is known: speeds are a roofline bound, and labelled so. Yours: fleetctl bench", width, "  ")
    else:
        lines.append("  announced and not measured: refused for placement")
    return lines
