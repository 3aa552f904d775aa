"""Traffic, domain layer: the jobs of a batch cell, and those that nobody tries any more. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonJob:
    """A job that is tried no more.

    Args:
        arm: side that had it last; tries: how often it was lost; at: when the last of them was.
    """

    id: str
    arm: Arm
    tries: int
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRow:
    """The jobs of one batch cell.

    Args:
        waiting: None where the queue itself would have to be asked; good, bad: ended well or badly.
        poison: the newest first, at most 1,000; why: where nothing can be told, "" else.
    """

    cell: CellId
    waiting: int | None = None
    taken: int = 0
    good: int = 0
    bad: int = 0
    dead: int = 0
    poison: tuple[PoisonJob, ...] = ()
    why: str = ""
