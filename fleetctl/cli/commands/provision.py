"""`fleetctl provision`, shell layer: make the plan's pools with Terraform. Never decides."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_CHANGES, EXIT_DONE

if TYPE_CHECKING:
    from fleetctl.usecases.capacity import ProvisionOutcome


@click.command("provision")
@click.option("--plan", "plan_id", metavar="ID", help="The approved plan; the newest where it is left out.")
@click.option("--check", is_flag=True, help="Only tell drift and what is still to be made; exit 3 where there is any.")
@dry_run_option
@output_option("table", "json")
@pass_app
def command(app: App, plan_id: str | None, check: bool, dry_run: bool, output: str) -> None:
    """Make the target pools of the approved plan: Terraform plan, show, check, apply of that very file."""
    from fleetctl.usecases.migrate import approved_plan
    from fleetctl.usecases.provision import provision
    from fleetctl.views.progress import ProgressView

    w = app.wiring
    plan = approved_plan(w.store, w.fleet, plan_id)
    if not plan.pools:
        app.out("Nothing to make: every target exists already.")
        return
    run = w.run_folder("provision")
    with ProgressView(live=app.live and output != "json", title="provision") as on:
        outcomes = provision(plan, w.fleet, run, w.capacity_ports(run), on, apply=not (dry_run or check))
    drift = [d for o in outcomes for d in w.provisioner(o.spec).drift(o.spec.pool)] if check else []
    if output == "json":
        app.line("provision", [{"pool": o.spec.pool, "changes": o.shown.changes, "done": o.done, "hosts": o.hosts} for o in outcomes])
    else:
        for o in outcomes:
            _print(app, o)
        for d in drift:
            app.out(f"  drift: {d.path}: {d.text}")
    if dry_run or check:
        app.note("Nothing was changed.")
    elif not check:
        app.note("Next: fleetctl configure")
    sys.exit(EXIT_CHANGES if check and (drift or any(not o.shown.is_empty for o in outcomes)) else EXIT_DONE)


def _print(app: App, o: ProvisionOutcome) -> None:
    app.out(f"pool/{o.spec.pool} ({o.spec.count} x {o.spec.sku} in {o.spec.region}, stack {o.shown.stack}, {o.shown.tool})")
    signs = {"create": "+", "update": "~", "delete": "-", "no-op": " ", "read": " "}
    for c in o.shown.changes:
        sign = "/".join(signs.get(a, "?") for a in c.actions)
        if sign.strip():
            app.out(f"  {sign} {c.address}")
    for f in o.findings:
        app.out(f"  {f.severity}: {f.path}: {f.text}")
    if o.done is not None:
        app.out(f"  applied in {o.done.seconds:.1f} s: {o.done.added} added, {o.done.changed} changed, {o.done.destroyed} destroyed")
    elif o.shown.is_empty:
        app.out("  no changes: it is as planned")
    if o.hosts:
        app.out(f"  hosts: {', '.join(h.id for h in o.hosts)}")
