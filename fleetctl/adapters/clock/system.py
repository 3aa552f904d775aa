"""Every step, adapters layer: the machine's own clock. Never a lease's time: that is the store's."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from fleetctl.domain.units import Instant, require_utc

LOOK_S = 0.05
"""How often a wait asks whether to wake, seconds: a person's order is seen in time that is not felt."""


class SystemClock:
    """`Clock` of this machine; a wait keeps its length when the wall clock is set meanwhile."""

    def now(self) -> Instant:
        """Return the time, aware UTC."""
        return datetime.now(UTC)

    def wait(self, until: Instant, wake: Callable[[], bool]) -> None:
        """Return at `until`, or at most 50 ms after `wake` says so."""
        end = time.monotonic() + (require_utc(until) - self.now()).total_seconds()
        while not wake():
            rest = end - time.monotonic()
            if rest <= 0:
                return
            time.sleep(min(rest, LOOK_S))
