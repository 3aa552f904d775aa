"""Configure, use-case layer: how long a pool's hosts took from bare to ready, for those who plan the next ones. Never judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleetctl.domain.calendar import ReadyTime
from fleetctl.domain.ids import PoolId
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.domain.units import Instant
from fleetctl.ports.state import Records

MAKING = ("site", "rocm_node", "nvidia_node")
"""Plays that make nodes; others say nothing about how long that takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToReady:
    """What the last run took that made hosts ready; record kind of its own.

    Args:
        seconds: of the slowest host, all its tasks; models_seconds: of that, getting models; hosts: how many became ready.
    """

    pool: PoolId
    hosts: int
    seconds: float
    models_seconds: float
    at: Instant


def ready_times(records: Records, pools: Sequence[PoolId]) -> dict[PoolId, ReadyTime]:
    """Return what was measured of these pools; what never was is left out."""
    found = {p: records.get(TimeToReady, p) for p in pools}
    return {p: ReadyTime(pool=p, seconds=t.seconds, models_seconds=t.models_seconds, at=t.at) for p, t in found.items() if t is not None}


@dataclass(slots=True)
class Stopwatch:
    """Passes progress on and sums up what each host's tasks took."""

    on: Callable[[Progress], None]
    _all: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _models: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def __call__(self, p: Progress) -> None:
        """Note one step."""
        self._all[p.subject] += p.seconds
        if p.step.startswith("model_store : "):
            self._models[p.subject] += p.seconds
        self.on(p)

    def record(self, pool: PoolId, play: str, results: Sequence[HostResult], now: Instant) -> TimeToReady | None:
        """Return what is worth keeping; None where the play makes no nodes, or no host was changed to its end.

        Args:
            results: of hosts that were bare.
        """
        ready = [r.host for r in results if r.state == "ok" and r.changed]
        if play not in MAKING or not ready:
            return None
        slowest = max(ready, key=lambda h: self._all[h])
        return TimeToReady(
            pool=pool, hosts=len(ready), seconds=round(self._all[slowest], 1), models_seconds=round(self._models[slowest], 1), at=now
        )
