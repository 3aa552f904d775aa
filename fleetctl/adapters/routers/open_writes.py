"""Traffic, adapter layer: changes that were asked for and have no answer yet: nobody waits for them any more, and they may still come.

For routers that compare no token themselves: there a change that comes late would undo whatever was said after it. Never decides a weight.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from fleetctl.adapters.deadline import Deadline
from fleetctl.errors import TrafficNotApplied

OPEN_S = 30.0
"""How long a change without an answer may still come; far beyond a client's own time-outs."""

READ_BACK_S = 1.0
"""What of a call's time is kept for looking at what became of it."""
TAKE_BACK_S = 1.0
"""What is kept of a raise's time to take it back where it is not shown."""


class OpenWrites:
    """Those of one process, by the place that they change."""

    def __init__(self) -> None:
        self._open: list[tuple[str, float, threading.Event]] = []

    def write(self, place: str, deadline: Deadline, action: Callable[[], object], late: Callable[[], None]) -> None:
        """Do it on this thread; where it ended when nobody waited for it any more, `late` too. Raises what they raise."""
        ended = threading.Event()
        self._open.append((place, time.monotonic() + OPEN_S, ended))
        try:
            action()
            if deadline.left_s() <= 0:
                late()
        finally:
            ended.set()

    def of(self, place: str) -> tuple[threading.Event, ...]:
        """Return what is set when a change has ended, for each that may still come."""
        now = time.monotonic()
        self._open = [w for w in self._open if w[1] > now and not w[2].is_set()]
        return tuple(ended for where, _, ended in self._open if where == place)


def ended(before: Sequence[threading.Event], deadline: Deadline, what: str) -> None:
    """Wait until changes of before have ended, so that ours is the last word.

    Raises:
        TrafficNotApplied: traffic.not_shown, one may still come.
    """
    if not all(one.wait(max(0.0, deadline.left_s() - READ_BACK_S)) for one in before):
        text = f"{what} that was asked for before has no answer yet and may still come."
        raise TrafficNotApplied("traffic.not_shown", text, hint="It is looked at again by itself")
