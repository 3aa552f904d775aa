"""`fleetctl rollback`, shell layer. Never decides."""

from __future__ import annotations

import sys

import click

from fleetctl.cli.app import App
from fleetctl.cli.commands.orders import NAMES, REASON, give_order
from fleetctl.cli.options import dry_run_option, pass_app
from fleetctl.errors import EXIT_PENDING


@click.command("rollback")
@NAMES
@REASON
@dry_run_option
@pass_app
def command(app: App, cells: tuple[str, ...], reason: str, dry_run: bool) -> None:
    """Go one step lower; evidence restarts there. Exit 8 where the source cannot take all of it yet."""
    from fleetctl.rollout.steps import is_above

    rollouts = give_order(app, "rollback", cells, reason, dry_run=dry_run)
    if any(r is not None and not r.ended and is_above(r) for r in rollouts):
        sys.exit(EXIT_PENDING)
