"""Traffic and inventory, adapter layer: the time that one call to an outside thing may take as a whole. Knows no adapter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

CALL_LIMIT_S = 5.0
"""Nothing waits longer for the router. Source: contract of ports.traffic.Router."""

MOST_WAITING = 64
"""Calls to one place that have not ended; with so many, another one is not begun. Each place has its own, so that one that never answers
keeps no other from being asked."""
_waiting: dict[str, threading.BoundedSemaphore] = {}
_lock = threading.Lock()


class Deadline:
    """What is left of the time one call may take."""

    def __init__(self, seconds: float = CALL_LIMIT_S) -> None:
        self._end = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())


def within(deadline: Deadline, action: Callable[[], T], place: str) -> T:
    """Do it in a thread of its own and wait at most what is left: a client's own time-outs count each read, not the whole call.

    Args:
        place: what is asked, such as a router by its name; 64 calls to it may be open at a time.

    Raises:
        TimeoutError: it did not end in time (its thread ends by the client's own time-outs), or too many others have not ended yet.
            What the action raises.
    """
    with _lock:
        waiting = _waiting.setdefault(place, threading.BoundedSemaphore(MOST_WAITING))
    return _within(deadline, action, waiting)


def _within(deadline: Deadline, action: Callable[[], T], waiting: threading.BoundedSemaphore) -> T:
    left_s = deadline.left_s()
    if left_s <= 0:
        raise TimeoutError("no time is left")
    if not waiting.acquire(blocking=False):
        raise TimeoutError("too many calls before it have no answer yet")
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
        raise TimeoutError(f"no answer within {left_s:.1f} s")
    return done[0]


class Once(Generic[T]):
    """Makes a client when it is first called, so on the thread that `within` bounds; a try that failed is made again.

    Args:
        make: makes it; may ask for a credential and so take long.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._made, self._lock = make, list[T](), threading.Lock()

    def __call__(self) -> T:
        """Return it. Raises what its making raises."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


class Patience:
    """Bounds every call to one place; one that did not answer in time is not asked again for a while, whoever asks.

    Args:
        limit_s: longest wait for a whole call; silent_s: how long nobody asks after that.
    """

    def __init__(self, limit_s: float, silent_s: float, most: int = 8) -> None:
        self._limit_s, self._silent_s = limit_s, silent_s
        self._waiting = threading.BoundedSemaphore(most)
        self._silent_until = 0.0

    def ask(self, action: Callable[[], T]) -> T:
        """Do it, as `within`. Raises TimeoutError, also at once where it was not answered a moment ago; what the action raises."""
        if time.monotonic() < self._silent_until:
            raise TimeoutError(f"no answer a moment ago; asked again {self._silent_s:g} s after it")
        try:
            return _within(Deadline(self._limit_s), action, self._waiting)
        except TimeoutError:
            self._silent_until = time.monotonic() + self._silent_s
            raise
