"""`fleetctl runbook drill`, shell layer: puts the lab behind a rehearsal and writes its report. Never decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.app import App
from fleetctl.errors import EXIT_DONE, EXIT_FAILED, RunbookFailed

if TYPE_CHECKING:
    from fleetctl.domain.runbook import Bound, Step
    from fleetctl.usecases.runbook import Answer, RunPorts

MakePorts = Callable[[App, "Bound", Callable[["Step", str], "Answer"]], "RunPorts"]


def rehearse(app: App, bound: Bound, make: MakePorts, *, goal_s: float, watch_s: float, out: Path | None, output: str) -> int:
    """Rehearse, print the report and write it beside the others; return the exit code: 1 where it is not green."""
    from fleetctl.lab.breakable import LabBreakable
    from fleetctl.usecases import drill
    from fleetctl.usecases.runbook import find_cell
    from fleetctl.views.runbook import rehearsal_lines

    w = app.wiring
    ports = drill.DrillPorts(
        place=LabBreakable(app.workspace),
        look=w.look_ports(),
        run=make(app, bound, lambda step, _: "skip" if step.choice or step.danger or not step.command else "run"),
        events=lambda: tuple(w.store.events(bound.cell, 0)),
        rehearsals=w.rehearsals,
        records=w.store,
    )
    if out is not None and out.exists():
        raise RunbookFailed("runbook.report_there", f"{out} is there already.", hint="Name a new file with --out")
    way = find_cell(bound.cell, ports.look)
    drill.refuse(bound, way, ports)
    app.note(f"Breaking the target of {bound.cell} on purpose; it is mended at the end.")
    done = drill.rehearse(bound, way, ports, goal_s=goal_s, watch_s=watch_s)
    lines = rehearsal_lines(done.timing, done.spread, goal_s, app.width)
    _write(app, done, lines, out, f"{done.timing.at:%Y%m%dT%H%M%S}-{bound.cell}-{bound.runbook.id}")
    if output == "json":
        app.line("rehearsal", done)
    else:
        app.out("\n".join(lines))
    return EXIT_DONE if done.timing.is_ok else EXIT_FAILED


def _write(app: App, done: object, lines: list[str], out: Path | None, name: str) -> None:
    from fleetctl.formats.output import as_json

    folder = app.wiring.runbook_folder / "reports"
    text = as_json("rehearsal", done) + "\n"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for path in (folder / f"{name}.json", *([out] if out is not None else [])):
            path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise RunbookFailed("runbook.report", f"the report cannot be written: {e.strerror}.", hint="Name another place with --out") from e
    app.note(f"Report: {app.shown(folder / f'{name}.txt')}")
