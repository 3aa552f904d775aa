"""Traffic, adapter layer: names, numbers and splits as routers hold and show them. Never talks to a router."""

from __future__ import annotations

from datetime import UTC, datetime

from fleetctl.domain.ids import CellId, Token, is_id
from fleetctl.domain.split import Split
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import TrafficNotApplied

_LEASE_MAX_MS = 253_402_300_799_000


def checked_cell(c: CellId) -> CellId:
    """Return the cell, refused where it is no name. Raises TrafficNotApplied (traffic.unknown_cell)."""
    if not is_id(c):
        raise TrafficNotApplied("traffic.unknown_cell", f"{c[:70]!r} is not the name of a cell.", hint="Run: fleetctl inventory")
    return c


def natural(what: str, number: int) -> int:
    """Return a number of 0 to 10^16. Raises TrafficNotApplied (traffic.not_shown)."""
    if not 0 <= number < 10**16:
        raise TrafficNotApplied("traffic.not_shown", f"{what} {number} is not within 0 to 10^16.")
    return number


def whole(word: str) -> int:
    """Return the whole number that a router shows. Raises TrafficNotApplied (traffic.not_shown)."""
    try:
        return int(word)
    except ValueError as wrong:
        raise TrafficNotApplied(
            "traffic.not_shown", f"the router shows {word[:40]!r} where a number belongs.", hint="Run: fleetctl doctor"
        ) from wrong


def as_split(cell: CellId, bp: int, cap: int, token: int, lease_ms: int, unseen: str = "") -> Split:
    """Return what a router shows as a split: a weight above the cap raises the cap shown."""
    shown = min(max(bp, 0), FULL_BP)
    return Split(
        cell=cell,
        target_bp=shown,
        cap_bp=max(shown, min(cap, FULL_BP)),
        token=Token(token),
        lease_until=datetime.fromtimestamp(min(lease_ms, _LEASE_MAX_MS) / 1_000, UTC),
        unseen=unseen,
    )


def epoch_ms(at: Instant) -> int:
    """Return an instant as epoch milliseconds."""
    return max(0, min(round(at.timestamp() * 1_000), _LEASE_MAX_MS))


def rounded(s: Split) -> Split:
    """Return the split as a router can hold it: its lease in whole milliseconds."""
    return as_split(s.cell, s.target_bp, s.cap_bp, s.token, epoch_ms(s.lease_until))


def first_line(answer: str) -> str:
    """Return the first line of an answer, at most 120 characters."""
    return answer.splitlines()[0][:120] if answer else "no answer"
