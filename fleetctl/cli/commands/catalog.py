"""`fleetctl catalog`, shell layer: GPUs, VM sizes, price books and runs, each row with source and date. Never decides."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import Group, dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from fleetctl.adapters.own_rows import OwnRows
    from fleetctl.catalog.table import Numbered
    from fleetctl.domain.catalog import Catalog
    from fleetctl.usecases.catalog import Brought

WHAT = ("gpus", "skus", "prices", "performance", "books")
FEEDS = ("azure", "aws", "gpuhunt")
IMPORTS = ("prices", "gpus", "skus", "performance")
MOST_SHOWN = 20
BOOK = click.option("--book", default=None, metavar="NAME", help="The price book.  [default: the setting price_book]")


@click.group("catalog", cls=Group)
def command() -> None:
    """GPUs, VM sizes, price books and runs that plans rest on, each row with its source and date.

    A workspace's own rows (.fleetctl/catalog) stand before the shipped ones.
    """


@command.command("list")
@click.argument("what", type=click.Choice(WHAT), default="skus")
@click.argument("match", default="")
@BOOK
@output_option("table", "wide", "json", "yaml", "name")
@pass_app
def list_(app: App, what: str, match: str, book: str | None, output: str) -> None:
    """List the rows of one kind; MATCH keeps those with this text in their name.

    \b
    Examples:
      fleetctl catalog list skus MI300X
      fleetctl catalog list prices --book spot
      fleetctl catalog list books
    """
    from dataclasses import replace

    from fleetctl.views.catalog import table_of

    catalog = app.wiring.catalog_of(book)
    books = [
        (n, sum(p.kind == n for p in c.prices), max((p.as_of for p in c.prices if p.kind == n), default="")) for n, c in _books(app, what)
    ]
    rows = books if what == "books" else getattr(catalog, what)
    table = table_of(what, catalog, app.wiring.clock.now().date(), books)
    kept = [i for i, row in enumerate(table.rows) if match.lower() in " ".join(row).lower()]
    table = replace(table, rows=tuple(table.rows[i] for i in kept))
    app.show(output, f"catalog.{what}", [rows[i] for i in kept], table, tuple(dict.fromkeys(r[0] for r in table.rows)))


def _books(app: App, what: str) -> list[tuple[str, Catalog]]:
    return list(app.wiring.books().items()) if what == "books" else []


@command.command("show")
@click.argument("name")
@BOOK
@pass_app
def show(app: App, name: str, book: str | None) -> None:
    """Show a SKU or GPU with its prices and runs, and where each figure comes from."""
    from fleetctl.errors import UsageError
    from fleetctl.views.catalog import render_part

    catalog = app.wiring.catalog_of(book)
    text = render_part(catalog, name, app.wiring.clock.now().date(), width=app.width)
    if text is None:
        near = [n for n in (*(g.name for g in catalog.gpus), *(s.name for s in catalog.skus)) if name.lower() in n.lower()]
        like = f" There are {', '.join(near[:5])}." if near and name else ""
        raise UsageError("catalog.unknown", f"the catalogue has no {name[:80]!r}.{like}", hint="Run: fleetctl catalog list")
    app.out(text.rstrip("\n"))


@command.command("check")
@BOOK
@output_option("table", "json", "yaml")
@pass_app
def check(app: App, book: str | None, output: str) -> None:
    """Check every row: figures, prices above 0, one per SKU and region, memory per GPU in GiB, source, age. Exit 1 on an error."""
    from fleetctl.catalog.check import check_catalog
    from fleetctl.formats.output import as_json, as_yaml
    from fleetctl.views.catalog import render_checks

    catalog = app.wiring.catalog_of(book)
    found = check_catalog(catalog, app.wiring.clock.now().date())
    match output:
        case "json":
            app.out(as_json("catalog.check", found))
        case "yaml":
            app.out(as_yaml("catalog.check", found))
        case _:
            app.out(render_checks(found, catalog.price_book_id, width=app.width).rstrip("\n"))
    sys.exit(EXIT_FAILED if any(d.severity == "error" for d in found) else EXIT_DONE)


@command.command("refresh")
@click.argument("feeds", nargs=-1, type=click.Choice(FEEDS))
@click.option("--gpuhunt", "gpuhunt_place", metavar="FILE|URL", help="The zip of a gpuhunt catalogue; asks gpuhunt too.")
@click.option("--azure-endpoint", default="", metavar="URL", help="Another address of Azure's retail price API.")
@click.option("--aws-endpoint", default="", metavar="URL", help="Another address of AWS' pricing service.")
@dry_run_option
@pass_app
def refresh(app: App, feeds: tuple[str, ...], gpuhunt_place: str | None, azure_endpoint: str, aws_endpoint: str, dry_run: bool) -> None:
    """Ask Azure's retail price API, AWS' price list and a gpuhunt catalogue for today's prices. What is refused is named.

    A feed that does not answer changes nothing: the dated rows that are here still count.
    """
    from fleetctl.errors import UsageError
    from fleetctl.usecases.catalog import refresh as run

    if "gpuhunt" in feeds and not gpuhunt_place:
        raise UsageError("catalog.gpuhunt", "gpuhunt has no address of its own.", hint="Add: --gpuhunt FILE or URL of its catalogue's zip")
    wanted = feeds or (("azure", "aws", "gpuhunt") if gpuhunt_place else ("azure", "aws"))
    if dry_run:
        app.out(f"Would ask {', '.join(wanted)} for today's prices\nNothing was changed.")
        return
    w = app.wiring
    made = w.price_feeds(wanted, azure=azure_endpoint, aws=aws_endpoint, gpuhunt=gpuhunt_place or "")
    clouds = {"azure": ("azure",), "aws": ("aws",), "gpuhunt": tuple({s.cloud for s in w.catalog.skus} - {"lab"})}
    done = run(made, w.catalog_of("list"), clouds, w.own_rows)
    app.out(f"{done.rows:,} prices: {done.new:,} new, {done.changed:,} changed; {len(done.refused):,} refused")
    for text in done.refused[:MOST_SHOWN]:
        app.note(f"refused: {text}")
    for text in done.failed:
        app.note(f"did not answer: {text}")
    if done.failed:
        app.note(f"Prices of {w.catalog_of('list').price_book_id} still count where nothing newer came.")
    sys.exit(EXIT_FAILED if done.failed and not done.rows else EXIT_DONE)


@command.command("import")
@click.argument("what", type=click.Choice(IMPORTS))
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE")
@click.option("--book", default="contract", show_default=True, metavar="NAME", help="Price book of rows that name none.")
@click.option("--source", default="", help="Source of rows that name none.")
@click.option("--as-of", default="", metavar="DATE", help="Date of rows that name none.")
@dry_run_option
@pass_app
def import_(app: App, what: str, path: Path, book: str, source: str, as_of: str, dry_run: bool) -> None:
    """Take a CSV table into this workspace's own rows, all of it or nothing: every bad row is named.

    \b
    prices       sku, region, usd_per_hour or usd_per_gpu_hour
    gpus         gpu, vendor, vram_gib or vram_gb or vram_mib, kind and more
    skus         cloud, sku, gpu, accelerators, vram_gib (of one GPU), kind
    performance  as fleetctl bench writes it: gpu, model, class and more
    Each with source and as_of in the table, or for all rows as options.

    \b
    Examples:
      fleetctl catalog import prices contract.csv \\
        --source "offer 4711" --as-of 2026-11-01
      fleetctl catalog import prices reserved.csv --book reservation \\
        --source "order 42" --as-of 2026-11-01
      fleetctl catalog import skus ours.csv --source "our DC" --as-of 2026-11-01
    """
    from fleetctl.adapters.own_rows import OwnRows

    w = app.wiring
    if dry_run:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            done = _bring(app, what, path, OwnRows(Path(folder)), book=book, source=source, as_of=as_of)
        app.out(f"Would take {done.rows:,} rows\nNothing was changed.")
        return
    done = _bring(app, what, path, w.own_rows, book=book, source=source, as_of=as_of)
    app.out(f"{done.rows:,} {'row' if done.rows == 1 else 'rows'} taken: {done.new:,} new, {done.changed:,} changed")
    app.note("Next: fleetctl catalog list books" if what == "prices" else f"Next: fleetctl catalog list {what}")


def _bring(app: App, what: str, path: Path, rows: OwnRows, *, book: str, source: str, as_of: str) -> Brought:
    from fleetctl.usecases import catalog as use

    table, known, today = _table(path), app.wiring.catalog_of("list"), app.wiring.clock.now().date()
    match what:
        case "prices":
            return use.import_prices(table, known, rows, book=book, source=source, as_of=as_of, today=today)
        case "gpus":
            return use.import_gpus(table, known, rows, source=source, as_of=as_of, today=today)
        case "skus":
            return use.import_skus(table, known, rows, source=source, as_of=as_of, today=today)
        case _:
            return use.import_runs(table, known, rows, source=source, as_of=as_of, today=today)


def _table(path: Path) -> list[Numbered]:
    """Read the table. Raises ConfigInvalid (catalog.import), with what is wrong with it."""
    from fleetctl.catalog.table import read_table
    from fleetctl.errors import ConfigInvalid

    try:
        table, faults = read_table(path)
    except OSError as e:
        raise ConfigInvalid("catalog.import", f"{path} cannot be read: {e.strerror}.", hint="Name another file") from e
    if faults:
        hint = "Save it as UTF-8 with commas, one head and as many cells in every row"
        raise ConfigInvalid("catalog.import", f"{path.name} is no table; nothing was kept.", hint=hint, details=tuple(faults[:50]))
    return table
