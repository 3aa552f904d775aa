"""`fleetctl fallback`, shell layer: home at once by a person's order, store or not. Never decides."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED, FleetctlError, UsageError

if TYPE_CHECKING:
    from fleetctl.usecases.home import Failure


@click.command("fallback")
@click.argument("names", nargs=-1, metavar="[WORKLOAD|CELL]...")
@click.option("--all", "everything", is_flag=True, help="Every cell that has a way home.")
@click.option("--unproven", is_flag=True, help="Go home though no replica of the source answers (when the target fails too).")
@click.option("--reconcile", "only_reconcile", is_flag=True, help="Only tell the store of returns made while it was down.")
@click.option("--paper", is_flag=True, help="Print the raw commands for when fleetctl itself is gone.")
@dry_run_option
@output_option("table", "json")
@pass_app
def command(
    app: App, names: tuple[str, ...], everything: bool, unproven: bool, only_reconcile: bool, paper: bool, dry_run: bool, output: str
) -> None:
    """Bring workloads back to the source now: the router first; no plan, Terraform, approval, target or store is needed.

    \b
    Examples:
      fleetctl fallback chat              one workload
      fleetctl fallback --all             everything
    """
    from fleetctl.usecases.home import catch_up, choose, fallback, readable, reconcile

    w = app.wiring
    ports = w.home_ports()
    if only_reconcile:
        cells, why_not = reconcile(ports)
        _reconciled(cells, why_not)
        if why_not:
            sys.exit(EXIT_FAILED)
        more = catch_up(readable(w.ways_home)[0], ports, w.actor)
        _reconciled(more, "")
        if not cells and not more:
            click.echo("Nothing to reconcile.", err=True)
        return
    if not names and not everything:
        raise UsageError("usage.names", "say which workloads or cells, or --all.", hint="Run: fleetctl fallback WORKLOAD")
    good, refused = readable(w.ways_home)
    refused = tuple(f for f in refused if everything or f.cell in names)
    ways = choose(good, [n for n in names if n not in {f.cell for f in refused}], everything=everything) if good else ()
    if not good and not refused:
        choose(good, names)
    if paper or dry_run:
        for way in ways:
            click.echo(way.cell)
            for text in way.paper if paper else ():
                click.echo(f"    {text}")
        click.echo("Nothing was changed.", err=True)
        return
    click.echo(f"Going home: {', '.join(w.cell for w in ways)}", err=True)
    results = (*fallback(ways, ports, w.actor, unproven=unproven), *refused)
    home = [r for r in results if not _is_failure(r)]
    failed = [r for r in results if _is_failure(r)]
    slowest = max((r.ms_to_zero for r in home if not _is_failure(r)), default=0.0)  # type: ignore[union-attr]
    if output == "json":
        app.line("fallback", {"home": [_row(r) for r in results], "ms_to_zero": round(slowest, 1), "failed": len(failed)})
    else:
        for r in results:
            click.echo(_line(r))
        click.echo(f"{len(home)} of {len(results)} home; slowest to zero: {slowest:.0f} ms")
    _reconciled(*reconcile(ports))
    _rehearsed(app, [r for r in results if not _is_failure(r)])
    sys.exit(EXIT_FAILED if failed else EXIT_DONE)


def _rehearsed(app: App, home: list[object]) -> None:
    """Keep what was measured as rehearsals; the store may be down, and nobody waits for it."""
    from fleetctl.usecases.release import rehearsed

    w = app.wiring
    try:
        rehearsed(home, w.store, w.store, w.clock, w.actor)  # type: ignore[arg-type]
    except FleetctlError:
        return


def _is_failure(r: object) -> bool:
    from fleetctl.usecases.home import Failure

    return isinstance(r, Failure)


def _row(r: object) -> dict[str, object]:
    from fleetctl.domain.home import Returned

    if isinstance(r, Returned):
        return {"cell": r.cell, "ms_to_zero": round(r.ms_to_zero, 1), "was_bp": r.was_bp, "source_proven": r.source_proven}
    failure: Failure = r  # type: ignore[assignment]
    return {"cell": failure.cell, "error": failure.error.code, "message": failure.error.message}


def _line(r: object) -> str:
    from fleetctl.domain.home import Returned

    if not isinstance(r, Returned):
        error: FleetctlError = r.error  # type: ignore[attr-defined]
        return f"cell/{r.cell} NOT HOME {error}"  # type: ignore[attr-defined]
    if r.was_bp == 0:
        return f"cell/{r.cell} {r.reported or 'was home already'}"
    extra = "" if r.source_proven else ", source unproven"
    return f"cell/{r.cell} home: {r.was_bp / 100:g} % -> 0 % in {r.ms_to_zero:.0f} ms{extra}{f' ({r.reported})' if r.reported else ''}"


def _reconciled(cells: tuple[str, ...], why_not: str) -> None:
    if cells:
        click.echo(f"Store reconciled: {', '.join(cells)}", err=True)
    if why_not:
        click.echo(f"The store does not know yet ({why_not}). When it is back, run: fleetctl fallback --reconcile", err=True)
