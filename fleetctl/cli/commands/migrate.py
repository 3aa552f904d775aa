"""`fleetctl migrate`, shell layer: bring the current wave up to and through a phase. Never decides."""

from __future__ import annotations

import signal
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_PENDING, EXIT_ROLLED_BACK, OutputFailed

if TYPE_CHECKING:
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.rollout import Rollout
    from fleetctl.usecases.migrate import Driver

PHASES = ("preflight", "shadow", "canary", "ramp", "full", "soak")


@click.command("migrate")
@click.argument("cells", nargs=-1, metavar="[CELL|WORKLOAD]...")
@click.option("--phase", type=click.Choice(PHASES), help="Stop raising after this phase; without it: go on to soak.")
@click.option("--plan", "plan_id", metavar="ID", help="The approved plan; the newest where it is left out.")
@click.option("--wait", is_flag=True, help="Stay until soak is over and everything is on the target.")
@click.option("--no-hold", is_flag=True, help="Without a resident ticker: take the cells home again before exit.")
@click.option(
    "--detach",
    type=click.Choice(("systemd", "cron", "off")),
    is_flag=False,
    flag_value="systemd",
    help="Begin, and leave the ticking to a timer, which a reboot starts again (systemd where none is named); off takes it away.",
)
@click.option("--tick", "only_tick", is_flag=True, hidden=True, help="Tick until nothing is under way: what that timer runs.")
@dry_run_option
@output_option("table", "json")
@pass_app
def command(
    app: App,
    cells: tuple[str, ...],
    phase: str | None,
    plan_id: str | None,
    wait: bool,
    no_hold: bool,
    detach: str | None,
    only_tick: bool,
    dry_run: bool,
    output: str,
) -> None:
    """Move the current wave of the approved plan, step by step, on evidence.

    \b
    Examples:
      fleetctl migrate --phase canary     up to and through the canary phase
      fleetctl migrate                    on to soak (exit 8 while soak runs)
      fleetctl migrate chat-lab --wait    one cell, to its end
      fleetctl migrate --detach           nobody stays logged in
    """
    from fleetctl.usecases.budget import ask_budget, starting
    from fleetctl.usecases.migrate import approved_plan, arrived, begin, chosen_cells
    from fleetctl.usecases.router_promises import ask_routers

    if only_tick:
        from fleetctl.cli.resident import run_ticker

        run_ticker(app, to_the_end=True)
        return
    if detach == "off":
        _attach(app, dry_run)
        return
    w = app.wiring
    fleet = w.fleet
    plan = approved_plan(w.store, fleet, plan_id, w.proof)
    chosen = chosen_cells(plan, w.store, cells, arrived(plan, w.store, lambda c: w.router_of(c).read(c).target_bp))
    _announce(app, plan, chosen, phase, output, approvals=fleet.policy.approvals)
    w.check_evidence(chosen)
    ask_routers(starting(plan.id, chosen, w.store), fleet, w.router_of)
    _other_hands(app, plan, chosen, output)
    if dry_run or not chosen:
        click.echo("Nothing was changed.", err=True)
        return
    until = phase or "complete"
    ask_budget(plan.id, chosen, w.store, w.budget)
    if detach:
        _install(app, detach)  # before anything begins: no weight without somebody to judge it
    begin(plan, fleet, chosen, until, w.store, w.clock, w.actor)  # type: ignore[arg-type]
    if detach:
        click.echo("Begun; the timer ticks. Look: fleetctl status --watch", err=True)
        sys.exit(EXIT_PENDING)
    sys.exit(run_cells(app, chosen, phase, until, wait=wait, no_hold=no_hold, output=output))


def _install(app: App, kind: str) -> None:
    """Have a timer tick from now on, also after a reboot."""
    done = app.wiring.install_timer(kind, app.wiring.ticker_job())
    for text in (
        *done.notes,
        f"Ticks by a timer: {', '.join(done.files)}",
        f"Look: {done.look}. Take it away: fleetctl migrate --detach off",
    ):
        click.echo(text, err=True)


def _attach(app: App, dry_run: bool) -> None:
    """Take the timer away, of whichever kind it is; what it has begun goes on to its end."""
    from fleetctl.errors import ToolMissing

    job = app.wiring.ticker_job()
    if dry_run:
        app.out(f"Would take the timer {job.name} away\nNothing was changed.")
        return
    gone: list[str] = []
    for kind in ("systemd", "cron"):
        try:
            gone += app.wiring.remove_timer(kind, job)
        except ToolMissing:
            continue
    app.out("\n".join(f"removed {text}" for text in gone) or f"There is no timer {job.name}; nothing was changed.")


def _announce(app: App, plan: Plan, cells: Sequence[str], phase: str | None, output: str, *, approvals: int) -> None:
    if output == "json":
        app.line("migrate.begin", {"plan": plan.id, "cells": list(cells), "phase": phase or "soak"})
        return
    if approvals == 0:
        click.echo(f"Plan {plan.id}: policy asks for no approval, so the newest plan counts as approved.", err=True)
    wave = next((w.index for w in plan.waves if set(cells) <= set(w.cells)), None)
    head = f"Wave {wave}: " if wave is not None and cells else ""
    click.echo(f"{head}{', '.join(cells) or 'every cell is where it should be'}", err=True)


MOST_ASKED = 20
"""Cells whose pools and routes are asked about before the command begins; each one's own preflight asks again and puts it on record."""


def _other_hands(app: App, plan: Plan, cells: Sequence[CellId], output: str) -> None:
    """Say who else writes these cells' pools and routes, and what nobody could tell."""
    from fleetctl.usecases.holds import said_of
    from fleetctl.views.columns import clean

    ways = {o.cell: tuple(p for p in (o.source, o.target) if p is not None) for o in plan.outcomes}
    said = dict.fromkeys(s for c in cells[:MOST_ASKED] for s in said_of(app.wiring.holds.found(c, ways.get(c, ()))))
    for s in said:
        if output == "json":
            app.line("migrate.hands", {"kind": s.kind, "text": s.text})
        else:
            click.echo(f"Other hands: {clean(s.text)}", err=True)


class _Stop:
    """First Ctrl-C: stop at the next safe point; a second one exits now."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def handle(self, number: int, frame: types.FrameType | None) -> None:
        if self.asked:
            sys.exit(EXIT_INTERRUPTED)
        self.asked = True


class Lines:
    """A stream of JSON lines; once nobody reads it, it asks to stop as Ctrl-C does, so that no weight is left behind unwatched."""

    def __init__(self, line: Callable[[str, object], None], stop: _Stop) -> None:
        self._line, self._stop = line, stop
        self.lost: OutputFailed | None = None

    def __call__(self, kind: str, value: object) -> None:
        """Write one line, unless an earlier one was lost."""
        if self.lost is None:
            try:
                self._line(kind, value)
            except OutputFailed as e:
                self.lost = e
                self._stop.asked = True

    def ended(self, code: int) -> int:
        """Return the exit code; raises OutputFailed where a line was lost."""
        if self.lost is not None:
            raise self.lost
        return code


def run_cells(app: App, cells: Sequence[CellId], phase: str | None, until: str, *, wait: bool, no_hold: bool, output: str) -> int:
    """Tick or watch cells that have begun, as the command does; returns the exit code."""
    from fleetctl.cli.commands.status import waits_for
    from fleetctl.usecases.migrate import Driver, Goal, follow, reached
    from fleetctl.views.columns import clean
    from fleetctl.views.migrate import MigrateView

    stop = _Stop()
    as_json = output == "json"

    def why() -> dict[str, str]:
        return {r.cell: clean(waits_for(r)) for r in app.wiring.status_rows()}

    lines = Lines(app.line, stop)
    view = MigrateView(why=why, stream=lines if as_json else None, tty=app.live and not as_json)
    driver = Driver(ports=app.wiring.tick_ports(), settings=app.wiring.tick_settings(), on_tick=lambda _: None)
    goal: Goal = "phase" if phase else ("complete" if wait else "soak")
    old = [(s, signal.signal(s, stop.handle)) for s in (signal.SIGINT, signal.SIGTERM)]
    try:
        with view:
            rollouts = follow(driver, cells, lambda r: reached(r, until, goal), view.show, stop)  # type: ignore[arg-type]
            code = _code(rollouts, until, goal, stop())
            alone = driver.lease is not None
            open_ = [r for r in rollouts if r is not None and not r.ended and r.weight_bp > 0]
            if alone and open_ and (stop() or no_hold):
                return lines.ended(_home(app, driver, cells, stop()))
            if alone and open_ and not stop():
                click.echo("No resident ticker: staying to judge and hold the weight. Ctrl-C takes these cells home.", err=True)
                rollouts = follow(driver, cells, lambda r: r is None or bool(r.ended), view.show, stop)
                if stop():
                    return lines.ended(_home(app, driver, cells, interrupted=True))
                code = _code(rollouts, until, "complete", False)
        lines.ended(code)
        _result(app, rollouts, output, stop())
        return code
    finally:
        driver.stop()
        for number, handler in old:
            signal.signal(number, handler)


def _home(app: App, driver: Driver, cells: Sequence[str], interrupted: bool) -> int:
    from fleetctl.usecases.migrate import take_home

    click.echo("Taking these cells home before leaving (nobody else would judge them) ...", err=True)
    take_home(driver, cells, app.wiring.actor, "nobody left to tick")  # type: ignore[arg-type]
    click.echo("Home. Run it again: fleetctl retry CELL, then fleetctl migrate", err=True)
    return EXIT_INTERRUPTED if interrupted else EXIT_DONE


def _code(rollouts: Sequence[Rollout | None], until: str, goal: str, interrupted: bool) -> int:
    from fleetctl.usecases.migrate import is_lowered, needs_person

    if interrupted:
        return EXIT_INTERRUPTED
    if any(r is not None and r.ended not in ("", "complete") for r in rollouts):
        return EXIT_ROLLED_BACK
    if any(needs_person(r) for r in rollouts):
        return EXIT_INCONCLUSIVE
    if any(r is not None and is_lowered(r, until) for r in rollouts):  # type: ignore[arg-type]
        return EXIT_PENDING
    if goal == "soak" and any(r is not None and not r.ended for r in rollouts):
        return EXIT_PENDING
    return EXIT_DONE


def _result(app: App, rollouts: Sequence[Rollout | None], output: str, interrupted: bool) -> None:
    rows = [
        {"cell": r.cell, "phase": r.phase, "weight_bp": r.weight_bp, "ended": r.ended, "hold": r.hold_reason}
        for r in rollouts
        if r is not None
    ]
    if output == "json":
        app.line("migrate.end", {"cells": rows})
        return
    for row in rows:
        state = {"": f"{row['phase']}, {int(str(row['weight_bp'])) / 100:g} % on the target"}.get(str(row["ended"]), str(row["ended"]))
        why = f" ({row['hold']})" if row["hold"] else ""
        click.echo(f"cell/{row['cell']} {state.replace('_', ' ')}{why}")
    if interrupted:
        click.echo("Detached; the resident ticker goes on. Look: fleetctl status --watch", err=True)
