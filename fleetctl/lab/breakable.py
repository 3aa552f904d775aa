"""Lab, lab layer: faults of a rehearsal, injected in this workspace's lab: servers, router, evidence, store. Never elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from fleetctl.domain.ids import CellId
from fleetctl.domain.runbook import Fault
from fleetctl.lab.fault_control import lab_clear, lab_fault
from fleetctl.lab.parts import router_pid, start_router
from fleetctl.lab.record import need_record, read_record

ASIDE = ".drill"
"""Ending of what a rehearsal has moved out of sight; a rehearsal that was killed leaves it, and `mend` puts it back."""


class LabBreakable:
    """`Breakable` of the lab of a workspace.

    Args:
        store: file of the store of record, which a rehearsal may hide for a while.
    """

    def __init__(self, workspace: Path, store: Path) -> None:
        self._workspace, self._store = workspace.absolute(), store

    def refuses(self, c: CellId) -> str:
        """Say why nothing may be broken for this cell; "" where it is one of the lab."""
        record = read_record(self._workspace)
        if record is None:
            return "no lab is up in this workspace, and its workload is not marked as one that may be broken (drill, in the fleet file)"
        return "" if c in {x.cell for x in record.cells} else f"{c} is no cell of the lab"

    def inject(self, c: CellId, fault: Fault) -> None:
        """Break what the fault names. Raises LabFailed."""
        if fault.kind == "router_gone":
            os.kill(router_pid(need_record(self._workspace)), signal.SIGKILL)
        elif fault.kind == "source_gone":
            lab_fault(self._workspace, c, "crash", "source")
        elif fault.kind in ("store_gone", "evidence_gone"):
            for path in self._hidden(fault.kind):
                path.rename(path.with_name(path.name + ASIDE))
        else:
            lab_fault(self._workspace, c, fault.kind, "target", **fault.numbers)

    def mend(self, c: CellId) -> None:
        """Take every fault of a rehearsal away; idempotent. Raises LabFailed."""
        for path in (p for kind in ("store_gone", "evidence_gone") for p in self._hidden(kind, ASIDE)):
            whole = path.with_name(path.name.removesuffix(ASIDE))
            if not whole.exists():
                path.rename(whole)
        record = need_record(self._workspace)
        if not router_pid(record):
            start_router(record)
        lab_clear(self._workspace, c)

    def _hidden(self, kind: str, ending: str = "") -> Iterator[Path]:
        """Yield what a fault hides and what of it is there: the store's files, or the folder of the router's log."""
        store = self._store
        folder = need_record(self._workspace).router_folder / "log"
        names = [store, *(store.with_name(store.name + end) for end in ("-wal", "-shm"))] if kind == "store_gone" else [folder]
        yield from (p for n in names if (p := n.with_name(n.name + ending)).exists())
