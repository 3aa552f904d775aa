"""`fleetctl promote`, shell layer. Never decides."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.commands.orders import NAMES, REASON, cells_of, give_order
from fleetctl.cli.options import confirm_option, dry_run_option, pass_app, require_confirmation


@click.command("promote")
@NAMES
@REASON
@confirm_option
@dry_run_option
@pass_app
def command(app: App, cells: tuple[str, ...], reason: str, dry_run: bool, confirm: str | None) -> None:
    """Accept the current step as it is; what has failed cannot be promoted."""
    if not dry_run:
        for c in cells_of(app, cells):
            require_confirmation(c, confirm, f"lets {c} take its next step without a PASS")
    give_order(app, "promote", cells, reason, dry_run=dry_run)
