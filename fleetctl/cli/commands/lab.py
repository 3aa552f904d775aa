"""`fleetctl lab`, shell layer: a local fleet on this machine. Never needed in production, never decides."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, Group, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.lab.fault_control import Sides
    from fleetctl.lab.lifecycle import RouterKind
    from fleetctl.lab.overview import ProcessRow

SCALE = click.FloatRange(0.01, 100.0)


@click.group("lab", cls=Group)
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
@click.option("--scale", type=SCALE, default=1.0, show_default=True, help="Arrival rate against the usual one.")
@click.option(
    "--hosts",
    type=click.Choice(("emulated", "nspawn")),
    default="emulated",
    show_default=True,
    help="The target's hosts: folders, or real ones with systemd, ssh and apt in systemd-nspawn (needs root; no real LLM).",
)
@click.option("--retries", type=click.IntRange(0, 3), help="Failed tries that the router makes again; from its next start.")
@click.option("--router", type=click.Choice(("haproxy", "envoy")), help="What splits the traffic; haproxy by default.")
@pass_app
def up(
    app: App, no_llm: bool, no_load: bool, no_ticker: bool, scale: float, retries: int | None, router: RouterKind | None, hosts: str
) -> None:
    """Start the lab; all processes are healthy, or it says which is not and stops them all."""
    from fleetctl.lab.cells import lab_cells
    from fleetctl.lab.lifecycle import lab_up
    from fleetctl.lab.overview import lab_status

    rates = {c.cell: c.rate_per_s * scale for c in lab_cells(with_llm=not no_llm)}
    record = lab_up(
        app.workspace,
        with_llm=not no_llm,
        load=not no_load,
        ticker=not no_ticker,
        rates=rates,
        machines="" if hosts == "emulated" else hosts,
        retries=retries,
        router=router,
        say=lambda text: app.note(f"  {text}"),
    )
    app.wiring.renew_ways_home()  # the router may stand elsewhere than when they were written
    if not record.changed:
        app.note("It was up already.")
    app.out(_table(lab_status(app.workspace)))
    if record.machines:
        app.note("note: hosts, systemd, ssh and apt are real; the packages are STAND-INS, the engines emulated")
    if record.without_llm and not no_llm:
        app.note(f"note: without the real LLM, since {record.without_llm}")
    app.note("Next: fleetctl inventory; fleetctl plan")


@command.command("down")
@pass_app
def down(app: App) -> None:
    """Stop every process of the lab and remove its run folder; plans, events and reports stay."""
    from fleetctl.lab.lifecycle import lab_down

    done = lab_down(app.workspace)
    app.out(f"lab down: {len(done.stopped)} processes stopped" if done.run else "lab down: nothing was up")


@command.command("status")
@output_option("table", "json")
@pass_app
def status(app: App, output: str) -> None:
    """What runs: real or emulated, where, healthy or not. Exit 1 where something is not."""
    from fleetctl.lab.overview import lab_status, load_stats

    states = lab_status(app.workspace)
    loads = load_stats(app.workspace)
    if output == "json":
        app.line("lab.status", {"processes": states, "load": loads})
    else:
        app.out(_table(states))
        for row in loads:
            errors = ", ".join(f"{n} {kind}" for kind, n in sorted(row.errors.items())) or "no client error"
            p50 = (
                f"p50 {row.p50_ms:.0f} ms, p95 {row.p95_ms:.0f} ms"
                if row.p50_ms is not None and row.p95_ms is not None
                else "no answer yet"
            )
            app.out(f"load {row.cell}: {row.ok} ok, {errors}; {p50}")
    sys.exit(EXIT_DONE if states and all(s.health == "healthy" for s in states) else EXIT_FAILED)


def _faults() -> tuple[str, ...]:
    return ("latency", "tail", "errors", "wrong_tokens", "hang", "crash", "slow_start", "metrics", "kv_cache")


@command.command("fault")
@click.argument("kind", type=click.Choice((*_faults(), "all")))
@click.argument("cell", type=CELL)
@click.option("--side", type=click.Choice(("source", "target", "both")), default="target", show_default=True)
@click.option("--factor", type=float, help="latency, tail: times as slow.")
@click.option("--share", type=float, help="tail: share of the answers.")
@click.option("--ratio", type=float, help="errors, wrong_tokens: share of requests or positions.")
@click.option("--seconds", type=float, help="slow_start: how long.")
@click.option("--state", type=click.Choice(("gone", "nan")), help="metrics: how they break.")
@click.option("--type", "type_", type=click.Choice(("q4_0", "q8_0", "f16")), help="kv_cache: of the real LLM.")
@click.option("--off", is_flag=True, help="Switch it off again (`all` for all of them).")
@pass_app
def fault(app: App, /, kind: str, cell: str, side: Sides, off: bool, type_: str | None, **given: float | str | None) -> None:
    """Switch a fault of one cell's replicas on, or off, while they run.

    \b
    latency      --factor 2            every answer takes this times as long
    tail         --share 0.05 --factor 3
    errors       --ratio 0.05          share of requests answered 500
    wrong_tokens --ratio 0.2           share of token positions that differ
    hang, crash, slow_start --seconds, metrics --state gone|nan
    kv_cache     --type q4_0           of the real LLM
    """
    from fleetctl.lab.fault_control import lab_clear, lab_fault

    if off:
        gone = lab_clear(app.workspace, cell, None if kind == "all" else kind, side)
        app.out(f"fault/{kind} off: {', '.join(f.unit for f in gone) or 'was off already'}")
        return
    args = {k: v for k, v in (given | {"type": type_}).items() if v is not None}
    for f in lab_fault(app.workspace, cell, kind, side, **args):
        said = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in f.args.items())
        app.out(f"fault/{f.kind} on: {f.unit} ({f.side}){f' {said}' if said else ''}")


@command.command("load")
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="CSV: TIMESTAMP,ContextTokens,GeneratedTokens.")
@click.option("--scale", type=SCALE, default=1.0, show_default=True, help="Arrival rate against the usual one.")
@click.option("--off", is_flag=True, help="Stop the load.")
@pass_app
def load(app: App, trace: Path | None, scale: float, off: bool) -> None:
    """Start the load anew, stop it, or replay the shape of a recorded trace."""
    from fleetctl.lab.cells import lab_cells
    from fleetctl.lab.fault_control import lab_load
    from fleetctl.lab.record import need_record

    here = {c.cell for c in need_record(app.workspace.absolute()).cells}
    rates = {c.cell: c.rate_per_s * scale for c in lab_cells(with_llm=True) if c.cell in here}
    made = lab_load(app.workspace, trace=trace, rates=rates, running=not off)
    app.out("load off" if off else f"load on: {', '.join(f'{c.cell} {c.rate_per_s:g}/s' for c in made.cells)}")


@command.command("ticker", hidden=True)
@click.option("--workspace", "folder", default="", help="The lab's workspace.")
@pass_app
def ticker(app: App, folder: str) -> None:
    """Tick whatever is due until told to stop: the lab's resident ticker."""
    from fleetctl.cli.resident import run_ticker

    run_ticker(App(workspace=folder or str(app.workspace)))


def _table(states: Sequence[ProcessRow]) -> str:
    from fleetctl.views.output import Column, Table, render

    columns = (
        Column(title="PROCESS"),
        Column(title="NATURE"),
        Column(title="PORT", right=True),
        Column(title="PID", right=True),
        Column(title="HEALTH"),
        Column(title="WHAT", shrink=True),
    )
    rows = tuple((s.name, s.nature, str(s.port or "-"), str(s.pid or "-"), _health(s), s.text) for s in states)
    return render(
        "table", kind="lab", value=states, table=Table(columns=columns, rows=rows, empty="No lab is up here. Run: fleetctl lab up")
    )


def _health(row: ProcessRow) -> str:
    return f"{row.health}, fault: {', '.join(row.faults)}" if row.faults else row.health
