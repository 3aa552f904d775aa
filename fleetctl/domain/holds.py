"""Migrate, domain layer: the minimum that we hold against an autoscaler, and what stood there before. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from fleetctl.domain.canonical import LATER, digest
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.units import Instant

PinState = Literal["pinning", "pinned", "restoring", "restored", "left", "refused"]
OPEN_PINS: frozenset[PinState] = frozenset({"pinning", "pinned", "restoring"})
"""States of a pin that somebody must still give back."""
SILENT = "hold.silent"
"""Code of an owner that did not answer in time."""
MOST_WRITES = 3
"""Times that we write against somebody else before we only hold and ask for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One minimum of one owner of a pool's size; saved before it is changed.

    Args:
        ref, name: of the owner; was: what stood there; to: what we set, at least `was`.
        cells: that still need it; others: who may write there beside the owner (GitOps), for people.
        state: "left": what stood there at the end was not ours and stays; "refused": we may not write it.
        writes: of ours against others since it was set.
        default: of the owner before us, given back with its minimum; None where it has none.
    """

    pool: PoolId
    ref: str
    name: str
    was: int
    to: int
    cells: tuple[CellId, ...]
    at: Instant
    state: PinState = "pinning"
    writes: int = 0
    others: tuple[str, ...] = ()
    default: int | None = field(default=None, metadata=LATER)

    @property
    def is_open(self) -> bool:
        """Tell whether somebody must still give it back."""
        return self.state in OPEN_PINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A minimum as it stands, None where its owner is gone, and who wrote it last beside us ("" where that is not told)."""

    minimum: int | None
    writer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Something that a person should know of other hands: the kind of an event, and a sentence."""

    kind: str
    text: str

    @property
    def is_gap(self) -> bool:
        """Tell whether something is not known, or not held."""
        return self.kind.endswith((".gap", ".given_up"))


@lru_cache(maxsize=1024)
def pin_id(pool: PoolId, ref: str) -> str:
    """Return the id of a pin's record."""
    return f"{pool}-{digest(ref)[:16]}"


def wanted_minimum(minimum: int, maximum: int | None, size: int, at_least: int) -> int:
    """Return what to pin: what is there now or was asked for, never above the owner's maximum and never below its own minimum."""
    wanted = max(size, at_least)
    return max(minimum, wanted if maximum is None else min(wanted, maximum))
