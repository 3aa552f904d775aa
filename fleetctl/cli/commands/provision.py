"""`fleetctl provision`, shell layer: make the plan's pools with Terraform. Never decides."""

from __future__ import annotations

import sys
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_CHANGES, EXIT_DONE

if TYPE_CHECKING:
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.pool import PoolSpec
    from fleetctl.domain.provision import ProvisionPlan
    from fleetctl.usecases.capacity import ProvisionOutcome


_NOTICES_S = 20.0
"""Longest that a cloud is waited for to tell of the end of machines, by --check."""


@click.command("provision")
@click.argument("pools", nargs=-1, metavar="[POOL]...")
@click.option("--plan", "plan_id", metavar="ID", help="The approved plan; the newest where it is left out.")
@click.option(
    "--check", is_flag=True, help="Only tell drift, orphans, what is still to be made and what is to end; exit 3 where there is any."
)
@dry_run_option
@output_option("table", "json")
@pass_app
def command(app: App, pools: tuple[str, ...], plan_id: str | None, check: bool, dry_run: bool, output: str) -> None:
    """Make the target pools of the approved plan, or those named: Terraform plan, show, check, apply of that very file.

    A place that refuses is left for the next one that the fleet file allows; what a refusal left behind is removed. Run it again after
    anything: it goes on where it stopped, and changes nothing where nothing is to do.

    \b
    Examples:
      fleetctl provision --dry-run
      fleetctl provision mi300x-eastus2
      fleetctl provision --check
    """
    from fleetctl.errors import UsageError
    from fleetctl.usecases.migrate import approved_plan

    w = app.wiring
    plan = approved_plan(w.store, w.fleet, plan_id, w.proof)
    unknown = sorted(set(pools) - {p.pool for p in plan.pools})
    if unknown:
        raise UsageError("usage.pool", f"plan {plan.id} makes no pool {', '.join(unknown)}.", hint=f"Run: fleetctl show {plan.id}")
    lost = _unfinished(app, plan, output) if check else False
    if not plan.pools:
        blocked = sum(o.kind == "infeasible" for o in plan.outcomes)
        why = f"{blocked} cells are blocked, see: fleetctl show {plan.id}" if blocked else "every target exists already"
        app.out(f"Nothing to make: {why}.")
        sys.exit(EXIT_CHANGES if lost else EXIT_DONE)
    differs = _run(app, plan, pools, check=check, dry_run=dry_run, output=output)
    sys.exit(EXIT_CHANGES if (differs or lost) and check else EXIT_DONE)


def _unfinished(app: App, plan: Plan, output: str) -> bool:
    """Tell of tries that did not end of pools that the plan makes no more; return whether there are any."""
    from fleetctl.usecases.provision_causes import unfinished
    from fleetctl.views.provision import unfinished_lines

    found = unfinished(plan, app.wiring.store)
    for line in unfinished_lines(found, width=app.width):
        (app.note if output == "json" else app.out)(line)
    return bool(found)


def make_source(app: App, plan: Plan, output: str) -> None:
    """Make the pools of a plan that become a source again by a person's order to go home. Raises as usecases.provision."""
    _run(app, plan, (), check=False, dry_run=False, output=output, next_="")


def _run(
    app: App, plan: Plan, pools: tuple[str, ...], *, check: bool, dry_run: bool, output: str, next_: str = "Next: fleetctl configure"
) -> bool:
    """Provision and say what came of it; return whether anything differs from the plan. Pools that were done are told even if one fails."""
    from fleetctl.domain.ids import PoolId
    from fleetctl.usecases.provision import provision
    from fleetctl.views.progress import ProgressView
    from fleetctl.views.provision import drift_lines, notice_lines, outcome_lines, outcome_row, plan_lines

    w = app.wiring
    notices = w.notices_within(_NOTICES_S) if check else None
    run = w.run_folder("provision")
    applies = not (dry_run or check)
    rows: list[dict[str, object]] = []
    differs = False
    with ProgressView(live=app.live and output != "json", title="provision", now=monotonic) as on:

        def shown(spec: PoolSpec, what: ProvisionPlan, usd_per_hour: Decimal | None) -> None:
            for line in plan_lines(spec, what, usd_per_hour, by=w.price_of(spec)[1], width=app.width):
                on.say(line)

        def done(o: ProvisionOutcome) -> None:
            nonlocal differs
            if applies and next_:
                w.note_made()
            by = w.price_of(o.spec)[1]
            drift = w.provisioner(o.spec).drift(o.spec.pool) if check else ()
            told = notices.read(o.spec.pool) if notices is not None else ()
            changes = not o.shown.is_empty or o.shown.outputs_change or bool(o.findings)
            differs = differs or bool(drift or o.orphans or changes or any(s.severity == "critical" for s in told))
            rows.append(outcome_row(o, drift, told, by=by))
            if output != "json":
                for line in (
                    *outcome_lines(o, with_plan=not applies or o.done is None, by=by, width=app.width),
                    *drift_lines(drift, width=app.width),
                    *notice_lines(told, w.clock.now(), width=app.width),
                ):
                    app.out(line)

        try:
            ports, only = w.capacity_ports(run, shown=shown), [PoolId(p) for p in pools]
            provision(plan, w.fleet, run, ports, on, apply=applies, refuse=not check, only=only, done=done)
        finally:
            if output == "json":
                app.line("provision", rows)
    if next_:
        app.note(next_ if applies else "Nothing was changed.")
    return differs
