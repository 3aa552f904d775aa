"""`fleetctl configure`, shell layer: prepare hosts with Ansible: those of the plan, or those of a nodes file. Never decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.pool import Host
    from fleetctl.domain.provision import HostResult


@click.command("configure")
@click.option("--plan", "plan_id", metavar="ID", help="The approved plan; the newest where it is left out.")
@click.option("--nodes", type=click.Path(path_type=Path), metavar="FILE", help="Prepare the hosts of this file instead of the plan's.")
@click.option(
    "--play", default="site", show_default=True, metavar="PLAY", help="With --nodes: site, health_gate, drain, upgrade, uninstall."
)
@click.option("--check", is_flag=True, help="Predict what would change; nothing is changed on any host.")
@click.option("--diff", is_flag=True, help="Keep what differs, line by line, in the run's output.")
@click.option("--limit", default="", metavar="PATTERN", help="Only hosts that match, such as node-1 or 'node-*'.")
@click.option("--tags", default="", metavar="ROLE,...", help="Only these roles, and the checks before them.")
@click.option("--resume", is_flag=True, help="With --nodes: leave out hosts that the last run of this play has finished.")
@click.option("--timeout", "timeout_s", type=click.IntRange(1, 86_400), default=3600, show_default=True, help="Longest run, in seconds.")
@dry_run_option
@output_option("table", "json")
@pass_app
def command(
    app: App,
    plan_id: str | None,
    nodes: Path | None,
    play: str,
    check: bool,
    diff: bool,
    limit: str,
    tags: str,
    resume: bool,
    timeout_s: int,
    dry_run: bool,
    output: str,
) -> None:
    """Prepare hosts: the plan's, to serve and prove it by real completions, or those of a nodes file, from bare VM to serving node.

    A second run changes nothing. What was interrupted is run again.
    """
    roles = tuple(t.strip() for t in tags.split(",") if t.strip())
    if nodes is not None:
        _nodes(app, nodes, play, check or dry_run, diff, limit, roles, resume, timeout_s, output)
    else:
        _plan(app, plan_id, check, diff, limit, roles, dry_run, output)


def _plan(app: App, plan_id: str | None, check: bool, diff: bool, limit: str, tags: Sequence[str], dry_run: bool, output: str) -> None:
    from fleetctl.usecases.capacity import configure, known_hosts
    from fleetctl.usecases.configure_nodes import chosen_hosts
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
    ports = w.capacity_ports(run, w.configurator(run, check=check, diff=diff, tags=tags))
    with ProgressView(live=app.live and output != "json", title="configure") as on:
        results = configure(
            plan, ports, lambda hosts: _variables(app, plan, hosts), "serving", on, choose=lambda hosts: chosen_hosts(hosts, limit)
        )
    _show(app, results, output, run, check, diff, next_="fleetctl migrate --phase canary")


def prepare(app: App, plan: Plan) -> None:
    """Prepare every host of an approved plan. Raises ConfigureFailed (configure.*)."""
    from fleetctl.usecases.capacity import configure
    from fleetctl.views.progress import ProgressView

    w = app.wiring
    run = w.run_folder("configure")
    ports = w.capacity_ports(run, w.configurator(run))
    with ProgressView(live=app.live, title="configure") as on:
        configure(plan, ports, lambda hosts: _variables(app, plan, hosts), "serving", on)


def _nodes(
    app: App, path: Path, play: str, check: bool, diff: bool, limit: str, tags: Sequence[str], resume: bool, timeout_s: int, output: str
) -> None:
    from fleetctl.catalog.matrix import load_matrix, parse_matrix
    from fleetctl.formats.nodes_file import read_nodes
    from fleetctl.usecases.configure_nodes import Nodes, check_nodes, configure_nodes, variables_of
    from fleetctl.views.progress import ProgressView

    w = app.wiring
    file = read_nodes(path)
    matrix = parse_matrix(file.matrix.read_text("utf-8"), app.shown(file.matrix)) if file.matrix else load_matrix()
    nodes = Nodes(
        pool=file.pool,
        hosts=file.hosts,
        wanted=file.wanted,
        roles=file.roles,
        by_host=file.by_host,
        pins=file.pins,
        keys=file.keys,
        stores=file.stores,
        models=file.models,
    )
    pinned, warnings = check_nodes(nodes, matrix, w.clock.now().date())
    for d in warnings:
        app.note(f"warning[{d.code}]: {d.path}: {d.text}")
    variables = variables_of(nodes, pinned, w.playbooks_digest())
    run = w.run_folder("configure")
    ports = w.capacity_ports(run, w.node_configurator(run, file, check=check, diff=diff, tags=tags, timeout_s=timeout_s))
    with ProgressView(live=app.live and output != "json", title=f"configure {play}") as on:
        results = configure_nodes(
            nodes,
            play,
            variables,
            ports,
            on,
            limit=limit,
            resume=resume,
            check=check,
            values=w.node_values(path.parent, nodes, timeout_s),
        )
    if not results:
        app.out("Nothing to do: every host has been brought to the end of this play. Without --resume it is run again.")
        return
    _show(app, results, output, run, check, diff, next_=f"fleetctl configure --nodes {app.shown(path)} --play health_gate")


def _show(app: App, results: Sequence[HostResult], output: str, run: Path, check: bool, diff: bool, next_: str) -> None:
    if output == "json":
        app.line("configure", results)
    else:
        for r in results:
            changed = f"{r.changed} would change" if check else f"{r.changed} changed"
            app.out(f"host/{r.host} {r.state}: {r.ok} ok, {changed}, {r.failed} failed, {r.skipped} skipped")
    if diff:
        app.note(f"What differs: {app.shown(run)}/ansible-1/output.log")
    app.note("Nothing was changed." if check else f"Next: {next_}")


def _variables(app: App, plan: Plan, hosts: Sequence[Host]) -> Mapping[str, object]:
    """Return what the lab's serving role needs per host. The only stack of this release is the lab."""
    from fleetctl.lab.configure import serving_variables

    return serving_variables(app.wiring.fleet, plan, hosts)
