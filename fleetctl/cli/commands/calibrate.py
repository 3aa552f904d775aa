"""`fleetctl calibrate`, shell layer: options, use case, view. Reads the log; on request it asks both arms. Never moves traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import CELL, dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.domain.calibration import Calibration
    from fleetctl.domain.checks import CheckResult
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.workload import CheckSpec
    from fleetctl.usecases.checks import Remembered


@click.command("calibrate")
@click.argument("cells", nargs=-1, required=True, type=CELL, metavar="CELL...")
@click.option("--contract", is_flag=True, help="Also make the serving contract's calls on both arms, and keep how they went.")
@click.option("--quality", is_flag=True, help="Also force the same texts on both arms and compare what they would say next.")
@click.option(
    "--checks",
    default="",
    metavar="NAME,...",
    help="Only these checks of both arms: contract, quality, answers, accuracy, embeddings, all.",
)
@dry_run_option
@output_option("table", "json", "yaml", "name")
@pass_app
def command(app: App, cells: tuple[str, ...], contract: bool, quality: bool, checks: str, dry_run: bool, output: str) -> int:
    """Compare a cell's source with itself (A/A): how unlike its hosts are, and the least margins that this allows.

    The newest result holds for plans made from then on. Ends with 1 where the policy's margins are below them, or a check of
    both arms FAILs or cannot be made. Moves no traffic; checks send requests pinned to an arm, which count as nobody's, and a
    migration whose fleet file asks for them goes on once they stand.

    \b
    Examples:
      fleetctl calibrate chat-lab
      fleetctl calibrate chat-lab --contract -o json
      fleetctl calibrate chat-lab --checks all
    """
    from fleetctl.domain.identity import ContractReport
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.quality import QualityReport
    from fleetctl.usecases.calibrate import calibrate_cell
    from fleetctl.usecases.checks import Remembered
    from fleetctl.views.calibrate import calibration_text

    w = app.wiring
    named = [CellId(c) for c in cells]
    found = tuple(calibrate_cell(w.fleet, c, w.calibrate_ports(), save=not dry_run) for c in named) if not checks else ()
    wanted = checks or ",".join(name for name, asked in (("contract", contract), ("quality", quality)) if asked)
    kept = Remembered(w.store, save=not dry_run)
    results = tuple(_run(app, c, spec, kept) for c in named for spec in _specs(app, c, wanted))
    reports, compared = kept.of(ContractReport), kept.of(QualityReport)
    if output == "table":
        app.out(calibration_text(found, reports, compared, results, app.width))
    else:
        from fleetctl.views.output import Table

        value = {"cells": found, "contracts": reports, "qualities": compared, "checks": results}
        app.show(output, "calibration", value, Table(columns=(), rows=()), cells)
    return EXIT_DONE if _is_good(found, results) else EXIT_FAILED


def _is_good(found: Sequence[Calibration], results: Sequence[CheckResult]) -> bool:
    alike = not any(c.refused or any(h.failed for h in c.halves) for c in found)
    return alike and all(r.kind in ("PASS", "INCONCLUSIVE") for r in results)


def _specs(app: App, cell: CellId, wanted: str) -> tuple[CheckSpec, ...]:
    """Return the asked checks as the cell's workload has them, else with shipped settings; `all` are those that its workload has."""
    from fleetctl.domain.workload import CHECKS
    from fleetctl.errors import UsageError
    from fleetctl.formats.both_arms import default_check

    if not wanted:
        return ()
    fleet = app.wiring.fleet
    declared = next((c for c in fleet.cells if c.id == cell), None)
    if declared is None:
        raise UsageError("usage.no_cell", f"no cell is named {cell[:70]!r}.", hint="Run: fleetctl inventory")
    own = {spec.name: spec for spec in fleet.workload(declared.workload).checks}
    if wanted == "all":
        return tuple(own.values()) or tuple(default_check(name) for name in CHECKS if name in ("contract", "quality"))
    names = [n.strip() for n in wanted.split(",") if n.strip()]
    unknown = [n for n in names if n not in CHECKS]
    if unknown:
        text = f"no check is named {unknown[0][:40]!r}."
        raise UsageError("usage.bad", text, hint=f"Known: {', '.join(CHECKS)}, all")
    return tuple(own.get(name, default_check(name)) for name in CHECKS if name in names)


def _run(app: App, cell: CellId, spec: CheckSpec, kept: Remembered) -> CheckResult:
    from dataclasses import replace

    from fleetctl.usecases.checks import run_check

    ports = replace(app.wiring.check_ports(lambda r: app.note(f"{r.call}: {r.kind}")), records=kept)
    return run_check(cell, spec, ports, say=lambda text: app.note(f"{cell} {text}"))
