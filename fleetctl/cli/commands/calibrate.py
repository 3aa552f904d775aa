"""`fleetctl calibrate`, shell layer: options, use case, view. Reads the log; on request it asks both arms. Never moves traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from fleetctl.domain.identity import ContractReport
    from fleetctl.domain.quality import QualityReport


@click.command("calibrate")
@click.argument("cells", nargs=-1, required=True, type=CELL, metavar="CELL...")
@click.option("--contract", is_flag=True, help="Also make the serving contract's calls on both arms, and keep how they went.")
@click.option("--quality", is_flag=True, help="Also force the same texts on both arms and compare what they would say next.")
@dry_run_option
@output_option("table", "json", "yaml", "name")
@pass_app
def command(app: App, cells: tuple[str, ...], contract: bool, quality: bool, dry_run: bool, output: str) -> int:
    """Compare a cell's source with itself (A/A): how unlike its hosts are, and the least margins that this allows.

    The newest result holds for plans made from then on. Ends with 1 where the policy's margins are below them, an arm breaks
    the contract, or its answers FAIL. Moves no traffic; --contract sends about 40 small requests to each arm, --quality some
    hundreds, pinned to the arm, which count as nobody's.

    \b
    Examples:
      fleetctl calibrate chat-lab
      fleetctl calibrate chat-lab --contract -o json
    """
    from fleetctl.domain.ids import CellId
    from fleetctl.usecases.calibrate import calibrate_cell
    from fleetctl.views.calibrate import calibration_text

    w = app.wiring
    found = tuple(calibrate_cell(w.fleet, CellId(c), w.calibrate_ports(), save=not dry_run) for c in cells)
    reports = tuple(_contract(app, CellId(c), save=not dry_run) for c in cells) if contract else ()
    compared = tuple(r for c in cells for r in _quality(app, c, save=not dry_run)) if quality else ()
    good = (
        not any(r.kind == "FAIL" for r in compared)
        and not any(c.refused or any(h.failed for h in c.halves) for c in found)
        and not any(r.broken for r in reports)
    )
    if output == "table":
        app.out(calibration_text(found, reports, compared, app.width))
    else:
        from fleetctl.views.output import Table

        app.show(
            output,
            "calibration",
            {"cells": found, "contracts": reports, "qualities": compared},
            Table(columns=(), rows=()),
            tuple(c.cell for c in found),
        )
    return EXIT_DONE if good else EXIT_FAILED


def _contract(app: App, cell: str, *, save: bool) -> ContractReport:
    from fleetctl.domain.ids import CellId

    report = app.wiring.run_contract(CellId(cell), say=lambda r: app.note(f"{r.call}: {r.kind}"))
    if save:
        app.wiring.store.put(cell, report)
    return report


def _quality(app: App, cell: str, *, save: bool) -> tuple[QualityReport, ...]:
    from fleetctl.domain.ids import CellId

    found = app.wiring.run_quality(CellId(cell), say=lambda n: app.note(f"{cell}: {n:,} positions compared"))
    for report in found if save else ():
        app.wiring.store.put(f"{cell} {report.model}", report)
    return found
