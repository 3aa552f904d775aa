"""Traffic, adapter layer: the time that one call to a router may take. Never waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

CALL_LIMIT_S = 5.0
"""Nothing waits longer for the router. Source: contract of ports.traffic.Router."""

MOST_WAITING = 64
"""Calls whose answers nobody waits for any more; with so many, another one is not begun."""
_waiting = threading.BoundedSemaphore(MOST_WAITING)


class Deadline:
    """What is left of the time one call may take."""

    def __init__(self, seconds: float = CALL_LIMIT_S) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())


def within(deadline: Deadline, action: Callable[[], T]) -> T:
    """Do it in a thread of its own and wait at most what is left: a client's own time-outs count each read, not the whole call.

    Raises:
        TimeoutError: it did not end in time (its thread ends by the client's own time-outs), or 64 others have not ended yet. What the
            action raises.
    """
    left_s = deadline.left_s()
    if left_s <= 0:
        raise TimeoutError("no time is left")
    waiting = _waiting
    if not waiting.acquire(blocking=False):
        raise TimeoutError(f"{MOST_WAITING} calls before it have no answer yet")
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(action())
        except BaseException as why:  # it is raised again where somebody waits
            failed.append(why)
        finally:
            waiting.release()

    worker = threading.Thread(target=run, name="call", daemon=True)
    worker.start()
    worker.join(left_s)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError(f"no answer within {CALL_LIMIT_S:g} s")
    return done[0]
