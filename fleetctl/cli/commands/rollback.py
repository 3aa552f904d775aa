"""`fleetctl rollback`, shell layer. Never decides."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.commands.orders import NAMES, REASON, give_order
from fleetctl.cli.options import dry_run_option, pass_app


@click.command("rollback")
@NAMES
@REASON
@dry_run_option
@pass_app
def command(app: App, cells: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """Go one step lower; evidence restarts there."""
    give_order(app, "rollback", cells, reason, dry_run=dry_run)
