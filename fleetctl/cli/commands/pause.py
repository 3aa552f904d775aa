"""`fleetctl pause`, shell layer. Never decides."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.commands.orders import NAMES, REASON, give_order
from fleetctl.cli.options import dry_run_option, pass_app


@click.command("pause")
@NAMES
@REASON
@dry_run_option
@pass_app
def command(app: App, cells: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """Freeze advance; judging and rollback go on."""
    give_order(app, "pause", cells, reason, dry_run=dry_run)
