"""`fleetctl provision`, shell layer: make the plan's pools with Terraform. Never decides."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_CHANGES, EXIT_DONE

if TYPE_CHECKING:
    from fleetctl.domain.pool import PoolSpec
    from fleetctl.domain.provision import ProvisionPlan


@click.command("provision")
@click.option("--plan", "plan_id", metavar="ID", help="The approved plan; the newest where it is left out.")
@click.option("--check", is_flag=True, help="Only tell drift, orphans and what is still to be made; exit 3 where there is any.")
@dry_run_option
@output_option("table", "json")
@pass_app
def command(app: App, plan_id: str | None, check: bool, dry_run: bool, output: str) -> None:
    """Make the target pools of the approved plan: Terraform plan, show, check, apply of that very file.

    A place that refuses is left for the next one that the fleet file allows; what a refusal left behind is removed. Run it again after
    anything: it goes on where it stopped, and changes nothing where nothing is to do.

    \b
    Examples:
      fleetctl provision --dry-run
      fleetctl provision
      fleetctl provision --check
    """
    from fleetctl.usecases.migrate import approved_plan
    from fleetctl.usecases.provision import provision
    from fleetctl.views.progress import ProgressView
    from fleetctl.views.provision import drift_lines, outcome_lines, plan_lines

    w = app.wiring
    plan = approved_plan(w.store, w.fleet, plan_id)
    if not plan.pools:
        app.out("Nothing to make: every target exists already.")
        return
    run = w.run_folder("provision")
    applies = not (dry_run or check)

    def shown(spec: PoolSpec, what: ProvisionPlan, usd_per_hour: Decimal | None) -> None:
        for line in plan_lines(spec, what, usd_per_hour):
            app.note(line)

    with ProgressView(live=app.live and output != "json", title="provision") as on:
        outcomes = provision(plan, w.fleet, run, w.capacity_ports(run, shown=shown), on, apply=applies)
    drift = {o.spec.pool: w.provisioner(o.spec).drift(o.spec.pool) for o in outcomes} if check else {}
    if output == "json":
        kept = ("changes", "done", "hosts", "place", "attempts", "orphans", "usd_per_hour")
        rows = [(o, {k: getattr(o, k, None) or getattr(o.shown, k, None) for k in kept}) for o in outcomes]
        app.line("provision", [{"pool": o.spec.pool, **row, "drift": drift.get(o.spec.pool, ())} for o, row in rows])
    else:
        for o in outcomes:
            for line in (*outcome_lines(o, with_plan=not applies or o.done is None), *drift_lines(drift.get(o.spec.pool, ()))):
                app.out(line)
    app.note("Next: fleetctl configure" if applies else "Nothing was changed.")
    differs = any(drift.values()) or any(o.orphans or not o.shown.is_empty for o in outcomes)
    sys.exit(EXIT_CHANGES if check and differs else EXIT_DONE)
