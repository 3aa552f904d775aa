"""Inventory, shell layer: options, use case, view. Read-only: never changes a fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, output_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.fleet import Fleet
    from fleetctl.domain.people import Gap
    from fleetctl.domain.pool import Pool
    from fleetctl.domain.units import Money
    from fleetctl.domain.workload import Workload
    from fleetctl.usecases.inventory import Inventory


@click.group("inventory", invoke_without_command=True)
@output_option()
@click.pass_context
@pass_app
def command(app: App, ctx: click.Context, output: str) -> None:
    """What runs where: traffic, cost, and where each cell would go. Without a subcommand: list.

    \b
    fleetctl inventory                 cells, the most expensive first
    fleetctl inventory show CELL       everything about one cell
    fleetctl inventory scan            what each source says, and no source can
    """
    if ctx.invoked_subcommand is None:
        _list(app, output)


@command.command("list")
@output_option()
@pass_app
def list_command(app: App, output: str) -> None:
    """List cells, the most expensive first."""
    _list(app, output)


@command.command("show")
@click.argument("cell", type=CELL)
@output_option("table", "json", "yaml")
@pass_app
def show_command(app: App, cell: str, output: str) -> None:
    """Show everything about one CELL."""
    from fleetctl.errors import UsageError
    from fleetctl.views.inventory import cell_text
    from fleetctl.views.output import Table, render

    inventory = _inventory(app)
    row = next((r for r in inventory.rows if r.cell == cell), None)
    if row is None:
        from fleetctl.formats.fleet_checks import did_you_mean

        near = did_you_mean(cell, (r.cell for r in inventory.rows))
        raise UsageError("usage.no_cell", f"there is no cell {cell!r} in fleet {inventory.fleet}{near}.", hint="Run: fleetctl inventory")
    app.out(cell_text(row) if output == "table" else render(output, kind="cell", value=row, table=Table(columns=(), rows=())))


@command.command("scan")
@click.argument("scope", default="")
@output_option("table", "json", "yaml")
@pass_app
def scan_command(app: App, scope: str, output: str) -> None:
    """Ask every source about names that begin with SCOPE, and list what each said."""
    from fleetctl.views.output import Column, Table

    fleet, gaps = _scanned(app, scope)
    rows = [(f.source, ", ".join(f"{k}={v}" for k, v in f.values.items())) for f in fleet.provenance]
    foot = ("", f"{len(rows)} facts, {len(gaps)} gaps", *(f"Not known: {g.scope}: {g.reason} ({g.source})" for g in gaps))
    table = Table(
        columns=(Column(title="SOURCE"), Column(title="FACTS", shrink=1)), rows=tuple(rows), foot=foot, empty="No source said anything."
    )
    app.show(output, "scan", {"facts": fleet.provenance, "gaps": gaps}, table)


@command.command("schema")
@pass_app
def schema_command(app: App) -> None:
    """Print the JSON Schema of the fleet file."""
    from fleetctl.formats.example import schema_text

    app.out(schema_text().rstrip("\n"))


@command.command("export")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write to this new file instead of stdout.")
@output_option("json", "yaml")
@pass_app
def export_command(app: App, out: Path | None, output: str) -> None:
    """Write the whole fleet with the source of each fact, for other programs."""
    from fleetctl.errors import UsageError
    from fleetctl.views.output import Table, render

    fleet, _ = _scanned(app, "")
    text = render(output, kind="fleet", value=fleet, table=Table(columns=(), rows=()))
    if out is None or str(out) == "-":
        app.out(text)
        return
    try:
        with out.open("x", encoding="utf-8") as stream:
            stream.write(text + "\n")
    except FileExistsError:
        raise UsageError("usage.file_exists", f"{out} is there already.", hint="Add: --out NEWFILE") from None
    except OSError as e:
        raise UsageError("usage.file", f"{out} cannot be written: {e.strerror}.", hint="Add: --out FILE, where you may write") from None
    app.note(f"{out} written.")


def _list(app: App, output: str) -> None:
    from fleetctl.views.inventory import inventory_names, inventory_table

    inventory = _inventory(app)
    app.show(output, "inventory", inventory, inventory_table(inventory), inventory_names(inventory))


def _inventory(app: App) -> Inventory:
    from fleetctl.usecases.inventory import list_inventory

    fleet, gaps = _scanned(app, "")
    return list_inventory(fleet, _price(), gaps)


def _scanned(app: App, scope: str) -> tuple[Fleet, tuple[Gap, ...]]:
    from fleetctl.adapters.fleet_file import FileDiscovery
    from fleetctl.formats.settings import find_fleet_file
    from fleetctl.usecases.inventory import scan_fleet

    fleet = app.fleet()
    path = find_fleet_file(app.settings)
    return scan_fleet(fleet, [FileDiscovery(path, app.shown(path), lambda: datetime.now(UTC))], scope)


def _price() -> Callable[[Workload, Pool], Money | None]:
    """Return the planner's own price of a workload's replicas on a pool; without a catalogue no price is known."""
    if find_spec("fleetctl.planning.cost") is None or find_spec("fleetctl.catalog.loader") is None:
        return lambda workload, pool: None
    share_of = import_module("fleetctl.planning.cost").share_of
    catalog = import_module("fleetctl.catalog").load_catalog()

    def price(workload: Workload, pool: Pool) -> Money | None:
        found: Money | None = share_of(workload, pool, catalog)
        return found

    return price
