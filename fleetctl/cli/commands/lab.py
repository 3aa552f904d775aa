"""`fleetctl lab`, shell layer: a local fleet on this machine. Never needed in production, never decides."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.lab.lifecycle import ProcessState
    from fleetctl.usecases.tick import TickResult

FAULTS = ("latency", "tail", "errors", "wrong-tokens", "hang", "crash", "slow-start", "metrics", "kv-cache")


@click.group("lab")
def command() -> None:
    """A local fleet on this machine: a real router, a real small LLM, emulated engines, load and faults.

    \b
    Examples:
      fleetctl lab up
      fleetctl lab fault latency summary-lab --factor 2
      fleetctl lab down
    """


@command.command("up")
@click.option("--no-llm", is_flag=True, help="Without the real LLM (no download of its model).")
@click.option("--no-load", is_flag=True, help="Without load.")
@click.option("--no-ticker", is_flag=True, help="Without the resident ticker: `migrate` then judges in the foreground.")
@click.option("--scale", type=click.FloatRange(0.01, 4.0), default=1.0, show_default=True, help="Arrival rate against the usual one.")
@pass_app
def up(app: App, no_llm: bool, no_load: bool, no_ticker: bool, scale: float) -> None:
    """Start the lab; all processes are healthy, or it says which is not and stops them all."""
    from fleetctl.lab.lifecycle import lab_status, lab_up

    record = lab_up(
        app.workspace, with_llm=not no_llm, load=not no_load, ticker=not no_ticker, scale=scale, say=lambda text: app.note(f"  {text}")
    )
    app.out(_table(lab_status(app.workspace)))
    for note in record.notes:
        app.note(f"note: {note}")
    app.note("Next: fleetctl inventory; fleetctl plan")


@command.command("down")
@pass_app
def down(app: App) -> None:
    """Stop every process of the lab and remove its run folder; plans, events and reports stay."""
    from fleetctl.lab.lifecycle import lab_down

    stopped = lab_down(app.workspace)
    app.out(f"lab down: {stopped} processes stopped" if stopped else "lab down: nothing was running")


@command.command("status")
@output_option("table", "json")
@pass_app
def status(app: App, output: str) -> None:
    """What runs: real or emulated, where, healthy or not. Exit 1 where something is not."""
    from fleetctl.lab.lifecycle import lab_status

    states = lab_status(app.workspace)
    if output == "json":
        app.line("lab.status", states)
    else:
        app.out(_table(states))
    sys.exit(EXIT_DONE if states and all(s.healthy for s in states) else EXIT_FAILED)


@command.command("fault")
@click.argument("kind", type=click.Choice(FAULTS))
@click.argument("cell", type=CELL)
@click.option("--side", type=click.Choice(("source", "target")), default="target", show_default=True)
@click.option("--factor", type=click.FloatRange(1.0, 1000.0), default=2.0, show_default=True, help="latency, tail: times slower.")
@click.option(
    "--ratio", type=click.FloatRange(0.0, 1.0), default=0.05, show_default=True, help="tail, errors, wrong-tokens: share of requests."
)
@click.option("--seconds", type=click.FloatRange(0.0, 600.0), default=10.0, show_default=True, help="slow-start: how long.")
@click.option("--form", type=click.Choice(("gone", "nan")), default="gone", show_default=True, help="metrics: how they break.")
@click.option("--off", is_flag=True, help="Switch it off again.")
@pass_app
def fault(app: App, kind: str, cell: str, side: str, factor: float, ratio: float, seconds: float, form: str, off: bool) -> None:
    """Switch a fault of one cell's replicas on, or off, while they run."""
    from fleetctl.lab.lifecycle import lab_fault

    done = lab_fault(app.workspace, cell, kind, side=side, factor=factor, ratio=ratio, seconds=seconds, form=form, off=off)
    app.out(f"fault/{kind} {'off' if off else 'on'}: {', '.join(done)}")


@command.command("load")
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="CSV: TIMESTAMP,ContextTokens,GeneratedTokens.")
@click.option("--scale", type=click.FloatRange(0.01, 100.0), default=1.0, show_default=True, help="Arrival rate against the usual one.")
@click.option("--off", is_flag=True, help="Stop the load.")
@pass_app
def load(app: App, trace: Path | None, scale: float, off: bool) -> None:
    """Start the load anew, stop it, or replay the shape of a recorded trace."""
    from fleetctl.lab.lifecycle import lab_load

    app.out(lab_load(app.workspace, trace=trace, scale=scale, off=off))


@command.command("ticker", hidden=True)
@click.option("--workspace", "folder", default="", help="The lab's workspace.")
@pass_app
def ticker(app: App, folder: str) -> None:
    """Tick whatever is due until told to stop: the lab's resident ticker."""
    run_ticker(App(workspace=folder or str(app.workspace)))


def run_ticker(app: App) -> None:
    """Judge due cells and renew their weights' leases until SIGTERM or SIGINT."""
    import time

    from fleetctl.errors import FleetctlError
    from fleetctl.usecases.migrate import Driver

    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stopping.append(n))
    w = app.wiring

    def said(t: TickResult) -> None:
        if t.kind != "ticked":
            app.note(f"{t.cell} {t.kind}: {t.why}")

    driver = Driver(ports=w.tick_ports(), settings=w.tick_settings(), on_tick=said)
    app.note("ticking")
    while not stopping:
        try:
            ticked = driver.step() if driver.is_ticking() else 0
        except FleetctlError as e:
            app.note(str(e))
            ticked = 0
        if not ticked:
            time.sleep(0.05)
    driver.stop()


def _table(states: Sequence[ProcessState]) -> str:
    from fleetctl.views.output import Column, Table, render

    columns = (
        Column(title="PROCESS"),
        Column(title="REAL"),
        Column(title="WHAT", shrink=True),
        Column(title="PORT", right=True),
        Column(title="PID", right=True),
        Column(title="HEALTH"),
    )
    rows = tuple((s.name, s.kind, s.what, str(s.port or "-"), str(s.pid), "ok" if s.healthy else "DOWN") for s in states)
    return render(
        "table", kind="lab", value=states, table=Table(columns=columns, rows=rows, empty="No lab is up here. Run: fleetctl lab up")
    )
