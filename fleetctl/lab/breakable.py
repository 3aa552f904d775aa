"""Lab, lab layer: faults of a rehearsal, injected on the target of a cell of this workspace's lab. Never elsewhere."""

from __future__ import annotations

from pathlib import Path

from fleetctl.domain.ids import CellId
from fleetctl.domain.runbook import Fault
from fleetctl.lab.fault_control import lab_clear, lab_fault
from fleetctl.lab.record import read_record


class LabBreakable:
    """`Breakable` of the lab of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def refuses(self, c: CellId) -> str:
        """Say why nothing may be broken for this cell; "" where it is one of the lab."""
        record = read_record(self._workspace.absolute())
        if record is None:
            return "no lab is up in this workspace, and nothing else is ever broken on purpose"
        return "" if c in {x.cell for x in record.cells} else f"{c} is no cell of the lab"

    def inject(self, c: CellId, fault: Fault) -> None:
        """Break the target's servers of a cell. Raises LabFailed."""
        lab_fault(self._workspace, c, fault.kind, "target", **fault.numbers)

    def mend(self, c: CellId) -> None:
        """Take every fault of the target away. Raises LabFailed."""
        lab_clear(self._workspace, c, None, "target")
