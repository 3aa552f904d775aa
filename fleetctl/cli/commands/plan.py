"""`fleetctl plan`, shell layer: save a plan and print it. Never decides."""

from __future__ import annotations

import sys

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_CHANGES, EXIT_DONE


@click.command("plan")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where something would move.")
@click.option("--allow-dearer", is_flag=True, help="Move what can move even where staying is cheaper.")
@dry_run_option
@output_option("table", "json", "yaml", "name")
@pass_app
def command(app: App, detailed_exitcode: bool, allow_dearer: bool, dry_run: bool, output: str) -> None:
    """Save a plan and print it: cost, what moves, waves, fit, evidence needed. Changes nothing outside.

    \b
    Examples:
      fleetctl plan
      fleetctl plan -o json
    """
    from fleetctl.cli.commands.show import show_plan
    from fleetctl.planning.options import PlanOptions
    from fleetctl.usecases.plan import plan

    w = app.wiring
    made = plan(w.fleet, w.plan_ports(), save=not dry_run, options=PlanOptions(allow_dearer=allow_dearer))
    if not dry_run:
        w.save_ways_home(made)
    show_plan(app, made, output)
    moves = any(o.kind == "move" for o in made.outcomes)
    sys.exit(EXIT_CHANGES if detailed_exitcode and moves else EXIT_DONE)
