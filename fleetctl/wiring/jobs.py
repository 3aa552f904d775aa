"""Traffic, wiring layer: what the queues of batch cells hold, and which of their jobs are poison. Never takes or changes one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.domain.fleet import WORK_ROUTERS
from fleetctl.domain.jobs import JobsRow

if TYPE_CHECKING:
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.ids import CellId


def jobs_of(fleet: Fleet) -> tuple[JobsRow, ...]:
    """Return the jobs of every cell behind a queue, in the fleet file's order; one that cannot be read says why."""
    cells = [(c.id, fleet.router(c.router.name)) for c in fleet.cells]
    return tuple(_row(c, connection) for c, connection in cells if connection.kind in WORK_ROUTERS)


def _row(c: CellId, connection: Connection) -> JobsRow:
    from fleetctl.errors import FleetctlError

    is_sqs = connection.kind == "sqs"
    setting = "results" if is_sqs else "path"
    path = Path(connection.settings.get(setting, ""))
    if not path.is_file():
        missing = f"{path} is not there" if connection.settings.get(setting) else f"router {connection.name} has no setting {setting}"
        return JobsRow(cell=c, why=missing)
    try:
        ledger = Ledger(path)
        n = ledger.counts(c)
        taken = sum(ledger.held(c, on_target=side) for side in (True, False)) if is_sqs else n["taken"]
        waiting = None if is_sqs else n["waiting"]
        return JobsRow(cell=c, waiting=waiting, taken=taken, good=n["good"], bad=n["bad"], dead=n["dead"], poison=ledger.dead(c))
    except FleetctlError as e:
        return JobsRow(cell=c, why=e.message)
