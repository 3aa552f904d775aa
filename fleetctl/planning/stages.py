"""Plan, pure layer: what the release of source VMs makes room for: stages of waves, each placed on what the one before leaves. No I/O.

Stage 1 is the cheapest plan in which nothing waits for a release: everything of today stays up while its cells move. Once the soak of
its last wave is over, what no cell needs any more is given back, and stage 2 is the cheapest plan for the cells that have not moved, on
what is left: quotas, power and budget count from there. And so on, while a stage still saves money. A cell moves once.

Each stage is proven by itself: its bound holds for every plan that does the same before it and waits for no further release. So the whole
is the best stage by stage; a plan that holds cells back on purpose, to make more room later, may end cheaper and takes longer. Fleets of
more cells than the linear program takes are planned in one stage, and the plan says so (at 10,000 cells a second one saved 0.02 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from fleetctl.planning.apart import kept_apart
from fleetctl.planning.assemble import Asked
from fleetctl.planning.candidates import Site
from fleetctl.planning.program import TINY, Answer, Bools, Floats, Program, cost_of, held, vms_of
from fleetctl.planning.rooms import Rooms, rooms_of
from fleetctl.planning.solve import EXACT_CHOICES, LINEAR_CELLS, Effort

LEAST_GAIN = 0.005
"""USD an hour that a later stage must save: half a cent, what the totals show."""

LATER_EFFORT = Effort(rounds=2)
"""Of a later stage: few cells are left that want to move."""


class Solver(Protocol):
    """Finds the best assignment of a program (`fleetctl.planning.solve`)."""

    def __call__(self, p: Program, effort: Effort | None = None) -> Answer:
        """Return it, with a proven bound."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage.

    Args:
        program: as it was asked (for the proof), before cells were kept apart; spent: USD/h of moves in earlier stages.
    """

    program: Program
    answer: Answer
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """All stages.

    Args:
        rooms: what is left after them; refused: why pinned cells found no place, by row: "apart", "" or a limit's name.
        unlooked: a release might help, and was not looked at since the fleet is too large.
    """

    stages: tuple[Stage, ...]
    rooms: Rooms
    refused: dict[int, str]
    unlooked: bool = False


def staged(
    program: Program,
    asked: Sequence[Asked],
    sites: Sequence[Site],
    raw: Floats,
    names: Sequence[str],
    solve: Solver,
    *,
    most: int,
    pins: Sequence[int],
) -> Staged:
    """Place stage by stage.

    Args:
        program: of today; pinned cells may only stay in it. raw: the shared limits as declared; names: of those.
        most: stages at most; pins: rows of pinned cells, in the order in which they are let in.
    """
    found: list[Stage] = []
    waiting, spent = list(pins), 0.0
    p, refused = program, dict[int, str]()
    while True:
        p, waiting, refused = _admitted(p, asked, waiting, names)
        p = p if not found else _held_back(p, asked, sites, found[0].program)
        _, answer = kept_apart(p, asked, partial(solve, effort=LATER_EFFORT if found else None))
        if found and answer.cost > _standing(p) - LEAST_GAIN and not _forced(p):
            return Staged(stages=tuple(found), rooms=rooms_of(p, p.start, p.count, names), refused=refused)
        found.append(Stage(program=p, answer=answer, spent=spent))
        went = answer.pool != p.start
        is_last = len(found) >= most or p.is_limited or not _may_wait(p, answer, waiting) or not bool(went.any())
        if is_last or p.cells > LINEAR_CELLS:
            rooms = rooms_of(p, answer.pool, answer.peak.astype(float), names)
            return Staged(stages=tuple(found), rooms=rooms, refused=refused, unlooked=not is_last)
        spent += float(p.move[went, answer.pool[went]].sum())
        p = after_release(p, answer, sites, raw)


def _may_wait(p: Program, answer: Answer, waiting: Sequence[int]) -> bool:
    """Tell whether a release could help anybody: a small program is asked, a large one by its prices of room at the peak."""
    small = int(p.allowed.sum()) <= EXACT_CHOICES + p.cells
    return bool(small or waiting or (answer.prices.peak > TINY).any() or (answer.prices.caps > TINY).any())


def _standing(p: Program) -> float:
    """Return what a program costs where everybody stays."""
    return cost_of(p, p.start, vms_of(p, p.start)[0])


def _forced(p: Program) -> bool:
    return not bool(p.allowed[np.arange(p.cells), p.start].all())


def after_release(p: Program, answer: Answer, sites: Sequence[Site], raw: Floats) -> Program:
    """Return the program of what a stage leaves: its VMs are today's, its cells have moved for good.

    VMs that serve no cell stay in the bill as before; those that are only paid for are not there. A pool that others built, or that gets
    no more VMs, cannot grow back.
    """
    pool, count = answer.pool, np.minimum(answer.vms, answer.peak).astype(np.float64)
    went = pool != p.start
    allowed, move = p.allowed.copy(), p.move.copy()
    allowed[went] = False
    allowed[went, pool[went]] = True
    move[went, pool[went]] = 0.0
    wide = np.zeros(p.pools)
    np.maximum.at(wide, pool, p.spread.astype(float))
    needed = np.maximum(np.ceil(held(p, pool) / p.size - TINY), np.minimum(wide, count))
    most = np.maximum(count, [float(s.pool.limit) if s.grows else 0.0 for s in sites])
    return replace(
        p,
        allowed=allowed,
        move=move,
        start=pool,
        count=count,
        most=most,
        idle=np.maximum(0.0, count - needed),
        paid=np.minimum(p.paid, most),
        limits=np.maximum(raw, p.caps @ count) if len(raw) else p.limits,
    )


def _held_back(p: Program, asked: Sequence[Asked], sites: Sequence[Site], first: Program) -> Program:
    """Return the program without what may not wait: capacity that ends, and workloads that others have moved ahead of (`after`)."""
    went = np.flatnonzero(p.start != first.start).tolist()
    needed = {name for w in went for name in asked[w].workload.after}
    ends = np.array([bool(s.pool.ends) for s in sites])
    rows: Bools = np.array([a.workload.id in needed for a in asked]) | ends[p.start]
    if not rows.any() and not ends.any():
        return p
    at = np.arange(p.cells)
    allowed, own = p.allowed.copy(), p.allowed[at, p.start]
    allowed[rows & own] = False
    allowed[np.ix_(own, ends)] = False
    allowed[at[own], p.start[own]] = True
    return replace(p, allowed=allowed)


def _admitted(
    p: Program, asked: Sequence[Asked], waiting: Sequence[int], names: Sequence[str]
) -> tuple[Program, list[int], dict[int, str]]:
    """Let pinned cells in, in their order, while pools and shared limits have room for them; the others wait, so that all can stay."""
    if not waiting:
        return p, [], {}
    rooms = rooms_of(p, p.start, p.count, names)
    taken = {(a.workload.apart, int(p.start[w])) for w, a in enumerate(asked) if a.workload.apart}
    allowed, left, refused = p.allowed.copy(), list[int](), dict[int, str]()
    for w in waiting:
        a, q = asked[w], asked[w].choices[0].pool
        gpus, spread, group = float(p.load[w, q]), int(p.spread[w]), (a.workload.apart, q)
        if group[0] and group in taken:
            refused[w] = "apart"
        elif gpus > rooms.of(q) + TINY:
            refused[w] = ""
        elif name := rooms.against(q, gpus, spread):
            refused[w] = name
        else:
            taken.add(group)
            rooms.take(q, gpus, spread)
            allowed[w] = False
            allowed[w, q] = True
            continue
        left.append(w)
    return replace(p, allowed=allowed), left, refused
