"""The optimiser against every assignment there is, on random small fleets; and its bound, at any prices, below the true least cost."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.planning.polish import polished, pools_held
from fleetctl.planning.program import Ints, Prices, Program, bound_of, cost_of, is_feasible, vms_of
from fleetctl.planning.solve import solve


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Up to 5 cells on up to 4 pools, the limits sometimes tight, powers of two to a VM."""
    cells, pools = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    whole = st.integers
    start = np.array([draw(whole(0, pools - 1)) for _ in range(cells)], dtype=np.int64)
    load = np.array([[float(draw(st.sampled_from([1, 2, 4, 8, 12]))) for _ in range(pools)] for _ in range(cells)])
    allowed = np.array([[draw(st.booleans()) for _ in range(pools)] for _ in range(cells)])
    at = np.arange(cells)
    allowed[at, start] = True
    size = np.array([float(draw(st.sampled_from([1, 4, 8]))) for _ in range(pools)])
    price = np.array([float(draw(whole(1, 100))) for _ in range(pools)])
    spread = np.array([draw(whole(1, 2)) for _ in range(cells)], dtype=np.int64)
    base = np.bincount(start, weights=load[at, start], minlength=pools)
    wide = np.array([max([spread[w] for w in at if start[w] == q], default=0) for q in range(pools)])
    idle = np.array([float(draw(whole(0, 1))) for _ in range(pools)])
    count = np.maximum(np.ceil(base / size), wide) + idle
    most = count + np.array([float(draw(whole(0, 4))) for _ in range(pools)])
    move = load * price / size * draw(st.sampled_from([0.0, 0.05, 0.3]))
    move[at, start] = 0.0
    caps = np.array([[float(draw(whole(0, 12))) for _ in range(pools)] for _ in range(draw(whole(0, 2)))]).reshape(-1, pools)
    limits = caps @ count + np.array([float(draw(whole(0, 30))) for _ in range(len(caps))])
    paid = np.array([float(draw(whole(0, 2))) for _ in range(pools)])
    scopes = draw(st.sampled_from([0, 0, 1]))
    units = np.array([[float(draw(st.sampled_from([0.0, 1.0, 2.0]))) for _ in range(pools)] for _ in range(scopes)]).reshape(-1, pools)
    funds = np.array([float(draw(whole(0, 5))) for _ in range(scopes)])
    groups = draw(st.sampled_from([0, 0, 1, 2]))
    group = np.array([draw(whole(-1, groups - 1)) for _ in range(cells)] if groups else [], dtype=np.int64)
    return Program(
        load=load,
        allowed=allowed,
        move=move,
        start=start,
        spread=spread,
        size=size,
        price=price,
        count=count,
        most=most,
        idle=idle,
        paid=np.minimum(paid, most),
        caps=caps,
        limits=limits,
        units=units,
        funds=funds,
        group=group,
    )


def is_apart(p: Program, pool: Ints) -> bool:
    """Tell whether no two cells of a group share a pool that one of them enters."""
    some = [w for w in range(p.cells) if len(p.group) and p.group[w] >= 0]
    pairs = [(a, b) for a, b in combinations(some, 2) if p.group[a] == p.group[b] and pool[a] == pool[b]]
    return all(pool[w] == p.start[w] for pair in pairs for w in pair)


def least_cost(p: Program) -> float:
    """Try every assignment within the limits of moves (a cell that may not stay is not counted)."""
    best = np.inf
    for pool in product(*(np.flatnonzero(p.allowed[w]).tolist() for w in range(p.cells))):
        chosen = np.array(pool, dtype=np.int64)
        then, peak = vms_of(p, chosen)
        goes = (chosen != p.start) & p.allowed[np.arange(p.cells), p.start]
        gpus = p.load[goes, p.start[goes]].sum()
        if is_apart(p, chosen) and is_feasible(p, peak) and goes.sum() <= p.most_moves and gpus <= p.most_gpus:
            best = min(best, cost_of(p, chosen, then))
    return float(best)


def compare(p: Program) -> None:
    """The answer is feasible, as cheap as any, and its bound holds."""
    answer = solve(p)
    then, peak = vms_of(p, answer.pool)
    assert is_feasible(p, peak)
    assert p.allowed[np.arange(p.cells), answer.pool].all()
    assert is_apart(p, answer.pool)
    assert answer.cost == pytest.approx(cost_of(p, answer.pool, then), abs=1e-6)
    least = least_cost(p)
    assert answer.cost == pytest.approx(least, rel=1e-6, abs=1e-6)
    assert answer.bound <= least + 1e-6 * (1 + least)
    assert bound_of(p, answer.prices) <= least + 1e-6 * (1 + least)


@settings(max_examples=150, deadline=None)
@given(programs())
def test_no_assignment_is_cheaper(p: Program) -> None:
    compare(p)


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 3), st.sampled_from([2.0, 9.0, np.inf]))
def test_within_limits_of_moves_no_assignment_is_cheaper(p: Program, moves: int, gpus: float) -> None:
    compare(replace(p, most_moves=float(moves), most_gpus=gpus))


@settings(max_examples=100, deadline=None)
@given(programs(), st.randoms(use_true_random=False), st.sampled_from([0.0, 1e6]))
def test_taking_moves_back_never_costs_and_stays_feasible(p: Program, rng: random.Random, fine: float) -> None:
    """Also where staying is fined, as for moves that were asked for at any cost."""
    move = p.move.copy()
    move[np.arange(p.cells), p.start] = fine
    p = replace(p, move=move)
    pool = np.array([rng.choice(np.flatnonzero(p.allowed[w]).tolist()) for w in range(p.cells)], dtype=np.int64)
    then, peak = vms_of(p, pool)
    new = polished(p, pool)
    then_new, peak_new = vms_of(p, new)
    assert ((new == pool) | (new == p.start)).all()
    assert cost_of(p, new, then_new) <= cost_of(p, pool, then) + 1e-6
    assert not is_feasible(p, peak) or is_feasible(p, peak_new)


@settings(max_examples=100, deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_one_cell_that_leaves_and_enters_is_counted_as_all_together_are(p: Program, rng: random.Random) -> None:
    pool = np.array([rng.choice(np.flatnonzero(p.allowed[w]).tolist()) for w in range(p.cells)], dtype=np.int64)
    held = pools_held(p, pool)
    before, _ = vms_of(p, pool)
    for w, q in product(np.flatnonzero(pool == p.start).tolist(), range(p.pools)):
        if q == p.start[w]:
            continue
        one, wide = pool.copy(), int(p.spread[w] > 1)
        one[w] = q
        want = before.copy()
        want[pool[w]] = held[pool[w]].left(float(p.load[w, pool[w]]), wide)
        want[q] = held[q].entered(float(p.load[w, q]), wide)
        assert vms_of(p, one)[0].tolist() == want.tolist()


@settings(max_examples=60, deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_odd_sizes_are_bound_by_their_best_packing(p: Program, rng: random.Random) -> None:
    least = p.load - np.array([[rng.choice([0.0, 0.0, 0.25, 0.5]) * a for a in row] for row in p.load])
    odd, best = replace(p, least_load=least), replace(p, load=least)
    answer = solve(odd)
    cheapest = least_cost(best)
    assert answer.cost == pytest.approx(least_cost(p), rel=1e-6, abs=1e-6)
    assert answer.bound == pytest.approx(cheapest, rel=1e-5, abs=1e-5)
    assert bound_of(odd, answer.prices) <= cheapest + 1e-6 * (1 + cheapest)


@settings(max_examples=60, deadline=None)
@given(programs(), st.data())
def test_cells_that_are_pinned_keep_their_group_out(p: Program, data: st.DataObject) -> None:
    """A cell with one place, as a pinned one, where nobody of its group stands."""
    w, q = data.draw(st.integers(0, p.cells - 1)), data.draw(st.integers(0, p.pools - 1))
    allowed = p.allowed.copy()
    allowed[w] = False
    allowed[w, q] = True
    p = replace(p, allowed=allowed)
    first = np.where(np.arange(p.cells) == w, q, p.start)
    _, peak = vms_of(p, first)
    if is_feasible(p, peak) and is_apart(p, first):
        compare(p)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=10_000, deadline=None)
@given(programs())
def test_no_assignment_is_cheaper_in_ten_thousand_fleets(p: Program) -> None:
    compare(p)


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(0, 2**32 - 1))
def test_any_prices_prove_a_bound(p: Program, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = Prices(
        stay=rng.uniform(0, 30, p.pools),
        both=rng.uniform(0, 30, p.pools),
        peak=rng.uniform(0, 9, p.pools),
        caps=rng.uniform(0, 3, len(p.limits)),
        cover=rng.uniform(0, 60, p.pools),
    )
    least = least_cost(p)
    assert bound_of(p, y) <= least + 1e-6 * (1 + abs(least))
