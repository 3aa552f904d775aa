"""Traffic, adapter layer: cap, token and lease as one short text, for routers that can hold a text beside the weights."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    if mark.changed_ms == 0:
        return Drained(open_streams=0)  # it has never been moved by us
    quiet_s = now.timestamp() - mark.changed_ms / 1_000
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
