"""Plan, pure layer: a fleet as arrays, and what an assignment of its cells costs. Never sees a fleet, a catalogue or a solver.

Cells w choose one pool p each; pools hold whole VMs. With a[w, p] GPUs, g[p] GPUs and c[p] USD/h per VM:

    then   n[p] >= idle[p] + stay[p] / g[p]        VMs that serve no declared cell today stay in the bill
           n[p] >= (stay[p] + come[p]) / g[p]      n whole, n >= paid[p]: prepaid capacity saves no cash before it ends
    peak   k[p] >= count[p], (base[p] + come[p]) / g[p];  k[p] <= most[p];  caps @ k <= limits: while both sides run
    spread n[p] (of a cell that enters: k[p] too) >= 2 for a cell of two replicas or more, where the pool has as many
    cover  sum over s of v[s, p] <= n[p] - paid[p],  sum over p of units[s, p] v[s, p] <= funds[s]: VMs that commitments pay for
    least  sum c[p] (n[p] - sum over s of v[s, p]) + sum move[w, p]

stay and come are the GPUs of cells that keep or enter a pool, base those of all its cells today.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleetctl.planning.cover import covered

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
TINY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One fleet to place.

    Args:
        load: (cells, pools) GPUs that a cell takes there, odd sizes rounded up to what packs; only `allowed` entries count.
        least_load: the same without rounding (for the bound); None where nothing was rounded.
        allowed: (cells, pools) where a cell may be; its own pool is always allowed unless the cell is pinned elsewhere.
        move: (cells, pools) USD/h of moving, spread over the horizon; on the own pool what staying is fined with, 0 as a rule.
        start: (cells,) pool of today; spread: (cells,) least VMs that a pool with this cell has.
        size: (pools,) GPUs of a VM; price: USD/h of a VM; count, most, idle, paid: VMs today, allowed, of no cell, paid anyway.
        caps: (rows, pools) of shared limits per VM at the peak (kW, GPUs of a vendor, USD/h); limits: (rows,).
        units, funds: (commitments, pools) and (commitments,) of those that count by scope (`fleetctl.planning.commitments`).
        most_moves, most_gpus: cells that may move, and GPUs (where they are) of those; endless where nothing limits them.
        group: (cells,) number of the group that a cell must stand apart from, -1 for none; () where there is no group.
    """

    load: Floats
    allowed: Bools
    move: Floats
    start: Ints
    spread: Ints
    size: Floats
    price: Floats
    count: Floats
    most: Floats
    idle: Floats
    paid: Floats
    caps: Floats
    limits: Floats
    least_load: Floats | None = None
    most_moves: float = np.inf
    most_gpus: float = np.inf
    units: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    funds: Floats = field(default_factory=lambda: np.zeros(0))
    group: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def is_limited(self) -> bool:
        """Tell whether fewer cells may move than would."""
        return bool(np.isfinite(self.most_moves) or np.isfinite(self.most_gpus))

    @property
    def cells(self) -> int:
        """Return the number of cells."""
        return int(self.load.shape[0])

    @property
    def pools(self) -> int:
        """Return the number of pools."""
        return int(self.load.shape[1])

    @property
    def base(self) -> Floats:
        """Return the GPUs that today's cells take per pool."""
        return held(self, self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Multipliers of the program's rows, USD/h per GPU and, for caps, per unit of the row, for cover per VM; all at least 0.

    Any such prices prove a lower bound; good ones prove a tight one.
    """

    stay: Floats
    both: Floats
    peak: Floats
    caps: Floats
    cover: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Where every cell goes, and what is proven about it.

    Args:
        pool: (cells,) index of the pool; vms, peak: (pools,) VMs then and at the peak.
        cost, bound: USD/h; proof: "prices" or "branch and bound".
        apart: USD/h that keeping groups apart costs in this answer, where the bound does not know of it; 0 elsewhere.
    """

    pool: Ints
    vms: Ints
    peak: Ints
    cost: float
    bound: float
    prices: Prices
    proof: str
    apart: float = 0.0


def held(p: Program, pool: Ints, among: Bools | None = None) -> Floats:
    """Return the GPUs per pool of an assignment, of all cells or those `among`."""
    rows = np.arange(p.cells) if among is None else np.flatnonzero(among)
    at = pool[rows]
    return np.bincount(at, weights=p.load[rows, at], minlength=p.pools).astype(np.float64)


def _widest(p: Program, pool: Ints, among: Bools) -> Floats:
    out = np.zeros(p.pools)
    np.maximum.at(out, pool[among], p.spread[among].astype(float))
    return out


def vms_of(p: Program, pool: Ints) -> tuple[Floats, Floats]:
    """Return the VMs per pool (then, at the peak) of an assignment."""
    stays = pool == p.start
    stay, come, base = held(p, pool, stays), held(p, pool, ~stays), p.base
    kept = np.maximum(np.ceil(stay / p.size - TINY), np.minimum(_widest(p, pool, stays), p.count))
    whole = np.maximum(np.ceil((stay + come) / p.size - TINY), np.minimum(_widest(p, pool, ~stays), p.most))
    then = np.maximum.reduce([p.idle + kept, whole, p.paid])
    spread = np.minimum(_widest(p, pool, ~stays), p.most)
    peak = np.maximum.reduce([p.count, np.ceil((base + come) / p.size - TINY), spread])
    return then, peak


def cost_of(p: Program, pool: Ints, then: Floats) -> float:
    """Return USD/h of an assignment with its VMs."""
    return float(p.price @ then + p.move[np.arange(p.cells), pool].sum()) - saved(p, then)


def saved(p: Program, then: Floats) -> float:
    """Return USD/h of these VMs that commitments by scope pay for."""
    if not len(p.funds):
        return 0.0
    paid_for = covered(p.units.tolist(), p.funds.tolist(), p.price.tolist(), (then - p.paid).tolist())
    return float(p.price @ np.array(paid_for))


def is_feasible(p: Program, peak: Floats) -> bool:
    """Tell whether these VMs at the peak keep every pool's limit and every cap."""
    return bool((peak <= p.most + TINY).all() and (p.caps @ peak <= p.limits + TINY * (1 + np.abs(p.limits))).all())


def reduced(p: Program, y: Prices, rows: Ints | slice = slice(None)) -> Floats:
    """Return (rows, pools) what each choice costs at these prices; infinite where it is not allowed."""
    load = (p.load if p.least_load is None else p.least_load)[rows]
    out = load * (y.both + y.peak)
    out += p.move[rows]
    start = p.start[rows]
    at = np.arange(len(start))
    out[at, start] = load[at, start] * (y.stay + y.both)[start] + p.move[rows][at, start]
    out[~p.allowed[rows]] = np.inf
    return out


def bound_of(p: Program, y: Prices, costs: Floats | None = None) -> float:
    """Return the lower bound that prices prove: every choice at its cheapest, every VM count at its better end.

    Source: Lagrangian duality (weak duality holds for any multipliers of the right sign).
    """
    cells = (reduced(p, y) if costs is None else costs).min(axis=1).sum()
    cover = y.cover if len(y.cover) else np.zeros(p.pools)
    slope = p.price - cover - p.size * (y.stay + y.both)
    low = np.maximum(p.idle, p.paid)
    then = np.minimum(slope * low, slope * p.most).sum() + (y.stay * p.size * p.idle).sum()
    tilt = y.caps @ p.caps - p.size * y.peak
    peak = np.minimum(tilt * p.count, tilt * p.most).sum() + (y.peak * exact_base(p)).sum() - float(y.caps @ p.limits)
    worth = np.divide(p.price - cover, p.units, out=np.zeros_like(p.units), where=p.units > 0) if len(p.funds) else np.zeros((0, 1))
    prepaid = float(cover @ p.paid) - float(p.funds @ worth.max(axis=1, initial=0.0))
    return float(cells + then + peak) + prepaid


def exact_base(p: Program) -> Floats:
    """Return today's GPUs per pool without rounding odd sizes up."""
    load = p.load if p.least_load is None else p.least_load
    return np.bincount(p.start, weights=load[np.arange(p.cells), p.start], minlength=p.pools).astype(np.float64)
