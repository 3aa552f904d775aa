"""`fleetctl rebalance`, shell layer: plan again from how things stand, within limits; begin it under a standing approval. Never decides."""

from __future__ import annotations

import sys
from datetime import timedelta
from math import isfinite
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
    from fleetctl.usecases.rebalance_apply import Begun

CLASSES = ("batch", "online", "realtime")
KINDS = ("systemd", "cron")
MOVES_SHARE = 0.02
"""Of the cells, in a window, where --moves is not given. Source: the bar that churn is held to (docs/explanation/planning.md)."""


def _duration(_ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    from fleetctl.formats.quantities import parse_duration

    if value is None:
        return None
    try:
        span = parse_duration(value)
    except ValueError as e:
        raise click.BadParameter(str(e)) from e
    if param.name != "dwell" and span < timedelta(hours=1):
        raise click.BadParameter("must be at least 1h: shorter, and nothing would count")
    return span


def _finite(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if not isfinite(value):
        raise click.BadParameter("must be a number of USD")
    return value


def _share(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from fleetctl.formats.quantities import parse_ratio

    if value is None:
        return None
    try:
        share = parse_ratio(value)
    except ValueError as e:
        raise click.BadParameter(str(e)) from e
    if not 0 < share <= 1:
        raise click.BadParameter("must be above 0% and at most 100%")
    return share


@click.command("rebalance")
@click.option("--apply", "apply_", is_flag=True, help="Begin the moves, under a standing approval.")
@click.option("--approve", "approve_", is_flag=True, help="Sign a standing approval with these limits; needs --until.")
@click.option("--withdraw", metavar="ID", help="Take a standing approval back.")
@click.option("--standing", default="", metavar="ID", help="The standing approval to act under; the newest where it is left out.")
@click.option("--moves", type=click.IntRange(1), help="Cells in a window at most.  [default: the approval's, else 2 % of the cells]")
@click.option("--share", callback=_share, help="Of the fleet's GPUs in a window, such as 5%.  [default: the approval's, else 10%]")
@click.option("--window", callback=_duration, help="In which moves are counted.  [default: the approval's, else 7d]")
@click.option("--dwell", callback=_duration, help="A cell that has moved stays for this long.  [default: 14d]")
@click.option("--payback", callback=_duration, help="In which a move must earn back its cost.  [default: the policy's horizon]")
@click.option(
    "--min-saving", type=click.FloatRange(0), default=0.0, callback=_finite, help="USD per hour and moved replica that a run must save."
)
@click.option(
    "--class", "classes", type=click.Choice(CLASSES), multiple=True, help="That may move; may be repeated.  [default: the approval's]"
)
@click.option("--until", metavar="DATE", help="With --approve: the last day of the approval.")
@click.option("--install-timer", type=click.Choice(KINDS), help="Run this command with --apply and these limits on a schedule.")
@click.option("--remove-timer", type=click.Choice(KINDS), help="Take that schedule away again.")
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
    _one_of(given)
    if given["withdraw"]:
        _withdraw(app, str(given["withdraw"]), dry_run)
    elif given["approve_"]:
        _approve(app, _limits(app, given, None), given["until"], dry_run)
    elif given["install_timer"]:
        _install(app, str(given["install_timer"]), str(given["every"]), _words(given), dry_run)
    elif given["remove_timer"]:
        _remove(app, str(given["remove_timer"]), dry_run)
    elif given["apply_"] and not dry_run:
        sys.exit(_apply(app, given, output))
    else:
        approval = _standing(app, str(given["standing"]))
        limits = _limits(app, given, approval)
        _show(app, _propose(app, limits).run, output, dry=True, limits=limits)


def _one_of(given: dict[str, object]) -> None:
    """Refuse two wishes in one command, of which one would be ignored."""
    from fleetctl.errors import UsageError

    wishes = {
        "--apply": "apply_",
        "--approve": "approve_",
        "--withdraw": "withdraw",
        "--install-timer": "install_timer",
        "--remove-timer": "remove_timer",
    }
    asked = [name for name, key in wishes.items() if given[key] not in (None, False)]
    if len(asked) > 1:
        raise UsageError("usage.rebalance", f"{' and '.join(asked)} are different wishes.", hint="Give one of them")
    if given["until"] and "--approve" not in asked:
        raise UsageError("usage.rebalance", "--until is of --approve.", hint="Run: fleetctl rebalance --help")


def _limits(app: App, given: dict[str, object], approval: StandingApproval | None) -> Limits:
    """Return the limits asked for, within the approval where there is one; what was not asked for is the approval's, or the default."""
    from dataclasses import replace

    from fleetctl.domain.rebalance import Limits
    from fleetctl.rebalance.hold import within

    fleet = app.wiring.fleet
    usual = Limits(moves=max(1, round(MOVES_SHARE * len(fleet.cells))), share=0.1, payback=fleet.policy.horizon)
    if approval is not None:
        usual = replace(usual, moves=approval.moves, share=approval.share, window=approval.window, classes=approval.classes)
    asked = {k: given[k] for k in ("moves", "share", "window", "dwell", "payback") if given[k] is not None}
    classes = given["classes"] or usual.classes
    limits = replace(usual, min_saving_usd=float(str(given["min_saving"])), classes=tuple(classes), **asked)  # type: ignore[arg-type]
    return limits if approval is None else within(limits, approval)


def _standing(app: App, name: str) -> StandingApproval | None:
    """Return the approval that a run would act under; None where none holds and none was named."""
    from fleetctl.errors import PlanStale
    from fleetctl.usecases.rebalance_apply import standing_approval

    w = app.wiring
    try:
        return standing_approval(w.store, w.fleet, name, w.clock.now(), w.proof)
    except PlanStale:
        if name:
            raise
        return None


def _words(given: dict[str, object]) -> tuple[str, ...]:
    """Return the limits that were given as words of a command line, for a timer's."""
    words: list[str] = []
    for name in ("standing", "moves", "share", "window", "dwell", "payback", "min_saving"):
        value = given[name]
        if value in (None, "", 0.0) and name in ("standing", "moves", "share", "min_saving"):
            continue
        if isinstance(value, timedelta):
            words += [f"--{name}", f"{value.total_seconds():.0f}s"]
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", f"{float(str(value)) * 100:g}%" if name == "share" else str(value)]
    for one in given["classes"] if isinstance(given["classes"], tuple) else ():
        words += ["--class", str(one)]
    return tuple(words)


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


def _show(app: App, run: RebalanceRun, output: str, *, dry: bool, limits: Limits) -> None:
    from fleetctl.formats.output import as_json, as_yaml
    from fleetctl.views.rebalance import render_run

    if output == "json":
        app.out(as_json("rebalance", run))
    elif output == "yaml":
        app.out(as_yaml("rebalance", run))
    else:
        app.out(render_run(run, dry=dry, limits=limits, width=app.width).rstrip("\n"))


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
    made, more = sign(terms, w.fleet, w.store, w.store, w.actor, w.clock.now(), w.proof)
    app.out(render_standing(made, more).rstrip("\n"))


def _withdraw(app: App, name: str, dry_run: bool) -> None:
    from fleetctl.usecases.rebalance_apply import withdraw

    w = app.wiring
    if dry_run:
        app.out(f"Would withdraw {name}\nNothing was changed.")
        return
    gone = withdraw(name, w.store, w.store, w.actor, w.clock.now())
    app.out(f"standing/{gone.id} withdrawn: no run begins anything under it. Moves under way go on: fleetctl abort CELL")


def _install(app: App, kind: str, every: str, words: tuple[str, ...], dry_run: bool) -> None:
    job = app.wiring.timer_job(every, words)
    if dry_run:
        from fleetctl.adapters.timer.install import cron_line, is_system, unit_texts

        texts = {"crontab": cron_line(job)} if kind == "cron" else unit_texts(job, system=is_system())
        for name, text in texts.items():
            app.out(f"# {name}\n{text}")
        app.note("Nothing was changed.")
        return
    done = app.wiring.install_timer(kind, job)
    for path in done.files:
        app.out(path)
    for text in done.notes:
        app.note(text)
    if _standing(app, "") is None:
        app.note("No standing approval holds yet: until one does, its runs change nothing. Next: fleetctl rebalance --approve --until DATE")
    app.note(f"Look: {done.look}. Take it away: fleetctl rebalance --remove-timer {kind}")


def _remove(app: App, kind: str, dry_run: bool) -> None:
    job = app.wiring.timer_job("weekly", ())
    if dry_run:
        app.out(f"Would take the {kind} timer {job.name} away\nNothing was changed.")
        return
    gone = app.wiring.remove_timer(kind, job)
    app.out("\n".join(f"removed {text}" for text in gone) or f"There is no {kind} timer {job.name}; nothing was changed.")


def _apply(app: App, given: dict[str, object], output: str) -> int:
    from fleetctl.usecases.rebalance_apply import begin_run, keep_lease, save, settle, standing_approval, take_lease
    from fleetctl.usecases.router_promises import ask_routers

    w = app.wiring
    lease = take_lease(w.store, w.holder, w.is_gone)
    try:
        for died in settle(w.store, w.store, w.clock.now()):
            app.note(f"The run {died.id} died while it began its moves; {len(died.begun)} of them had begun and go on.")
        approval = standing_approval(w.store, w.fleet, str(given["standing"]), w.clock.now(), w.proof)
        limits = _limits(app, given, approval)
        proposal = _propose(app, limits)
        plan = save(proposal, w.fleet, w.plan_ports(), approval)
        if plan is None:
            _show(app, proposal.run, output, dry=True, limits=limits)
            return EXIT_DONE
        ask_routers([o.cell for o in plan.outcomes if o.kind == "move"], w.fleet, w.router_of)
        w.save_ways_home(plan)
        _make(app, plan, approval)
        lease = keep_lease(w.store, lease)
        begun = begin_run(proposal, w.read_again(), w.plan_ports(), approval)
    finally:
        w.store.release(lease)
    _show(app, begun.run, output, dry=False, limits=limits)
    return _follow(app, begun, output)


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
        provision(plan, w.fleet, run, w.capacity_ports(run), on, apply=True, done=lambda _: w.note_made())
    prepare(app, plan)


def _follow(app: App, begun: Begun, output: str) -> int:
    """Bring home what returns first, which takes seconds; then go on with what has begun as `migrate` does."""
    from fleetctl.cli.commands.migrate import run_cells
    from fleetctl.usecases.migrate import Driver, follow_order

    w = app.wiring
    if begun.home:
        driver = Driver(ports=w.tick_ports(), settings=w.tick_settings(), on_tick=lambda _: None)
        try:
            ended = follow_order(driver, begun.home, lambda r: r is None or r.ended not in ("", "complete"))
        finally:
            driver.stop()
        for r in ended:
            if r is not None and output == "table":
                app.out(f"cell/{r.cell} is home")
    return run_cells(app, begun.cells, None, "complete", wait=False, no_hold=False, output=output) if begun.cells else EXIT_DONE
