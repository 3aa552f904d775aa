"""Stages on random small fleets: each the cheapest on what the one before leaves (every assignment tried), each within its limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.planning import apart
from fleetctl.planning.program import Answer, Program, bound_of, cost_of, is_feasible, saved, vms_of
from fleetctl.planning.solve import solve
from fleetctl.planning.stages import staged
from tests.property.test_placement_brute_force import is_apart, least_cost, programs


@dataclass
class _Pool:
    limit: int
    ends: str = ""


@dataclass
class _Site:
    pool: _Pool
    grows: bool


@dataclass
class _Workload:
    id: str
    apart: str = ""
    after: tuple[str, ...] = ()


@dataclass
class _Cell:
    id: str


@dataclass
class _Asked:
    workload: _Workload
    pinned: bool = False
    choices: tuple[Any, ...] = field(default=())
    cell: _Cell = field(default_factory=lambda: _Cell(""))


@st.composite
def tight(draw: st.DrawFn) -> Program:
    """Fleets with little room while both sides are up, so that a release often makes some."""
    p = draw(programs())
    share = draw(st.sampled_from([0.0, 1.0]))
    room = np.array([float(draw(st.sampled_from([0, 0, 1, 2]))) for _ in range(p.pools)])
    most = p.count + room
    caps = p.limits - (p.limits - p.caps @ p.count) * 0.5
    price = p.size * np.array([float(draw(st.integers(1, 12))) for _ in range(p.pools)])
    move = p.move * 0.2
    return replace(
        p, most=most, paid=np.minimum(p.paid * share, most), limits=caps, price=price, move=move, allowed=np.ones_like(p.allowed)
    )


def compare(p: Program, existing: int) -> None:
    """Every stage is feasible and the cheapest there is, its bound holds, a cell moves once, and each stage saves money."""
    sites: Any = [_Site(_Pool(limit=int(most)), grows=q >= existing) for q, most in enumerate(p.most)]
    groups = p.group.tolist() or [-1] * p.cells
    asked: Any = [_Asked(_Workload(f"w{w}", apart=f"g{g}" if g >= 0 else "")) for w, g in enumerate(groups)]
    raw = p.limits if len(p.limits) else np.zeros(0)
    found = staged(p, asked, sites, raw, [f"limit {k}" for k in range(len(raw))], solve, most=4, pins=())
    at, moved, cost = np.arange(p.cells), np.zeros(p.cells, int), np.inf
    for stage in found.stages:
        q, pool = stage.program, stage.answer.pool
        then, peak = vms_of(q, pool)
        assert is_feasible(q, peak)
        assert (stage.answer.vms == np.rint(then)).all()
        moved += pool != q.start
        least = least_cost(q)
        assert cost_of(q, pool, then) == pytest.approx(least, rel=1e-6, abs=1e-6)
        assert bound_of(q, stage.answer.prices) <= least + 1e-6 * (1 + least)
        assert stage.answer.cost + stage.spent < cost
        cost = stage.answer.cost + stage.spent
    assert (moved <= 1).all()
    last = found.stages[-1]
    vms = last.answer.vms.astype(float)
    bill = float(p.price @ vms) - saved(p, vms)
    moves = float(p.move[at, last.answer.pool].sum())
    assert cost == pytest.approx(bill + moves, rel=1e-6, abs=1e-6)
    there = np.minimum(last.answer.vms, last.answer.peak)
    assert (p.caps @ there <= p.limits + 1e-6 * (1 + np.abs(p.limits))).all()


@settings(max_examples=60, deadline=None)
@given(tight(), st.integers(0, 4))
def test_every_stage_is_the_cheapest_on_what_is_left(p: Program, existing: int) -> None:
    compare(p, existing)


@settings(max_examples=150, deadline=None)
@given(programs(), st.sampled_from([0, 2, 100]))
def test_groups_are_kept_apart_however_few_times_it_is_solved_again(p: Program, times: int) -> None:
    """By a solver that knows nothing of groups: all limits hold, nobody shares, the cost and the bound are true."""
    groups = p.group.tolist() or [-1] * p.cells
    asked: Any = [_Asked(_Workload(f"w{w}", apart=f"g{g}" if g >= 0 else ""), cell=_Cell(f"w{w}")) for w, g in enumerate(groups)]
    solved = list[int]()

    def blind(q: Program) -> Answer:
        solved.append(1)
        return solve(replace(q, group=np.zeros(0, np.int64)))

    with patch.object(apart, "ROUND_CELLS", times * p.cells):
        _, answer = apart.kept_apart(p, asked, blind)
    then, peak = vms_of(p, answer.pool)
    assert is_feasible(p, peak)
    assert is_apart(p, answer.pool)
    assert p.allowed[np.arange(p.cells), answer.pool].all()
    assert (answer.vms == np.rint(then)).all()
    assert (answer.peak == np.rint(peak)).all()
    assert answer.cost == pytest.approx(cost_of(p, answer.pool, then), abs=1e-6)
    least = least_cost(p)
    assert answer.bound <= least + 1e-6 * (1 + least)
    assert answer.cost >= least - 1e-6 * (1 + least)
    assert len(solved) <= 1 + min(times, apart.MOST_ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=10_000, deadline=None)
@given(tight(), st.integers(0, 4))
def test_every_stage_is_the_cheapest_in_ten_thousand_fleets(p: Program, existing: int) -> None:
    compare(p, existing)
