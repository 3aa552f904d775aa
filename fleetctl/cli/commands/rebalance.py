"""`fleetctl rebalance`, shell layer: plan again from how things stand, within limits; begin it under a standing approval. Never decides."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_DONE

if TYPE_CHECKING:
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.rebalance import Limits, RebalanceRun, StandingApproval
    from fleetctl.rebalance.standing import Measured
    from fleetctl.usecases.rebalance import Proposal

CLASSES = ("batch", "online", "realtime")
MOVES_SHARE = 0.02
"""Of the cells, in a window, where --moves is not given. Source: the bar that churn is held to (docs/explanation/planning.md)."""


def _duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> timedelta | None:
    from fleetctl.formats.quantities import parse_duration

    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as e:
        raise click.BadParameter(str(e)) from e


def _share(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from fleetctl.formats.quantities import parse_ratio

    if value is None:
        return None
    try:
        return parse_ratio(value)
    except ValueError as e:
        raise click.BadParameter(str(e)) from e


@click.command("rebalance")
@click.option("--apply", "apply_", is_flag=True, help="Begin the moves, under a standing approval.")
@click.option("--approve", "approve_", is_flag=True, help="Sign a standing approval with these limits; needs --until.")
@click.option("--withdraw", metavar="ID", help="Take a standing approval back.")
@click.option("--standing", default="", metavar="ID", help="The standing approval to act under; the newest where it is left out.")
@click.option("--moves", type=click.IntRange(1), help="Cells in a window at most.  [default: 2 % of the cells, at least 1]")
@click.option("--share", callback=_share, help="Of the fleet's GPUs in a window at most, such as 5%.  [default: 10%]")
@click.option("--window", callback=_duration, help="In which moves are counted.  [default: 7d]")
@click.option("--dwell", callback=_duration, help="A cell that has moved stays for this long.  [default: 14d]")
@click.option("--payback", callback=_duration, help="In which a move must earn back its cost.  [default: the policy's horizon]")
@click.option("--min-saving", type=click.FloatRange(0), default=0.0, help="USD per hour and moved replica that a run must save.")
@click.option("--class", "classes", type=click.Choice(CLASSES), multiple=True, help="That may move; may be repeated.  [default: all]")
@click.option("--until", metavar="DATE", help="With --approve: the last day of the approval.")
@click.option("--install-timer", type=click.Choice(("systemd", "cron")), help="Run this command with --apply on a schedule.")
@click.option("--every", type=click.Choice(("hourly", "daily", "weekly")), default="weekly", show_default=True, help="With a timer.")
@dry_run_option
@output_option("table", "json", "yaml")
@pass_app
def command(app: App, /, output: str, dry_run: bool, **given: object) -> None:
    """Plan again from today's prices, capacity, measured demand and latency; say what would move, in either direction.

    Without --apply nothing is changed. With it the best moves within the limits go the ordinary way: provision, configure, migrate on
    evidence; a cell that is cheaper where it came from goes home.

    \b
    Examples:
      fleetctl rebalance
      fleetctl rebalance --approve --until 2027-03-31 --moves 5 --class batch
      fleetctl rebalance --apply
      fleetctl rebalance --install-timer systemd --every daily
    """
    limits = _limits(app, given)
    if given["withdraw"]:
        _withdraw(app, str(given["withdraw"]), dry_run)
    elif given["approve_"]:
        _approve(app, limits, given["until"], dry_run)
    elif given["install_timer"]:
        _install(app, str(given["install_timer"]), str(given["every"]), dry_run)
    elif given["apply_"] and not dry_run:
        sys.exit(_apply(app, limits, str(given["standing"]), output))
    else:
        _show(app, _propose(app, limits).run, output, dry=True)


def _limits(app: App, given: dict[str, object]) -> Limits:
    from dataclasses import replace

    from fleetctl.domain.rebalance import Limits

    fleet = app.wiring.fleet
    usual = Limits(moves=max(1, round(MOVES_SHARE * len(fleet.cells))), share=0.1, payback=fleet.policy.horizon)
    asked = {k: given[k] for k in ("moves", "share", "window", "dwell", "payback") if given[k] is not None}
    classes = given["classes"] or CLASSES
    return replace(usual, min_saving_usd=float(str(given["min_saving"])), classes=tuple(classes), **asked)  # type: ignore[arg-type]


def _propose(app: App, limits: Limits) -> Proposal:
    from fleetctl.usecases.rebalance import propose

    w = app.wiring
    return propose(w.fleet, w.plan_ports(), w.catalog, limits, _measured(app))


def _measured(app: App) -> dict[CellId, Measured]:
    """Return what the last look at the sources measured of each cell; {} where nobody looked."""
    from fleetctl.cli.commands.inventory import found_of
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.merge import source_kind
    from fleetctl.rebalance.standing import Measured

    scan = app.wiring.scans.newest() if app.wiring.fleet.sources else None
    if scan is None:
        return {}
    _, found = found_of(app, scan)
    out = {}
    for name, facts in found.by_cell.items():
        said = {k: facts.chosen.get(k) for k in ("requests_per_s", "p95_ms")}
        seen = {k: facts.number(k) for k, s in said.items() if s is not None and source_kind(s.source) != "file"}
        out[CellId(name)] = Measured(requests_per_s=seen.get("requests_per_s"), p95_ms=seen.get("p95_ms"))
    return out


def _show(app: App, run: RebalanceRun, output: str, *, dry: bool) -> None:
    from fleetctl.formats.output import as_json, as_yaml
    from fleetctl.views.rebalance import render_run

    if output == "json":
        app.out(as_json("rebalance", run))
    elif output == "yaml":
        app.out(as_yaml("rebalance", run))
    else:
        app.out(render_run(run, dry=dry).rstrip("\n"))


def _approve(app: App, limits: Limits, until: object, dry_run: bool) -> None:
    from datetime import date

    from fleetctl.domain.rebalance import StandingApproval
    from fleetctl.errors import UsageError
    from fleetctl.usecases.rebalance_apply import sign
    from fleetctl.views.rebalance import render_standing

    w = app.wiring
    try:
        last = date.fromisoformat(str(until))
    except ValueError:
        raise UsageError("usage.until", "a standing approval needs its last day.", hint="Add: --until 2027-03-31") from None
    if last < w.clock.now().date():
        raise UsageError("usage.until", f"{last} is over.", hint="Name a day to come")
    terms = StandingApproval(
        id="",
        lineage=w.fleet.lineage,
        moves=limits.moves,
        window=limits.window,
        share=limits.share,
        classes=limits.classes,
        until=last.isoformat(),
    )
    if dry_run:
        app.out(f"Would sign: {limits.moves} cells in {limits.window.days} days, until {last}\nNothing was changed.")
        return
    made, more = sign(terms, w.fleet, w.store, w.store, w.actor, w.clock.now())
    app.out(render_standing(made, more).rstrip("\n"))


def _withdraw(app: App, name: str, dry_run: bool) -> None:
    from fleetctl.usecases.rebalance_apply import withdraw

    w = app.wiring
    if dry_run:
        app.out(f"Would withdraw {name}\nNothing was changed.")
        return
    gone = withdraw(name, w.store, w.store, w.actor, w.clock.now())
    app.out(f"standing/{gone.id} withdrawn: no run begins anything under it. Moves under way go on: fleetctl abort CELL")


def _install(app: App, kind: str, every: str, dry_run: bool) -> None:
    job = app.wiring.timer_job(every)
    if dry_run:
        from fleetctl.adapters.timer.install import cron_line, unit_texts

        texts = {"crontab": cron_line(job)} if kind == "cron" else unit_texts(job, system=False)
        for name, text in texts.items():
            app.out(f"# {name}\n{text}")
        app.note("Nothing was changed.")
        return
    done = app.wiring.install_timer(kind, job)
    for path in done.files:
        app.out(path)
    app.note(f"It acts only under a standing approval. Look: {done.look}")


def _apply(app: App, limits: Limits, standing: str, output: str) -> int:
    from fleetctl.usecases.rebalance_apply import begin_run, narrowed, save, standing_approval, take_lease

    w = app.wiring
    lease = take_lease(w.store, w.holder, w.is_gone)
    try:
        approval = standing_approval(w.store, w.fleet, standing, w.clock.now())
        proposal = _propose(app, narrowed(limits, approval))
        plan = save(proposal, w.fleet, w.plan_ports(), approval)
        if plan is None:
            _show(app, proposal.run, output, dry=True)
            return EXIT_DONE
        w.save_ways_home(plan)
        _make(app, plan, approval)
        begun = begin_run(proposal, w.fleet, w.plan_ports(), approval)
    finally:
        w.store.release(lease)
    _show(app, begun.run, output, dry=False)
    return _follow(app, begun.cells, begun.home, output)


def _make(app: App, plan: Plan, approval: StandingApproval) -> None:
    """Make and prepare the pools of the plan as `provision` and `configure` do."""
    from fleetctl.cli.commands.configure import prepare
    from fleetctl.usecases.provision import provision
    from fleetctl.views.progress import ProgressView

    w = app.wiring
    if not plan.pools:
        return
    run = w.run_folder("provision")
    with ProgressView(live=app.live, title=f"provision under {approval.id}") as on:
        provision(plan, w.fleet, run, w.capacity_ports(run), on, apply=True)
    prepare(app, plan)


def _follow(app: App, cells: tuple[CellId, ...], home: tuple[CellId, ...], output: str) -> int:
    from fleetctl.cli.commands.migrate import run_cells

    every = (*cells, *home)
    return run_cells(app, every, None, "complete", wait=False, no_hold=False, output=output) if every else EXIT_DONE
