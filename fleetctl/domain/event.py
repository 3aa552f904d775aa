"""Audit, domain layer: what happened, hash-chained per cell. Never I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fleetctl.domain.canonical import digest
from fleetctl.domain.ids import CellId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Instant, Scalar

GENESIS = Sha256("0" * 64)
UNHASHED = Sha256("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened.

    Args:
        cell: None for the fleet's own chain.
        kind: dotted, such as "rollout.step" or "order.abort".
        seq: 1, 2, ... within its chain; hash: of this event with `hash` empty, which covers `prev`.
    """

    at: Instant
    kind: str
    actor: Actor
    text: str
    cell: CellId | None = None
    data: Mapping[str, Scalar] = field(default_factory=dict)
    seq: int = 0
    prev: Sha256 = GENESIS
    hash: Sha256 = UNHASHED


def chained(event: Event, seq: int, prev: Sha256) -> Event:
    """Return `event` as link number `seq` (from 1) after the link whose hash is `prev`."""
    open_ = replace(event, seq=seq, prev=prev, hash=UNHASHED)
    return replace(open_, hash=digest(open_))


def broken_link(chain: Iterable[Event]) -> tuple[int, str] | None:
    """Return (seq, what is wrong) of the first link that does not hold, None where all hold."""
    prev, expected = GENESIS, 1
    for event in chain:
        if event.seq != expected:
            return expected, f"number {expected} is missing (found {event.seq})"
        if event.prev != prev:
            return event.seq, "does not follow the link before it"
        if digest(replace(event, hash=UNHASHED)) != event.hash:
            return event.seq, "was edited"
        prev, expected = event.hash, expected + 1
    return None
