"""A clock that a test turns: waiting jumps, nothing sleeps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from fleetctl.domain.units import Instant, require_utc

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class FakeClock:
    """Clock whose `wait` jumps to `until`, in steps, so that what happens meanwhile can wake it.

    Args:
        step: how far it jumps between two looks at `wake`; `on_step` is called after each.
    """

    def __init__(
        self, start: Instant = START, step: timedelta = timedelta(days=1), on_step: Callable[[Instant], None] | None = None
    ) -> None:
        self._now = require_utc(start)
        self._step = step
        self._on_step = on_step
        self.waits: list[Instant] = []

    def now(self) -> Instant:
        return self._now

    def wait(self, until: Instant, wake: Callable[[], bool]) -> None:
        self.waits.append(until)
        while self._now < until and not wake():
            self.advance(min(self._step, until - self._now))
            if self._on_step is not None:
                self._on_step(self._now)

    def advance(self, by: timedelta) -> None:
        if by < timedelta(0):
            raise ValueError("time does not go back")
        self._now += by
