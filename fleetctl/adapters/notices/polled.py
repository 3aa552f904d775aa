"""Migrate, adapters layer: the port Notices by asking a cloud's or a cluster's API in the background. Never acts on a notice.

An API answers for all of a pool at once, but slowly and not often: a tick takes what was read last and never waits for the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.units import Instant
from fleetctl.ports.traffic import Notices

EVERY_S = 20.0
"""How old an answer may be before the next is asked for; AWS tells two minutes ahead of a spot interruption."""
FIRST_S = 1.5
"""Longest that the first answer is waited for."""
STUCK_S = 120.0
"""After which an answer that never came is counted as none."""
Read = Callable[[], tuple[Signal, ...]]


@dataclass(slots=True)
class _Kept:
    signals: tuple[Signal, ...] = ()
    read_at: float = 0.0
    asked_at: float = 0.0
    is_asking: bool = False


class PolledNotices:
    """Reads each pool's notices in a thread of its own; one that cannot be read is a signal "notices.silent", which moves nobody.

    Args:
        reads: by pool; whatever one raises is silence. now: the clock. first_s: longest that a first answer is waited for, seconds.
    """

    def __init__(self, reads: Mapping[PoolId, Read], now: Callable[[], Instant], *, first_s: float = FIRST_S) -> None:
        self._first_s = first_s
        self._reads = dict(reads)
        self._now = now
        self._kept: dict[PoolId, _Kept] = {}
        self._lock = threading.Lock()

    def watches(self, pool: PoolId) -> bool:
        """Tell whether the pool has a reader."""
        return pool in self._reads

    def read(self, pool: PoolId) -> tuple[Signal, ...]:
        """Return what was read last, and ask anew where that is old."""
        if pool not in self._reads:
            return ()
        with self._lock:
            kept = self._kept.setdefault(pool, _Kept())
            is_first, wants = kept.read_at == 0.0, not kept.is_asking and time.monotonic() - kept.read_at > EVERY_S
            if wants:
                kept.is_asking, kept.asked_at = True, time.monotonic()
        if wants:
            thread = threading.Thread(target=self._ask, args=(pool, kept), name=f"notices-{pool}", daemon=True)
            thread.start()
            if is_first:
                thread.join(self._first_s)
        stuck = kept.is_asking and time.monotonic() - kept.asked_at > STUCK_S
        return (*kept.signals, self._silent(pool)) if stuck else kept.signals

    def _ask(self, pool: PoolId, kept: _Kept) -> None:
        try:
            found = tuple(replace(s, pool=pool) for s in self._reads[pool]())
        except Exception:  # a thread has nobody to raise to, and a reader that fails is silence
            stood = tuple(s for s in kept.signals if s.kind != "notices.silent")
            found = (*stood, self._silent(pool))  # what was told once stands until somebody says otherwise
        kept.signals, kept.read_at, kept.is_asking = found, time.monotonic(), False

    def _silent(self, pool: PoolId) -> Signal:
        return Signal(subject=pool, kind="notices.silent", severity="info", seen_at=self._now(), source="api", pool=pool)


class AllNotices:
    """`Notices` of several sources as one."""

    def __init__(self, sources: Sequence[Notices]) -> None:
        self._sources = tuple(sources)

    def watches(self, pool: PoolId) -> bool:
        """Tell whether any of them can tell of the pool."""
        return any(s.watches(pool) for s in self._sources)

    def read(self, pool: PoolId) -> tuple[Signal, ...]:
        """Return what all of them say."""
        return tuple(signal for s in self._sources for signal in s.read(pool))
