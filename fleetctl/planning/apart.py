"""Plan, pure layer: cells that must not share a target pool (a workload's `apart`). Never I/O.

Small programs hold the rule as rows (`with_rows`), so their answer and bound know of it. Larger ones do not: where two of a group would
share a pool, all but one lose that pool, and it is solved again, in large fleets a few times or never; what still clashes then goes to
its next best pool with room, by the prices of the last solution. The bound is the first solution's: without the rule nothing is dearer,
so it bounds what keeps the rule too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fleetctl.planning.assemble import Asked
from fleetctl.planning.highs import Model
from fleetctl.planning.polish import polished
from fleetctl.planning.program import TINY, Answer, Ints, Program, cost_of, reduced, vms_of
from fleetctl.planning.rooms import rooms_of

MOST_ROUNDS = 20
"""Of solving again."""
ROUND_CELLS = 20_000
"""Cells that all those rounds may decide anew together, so that their time is bounded: 2 rounds with 10,000 cells, none with more than
20,000."""


def kept_apart(program: Program, asked: Sequence[Asked], solve: Callable[[Program], Answer]) -> tuple[Program, Answer]:
    """Return an answer in which no two cells of a group share a pool that one of them enters, and the program that it answers."""
    first = answer = solve(program)
    if not any(a.workload.apart for a in asked):
        return program, answer
    for _ in range(min(MOST_ROUNDS, ROUND_CELLS // max(1, program.cells))):
        losers = _losers(program, asked, answer.pool)
        if not losers:
            break
        program = _without(program, losers)
        answer = solve(program)
    program, answer = _settled(program, asked, answer)
    extra = max(0.0, answer.cost - first.cost)
    return program, replace(answer, bound=min(first.bound, answer.cost), prices=first.prices, proof=first.proof, apart=extra)


def _without(program: Program, losers: Sequence[tuple[int, int]]) -> Program:
    """Return the program in which these (cell, pool) are not allowed; every such cell may stay."""
    allowed = program.allowed.copy()
    for w, pool in losers:
        allowed[w, pool] = False
        allowed[w, program.start[w]] = True
    return replace(program, allowed=allowed)


def _settled(program: Program, asked: Sequence[Asked], answer: Answer) -> tuple[Program, Answer]:
    """Send what clashes to its next best pool that has room and none of its group, else home, without solving again.

    Each turn takes a pool from every cell that clashes, so it ends; the last turns send them home, where there is always room.
    """
    pool, turn = answer.pool, 0
    while losers := _losers(program, asked, pool):
        program, turn = _without(program, losers), turn + 1
        pool = polished(program, _moved_on(program, answer, pool, [w for w, _ in losers] if turn <= program.pools else [], losers))
    if not turn:
        return program, answer
    then, peak = vms_of(program, pool)
    vms, most = np.rint(then).astype(np.int64), np.rint(peak).astype(np.int64)
    return program, replace(answer, pool=pool, vms=vms, peak=most, cost=cost_of(program, pool, then))


def _moved_on(program: Program, answer: Answer, pool: Ints, again: Sequence[int], losers: Sequence[tuple[int, int]]) -> Ints:
    """Return the assignment with the losers home, and those of `again` that find a better place there."""
    pool = pool.copy()
    for w, _ in losers:
        pool[w] = program.start[w]
    if not again:
        return pool
    _, peak = vms_of(program, pool)
    rooms = rooms_of(program, pool, peak, [str(k) for k in range(len(program.limits))])
    costs = reduced(program, answer.prices, np.array(again, dtype=np.int64))
    taken = {(int(program.group[w]), int(pool[w])) for w in np.flatnonzero(program.group >= 0).tolist()}
    for w, row in zip(again, costs, strict=True):
        group, spread = int(program.group[w]), int(program.spread[w])
        for q in np.argsort(row, kind="stable").tolist():
            if q == program.start[w] or not np.isfinite(row[q]):
                break
            gpus = float(program.load[w, q])
            if (group, q) not in taken and gpus <= rooms.of(q) + TINY and not rooms.against(q, gpus, spread):
                rooms.take(q, gpus, spread)
                taken.add((group, q))
                pool[w] = q
                break
    return pool


def with_rows(m: Model, p: Program, cells: Ints, pools: Ints, fixed: Ints) -> Model:
    """Return a mixed program that keeps groups apart.

    Args:
        cells, pools: of its first columns; fixed: (cells,) pool of those that it does not decide, -1 of the others.
    """
    high, rows = m.high.copy(), list[list[int]]()
    for group in np.unique(p.group[p.group >= 0]).tolist():
        mine = np.flatnonzero(p.group == group)
        standing = {int(fixed[w]): bool(p.start[w] != fixed[w]) for w in mine[np.argsort(p.start[mine] != fixed[mine])] if fixed[w] >= 0}
        columns = np.flatnonzero(p.group[cells] == group)
        for pool in np.unique(pools[columns]).tolist():
            here = columns[pools[columns] == pool]
            enter, stay = here[p.start[cells[here]] != pool], here[p.start[cells[here]] == pool]
            if pool in standing:
                high[here if standing[pool] else enter] = 0.0
            elif len(enter):
                rows += [[*enter.tolist(), int(s)] for s in stay] or ([enter.tolist()] if len(enter) > 1 else [])
    width = [len(row) for row in rows]
    first = len(m.row_low)
    return replace(
        m,
        high=high,
        row_low=np.concatenate((m.row_low, np.full(len(rows), -np.inf))),
        row_high=np.concatenate((m.row_high, np.ones(len(rows)))),
        entry_row=np.concatenate((m.entry_row, np.repeat(first + np.arange(len(rows)), width).astype(np.int64))),
        entry_column=np.concatenate((m.entry_column, np.array([c for row in rows for c in row], dtype=np.int64))),
        entry=np.concatenate((m.entry, np.ones(sum(width)))),
    )


def _losers(program: Program, asked: Sequence[Asked], pool: Ints) -> list[tuple[int, int]]:
    """Return (cell, pool) of those that must give way: to a cell that stays there, to a pinned one, else to the first by name."""
    held: dict[tuple[str, int], list[int]] = {}
    for w, a in enumerate(asked):
        if a.workload.apart:
            held.setdefault((a.workload.apart, int(pool[w])), []).append(w)
    out = []
    for (_, q), members in held.items():
        if len(members) < 2:
            continue
        enter = [w for w in members if program.start[w] != q]
        enter.sort(key=lambda w: (not asked[w].pinned, asked[w].cell.id))
        keep = 0 if len(enter) < len(members) else 1
        out += [(w, q) for w in enter[keep:] if not asked[w].pinned]
    return out
