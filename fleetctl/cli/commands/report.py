"""`fleetctl report`, shell layer: write one self-contained HTML file. Never decides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app

if TYPE_CHECKING:
    from fleetctl.domain.report import ClientCount, ReportData


@click.command("report")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it; in .fleetctl/reports where left out.")
@click.option("--finance", is_flag=True, help="Instead: CSV of planned against realised cost and energy; on stdout without --out.")
@output_option("table", "json")
@pass_app
def command(app: App, out: Path | None, finance: bool, output: str) -> None:
    """Write one HTML file: shares over time, latency per arm, evidence against its bounds, events, costs.

    \b
    Examples:
      fleetctl report
      fleetctl report --finance > move.csv
    """
    from fleetctl.usecases.report import gather
    from fleetctl.views.report import render_report

    w = app.wiring
    data = gather(w.fleet, w.store, w.store, w.store, w.clock, _lab(app), _clients(app))
    if finance:
        _finance(app, data, out, output)
        return
    path = out or w.state_folder / "reports" / f"{w.fleet.name}-{w.clock.now():%Y%m%dT%H%M%S}.html"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(render_report(data), encoding="utf-8")
    path.chmod(0o600)
    if output == "json":
        app.line("report", {"path": str(path.resolve())})
    else:
        app.out(f"Report: {path.resolve()}")


def _finance(app: App, data: ReportData, out: Path | None, output: str) -> None:
    """Write planned against realised: CSV, or JSON with -o json."""
    from fleetctl.errors import PlanStale
    from fleetctl.formats.output import as_json
    from fleetctl.usecases.finance import finance
    from fleetctl.views.finance import finance_csv

    if data.plan is None:
        raise PlanStale("plan.missing", "there is no plan.", hint="Run: fleetctl plan")
    rows = finance(data)
    text = as_json("finance", rows) + "\n" if output == "json" else finance_csv(data.plan, rows)
    if out is None:
        app.out(text.removesuffix("\n").removesuffix("\r"))
        return
    out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8", newline="")
    out.chmod(0o600)
    app.note(f"Finance: {out.resolve()}")


def _lab(app: App) -> tuple[tuple[str, str, str], ...]:
    """Return what is real and what is emulated, where this workspace is a lab that is up."""
    from fleetctl.lab.overview import lab_status
    from fleetctl.lab.record import read_record

    if read_record(app.workspace.absolute()) is None:
        return ()
    return tuple((row.name, row.nature, row.text) for row in lab_status(app.workspace))


def _clients(app: App) -> ClientCount | None:
    """Return what the lab's clients counted, where a lab is up here."""
    from fleetctl.domain.report import ClientCount
    from fleetctl.lab.overview import load_stats
    from fleetctl.lab.record import read_record

    if read_record(app.workspace.absolute()) is None:
        return None
    rows = load_stats(app.workspace)
    return ClientCount(requests=sum(r.sent for r in rows), errors=sum(sum(r.errors.values()) for r in rows)) if rows else None
