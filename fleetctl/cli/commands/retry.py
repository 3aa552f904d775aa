"""`fleetctl retry`, shell layer. Never decides."""

from __future__ import annotations

import click

from fleetctl.cli.app import App
from fleetctl.cli.commands.orders import NAMES, cells_of
from fleetctl.cli.options import dry_run_option, pass_app


@click.command("retry")
@NAMES
@dry_run_option
@pass_app
def command(app: App, cells: tuple[str, ...], dry_run: bool) -> None:
    """Start a cell again that went home, on the same plan."""
    from fleetctl.usecases import migrate
    from fleetctl.usecases.router_promises import ask_routers

    w = app.wiring
    chosen = cells_of(app, cells)
    if dry_run:
        for c in chosen:
            migrate.retryable(c, w.store)
        app.out(f"Would start again: {', '.join(chosen)}\nNothing was changed.")
        return
    plan = migrate.approved_plan(w.store, w.fleet, None, w.proof)
    ask_routers(chosen, w.fleet, w.router_of)
    if w.budget is not None:
        w.budget(chosen)
    migrate.retry(plan, w.fleet, chosen, w.store, w.clock, w.actor)
    for c in chosen:
        app.out(f"cell/{c} started again")
    app.note("Next: fleetctl migrate")
