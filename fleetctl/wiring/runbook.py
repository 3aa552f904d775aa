"""Composition root, runbooks: what looking at a cell and stepping through a runbook touch. Never decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError
from fleetctl.wiring.base import STATE
from fleetctl.wiring.traffic import Traffic

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.domain.event import Event
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.runbook import JournalLine
    from fleetctl.ports.runbook import Commands, Journal, Rehearsals
    from fleetctl.usecases.runbook import LookPorts


class Runbooks(Traffic):
    """Runbooks of one workspace."""

    @property
    def runbook_folder(self) -> Path:
        """Return where journals and rehearsals lie; it need not exist."""
        return self.workspace / STATE / "runbooks"

    def look_ports(self) -> LookPorts:
        """Return all that looking at a cell touches."""
        from fleetctl.usecases.runbook import LookPorts

        return LookPorts(home=self.home_ports(), migration=self._migration)

    def _migration(self, c: CellId) -> str:
        row = next((r for r in self.status_rows() if r.cell == c), None)
        if row is None:
            return ""
        if row.ended:
            return f"{row.ended.replace('_', ' ')} in {row.phase} ({row.hold_reason or 'no reason kept'})"
        kinds = {v.kind for v in row.verdicts}
        worst = next((k for k in ("FAIL", "PROVIDER_ERROR", "NO_DATA", "INCONCLUSIVE", "PASS") if k in kinds), "no verdict yet")
        held = f", HELD ({row.hold_reason})" if row.hold_reason else ""
        return f"{row.phase} at {row.weight_bp / 100:g} %{', paused' if row.paused else ''}, {worst}{held}"

    def own_commands(self) -> Commands:
        """Return what runs fleetctl's own commands here."""
        from fleetctl.adapters.runbooks import OwnCommands

        return OwnCommands(self.workspace)

    def journal(self, c: CellId, runbook: str) -> Journal:
        """Return the journal of a runbook's runs for a cell."""
        from fleetctl.adapters.runbooks import JournalFile

        return JournalFile(self.runbook_folder, c, runbook)

    def runbook_runs(self) -> tuple[JournalLine, ...]:
        """Return every line of every run's journal, as they lie here."""
        from fleetctl.adapters.runbooks import read_journals

        return read_journals(self.runbook_folder)

    @property
    def rehearsals(self) -> Rehearsals:
        """Return what rehearsals measured."""
        from fleetctl.adapters.runbooks import RehearsalFile

        return RehearsalFile(self.runbook_folder)

    def note_event(self, event: Event) -> None:
        """Keep an event where the store answers; going home waits for no store."""
        try:
            self.store.append((event,))
        except FleetctlError:
            return
