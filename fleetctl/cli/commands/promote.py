"""`fleetctl promote`, shell layer. Never decides."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from fleetctl.cli.app import App
from fleetctl.cli.commands.orders import NAMES, REASON, cells_of, give_order
from fleetctl.cli.options import confirm_option, dry_run_option, pass_app, require_confirmation
from fleetctl.errors import EXIT_PENDING, UsageError


@click.command("promote")
@NAMES
@REASON
@click.option("--lift-cap", is_flag=True, help="Ask that the target may serve all while the source is dead; two others must sign.")
@confirm_option
@dry_run_option
@pass_app
def command(app: App, cells: tuple[str, ...], reason: str, lift_cap: bool, dry_run: bool, confirm: str | None) -> None:
    """Accept the current step as it is; what has failed cannot be promoted, and no word shortens a soak.

    --lift-cap works on cells with on_source_loss: lift_after_two_signatures while their source answers no completion, under a policy with
    require_signatures: two people besides you sign within 15 minutes (fleetctl approve LIFT).
    """
    if lift_cap:
        _ask(app, cells, reason, dry_run=dry_run, confirm=confirm)
    if not dry_run:
        for c in cells_of(app, cells):
            require_confirmation(c, confirm, f"lets {c} take its next step without a PASS")
    give_order(app, "promote", cells, reason, dry_run=dry_run)


def _ask(app: App, cells: tuple[str, ...], reason: str, *, dry_run: bool, confirm: str | None) -> NoReturn:
    from fleetctl.usecases.lift import ask_lift

    found = cells_of(app, cells)
    if len(found) != 1:
        raise UsageError("usage.names", "a cap is lifted for one cell at a time.", hint="Name one cell")
    if dry_run:
        app.out(f"Would ask to lift the cap of {found[0]}\nNothing was changed.")
        sys.exit(0)
    require_confirmation(found[0], confirm, f"asks to lift the cap of {found[0]}")
    w = app.wiring
    wish = ask_lift(found[0], w.fleet, w.lift_ports(), reason)
    app.out(f"lift/{wish.id} of cell/{wish.cell} is asked for; no traffic was changed")
    app.note(f"Two others sign it until {wish.until:%H:%M} UTC, each: fleetctl approve {wish.id}")
    sys.exit(EXIT_PENDING)
