"""Every step, adapters layer: jobs run one after the other in this process. Never in another, never kept beyond it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from datetime import timedelta

from fleetctl.domain.provision import Job
from fleetctl.domain.units import Instant
from fleetctl.errors import UsageError
from fleetctl.ports.state import Clock

IDLE = timedelta(seconds=1)


class InlineJobs:
    """`Jobs` in order of their time; each key runs once, ever.

    Args:
        clock: whose time it is, and by which it waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: list[tuple[Instant, int, Job]] = []
        self._seen: set[str] = set()

    def submit(self, job: Job, key: str, at: Instant) -> None:
        """Enqueue; the same key again does nothing."""
        if key in self._seen:
            return
        self._seen.add(key)
        heapq.heappush(self._queue, (at, len(self._seen), job))

    def run(self, handlers: Mapping[str, Callable[[Job], None]], stop: Callable[[], bool]) -> None:
        """Work until `stop` says so; a handler's error ends the run and is the caller's, the job counts as done.

        Raises:
            UsageError: usage.no_handler, for a job that no handler is named for.
        """
        while not stop():
            now = self._clock.now()
            if not self._queue or self._queue[0][0] > now:
                self._clock.wait(min([e[0] for e in self._queue[:1]] + [now + IDLE]), stop)
                continue
            job = heapq.heappop(self._queue)[2]
            handler = handlers.get(job.name)
            if handler is None:
                raise UsageError(
                    "usage.no_handler", f"nothing here does {job.name!r}; there is {', '.join(sorted(handlers)) or 'nothing'}."
                )
            handler(job)
