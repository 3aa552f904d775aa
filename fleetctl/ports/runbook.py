"""Coming home, ports layer: what stepping through a runbook and rehearsing it touch. Never an implementation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from fleetctl.domain.ids import CellId
from fleetctl.domain.runbook import Fault, JournalLine, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended; exit_code is None where it had to be stopped at its limit."""

    exit_code: int | None
    output: str
    seconds: float


class Commands(Protocol):
    """Runs fleetctl's own commands in this workspace; never a shell."""

    def run(self, words: Sequence[str], limit_s: float) -> Ended:
        """Run one command (words after "fleetctl") to its end, or stop it after `limit_s` seconds."""
        ...


class Journal(Protocol):
    """Lines of the runs of one runbook for one cell; each is on the disk when `append` returns.

    Raises RunbookFailed (runbook.journal) where it cannot be read or written.
    """

    def lines(self) -> tuple[JournalLine, ...]:
        """Return every whole line, oldest first; a last line that was cut by a crash is left out."""
        ...

    def append(self, line: JournalLine) -> None:
        """Add one line."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Keep others out meanwhile. Raises LeaseHeld (lease.runbook) where somebody steps through it now."""
        ...


class Rehearsals(Protocol):
    """What rehearsals measured, kept for good."""

    def add(self, timing: Timing) -> None:
        """Add one."""
        ...

    def all(self) -> tuple[Timing, ...]:
        """Return every one, oldest first."""
        ...


class Breakable(Protocol):
    """A place where faults may be injected on purpose: the lab."""

    def refuses(self, c: CellId) -> str:
        """Say why nothing may be broken for this cell; "" where it may."""
        ...

    def inject(self, c: CellId, fault: Fault) -> None:
        """Break the target of a cell."""
        ...

    def mend(self, c: CellId) -> None:
        """Take every fault of the cell away; idempotent."""
        ...
