"""Plan, pure layer: what pools and shared limits could still take beside an assignment. Never solves, never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from fleetctl.planning.program import TINY, Floats, Ints, Program, held


@dataclass(slots=True, kw_only=True)
class Rooms:
    """GPUs and VMs at the peak, and what is left of each shared limit; `take` books one more cell.

    Args:
        used: GPUs per pool while both sides are up; vms: VMs of it then; left: per shared limit, negative where it is exceeded.
    """

    program: Program
    used: Floats
    vms: Floats
    left: Floats
    names: Sequence[str]

    def of(self, pool: int) -> float:
        """Return the GPUs that a pool could still take."""
        return float(self.program.most[pool] * self.program.size[pool] - self.used[pool])

    def more(self, pool: int, gpus: float, spread: int = 1) -> float:
        """Return the VMs that a pool would have to open for so many more GPUs."""
        p = self.program
        want = max(ceil((self.used[pool] + gpus) / p.size[pool] - TINY), min(spread, p.most[pool]))
        return max(0.0, float(want - self.vms[pool]))

    def against(self, pool: int, gpus: float, spread: int = 1) -> str:
        """Return the shared limit that so many more GPUs would exceed, "" where none."""
        more = self.more(pool, gpus, spread)
        if more:
            for k, name in enumerate(self.names):
                need = float(self.program.caps[k, pool]) * more
                if need > 0 and need > self.left[k] + TINY * (1 + abs(float(self.program.limits[k]))):
                    return name
        return ""

    def take(self, pool: int, gpus: float, spread: int = 1) -> None:
        """Book GPUs on a pool."""
        more = self.more(pool, gpus, spread)
        self.used[pool] += gpus
        self.vms[pool] += more
        self.left = self.left - self.program.caps[:, pool] * more


def rooms_of(p: Program, pool: Ints, peak: Floats, names: Sequence[str]) -> Rooms:
    """Return what is left beside an assignment, whose VMs at the peak are `peak`."""
    come = held(p, pool, pool != p.start)
    return Rooms(program=p, used=p.base + come, vms=peak.astype(np.float64), left=p.limits - p.caps @ peak, names=names)
