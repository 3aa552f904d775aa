"""Plan, pure layer: cells that must not share a target pool (a workload's `apart`). Never I/O.

The optimiser does not know of it: where two of a group would share a pool, all but one lose that pool, and it is solved again. The bound
is the first solution's: without the rule nothing is dearer, so it bounds what keeps the rule too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fleetctl.planning.assemble import Asked
from fleetctl.planning.program import Answer, Program

MOST_ROUNDS = 20
"""Then every cell that still clashes stays."""


def kept_apart(program: Program, asked: Sequence[Asked], solve: Callable[[Program], Answer]) -> tuple[Program, Answer]:
    """Return an answer in which no two cells of a group share a pool that one of them enters, and the program that it answers."""
    first = answer = solve(program)
    if not any(a.workload.apart for a in asked):
        return program, answer
    for number in range(MOST_ROUNDS + 1):
        losers = _losers(program, asked, answer)
        if not losers:
            break
        allowed = program.allowed.copy()
        for w, pool in losers:
            if number < MOST_ROUNDS:
                allowed[w, pool] = False
            else:
                allowed[w] = False
                allowed[w, program.start[w]] = True
        program = replace(program, allowed=allowed)
        answer = solve(program)
    return program, replace(answer, bound=min(first.bound, answer.cost), prices=first.prices, proof=first.proof)


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
