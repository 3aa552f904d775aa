"""`promote`, `pause`, `resume`, `retry`, `abort`, `rollback`, shell layer: orders as rows that the next tick obeys. Never decides."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import app, confirm_name
from fleetctl.errors import FleetctlError

if TYPE_CHECKING:
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.rollout import OrderKind, Rollout


def _cells(names: Sequence[str]) -> tuple[CellId, ...]:
    """Resolve cell and workload names to cells that have a rollout."""
    a = app()
    known = a.store().cells()
    workload = {c.id: c.workload for c in a.fleet().cells}
    unknown = [n for n in names if n not in known and n not in {workload.get(c) for c in known}]
    if unknown:
        raise FleetctlError("rollout.unknown", f"nothing called {', '.join(unknown)} is moving.", hint="Run: fleetctl status")
    return tuple(c for c in known if c in names or workload.get(c) in names)


def _order(kind: OrderKind, names: Sequence[str], note: str, *, dry_run: bool, wait: bool = False) -> tuple[Rollout | None, ...]:
    from fleetctl.domain.rollout import Order
    from fleetctl.usecases.migrate import Driver, follow

    a = app()
    cells = _cells(names)
    if dry_run:
        click.echo(f"Would order {kind}: {', '.join(cells)}\nNothing was changed.")
        return ()
    for c in cells:
        a.store().order(c, Order(kind=kind, actor=a.actor(), at=a.clock().now(), note=note))
    driver = Driver(ports=a.tick_ports(), settings=a.tick_settings(), on_tick=lambda _: None)
    try:
        done = (lambda r: r is None or bool(r.ended)) if wait else (lambda r: r is None or not r.orders)
        rollouts = follow(driver, cells, done, lambda _: None, lambda: False)
    finally:
        driver.stop()
    for r in rollouts:
        if r is not None:
            said = r.ended.replace("_", " ") or f"{_PAST[kind]}, {r.phase} at {r.weight_bp / 100:g} %"
            click.echo(f"cell/{r.cell} {said}")
    return rollouts


_PAST = {
    "promote": "promoted",
    "pause": "paused",
    "resume": "resumed",
    "abort": "aborting",
    "rollback": "rolled back one step",
    "fallback": "falling back",
    "advance": "advancing",
    "retry": "retrying",
}
_NAMES = click.argument("cells", nargs=-1, required=True, metavar="CELL|WORKLOAD...")
_DRY = click.option("--dry-run", is_flag=True, help="Say what would be done and exit.")
_NOTE = click.option("--reason", default="", help="Kept with the order in the audit log.")


@click.command("promote")
@_NAMES
@_NOTE
@_DRY
@click.option("--confirm", metavar="NAME", help="Name of the cell; needed to promote past INCONCLUSIVE without a terminal.")
def promote(cells: tuple[str, ...], reason: str, dry_run: bool, confirm: str | None) -> None:
    """Accept the current step as it is; what has failed cannot be promoted."""
    if not dry_run:
        for c in _cells(cells):
            confirm_name(c, confirm, f"{c} will take its next step without a PASS.")
    _order("promote", cells, reason, dry_run=dry_run)


@click.command("pause")
@_NAMES
@_NOTE
@_DRY
def pause(cells: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """Freeze advance; judging and rollback go on."""
    _order("pause", cells, reason, dry_run=dry_run)


@click.command("resume")
@_NAMES
@_NOTE
@_DRY
def resume(cells: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """Thaw advance."""
    _order("resume", cells, reason, dry_run=dry_run)


@click.command("abort")
@_NAMES
@_NOTE
@_DRY
def abort(cells: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """Stop the migration of a cell and go home; terminal until `fleetctl retry`."""
    _order("abort", cells, reason, dry_run=dry_run, wait=True)


@click.command("rollback")
@_NAMES
@_NOTE
@_DRY
def rollback(cells: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """Go one step lower; evidence restarts there."""
    _order("rollback", cells, reason, dry_run=dry_run)


@click.command("retry")
@_NAMES
@_DRY
def retry(cells: tuple[str, ...], dry_run: bool) -> None:
    """Start a cell again that went home, on the same plan."""
    from fleetctl.usecases import migrate

    a = app()
    chosen = _cells(cells)
    if dry_run:
        click.echo(f"Would start again: {', '.join(chosen)}\nNothing was changed.")
        return
    plan = migrate.approved_plan(a.store(), a.fleet(), None)
    for c in chosen:
        migrate.retry(plan, a.fleet(), c, a.store(), a.clock(), a.actor())
        click.echo(f"cell/{c} started again")
    click.echo("Next: fleetctl migrate", err=True)
    sys.exit(0)
