"""Inventory, domain layer: one look at all sources, part by part, so that one part's failure hides no other. Never I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class PartScan:
    """What one part of a source (a region of an account) said.

    Args:
        at: when it was asked; seconds: how long that took; reused: not asked again since it was fresh enough.
        kept_from: where the part failed and the facts are those of an earlier look: when that was.
    """

    source: str
    part: str
    at: Instant
    seconds: float
    facts: tuple[Facts, ...]
    gaps: tuple[Gap, ...] = ()
    reused: bool = False
    kept_from: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """One look.

    Args:
        number: from 1, in this workspace.
    """

    number: int
    at: Instant
    parts: tuple[PartScan, ...]

    def facts(self) -> Iterator[Facts]:
        """Yield every fact."""
        for part in self.parts:
            yield from part.facts

    def gaps(self) -> tuple[Gap, ...]:
        """Return what no part could tell."""
        return tuple(gap for part in self.parts for gap in part.gaps)
