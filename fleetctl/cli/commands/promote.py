"""`fleetctl promote`, shell layer. Never decides."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.commands.orders import NAMES, REASON, cells_of, give_order
from fleetctl.cli.options import confirm_option, dry_run_option, pass_app, require_confirmation


@click.command("promote")
@NAMES
@REASON
@click.option("--lift-cap", is_flag=True, help="The source is lost: send everybody to the target. Two people must say so.")
@confirm_option
@dry_run_option
@pass_app
def command(app: App, cells: tuple[str, ...], reason: str, lift_cap: bool, dry_run: bool, confirm: str | None) -> None:
    """Accept the current step as it is; what has failed cannot be promoted.

    --lift-cap works on cells with on_source_loss: lift_after_two_signatures, once two people gave it and the source answers no completion.
    """
    if lift_cap:
        _lift(app, cells, reason, dry_run=dry_run, confirm=confirm)
        return
    if not dry_run:
        for c in cells_of(app, cells):
            require_confirmation(c, confirm, f"lets {c} take its next step without a PASS")
    give_order(app, "promote", cells, reason, dry_run=dry_run)


def _lift(app: App, cells: tuple[str, ...], reason: str, *, dry_run: bool, confirm: str | None) -> None:
    from fleetctl.errors import UsageError

    for c in cells_of(app, cells):
        r = app.wiring.store.load(c)
        if r is None or r.spec.on_source_loss != "lift_after_two_signatures":
            text = f"the plan of {c} does not let anybody lift its cap (on_source_loss)."
            raise UsageError("usage.lift_cap", text, hint=f"To go home: fleetctl fallback {c}")
        if not dry_run:
            require_confirmation(c, confirm, f"sends all customers of {c} to its target once a second person says so too")
    give_order(app, "lift", cells, reason, dry_run=dry_run)
