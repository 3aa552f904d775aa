"""`fleetctl configure`, shell layer: prepare hosts with Ansible: those of the plan, or those of a nodes file. Never decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import ConfigureFailed, UsageError

if TYPE_CHECKING:
    from fleetctl.domain.ids import PoolId
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.pool import Host
    from fleetctl.domain.provision import HostResult
    from fleetctl.lab.units import Side


@click.command("configure")
@click.option("--plan", "plan_id", metavar="ID", help="The approved plan; the newest where it is left out.")
@click.option("--nodes", type=click.Path(path_type=Path), metavar="FILE", help="Prepare the hosts of this file instead of the plan's.")
@click.option(
    "--play",
    default="site",
    show_default=True,
    metavar="PLAY",
    help="Where a nodes file says what hosts become: site, health_gate, drain, fallback_nvidia, upgrade, uninstall.",
)
@click.option("--check", is_flag=True, help="Predict what would change; nothing is changed on any host.")
@click.option("--diff", is_flag=True, help="Keep what differs, line by line, in the run's output.")
@click.option("--limit", default="", metavar="PATTERN", help="Only hosts that match, such as node-1 or 'node-*'.")
@click.option("--tags", default="", metavar="ROLE,...", help="Only these roles, and the checks before them.")
@click.option("--resume", is_flag=True, help="With a nodes file: leave out hosts that the last run of this play has finished.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(1, 604_800),
    default=None,
    help="Longest run, in seconds; 3600 and what deep checks of the health gate may take, where it is left out.",
)
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
    timeout_s: int | None,
    dry_run: bool,
    output: str,
) -> None:
    """Prepare hosts, from bare VM to serving node: the plan's, or those of a nodes file.

    What a pool of the plan becomes is said by its nodes file (setting pool.NAME.nodes); emulated hosts need none.
    A second run changes nothing. What was interrupted is run again.
    """
    roles = tuple(t.strip() for t in tags.split(",") if t.strip())
    how = _How(play=play, check=check, diff=diff, limit=limit, tags=roles, resume=resume, timeout_s=timeout_s, output=output)
    if nodes is not None:
        _nodes(app, nodes, replace(how, check=check or dry_run))
    else:
        _plan(app, plan_id, how, dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """What the flags say; see the command's options."""

    play: str = "site"
    check: bool = False
    diff: bool = False
    limit: str = ""
    tags: Sequence[str] = ()
    resume: bool = False
    timeout_s: int | None = None
    output: str = "table"
    side: Side = "target"
    next_: str = ""


def _plan(app: App, plan_id: str | None, how: _How, dry_run: bool) -> None:
    from fleetctl.usecases.migrate import approved_plan

    w = app.wiring
    plan = approved_plan(w.store, w.fleet, plan_id, w.proof)
    if not plan.pools:
        app.out("Nothing to prepare: every target exists already.")
        return
    _pools(app, plan, how, dry_run)


def _pools(app: App, plan: Plan, how: _How, dry_run: bool) -> None:
    from fleetctl.usecases.capacity import known_hosts

    w = app.wiring
    files = _nodes_files(app, plan)
    for pool, path in files.items():
        hosts = known_hosts(w.store, [pool])
        if not hosts:
            raise ConfigureFailed("configure.no_hosts", f"no host of pool {pool} has been provisioned.", hint="Run: fleetctl provision")
        _nodes(app, path, replace(how, check=how.check or dry_run), hosts)
    rest = replace(plan, pools=tuple(p for p in plan.pools if p.pool not in files))
    if not rest.pools:
        return
    if how.play != "site":
        text = f"pool {rest.pools[0].pool} has no nodes file, so it has no play {how.play!r}."
        raise UsageError("usage.play", text, hint=f"Set pool.{rest.pools[0].pool}.nodes in the fleet file, or give --nodes FILE")
    _serve(app, rest, how, dry_run)


def _nodes_files(app: App, plan: Plan) -> dict[PoolId, Path]:
    """Return the nodes file of each pool of the plan that has one."""
    settings = app.wiring.fleet.settings
    return {p.pool: app.workspace / name for p in plan.pools if (name := settings.get(f"pool.{p.pool}.nodes", ""))}


def _serve(app: App, plan: Plan, how: _How, dry_run: bool) -> None:
    from fleetctl.usecases.capacity import configure, known_hosts
    from fleetctl.usecases.configure_nodes import chosen_hosts
    from fleetctl.views.progress import ProgressView

    w = app.wiring
    if dry_run:
        hosts = known_hosts(w.store, [p.pool for p in plan.pools])
        app.out(f"Would run playbook serving.yml on: {', '.join(h.id for h in hosts) or 'no host yet (fleetctl provision)'}")
        app.note("Nothing was changed.")
        return
    run = w.run_folder("configure")
    ports = w.capacity_ports(run, w.configurator(run, check=how.check, diff=how.diff, tags=how.tags))
    with ProgressView(live=app.live and how.output != "json", title="configure", many=True) as on:
        results = configure(
            plan,
            ports,
            lambda hosts: _variables(app, plan, hosts, how.side),
            "serving",
            on,
            choose=lambda hosts: chosen_hosts(hosts, how.limit),
        )
    _show(app, results, how, run, next_="fleetctl migrate --phase canary")


def prepare(app: App, plan: Plan) -> None:
    """Prepare every host of an approved plan. Raises ConfigureFailed (configure.*)."""
    _plan(app, plan.id, _How(), dry_run=False)


def prepare_source(app: App, plan: Plan, output: str) -> None:
    """Prepare every host of pools that become a source again by a person's order to go home. Raises ConfigureFailed (configure.*)."""
    _pools(app, plan, _How(output=output, side="source", next_="traffic goes home"), dry_run=False)


def _nodes(app: App, path: Path, how: _How, provisioned: Sequence[Host] = ()) -> None:
    """Prepare the hosts of a nodes file, or those that were provisioned for its pool as it says."""
    from fleetctl.catalog.matrix import load_matrix, parse_matrix
    from fleetctl.formats.nodes_file import read_nodes
    from fleetctl.usecases.configure_nodes import (
        Nodes,
        check_nodes,
        configure_nodes,
        longest_run,
        on_provisioned,
        refuse_unknown,
        variables_of,
    )
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
        vendor=file.vendor,
    )
    if provisioned:
        nodes = on_provisioned(nodes, provisioned)
    refuse_unknown(nodes, w.role_variables())
    pinned, warnings = check_nodes(nodes, matrix, w.clock.now().date())
    for d in warnings:
        app.note(f"warning[{d.code}]: {d.path}: {d.text}")
    variables = variables_of(nodes, pinned, w.playbooks_digest())
    timeout_s = longest_run(nodes, how.play, how.tags, w.deep_checks, how.timeout_s)
    run = w.run_folder("configure")
    ports = w.capacity_ports(run, w.node_configurator(run, file, check=how.check, diff=how.diff, tags=how.tags, timeout_s=timeout_s))
    with ProgressView(live=app.live and how.output != "json", title=f"configure {how.play}", many=True) as on:
        results = configure_nodes(
            nodes,
            how.play,
            variables,
            ports,
            on,
            limit=how.limit,
            resume=how.resume,
            check=how.check,
            tags=how.tags,
            values=w.node_values(path.parent, nodes, timeout_s),
        )
    if not results:
        app.out("Nothing to do: every host has been brought to the end of this play. Without --resume it is run again.")
        return
    _show(app, results, how, run, next_=_after(how.play, "" if provisioned else f" --nodes {app.shown(path)}"))


def _after(play: str, nodes: str) -> str:
    """Return the command that comes after a play; nodes: how the nodes file is named, "" for provisioned hosts."""
    again = f"fleetctl configure{nodes}"
    after = {
        "site": f"{again} --play health_gate" if nodes else "fleetctl migrate --phase canary",
        "drain": f"{again} --play uninstall",
    }
    return after.get(play, again)


def _show(app: App, results: Sequence[HostResult], how: _How, run: Path, next_: str) -> None:
    if how.output == "json":
        app.line("configure", results)
    else:
        for r in results:
            changed = f"{r.changed} would change" if how.check else f"{r.changed} changed"
            app.out(f"host/{r.host} {r.state}: {r.ok} ok, {changed}, {r.failed} failed, {r.skipped} skipped")
    if how.diff:
        app.note(f"What differs: {app.shown(run)}/ansible-1/output.log")
    app.note("Nothing was changed." if how.check else f"Next: {how.next_ or next_}")


def _variables(app: App, plan: Plan, hosts: Sequence[Host], side: Side) -> Mapping[str, object]:
    """Return what the lab's serving role needs per host. The only stack of this release is the lab."""
    from fleetctl.lab.configure import serving_variables

    return serving_variables(app.wiring.fleet, plan, hosts, side)
