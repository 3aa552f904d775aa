"""Plan, view layer: rows of the catalogue as tables and text. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.people import Diagnostic
from fleetctl.views.columns import WIDTH, clean, columns, counted, wrapped
from fleetctl.views.output import Column, Table

WHAT = ("gpus", "skus", "prices", "performance", "books")


def table_of(what: str, catalog: Catalog, books: Sequence[tuple[str, int, str]] = ()) -> Table:
    """Return one kind of rows as a table.

    Args:
        books: name, prices of its own, newest date.
    """
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    match what:
        case "gpus":
            head = ("GPU", "VENDOR", "GiB", "TB/s", "BF16 TF", "kW ALL-IN", "AS OF")
            rows = [
                (g.name, g.vendor, f"{g.vram_gib:g}", _n(g.memory_bandwidth_tb_s), _n(g.bf16_dense_tflops), _n(g.all_in_kw), g.as_of)
                for g in catalog.gpus
            ]
        case "skus":
            head = ("SKU", "CLOUD", "GPU", "GPUS", "USD/H FROM", "AS OF")
            rows = [(s.name, s.cloud, s.gpu, str(s.accelerators), _money(s.price_usd_per_hour), s.as_of) for s in catalog.skus]
        case "prices":
            head = ("SKU", "REGION", "USD/H", "BOOK", "AS OF")
            rows = [(p.sku, p.region, f"{p.usd_per_hour:,.2f}", p.kind, p.as_of) for p in catalog.prices]
        case "performance":
            head = ("GPU", "MODEL", "PRECISION", "CLASS", "TOK/S/GPU", "KIND", "AS OF")
            rows = [(r.gpu, r.model, r.precision, r.klass, f"{r.tokens_per_s:,.0f}", r.kind, r.as_of) for r in catalog.performance]
        case _:
            head = ("BOOK", "PRICES", "NEWEST")
            rows = [(name, f"{n:,}", newest) for name, n, newest in books]
    return Table(columns=tuple(Column(title=h) for h in head), rows=tuple(rows))


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _money(value: object) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


def render_checks(found: Sequence[Diagnostic], name: str, *, width: int = WIDTH) -> str:
    """Return what was found as text."""
    errors = sum(d.severity == "error" for d in found)
    lines = [f"Price book {clean(name)}: {counted(errors, 'error')}, {counted(len(found) - errors, 'warning')}"]
    for d in found:
        lines += wrapped(f"{d.severity}[{d.code}]: {clean(d.path)}: {clean(d.text)}", width, "  ")
    return "\n".join(lines) + "\n"


def render_sku(catalog: Catalog, name: str, *, width: int = WIDTH) -> str | None:
    """Return all that is known of a SKU or GPU, with the source of each figure; None where it is not known."""
    sku, gpu = catalog.sku(name), catalog.gpu(name)
    if gpu is None and sku is not None:
        gpu = catalog.gpu(sku.gpu)
    if sku is None and gpu is None:
        return None
    lines: list[str] = []
    if sku is not None:
        lines += [f"{clean(sku.name)}: {sku.accelerators} x {clean(sku.gpu)} ({sku.cloud}), {sku.vram_gib:g} GiB each"]
        lines += wrapped(f"source: {clean(sku.source)}, {sku.as_of}", width, "  ")
        prices = [(p.region, f"{p.usd_per_hour:,.2f}", p.kind, p.as_of, p.source) for p in catalog.prices if p.sku == sku.name]
        lines += ["", *columns([("REGION", "USD/H", "BOOK", "AS OF", "SOURCE"), *prices], right=(1,), width=width)]
        lines += [] if prices else ["  no price is known: never counted as 0"]
    if gpu is not None:
        lines += ["", f"{clean(gpu.name)} ({gpu.vendor}, {gpu.target or 'announced: no compiler target'}): {gpu.vram_gib:g} GiB"]
        lines += wrapped(f"source: {clean(gpu.source)}, {gpu.as_of}", width, "  ")
        runs = [
            (r.model, r.precision, r.klass, f"{r.tokens_per_s:,.0f}", r.kind, r.as_of) for r in catalog.performance if r.gpu == gpu.name
        ]
        lines += ["", *columns([("MODEL", "PRECISION", "CLASS", "TOK/S/GPU", "KIND", "AS OF"), *runs], right=(3,), width=width)]
    return "\n".join(lines) + "\n"
