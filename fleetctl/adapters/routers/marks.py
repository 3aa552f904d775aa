"""Traffic, adapter layer: cap, token and lease as one short text, for routers that can hold a text beside the weights."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


def read_mark(text: str) -> Mark:
    """Return the mark that `str()` wrote; anything else is one of zeros, which no writer has fenced."""
    found = _TEXT.match(text)
    if found is None:
        return Mark()
    cap, token, lease, changed = (int(part) for part in found.groups())
    return Mark(cap_bp=cap, token=token, lease_ms=lease, changed_ms=changed)
