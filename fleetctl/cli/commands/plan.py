"""`fleetctl plan`, shell layer: save a plan and print it. Never decides."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_CHANGES, EXIT_DONE, FleetctlError

if TYPE_CHECKING:
    from fleetctl.domain.plan import Plan
    from fleetctl.planning.options import PlanOptions
    from fleetctl.usecases.plan import PlanPorts


@click.command("plan")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where something would move.")
@click.option("--allow-dearer", is_flag=True, help="Move all that find room, also where staying costs less.")
@click.option("--deadline", metavar="DATE", help="By when soaks should be over, such as 2027-01-31; says what will not fit.")
@click.option("--explain", metavar="WORKLOAD", help="Only say why this workload or cell moves, stays or is blocked; saves nothing.")
@click.option("--diff", "old", metavar="PLAN", help="Only say what a new plan would do otherwise than this saved one; saves nothing.")
@click.option("--sensitivity", is_flag=True, help="Also plan with AMD 10 % slower and faster and by each price book: what flips.")
@dry_run_option
@output_option()
@pass_app
def command(
    app: App,
    detailed_exitcode: bool,
    allow_dearer: bool,
    deadline: str | None,
    explain: str | None,
    old: str | None,
    sensitivity: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Save a plan and print it: cash, what moves, stays and is blocked, calendar, evidence needed. Changes nothing outside.

    \b
    Examples:
      fleetctl plan
      fleetctl plan --explain chat
      fleetctl plan --deadline 2027-01-31
      fleetctl plan --sensitivity
      fleetctl plan -o json

    Exit codes: 0 planned, also where checks of it are not met; 1 where targets that the fleet file pins cannot all be had (the plan of the
    others is saved, and may be approved); 3 with --detailed-exitcode where something would move.
    """
    from fleetctl.cli.commands.show import show_plan
    from fleetctl.errors import UsageError
    from fleetctl.planning.options import PlanOptions
    from fleetctl.usecases.plan import plan

    if sum((explain is not None, old is not None, sensitivity)) > 1:
        raise UsageError("usage.options", "--explain, --diff and --sensitivity do not go together.", hint="Name one of them.")
    options = PlanOptions(allow_dearer=allow_dearer, deadline=_date(deadline))
    if explain is not None:
        _explain(app, explain, options, output)
        return
    if old is not None:
        _diff(app, old, options, output)
        return
    w = app.wiring
    made = plan(w.fleet, _ports(app), save=not dry_run, options=options)
    if not dry_run:
        w.save_ways_home(made)
        _say_author(app, made)
    if sensitivity:
        _what_if(app, made, options, output, save=not dry_run)
    else:
        show_plan(app, made, output, saved=not dry_run)
    _refuse_conflict(made, saved=not dry_run)
    moves = any(o.kind == "move" and not o.arrived for o in made.outcomes)
    sys.exit(EXIT_CHANGES if detailed_exitcode and moves else EXIT_DONE)


def _say_author(app: App, made: Plan) -> None:
    """Say whether the plan's author is proven, where that counts."""
    from fleetctl.usecases.proof import of_plan

    w = app.wiring
    if not w.fleet.policy.require_signatures:
        return
    authors = of_plan(made, w.fleet, w.store, w.proof).authors
    if authors:
        app.note(f"Signed as its author: {', '.join(authors)}; the author's own approval does not count.")
    else:
        app.note("Its author is not proven (no usable SSH key, see fleetctl doctor), so one more person must approve it.")


def _refuse_conflict(made: Plan, *, saved: bool) -> None:
    """Fail where lines of the fleet file cannot all hold, though the plan of what can move is made."""
    conflict = next((c.detail for c in made.checks if c.name == "conflict" and not c.ok), None)
    if conflict is None:
        return
    text = "targets that the fleet file pins cannot all be had."
    hint = "Change one of the lines, then run: fleetctl plan"
    if saved and not made.is_stuck:
        hint += f"; or go on without the cells that are blocked: fleetctl approve {made.id}"
    raise FleetctlError("plan.conflict", text, hint=hint, details=(conflict,))


def _ports(app: App) -> PlanPorts:
    w = app.wiring
    return w.plan_ports(lambda c: w.router_of(c).read(c).target_bp)


def _date(text: str | None) -> datetime | None:
    """Return the end of a day (or an instant) that --deadline names."""
    from datetime import date, timedelta

    from fleetctl.errors import UsageError
    from fleetctl.formats.quantities import parse_instant

    if text is None:
        return None
    try:
        if len(text) == len("2027-01-31"):
            return parse_instant(f"{date.fromisoformat(text) + timedelta(days=1)}T00:00:00Z")
        return parse_instant(text)
    except (ValueError, OverflowError):
        raise UsageError("usage.deadline", f"{text!r} is no date.", hint="Write it as 2027-01-31") from None


def _explain(app: App, name: str, options: PlanOptions, output: str) -> None:
    from fleetctl.formats.output import as_json, as_yaml
    from fleetctl.planning.explain import explain
    from fleetctl.usecases.plan import work
    from fleetctl.views.plan_explain import render_explained

    worked = work(app.wiring.fleet, _ports(app), options)
    found = explain(worked, name)
    match output:
        case "json":
            app.out(as_json("explanation", found))
        case "yaml":
            app.out(as_yaml("explanation", found))
        case "name":
            app.out("\n".join(f"cell/{e.outcome.cell}" for e in found))
        case _:
            app.out(render_explained(worked.plan, found))


def _what_if(app: App, made: Plan, options: PlanOptions, output: str, *, save: bool) -> None:
    """Print the plan and what flips; as JSON or YAML only what flips (the plan has its own command)."""
    from fleetctl.cli.commands.show import show_plan
    from fleetctl.formats.output import as_json, as_yaml
    from fleetctl.usecases.sensitivity import sensitivity
    from fleetctl.views.plan_sensitivity import render_sensitivity

    found = sensitivity(app.wiring.fleet, made, _ports(app), options=options, books=app.wiring.books(), save=save)
    match output:
        case "json":
            app.out(as_json("sensitivity", found))
        case "yaml":
            app.out(as_yaml("sensitivity", found))
        case _:
            show_plan(app, made, output, saved=save)
            if output != "name":
                app.out(render_sensitivity(found))


def _diff(app: App, old: str, options: PlanOptions, output: str) -> None:
    from fleetctl.cli.commands.show import saved_plan
    from fleetctl.formats.output import as_json, as_yaml
    from fleetctl.planning.difference import difference
    from fleetctl.usecases.plan import plan
    from fleetctl.views.plan_difference import render_difference

    before = saved_plan(app, old)
    found = difference(before, plan(app.wiring.fleet, _ports(app), save=False, options=options))
    match output:
        case "json":
            app.out(as_json("plan.diff", found))
        case "yaml":
            app.out(as_yaml("plan.diff", found))
        case "name":
            app.out("\n".join(f"cell/{c.cell}" for c in found.cells))
        case _:
            app.out(render_difference(found))
