"""Migrate, pure layer: which notice of a cloud (spot, maintenance, a block's end) takes machines away. Never I/O, clock, randomness."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.units import Instant

TARGET = "notice.target"
"""Hold reason of a cell whose target loses machines: nobody is sent there until it is whole again."""
SOURCE = "notice.source"
"""Hold reason of a cell whose source loses machines: nobody more is sent where they could not come back from."""
LOOK = timedelta(seconds=5)
"""How often a cell is looked at whose pools tell of their end: a spot notice may leave 30 s. Source: provision.md 2.4."""


def leaving(signals: Iterable[Signal], pool: PoolId) -> Signal | None:
    """Return the most urgent notice that takes a machine of the pool away, None where there is none; what only warns is none."""
    mine = [s for s in signals if s.pool == pool and s.severity == "critical"]
    return min(mine, key=lambda s: (s.deadline is not None, s.deadline or s.seen_at), default=None)


def notice_text(s: Signal, now: Instant) -> str:
    """Return a notice in words, with the time that is left."""
    if s.deadline is None:
        return f"{s.subject} of {s.pool} goes at once ({s.kind})"
    left = (s.deadline - now).total_seconds()
    when = f"in {left:.0f} s, at {s.deadline:%H:%M:%S} UTC" if left < 3600 else f"at {s.deadline:%Y-%m-%d %H:%M} UTC"
    return f"{s.subject} of {s.pool} goes {when if left > 0 else 'now'} ({s.kind})"


def percent_text(bp: int) -> str:
    """Return what happens to customers, for a page."""
    return f"taking {bp / 100:g} % home" if bp else "nobody is there"
