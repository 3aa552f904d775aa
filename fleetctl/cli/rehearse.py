"""`fleetctl runbook drill`, shell layer: puts a place behind rehearsals and writes their report. Never decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.app import App
from fleetctl.errors import EXIT_DONE, EXIT_FAILED, FleetctlError, RunbookFailed

if TYPE_CHECKING:
    from fleetctl.domain.event import Event
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.provision import Drill
    from fleetctl.domain.runbook import Bound, Step
    from fleetctl.ports.runbook import Breakable
    from fleetctl.usecases.drill import DrillPorts, Rehearsed
    from fleetctl.usecases.runbook import Answer, RunPorts

MakeBound = Callable[[App, str, list[str]], "list[Bound]"]
MakePorts = Callable[[App, "Bound", Callable[["Step", str], "Answer"]], "RunPorts"]
AGAIN_S = 600.0
"""How long bringing customers back to the target between two rehearsals may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asked for: goal from fault to zero and patience for the judge, seconds; where else the report goes, in which form."""

    goal_s: float
    watch_s: float
    out: Path | None
    output: str
    fault: str = ""


def place_of(app: App, cell: CellId) -> Breakable:
    """Return where a cell may be broken: its lab, else its own workload's mark; what neither allows refuses by itself."""
    from fleetctl.adapters.runbooks.marked import MarkedBreakable
    from fleetctl.lab.breakable import LabBreakable

    lab = LabBreakable(app.workspace, app.settings.store)
    if not lab.refuses(cell):
        return lab
    try:
        fleet = app.wiring.fleet
    except FleetctlError:
        return lab
    marks = {c.id: fleet.workload(c.workload).drill for c in fleet.cells}
    return MarkedBreakable(marks.get, app.workspace) if marks.get(cell) is not None else lab


def rehearse(app: App, cell: str, names: Sequence[str], bind: MakeBound, make: MakePorts, asked: Asked) -> int:
    """Rehearse one runbook after the other, print the report and write it beside the others; return 1 where one is not green."""
    from fleetctl.usecases import drill
    from fleetctl.usecases.runbook import find_cell

    if asked.out is not None and asked.out.exists():
        raise RunbookFailed("runbook.report_there", f"{asked.out} is there already.", hint="Name a new file with --out")
    done: list[Rehearsed] = []
    for name in names:
        bound = _with_fault(bind(app, cell, [name])[0], asked.fault)
        ports = _ports(app, bound, make)
        way = find_cell(bound.cell, ports.look)
        if done and not isinstance(way, FleetctlError) and ports.look.home.router(way).read(way.cell).target_bp == 0:
            _send_back(app, bound.cell)
        drill.refuse(bound, way, ports)
        app.note(f"Breaking {bound.cell} on purpose ({bound.runbook.fault.kind if bound.runbook.fault else ''}); it is mended at the end.")
        done.append(drill.rehearse(bound, way, ports, goal_s=asked.goal_s, watch_s=asked.watch_s))
    _report(app, done, asked)
    return EXIT_DONE if all(d.timing.is_ok for d in done) else EXIT_FAILED


def _ports(app: App, bound: Bound, make: MakePorts) -> DrillPorts:
    from fleetctl.usecases import drill, drills

    def events() -> tuple[Event, ...]:
        try:
            return tuple(app.wiring.store.events(bound.cell, 0))
        except FleetctlError:
            return ()

    def keep(kept: Drill) -> None:
        store = app.wiring.store
        drills.keep(kept, store, store)

    return drill.DrillPorts(
        place=place_of(app, bound.cell),
        look=app.wiring.look_ports(),
        run=make(app, bound, lambda step, _: "skip" if step.choice or step.danger or not step.command else "run"),
        events=events,
        rehearsals=app.wiring.rehearsals,
        keep=keep,
    )


def _with_fault(bound: Bound, kind: str) -> Bound:
    from dataclasses import replace

    from fleetctl.domain.runbook import Fault

    return replace(bound, runbook=replace(bound.runbook, fault=Fault(kind=kind))) if kind else bound


def _send_back(app: App, cell: CellId) -> None:
    """Bring customers to the target again, so that the next rehearsal has something to bring home."""
    commands = app.wiring.own_commands()
    app.note(f"Sending {cell} to its target again.")
    commands.run(("retry", cell), 60.0)
    commands.run(("resume", cell), 60.0)
    ended = commands.run(("migrate", cell, "--phase", "canary"), AGAIN_S)
    if ended.exit_code != 0:
        text = f"{cell} could not be sent to its target again (exit {ended.exit_code}); the rehearsals before are kept."
        raise RunbookFailed("runbook.no_traffic", text, hint=f"Run: fleetctl migrate {cell} --phase canary", details=_last(ended.output))


def _last(output: str) -> tuple[str, ...]:
    return tuple(output.splitlines()[-8:])


def _report(app: App, done: Sequence[Rehearsed], asked: Asked) -> None:
    from fleetctl.formats.output import as_json
    from fleetctl.views.game_day import game_day_lines, game_day_page

    last = done[-1].timing
    lines = game_day_lines(done, asked.goal_s, app.width)
    value = done[0] if len(done) == 1 else {"rehearsals": done}
    name = f"{last.at:%Y%m%dT%H%M%S}-{last.cell}-{last.runbook if len(done) == 1 else 'game-day'}"
    folder = app.wiring.runbook_folder / "reports"
    text = as_json("rehearsal", value) + "\n"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / f"{name}.html").write_text(game_day_page(done, asked.goal_s), encoding="utf-8")
        for path in (folder / f"{name}.json", *([asked.out] if asked.out is not None else [])):
            path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise RunbookFailed("runbook.report", f"the report cannot be written: {e.strerror}.", hint="Name another place with --out") from e
    app.note(f"Report: {app.shown(folder / f'{name}.txt')} (and .html to print, .json)")
    if asked.output == "json":
        app.line("rehearsal", value)
    else:
        app.out("\n".join(lines))
