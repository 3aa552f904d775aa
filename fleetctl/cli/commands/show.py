"""`fleetctl show`, shell layer: print a saved plan. Never decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.plan import Plan

WIDE = 140
"""Columns of `-o wide`."""


@click.command("show")
@click.argument("plan_id", metavar="[PLAN]", required=False)
@output_option()
@pass_app
def command(app: App, plan_id: str | None, output: str) -> None:
    """Print a saved plan: the named one, or the newest."""
    found = saved_plan(app, plan_id)
    show_plan(app, found, output)
    _warn(app, found)


def saved_plan(app: App, plan_id: str | None) -> Plan:
    """Return the named plan, or the newest.

    Raises:
        PlanStale: plan.missing.
    """
    from fleetctl.domain.plan import Plan
    from fleetctl.errors import PlanStale

    store = app.wiring.store
    found = store.get(Plan, plan_id) if plan_id else store.newest(Plan)
    if found is None:
        raise PlanStale("plan.missing", f"there is no plan{' ' + plan_id if plan_id else ''}.", hint="Run: fleetctl plan")
    return found


def _warn(app: App, plan: Plan) -> None:
    """Say on stderr that a plan is stale or not what was planned: approve, provision and migrate refuse it."""
    from fleetctl.errors import PlanStale
    from fleetctl.usecases.migrate import require_current, require_unchanged

    try:
        require_current(plan, app.wiring.fleet)
        require_unchanged(plan)
    except PlanStale as e:
        app.note(str(e))


def show_plan(app: App, plan: Plan, output: str, *, saved: bool = True) -> None:
    """Print a plan in the form that -o asks for."""
    from fleetctl.formats.output import as_json, as_yaml
    from fleetctl.views.columns import WIDTH
    from fleetctl.views.plan import render_plan

    match output:
        case "json":
            app.out(as_json("plan", plan))
        case "yaml":
            app.out(as_yaml("plan", plan))
        case "name":
            app.out(f"plan/{plan.id}")
        case _:
            wide = output == "wide"
            app.out(render_plan(plan, app.wiring.fleet, width=WIDE if wide else WIDTH, wide=wide, saved=saved))
