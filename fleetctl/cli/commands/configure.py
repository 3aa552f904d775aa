"""`fleetctl configure`, shell layer: prepare the plan's hosts with Ansible. Never decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.pool import Host


@click.command("configure")
@click.option("--plan", "plan_id", metavar="ID", help="The approved plan; the newest where it is left out.")
@dry_run_option
@output_option("table", "json")
@pass_app
def command(app: App, plan_id: str | None, dry_run: bool, output: str) -> None:
    """Prepare the hosts of the plan's pools: serving, then a health gate of real completions. A second run changes nothing."""
    from fleetctl.usecases.capacity import configure, known_hosts
    from fleetctl.usecases.migrate import approved_plan
    from fleetctl.views.progress import ProgressView

    w = app.wiring
    plan = approved_plan(w.store, w.fleet, plan_id)
    if not plan.pools:
        app.out("Nothing to prepare: every target exists already.")
        return
    if dry_run:
        hosts = known_hosts(w.store, [p.pool for p in plan.pools])
        app.out(f"Would run playbook serving.yml on: {', '.join(h.id for h in hosts) or 'no host yet (fleetctl provision)'}")
        app.note("Nothing was changed.")
        return
    run = w.run_folder("configure")
    with ProgressView(live=app.live and output != "json", title="configure") as on:
        results = configure(plan, w.capacity_ports(run), lambda hosts: _variables(app, plan, hosts), "serving", on)
    if output == "json":
        app.line("configure", results)
    else:
        for r in results:
            app.out(f"host/{r.host} {r.state}: {r.ok} ok, {r.changed} changed, {r.failed} failed, {r.skipped} skipped")
    app.note("Next: fleetctl migrate --phase canary")


def _variables(app: App, plan: Plan, hosts: Sequence[Host]) -> Mapping[str, object]:
    """Return what the lab's serving role needs per host. The only stack of this release is the lab."""
    from fleetctl.lab.configure import serving_variables

    return serving_variables(app.wiring.fleet, plan, hosts)
