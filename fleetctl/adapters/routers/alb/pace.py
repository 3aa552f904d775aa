"""Traffic, adapter layer: how often this process asks AWS what stands, for one account and Region. Never decides what is asked.

All Describe calls of Elastic Load Balancing share one bucket of tokens per account and Region, which Terraform, consoles and controllers
empty too. So an operation takes a turn for all its looks before it begins, and where none comes in time it has cost nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleetctl.adapters.deadline import Deadline

LOOKS, LOOKS_PER_S = 32.0, 8.0
"""Four fifths of what AWS gives, the rest is for others. Source: AWS, Request throttling for the Elastic Load Balancing API: a bucket of 40
for Describe calls, refilled by 10 a second."""
TURN_S = 2.5
"""Longest wait for a turn: half of a call's time, the other half is for the call."""


class Throttled(Exception):
    """There is no turn in time."""


class Pace:
    """A bucket of tokens; safe for threads.

    Args:
        size: tokens in a full one, at least 1; per_s: how many come back a second.
    """

    def __init__(
        self,
        size: float = LOOKS,
        per_s: float = LOOKS_PER_S,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._size, self._per_s, self._now, self._sleep = size, per_s, now, sleep
        self._left, self._at = size, now()
        self._lock, self._mine = threading.Lock(), threading.local()

    @contextmanager
    def turn(self, looks: int, deadline: Deadline) -> Iterator[None]:
        """Take so many looks at once for what this thread does inside, and give back what it did not need. Raises Throttled."""
        self._take(looks, min(TURN_S, deadline.left_s()))
        self._mine.left = looks
        try:
            yield
        finally:
            with self._lock:
                self._left, self._mine.left = self._left + self._mine.left, 0

    def look(self, deadline: Deadline) -> None:
        """Take one look: of this thread's turn, else one of its own. Raises Throttled."""
        if getattr(self._mine, "left", 0) > 0:
            self._mine.left -= 1
            return
        self._take(1, deadline.left_s())

    def spent(self) -> None:
        """Take note that AWS has thrown a call back: others have emptied the bucket."""
        with self._lock:
            self._filled()
            self._left = min(self._left, 0.0)

    def _take(self, looks: int, within_s: float) -> None:
        with self._lock:
            self._filled()
            wait_s = max(0.0, (looks - self._left) / self._per_s)
            if wait_s > within_s:
                raise Throttled(f"{looks} looks would have to wait {wait_s:.1f} s")
            self._left -= looks
        if wait_s:
            self._sleep(wait_s)

    def _filled(self) -> None:
        now = self._now()
        self._left, self._at = min(self._size, self._left + (now - self._at) * self._per_s), now


_paces: dict[tuple[str, ...], Pace] = {}
_lock = threading.Lock()


def pace_of(arn: str) -> Pace:
    """Return the pace of an ARN's account and Region, one for the whole process."""
    with _lock:
        return _paces.setdefault(tuple(arn.split(":")[3:5]), Pace())
