"""Plan, pure layer: the cheapest assignment of a program that can be found in the time, with the prices that prove how near it is.

Small programs: one mixed program over everything. Larger ones: (1) prices of pools from a linear program over all cells or an even
sample of them; (2) each cell at its cheapest choice by those prices, the most decided first, keeping all limits; (3) mixed programs
over the cells that hardly prefer one pool, whole VMs at last. Pool counts stay continuous in (1): branching on them wastes the time.

Source: planning.md 5 (an optimum of the linear program splits at most one cell per pool and cap, so only these matter).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from fleetctl.planning.apart import with_rows
from fleetctl.planning.highs import Found, Model, run
from fleetctl.planning.polish import polished
from fleetctl.planning.program import (
    TINY,
    Answer,
    Bools,
    Floats,
    Ints,
    Prices,
    Program,
    bound_of,
    cost_of,
    held,
    is_feasible,
    reduced,
    vms_of,
)

EXACT_CHOICES = 600
"""Up to so many choices (allowed cell and pool pairs) one mixed program decides all."""
LIMITED_NODES = 1_000
"""Of the search tree where a limit of moves is kept and the choices are more than those."""
LINEAR_CELLS = 12_000
"""Up to so many cells stand in the linear program; of more, an even sample of about so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to try.

    Args:
        rounds: mixed programs at most; nodes: of each one's search tree; seconds: for each, a safety net for slow machines.
        width: cells per pool decided anew in each; gap_pct: proven, enough to stop.
        gain: share of the open gap that a round must close, else it is the last; many shallow searches beat a few deep ones.
    """

    rounds: int = 6
    nodes: int = 2
    seconds: float = 60.0
    width: int = 8
    gap_pct: float = 0.05
    gain: float = 0.02


def solve(p: Program, effort: Effort | None = None) -> Answer:
    """Return the best assignment found, its VMs and a proven lower bound.

    The assignment of today (pins moved) must be feasible.
    """
    effort = effort or Effort()
    if p.is_limited or int(p.allowed[_free(p)].sum()) <= EXACT_CHOICES:
        return _exact(p, effort)
    y, leaning = _prices(p)
    costs = reduced(p, y)
    bound = bound_of(p, y, costs)
    tries = [refilled(p, y, greedy(p, costs, leaning, split_first=first)) for first in (False, True)]
    pool = polished(p, min(tries, key=lambda t: cost_of(p, t, vms_of(p, t)[0])))
    pool = _improve(p, pool, costs, p.price - p.size * (y.stay + y.both), bound, effort)
    return _answer(p, pool, y, bound, "prices")


def _answer(p: Program, pool: Ints, y: Prices, bound: float, proof: str) -> Answer:
    then, peak = vms_of(p, pool)
    cost = cost_of(p, pool, then)
    return Answer(
        pool=pool,
        vms=np.rint(then).astype(np.int64),
        peak=np.rint(peak).astype(np.int64),
        cost=cost,
        bound=min(bound, cost),
        prices=y,
        proof=proof,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The cells that a program decides, with what the others hold.

    Args:
        rows: cells decided; choices: (rows, pools) what each may choose; scale: cells that each stands for.
        stay, come: GPUs of the cells that are fixed; least, top: VMs that those need for spreading.
        sparse: rows of spreading only where the load does not ask for as many VMs.
    """

    rows: Ints
    choices: Bools
    scale: float
    stay: Floats
    come: Floats
    least: Floats
    top: Floats
    sparse: bool = False


def _fixed(p: Program, pool: Ints, free: Ints, choices: Bools, *, sparse: bool) -> _Part:
    """Return the part that decides the cells `free`, all others as `pool` has them."""
    fixed = np.ones(p.cells, bool)
    fixed[free] = False
    stays = pool == p.start

    def widest(among: Bools) -> Floats:
        out = np.zeros(p.pools)
        np.maximum.at(out, pool[among], p.spread[among].astype(float))
        return out

    return _Part(
        rows=free,
        choices=choices,
        scale=1.0,
        stay=held(p, pool, fixed & stays),
        come=held(p, pool, fixed & ~stays),
        least=np.maximum(p.idle + np.minimum(widest(fixed & stays), p.count), np.minimum(widest(fixed & ~stays), p.most)),
        top=np.minimum(widest(fixed & ~stays), p.most),
        sparse=sparse,
    )


def _model(p: Program, part: _Part, *, whole: bool) -> tuple[Model, Ints, Ints]:
    """Return the program, and of its first columns the row within the part and the pool."""
    r, c = np.nonzero(part.choices)
    cells = part.rows[r]
    n, pools, caps = len(r), p.pools, len(p.limits)
    load, stays = p.load[cells, c] * part.scale, c == p.start[cells]
    x, vm, top = np.arange(n), n + np.arange(pools), n + pools + np.arange(pools)
    first = len(part.rows)
    stay, both, peak, cap = first, first + pools, first + 2 * pools, first + 3 * pools
    capped_row, capped_pool = np.nonzero(p.caps)
    every = np.arange(pools)
    entry_row = [r, stay + c[stays], both + c, peak + c[~stays], stay + every, both + every, peak + every, cap + capped_row]
    entry_column = [x, x[stays], x, x[~stays], vm, vm, top, top[capped_pool]]
    entry = [np.ones(n), -load[stays], -load, -load[~stays], p.size, p.size, p.size, p.caps[capped_row, capped_pool]]
    low = np.concatenate((np.ones(first), p.size * p.idle + part.stay, part.stay + part.come, p.base + part.come, np.full(caps, -np.inf)))
    high = np.concatenate((np.ones(first), np.full(3 * pools, np.inf), p.limits))
    if whole:
        need = np.minimum(p.spread[cells], np.where(stays, np.minimum(p.most, p.count)[c], p.most[c]))
        few = (part.stay + part.come < 2 * p.size) & (part.least < 2) if part.sparse else np.ones(pools, bool)
        wide = np.flatnonzero((need > 1) & few[c])
        row = len(low) + np.arange(len(wide))
        entry_row += [row, row]
        entry_column += [vm[c[wide]], x[wide]]
        entry += [np.ones(len(wide)), -(need + np.where(stays, p.idle[c], 0.0))[wide]]
        enter = wide[~stays[wide]]
        row = len(low) + len(wide) + np.arange(len(enter))
        entry_row += [row, row]
        entry_column += [top[c[enter]], x[enter]]
        entry += [np.ones(len(enter)), -need[enter].astype(float)]
        more = len(wide) + len(enter)
        low, high = np.concatenate((low, np.zeros(more))), np.concatenate((high, np.full(more, np.inf)))
        if p.is_limited:
            goes = np.flatnonzero(~stays & p.allowed[cells, p.start[cells]])
            entry_row += [np.full(len(goes), len(low)), np.full(len(goes), len(low) + 1)]
            entry_column += [goes, goes]
            entry += [np.ones(len(goes)), p.load[cells[goes], p.start[cells[goes]]]]
            low = np.concatenate((low, np.full(2, -np.inf)))
            high = np.concatenate((high, [p.most_moves, p.most_gpus]))
    which, paying = np.nonzero(p.units) if len(p.funds) else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if len(p.funds):
        pay = n + 2 * pools + np.arange(len(which))
        row = len(low) + every
        entry_row += [row, row[paying], len(low) + pools + which]
        entry_column += [vm, pay, pay]
        entry += [np.ones(pools), -np.ones(len(which)), p.units[which, paying]]
        low = np.concatenate((low, p.paid, np.full(len(p.funds), -np.inf)))
        high = np.concatenate((high, np.full(pools, np.inf), p.funds))
    whole_ones = np.concatenate((np.ones(n + 2 * pools, bool), np.zeros(len(which), bool)))
    model = Model(
        cost=np.concatenate((p.move[cells, c] * part.scale, p.price, np.zeros(pools), -p.price[paying])),
        low=np.concatenate((np.zeros(n), np.maximum(p.paid, part.least), np.maximum(p.count, part.top), np.zeros(len(which)))),
        high=np.concatenate((np.ones(n), np.maximum(p.most, p.count), np.maximum(p.most, p.count), np.full(len(which), np.inf))),
        row_low=low,
        row_high=high,
        entry_row=np.concatenate(entry_row),
        entry_column=np.concatenate(entry_column),
        entry=np.concatenate(entry),
        whole=whole_ones if whole else None,
    )
    return model, r, c


def _chosen(found: Found, part: _Part, r: Ints, c: Ints) -> Ints:
    grid = np.full(part.choices.shape, -1.0)
    grid[r, c] = 0.0 if found.values is None else found.values[: len(r)]
    chosen: Ints = grid.argmax(axis=1).astype(np.int64)
    return chosen


def _everything(p: Program, rows: Ints, scale: float) -> _Part:
    nothing = np.zeros(p.pools)
    return _Part(rows=rows, choices=p.allowed[rows], scale=scale, stay=nothing, come=nothing, least=nothing, top=nothing)


def _free(p: Program) -> Bools:
    """Return the cells that have a choice."""
    some: Bools = p.allowed.sum(axis=1) > 1
    return some


def _exact(p: Program, effort: Effort) -> Answer:
    """Decide every cell that has a choice in one mixed program; a limit of moves is one of its rows."""
    free = _free(p)
    rows, pool = np.flatnonzero(free), p.allowed.argmax(axis=1).astype(np.int64)
    pool[rows] = p.start[rows]
    part = _fixed(p, pool, rows, p.allowed[rows], sparse=False)
    model, r, c = _model(p, part, whole=True)
    if len(p.group):
        model = with_rows(model, p, rows[r], c, np.where(free, -1, pool))
    limited = p.is_limited and int(p.allowed[rows].sum()) > EXACT_CHOICES
    found = run(model, seconds=120.0, gap=1e-4 if limited else 0.0, nodes=LIMITED_NODES if limited else None)
    y, _ = _prices(p)
    proven = bound_of(p, y)
    exact = -np.inf
    if found.values is not None:
        pool[rows] = _chosen(found, part, r, c)
        fixed = float(p.move[np.flatnonzero(~free), pool[~free]].sum())
        exact = found.bound + fixed if np.isfinite(found.bound) else -np.inf
        if p.least_load is not None:  # what odd sizes take in the best packing bounds what they take in this one
            exact = _exact(replace(p, load=p.least_load, least_load=None), effort).bound
    elif not p.is_limited:
        pool = greedy(p, reduced(p, y))
    return _answer(p, pool, y, max(proven, exact), "branch and bound" if exact > proven + TINY else "prices")


def _prices(p: Program) -> tuple[Prices, Ints]:
    """Return multipliers from the linear program over all cells, or over an even sample that stands for all; and, of the cells that
    it decided whole, the pool (-1 for the others)."""
    own = p.load[np.arange(p.cells), p.start]
    order = np.lexsort((own, p.start))
    stride = max(1, -(-p.cells // LINEAR_CELLS))
    rows = np.sort(order[stride // 2 :: stride])
    part = _everything(p, rows, p.cells / len(rows))
    model, r, c = _model(p, part, whole=False)
    found = run(model, seconds=900.0)
    duals = found.duals[len(rows) :]
    stay, both, peak, caps, cover, _ = np.split(duals, np.cumsum([p.pools] * 3 + [len(p.limits), p.pools if len(p.funds) else 0]))
    leaning = np.full(p.cells, -1, np.int64)
    if found.values is not None:
        whole = np.flatnonzero(found.values[: len(r)] > 1 - TINY)
        leaning[rows[r[whole]]] = c[whole]
    y = Prices(
        stay=np.maximum(stay, 0), both=np.maximum(both, 0), peak=np.maximum(peak, 0), caps=np.maximum(-caps, 0), cover=np.maximum(cover, 0)
    )
    return y, leaning


def greedy(p: Program, costs: Floats, leaning: Ints | None = None, *, split_first: bool = False) -> Ints:
    """Return a feasible assignment: each cell at its cheapest choice that has room, those with most to lose first.

    Args:
        leaning: pools of cells that a linear program decided whole, -1 for the others; split_first: the others go before them.
    """
    best = np.argsort(costs, axis=1)[:, :8]
    at = np.arange(p.cells)
    second = costs[at, best[:, 1]] if p.pools > 1 else np.full(p.cells, np.inf)
    regret = np.where(np.isfinite(second), second, 1e12) - costs[at, best[:, 0]]
    used, vms = p.base.tolist(), np.maximum(p.count, np.ceil(p.base / p.size - TINY)).tolist()
    size, most, spread = p.size.tolist(), p.most.tolist(), p.spread.tolist()
    weights, left = p.caps.T.tolist(), (p.limits - p.caps @ np.array(vms)).tolist()
    finite, start, load = np.isfinite(costs), p.start.tolist(), p.load
    pool = p.start.copy()
    if leaning is not None:
        led = np.flatnonzero(leaning >= 0)
        best[led, 0] = leaning[led]
        regret[led] += 1e13
        if split_first:  # the largest first of those that the linear program split, small ones fill what is left
            split = np.flatnonzero(leaning < 0)
            regret[split] = 1e14 + p.load[split, best[split, 0]]
    for w in np.argsort(-regret, kind="stable").tolist():
        for q in best[w].tolist():
            if q == start[w] or not finite[w, q]:
                break
            want = used[q] + float(load[w, q])
            more = max(0.0, max(ceil(want / size[q] - TINY), min(spread[w], most[q])) - vms[q])
            if vms[q] + more > most[q] + TINY or (more and any(a * more > b + TINY for a, b in zip(weights[q], left, strict=True) if a)):
                continue
            used[q], vms[q] = want, vms[q] + more
            if more:
                left = [b - a * more for a, b in zip(weights[q], left, strict=True)]
            pool[w] = q
            break
    return pool


def refilled(p: Program, y: Prices, pool: Ints) -> Ints:
    """Let cells into room that the prices count as scarce and that nobody took (a large cell that did not fit leaves such room)."""
    before, pool = pool, pool.copy()
    at = np.arange(p.cells)
    come = held(p, pool, pool != p.start)
    _, peak = vms_of(p, pool)
    room = p.size * p.most - p.base - come
    left = p.limits - p.caps @ peak
    each = [np.where(row > 0, most // np.where(row > 0, row, 1.0), np.inf) for row, most in zip(p.caps, left, strict=True)]
    grows = np.minimum.reduce(each or [np.full(p.pools, np.inf)])
    free = np.minimum(room, p.size * (peak + grows) - p.base - come)
    open_ = np.flatnonzero((y.peak > TINY) & (free >= 1))
    if not len(open_):
        return pool
    costs = reduced(p, y)
    gain = costs[at, pool][:, None] - (costs[:, open_] - p.load[:, open_] * y.peak[open_])
    gain[~(p.allowed[:, open_] & (p.start[:, None] != open_) & (pool[:, None] != open_))] = -np.inf
    rate = gain / p.load[:, open_].clip(1.0)
    rows, columns = np.nonzero(rate > TINY)
    taken = np.zeros(p.cells, bool)
    for i in np.argsort(-rate[rows, columns], kind="stable").tolist():
        w, q = int(rows[i]), int(open_[columns[i]])
        load = float(p.load[w, q])
        if taken[w] or load > free[q]:
            continue
        trial = pool[w]
        pool[w], taken[w] = q, True
        free[q] -= load
        if trial != p.start[w]:
            free[trial] += float(p.load[w, trial])
    _, peak = vms_of(p, pool)
    return pool if is_feasible(p, peak) else before


def _improve(p: Program, pool: Ints, costs: Floats, slope: Floats, bound: float, effort: Effort) -> Ints:
    then, _ = vms_of(p, pool)
    best = cost_of(p, pool, then)
    width = effort.width
    for turn in range(effort.rounds):
        open_ = best - bound
        if open_ <= effort.gap_pct / 100 * abs(best):
            break
        trial = polished(p, _neighbour(p, pool, costs, slope, width, effort))
        then, peak = vms_of(p, trial)
        cost = cost_of(p, trial, then)
        gained = best - cost
        if is_feasible(p, peak) and gained > 1e-9:
            pool, best = trial, cost
        if gained < effort.gain * open_:
            if turn > 0:
                break
            width *= 2
    return pool


def _openings(p: Program, pool: Ints, costs: Floats, slope: Floats, width: int) -> tuple[Ints, Bools]:
    """Return the cells to decide anew and their choices.

    Per pool those that could come at the least loss; all of pools with few cells that need not be open; those farthest from their best.
    """
    at = np.arange(p.cells)
    loss = costs - costs[at, pool][:, None]
    loss[at, pool] = np.inf
    choices = np.zeros(p.allowed.shape, bool)
    k = min(width, p.cells - 1)
    rows = np.argpartition(loss, k, axis=0)[:k]
    choices[rows, np.arange(p.pools)] = True
    kept = np.bincount(pool, weights=p.load[at, pool], minlength=p.pools)
    crowd = np.bincount(pool, minlength=p.pools)
    few = (kept > 0) & (((kept <= p.size) & (crowd <= width)) | ((slope > TINY) & (crowd <= 4 * width)))
    away = costs[at, pool] - costs.min(axis=1)
    far = np.argpartition(-away, k)[:k]
    last = np.union1d(np.flatnonzero(few[pool]), far[away[far] > TINY])
    if len(last):
        near = min(3, p.pools - 1)
        choices[last[:, None], np.argpartition(loss[last], near, axis=1)[:, :near]] = True
    choices &= np.isfinite(loss)
    rows = np.flatnonzero(choices.any(axis=1))
    choices[rows, pool[rows]] = True
    return rows, choices[rows]


def _neighbour(p: Program, pool: Ints, costs: Floats, slope: Floats, width: int, effort: Effort) -> Ints:
    """Decide anew the cells that are nearest to another pool, all others as they are."""
    rows, choices = _openings(p, pool, costs, slope, width)
    part = _fixed(p, pool, rows, choices, sparse=True)
    model, r, c = _model(p, part, whole=True)
    then, peak = vms_of(p, pool)
    start = np.concatenate(((pool[rows][r] == c).astype(float), then, peak)) if not len(p.funds) else None
    found = run(model, seconds=effort.seconds, gap=1e-5, start=start, nodes=effort.nodes)
    out = pool.copy()
    if found.values is not None:
        out[rows] = _chosen(found, part, r, c)
    return out
