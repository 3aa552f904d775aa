"""`fleetctl runbook`, shell layer: what to do when something goes wrong, made for a cell. Never decides."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, Group, confirm_option, output_option, pass_app, require_confirmation

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.domain.ids import CellId
    from fleetctl.domain.runbook import Bound, Step, Timing
    from fleetctl.ports.runbook import Ended
    from fleetctl.usecases.runbook import Answer, RunPorts


@click.group("runbook", cls=Group)
def command() -> None:
    """What to do when something goes wrong, made for one cell from what is known of it now.

    Neither plan, Terraform nor store is needed; what cannot be read is said to be not known.

    \b
    Examples:
      fleetctl runbook show chat-lab      which one, and how things stand
      fleetctl runbook show chat-lab full-fallback
      fleetctl runbook run chat-lab full-fallback
    """


@command.command("list")
@output_option("table", "json", "name")
@pass_app
def list_(app: App, output: str) -> None:
    """Every runbook: what it is for, how severe, when it was rehearsed last."""
    from fleetctl.formats.runbook_file import ORDER, load_runbook
    from fleetctl.views.output import Column, Table
    from fleetctl.views.runbook import last_short, list_foot

    books = [load_runbook(name) for name in ORDER]
    done = app.wiring.rehearsals.all()
    last = {b.id: next((t for t in reversed(done) if t.runbook == b.id), None) for b in books}
    rows = tuple((b.id, b.severity, b.see, last_short(last[b.id])) for b in books)
    titles = (Column(title="RUNBOOK"), Column(title="SEV"), Column(title="IF YOU SEE", shrink=1), Column(title="REHEARSED"))
    value = [{"id": b.id, "severity": b.severity, "title": b.title, "see": b.see, "last": last[b.id]} for b in books]
    table = Table(columns=titles, rows=rows, foot=("", *list_foot(app.wiring.ways_home.cells())))
    app.show(output, "runbooks", value, table, tuple(f"runbook/{b.id}" for b in books))


@command.command("show")
@click.argument("cell", type=CELL, metavar="CELL|WORKLOAD")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Print every runbook, for a folder of paper.")
@output_option("table", "json")
@pass_app
def show(app: App, cell: str, name: str | None, everything: bool, output: str) -> None:
    """Print a runbook made for a cell; without NAME, which one is for what, and how things stand now."""
    from fleetctl.formats.runbook_file import ORDER, load_runbook
    from fleetctl.views.runbook import runbook_lines, triage_lines

    books = [load_runbook(name)] if name else [load_runbook(n) for n in ORDER]
    bounds = _bound(app, cell, [b.id for b in books])
    last = _last(app, bounds[0].cell)
    if output == "json":
        rows = [{"runbook": b.runbook, "last": last.get(b.runbook.id)} for b in bounds]
        app.line("runbook", {"cell": bounds[0].cell, "live": list(bounds[0].live.values()), "runbooks": rows})
    elif name or everything:
        for i, b in enumerate(bounds):
            app.out("\n".join([*(["", "=" * 80, ""] if i else []), *runbook_lines(b, last.get(b.runbook.id), app.width)]))
    else:
        app.out("\n".join(triage_lines(bounds, app.width)))


@command.command("run")
@click.argument("cell", type=CELL, metavar="CELL|WORKLOAD")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Ask for nothing; what is dangerous, a person's choice or done by hand is left out.")
@click.option("--again", is_flag=True, help="Begin anew, where an earlier run did not end.")
@confirm_option
@pass_app
def run(app: App, cell: str, name: str, yes: bool, again: bool, confirm: str | None) -> None:
    """Step through a runbook: each step is asked for, run, held against what it should print, and journalled.

    A run that was killed goes on at the step that did not finish. --yes never runs a dangerous step; that one asks for the cell's name.
    """
    from fleetctl.errors import UsageError
    from fleetctl.formats.runbook_file import load_runbook
    from fleetctl.usecases.runbook import walk

    load_runbook(name)
    if not yes and not sys.stdin.isatty():
        raise UsageError("usage.confirm", "each step of a runbook is asked for, and there is no terminal.", hint="Add: --yes")
    (bound,) = _bound(app, cell, [name])
    end = walk(bound, _run_ports(app, bound, _asker(app, bound, yes=yes, confirm=confirm)), again=again)
    skipped = sum(1 for line in end.lines if line.state == "skipped")
    left = f", {skipped} left out" if skipped else ""
    app.out(f"runbook/{name} of {bound.cell} is through{' (resumed)' if end.resumed else ''}{left}")


@command.command("drill")
@click.argument("cell", type=CELL, metavar="CELL|WORKLOAD")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--game-day", is_flag=True, help="Every runbook with a fault, one after the other; customers are sent back in between.")
@click.option(
    "--fault", type=click.Choice(("latency", "tail", "errors", "hang", "crash")), help="Break it so instead of the runbook's own."
)
@click.option("--mend", "only_mend", is_flag=True, help="Only take every fault of a rehearsal away, after one that was killed.")
@click.option("--goal", "goal_s", type=click.FloatRange(1, 3600), default=90.0, show_default=True, help="Seconds from fault to zero.")
@click.option("--watch", "watch_s", type=click.FloatRange(0, 600), default=60.0, show_default=True, help="Seconds to wait for the judge.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the report as JSON to this new file.")
@output_option("table", "json")
@pass_app
def drill(
    app: App,
    cell: str,
    names: tuple[str, ...],
    game_day: bool,
    fault: str | None,
    only_mend: bool,
    goal_s: float,
    watch_s: float,
    out: Path | None,
    output: str,
) -> None:
    """Rehearse runbooks (full-fallback by default): break it, wait until it is noticed, step through the runbook, and time it all.

    Only in a lab, or for a workload that the fleet file marks (drill), and only a cell that has traffic on its target. A runbook that would
    change a cell of neither is refused. What was measured of a way home is what `fleetctl release` asks for.
    """
    from fleetctl.cli.rehearse import Asked, place_of, rehearse
    from fleetctl.errors import RunbookFailed, UsageError
    from fleetctl.formats.runbook_file import ORDER, load_runbook

    if game_day and (names or fault):
        raise UsageError("usage.bad", "--game-day names the runbooks and faults itself.", hint="See: fleetctl runbook drill --help")
    if only_mend:
        (bound,) = _bound(app, cell, ["full-fallback"])
        place = place_of(app, bound.cell)
        if why := place.refuses(bound.cell):
            raise RunbookFailed("runbook.not_a_lab", f"{bound.cell} was not broken on purpose: {why}.", hint="Run: fleetctl lab status")
        place.mend(bound.cell)
        app.out(f"cell/{bound.cell} mended")
        return
    chosen = [n for n in ORDER if load_runbook(n).fault is not None] if game_day else list(names) or ["full-fallback"]
    asked = Asked(goal_s=goal_s, watch_s=watch_s, out=out, output=output, fault=fault or "")
    sys.exit(rehearse(app, cell, chosen, _bound, _run_ports, asked))


def _bound(app: App, cell: str, names: list[str]) -> list[Bound]:
    from fleetctl.domain.ids import CellId
    from fleetctl.errors import FleetctlError
    from fleetctl.formats.runbook_file import load_runbook
    from fleetctl.usecases.runbook import bind, find_cell, look

    ports = app.wiring.look_ports()
    way = find_cell(cell, ports)
    id_ = CellId(cell) if isinstance(way, FleetctlError) else way.cell
    live = look(id_, way, ports)
    return [bind(load_runbook(n), id_, way, live, ports) for n in names]


def _last(app: App, cell: CellId) -> dict[str, Timing]:
    return {t.runbook: t for t in app.wiring.rehearsals.all() if t.cell == cell}


def _run_ports(app: App, bound: Bound, ask: Callable[[Step, str], Answer]) -> RunPorts:
    from fleetctl.usecases.runbook import RunPorts

    w = app.wiring
    return RunPorts(
        commands=w.own_commands(),
        journal=w.journal(bound.cell, bound.runbook.id),
        clock=w.clock,
        actor=w.actor,
        ask=ask,
        tell=lambda step, ended, how: _tell(app, step, ended, how),
        note=w.note_event,
        warn=app.note,
    )


def _tell(app: App, step: Step, ended: Ended | None, how: str) -> None:
    from fleetctl.views.columns import clean
    from fleetctl.views.runbook import folded

    for line in (ended.output.splitlines()[-40:]) if ended is not None else ():
        app.note(f"    {clean(line)}")  # as the command printed it
    took = f" in {ended.seconds:.1f} s" if ended is not None else ""
    for line in folded(f"{step.id}: {how}{took}", app.width, "  "):
        app.note(line)


def _asker(app: App, bound: Bound, *, yes: bool, confirm: str | None) -> Callable[[Step, str], Answer]:
    """Return what asks for each step; a dangerous one needs the cell's name, whatever --yes says."""
    from fleetctl.views.columns import clean
    from fleetctl.views.runbook import command_lines, expected_text, folded

    def ask(step: Step, note: str) -> Answer:
        by_hand = folded(f"By hand: {clean(step.by_hand)}", app.width, "  ")
        for line in (
            *folded(f"{step.id}: {clean(step.text)}", app.width),
            *(folded(f"look first: {note}", app.width, "  ") if note else ()),
            *(command_lines(step.command, app.width, "  ") if step.command else by_hand),
            *folded(f"expect: {clean(expected_text(step))}; undo: {clean(step.undo)}", app.width, "  "),
        ):
            app.note(line)
        if step.danger and yes:
            app.note("  left out: --yes never runs a dangerous step")
            return "skip"
        if yes:
            return "skip" if step.choice or not step.command else "run"
        asked = "Is it done?" if not step.command else "Run it?"
        answer = click.prompt(asked, type=click.Choice(("y", "skip", "stop")), default="skip" if step.choice else "y", err=True)
        if answer == "y" and step.danger:
            require_confirmation(bound.cell, confirm, step.danger.rstrip(".").removeprefix("It "))
        return "run" if answer == "y" else "skip" if answer == "skip" else "stop"

    return ask
