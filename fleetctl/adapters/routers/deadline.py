"""Traffic, adapter layer: the time that one call to a router may take. Never waits."""

from __future__ import annotations

import time

CALL_LIMIT_S = 5.0
"""Nothing waits longer for the router. Source: contract of ports.traffic.Router."""


class Deadline:
    """What is left of the time one call may take."""

    def __init__(self, seconds: float = CALL_LIMIT_S) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())
