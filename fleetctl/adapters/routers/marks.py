"""Traffic, adapter layer: cap, token and lease as one short text, for routers that can hold a text beside the weights."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Drained
from fleetctl.domain.units import Instant

_TEXT = re.compile(r"(\d{1,5}):(\d{1,16}):(\d{1,16}):(\d{1,16})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What stands beside the weights.

    Args:
        cap_bp: 0 to 10,000; lease_ms, changed_ms: epoch milliseconds, of the lease's end and of the last change of the weight.
    """

    cap_bp: int = 0
    token: int = 0
    lease_ms: int = 0
    changed_ms: int = 0

    def __str__(self) -> str:
        return f"{self.cap_bp}:{self.token}:{self.lease_ms}:{self.changed_ms}"


LONGEST_ANSWER_S = 600.0
"""How long a request may stay open, where the fleet file says nothing."""


def still_open(mark: Mark, share_bp: int, now: Instant, longest_s: float) -> Drained:
    """Return 1 while a side may still hold an open request, at a router that does not tell: it gets some, or its last one is not over."""
    quiet_s = now.timestamp() - mark.changed_ms / 1_000  # what we never moved has been so for long
    return Drained(open_streams=int(share_bp > 0 or quiet_s < longest_s))


def read_token(text: str) -> int:
    """Return a token that stands alone, 0 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else 0


def read_mark(text: str) -> Mark:
    """Return the mark that `str()` wrote; anything else is one of zeros, which no writer has fenced."""
    found = _TEXT.match(text)
    if found is None:
        return Mark()
    cap, token, lease, changed = (int(part) for part in found.groups())
    return Mark(cap_bp=cap, token=token, lease_ms=lease, changed_ms=changed)


class Floors:
    """What a router has shown of its marks: one that loses them is not taken for one that nobody ever fenced.

    What was lost stays lost until the router shows a token that only going home writes: until then nothing is raised, while going home
    and what stands are as ever, by the highest token that was seen.
    """

    def __init__(self) -> None:
        self._token: dict[CellId, int] = {}
        self._has: dict[CellId, frozenset[str]] = {}
        self._lost: dict[CellId, tuple[str, int]] = {}

    def look(self, c: CellId, mark: Mark, has: frozenset[str], torn: frozenset[str] = frozenset()) -> tuple[Mark, str]:
        """Return the mark with the floor that holds, and in words what was lost, "" where nothing was.

        Args:
            has: names of what is there; torn: what must be there beside it and is not.
        """
        floor = max(mark.token, self._token.get(c, 0))
        gone = (self._has.get(c, frozenset()) - has) | torn
        lost = self._lost.get(c)
        if lost is not None and mark.token >= lost[1] + HOME_TOKEN_STEP:
            del self._lost[c]
            self._has[c], gone, lost = has, torn, None
        if lost is None and (gone or mark.token < floor):
            what = f"no {' and '.join(sorted(gone))}, which it had" if gone else f"token {mark.token} where {floor} was"
            self._lost[c] = (f"it shows {what} (token {floor})", floor)
        self._token[c] = floor
        self._has[c] = self._has.get(c, frozenset()) | has
        return replace(mark, token=floor), self._lost.get(c, ("", 0))[0]
