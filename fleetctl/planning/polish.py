"""Plan, pure layer: takes back moves that do not pay in whole VMs. Never makes a move, so a feasible assignment stays feasible."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from fleetctl.planning.program import TINY, Bools, Ints, Program, cost_of, held, vms_of

PASSES = 3
"""Rounds over all moves at most: one that is taken back may make the next one worthless."""


@dataclass(slots=True)
class PoolHeld:
    """What one pool holds while cells go and come one by one: GPUs and cells that need two VMs, of those that stay and those that come."""

    size: float
    idle: float
    paid: float
    count: float
    most: float
    stay: float
    come: float
    stay_cells: int
    stay_wide: int
    come_cells: int
    come_wide: int

    def vms(self, stay: float, come: float, stay_wide: int, come_wide: int, kept: bool, any_: bool) -> float:
        """Return the VMs then, as `fleetctl.planning.program.vms_of` counts them."""
        least = 2.0 if stay_wide else 1.0 if kept else 0.0
        every = 2.0 if stay_wide + come_wide else 1.0 if any_ else 0.0
        here = max(ceil(stay / self.size - TINY), min(least, self.count))
        whole = max(ceil((stay + come) / self.size - TINY), min(every, self.most))
        return max(self.idle + here, whole, self.paid)

    def now(self) -> float:
        """Return the VMs of what it holds."""
        cells = self.stay_cells + self.come_cells
        return self.vms(self.stay, self.come, self.stay_wide, self.come_wide, self.stay_cells > 0, cells > 0)

    def without(self, load: float, wide: int) -> float:
        """Return the VMs once one that comes does not."""
        any_ = self.stay_cells + self.come_cells > 1
        return self.vms(self.stay, self.come - load, self.stay_wide, self.come_wide - wide, self.stay_cells > 0, any_)

    def left(self, load: float, wide: int) -> float:
        """Return the VMs once one that stays does not."""
        any_ = self.stay_cells + self.come_cells > 1
        return self.vms(self.stay - load, self.come, self.stay_wide - wide, self.come_wide, self.stay_cells > 1, any_)

    def entered(self, load: float, wide: int) -> float:
        """Return the VMs once one more comes."""
        return self.vms(self.stay, self.come + load, self.stay_wide, self.come_wide + wide, self.stay_cells > 0, True)

    def with_(self, load: float, wide: int) -> float:
        """Return the VMs once one more stays."""
        return self.vms(self.stay + load, self.come, self.stay_wide + wide, self.come_wide, True, True)


def polished(p: Program, pool: Ints) -> Ints:
    """Return the assignment without the moves that cost at least what they save; cells that may not stay are left alone.

    Commitments by scope are not reckoned with move by move: where it would cost with them, nothing is taken back.
    """
    given, pool = pool, pool.copy()
    at = np.arange(p.cells)
    moves = np.flatnonzero((pool != p.start) & p.allowed[at, p.start])
    if not len(moves):
        return pool
    pools = pools_held(p, pool)
    price = p.price.tolist()
    gain = p.load[moves, p.start[moves]] * (p.price / p.size)[p.start[moves]] - p.load[moves, pool[moves]] * (p.price / p.size)[pool[moves]]
    paid = p.move[moves, pool[moves]] - p.move[moves, p.start[moves]]
    order = moves[np.argsort(gain - paid, kind="stable")].tolist()
    for _ in range(PASSES):
        left = []
        for w in order:
            q, s = int(pool[w]), int(p.start[w])
            there, here, wide = float(p.load[w, q]), float(p.load[w, s]), int(p.spread[w] > 1)
            a, b = pools[q], pools[s]
            change = price[q] * (a.without(there, wide) - a.now()) + price[s] * (b.with_(here, wide) - b.now())
            if change - float(p.move[w, q] - p.move[w, s]) > TINY:
                left.append(w)
                continue
            a.come, a.come_cells, a.come_wide = a.come - there, a.come_cells - 1, a.come_wide - wide
            b.stay, b.stay_cells, b.stay_wide = b.stay + here, b.stay_cells + 1, b.stay_wide + wide
            pool[w] = s
        if len(left) == len(order):
            break
        order = left
    if len(p.funds) and cost_of(p, pool, vms_of(p, pool)[0]) > cost_of(p, given, vms_of(p, given)[0]):
        return given
    return pool


def pools_held(p: Program, pool: Ints) -> list[PoolHeld]:
    """Return what each pool holds of an assignment."""
    stays = pool == p.start
    wide: Bools = p.spread > 1
    stay, come = held(p, pool, stays).tolist(), held(p, pool, ~stays).tolist()

    def count(among: Bools) -> list[int]:
        found: list[int] = np.bincount(pool[among], minlength=p.pools).tolist()
        return found

    counts = (count(stays), count(stays & wide), count(~stays), count(~stays & wide))
    fixed = zip(p.size.tolist(), p.idle.tolist(), p.paid.tolist(), p.count.tolist(), p.most.tolist(), strict=True)
    return [PoolHeld(*f, stay[i], come[i], *(c[i] for c in counts)) for i, f in enumerate(fixed)]
