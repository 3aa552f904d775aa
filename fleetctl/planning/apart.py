"""Plan, pure layer: cells that must not share a target pool (a workload's `apart`). Never I/O.

Small programs hold the rule as rows (`with_rows`), so their answer and bound know of it. Larger ones do not: where two of a group would
share a pool, all but one lose that pool, and it is solved again. The bound is then the first solution's: without the rule nothing is
dearer, so it bounds what keeps the rule too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fleetctl.planning.assemble import Asked
from fleetctl.planning.highs import Model
from fleetctl.planning.program import Answer, Ints, Program

MOST_ROUNDS = 20
"""Then every cell that still clashes stays."""
ROUND_CELLS = 200_000
"""Cells that all rounds may decide anew together: of large fleets, whose rounds take long, there are fewer; two at least."""


def kept_apart(program: Program, asked: Sequence[Asked], solve: Callable[[Program], Answer]) -> tuple[Program, Answer]:
    """Return an answer in which no two cells of a group share a pool that one of them enters, and the program that it answers."""
    first = answer = solve(program)
    if not any(a.workload.apart for a in asked):
        return program, answer
    most = max(2, min(MOST_ROUNDS, ROUND_CELLS // max(1, program.cells)))
    for number in range(most + 1):
        losers = _losers(program, asked, answer)
        if not losers:
            break
        allowed = program.allowed.copy()
        for w, pool in losers:
            if number < most:
                allowed[w, pool] = False
            else:
                allowed[w] = False
                allowed[w, program.start[w]] = True
        program = replace(program, allowed=allowed)
        answer = solve(program)
    extra = max(0.0, answer.cost - first.cost)
    return program, replace(answer, bound=min(first.bound, answer.cost), prices=first.prices, proof=first.proof, apart=extra)


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


def _losers(program: Program, asked: Sequence[Asked], answer: Answer) -> list[tuple[int, int]]:
    """Return (cell, pool) of those that must give way: to a cell that stays there, to a pinned one, else to the first by name."""
    held: dict[tuple[str, int], list[int]] = {}
    for w, a in enumerate(asked):
        if a.workload.apart:
            held.setdefault((a.workload.apart, int(answer.pool[w])), []).append(w)
    out = []
    for (_, pool), members in held.items():
        if len(members) < 2:
            continue
        enter = [w for w in members if program.start[w] != pool]
        enter.sort(key=lambda w: (not asked[w].pinned, asked[w].cell.id))
        keep = 0 if len(enter) < len(members) else 1
        out += [(w, pool) for w in enter[keep:] if not asked[w].pinned]
    return out
