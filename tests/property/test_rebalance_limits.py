"""Rebalancing any fleet within any limits: the limits hold, what is held stays, no bill grows, odd readings change nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import inf, nan

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.domain.rebalance import Limits
from fleetctl.domain.rollout import Ended
from fleetctl.rebalance.standing import Measured, demand_scale, latency_scale
from tests.cases.planning_fleet import workload
from tests.unit.test_rebalance import DAY, World

PRICE = st.sampled_from(["10", "40", "98.32", "140", "400"])
WAYS: tuple[Ended | None, ...] = (None, "complete", "complete", "aborted", "fell_back", "rolled_back", "lost_evidence")
ENDED = st.sampled_from(WAYS)
ODD = (nan, inf, -inf, 0.0, -1.0, 1e300)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, Limits, dict[str, Measured]]:
    cells = draw(st.integers(1, 4))
    w = World(cells, amd=draw(PRICE), nvidia=draw(PRICE))
    works = tuple(replace(x, replicas=draw(st.integers(1, 16))) for x in w.fleet.workloads)
    w.fleet = replace(w.fleet, workloads=works)
    for n in range(cells):
        ended = draw(ENDED)
        if ended is not None:
            w.done(f"c{n}", ended, age=draw(st.integers(0, 30)) * DAY)
    if draw(st.booleans()):
        w.made(draw(st.integers(1, 2 * cells)))
    limits = Limits(
        moves=draw(st.integers(1, 4)),
        share=draw(st.sampled_from([0.01, 0.3, 1.0])),
        dwell=timedelta(days=draw(st.sampled_from([0, 14]))),
        min_saving_usd=draw(st.sampled_from([0.0, 3.0])),
    )
    rates = [None, 150.0, *ODD[:5]] if draw(st.booleans()) else [1.0, 900.0, 1e300]
    return w, limits, {f"c{n}": Measured(requests_per_s=draw(st.sampled_from(rates))) for n in range(cells)}


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_limits_hold_and_no_bill_grows(made: tuple[World, Limits, dict[str, Measured]]) -> None:
    w, limits, seen = made
    found = w.propose(limits, None, None, **seen)
    run, gpus = found.run, sum(x.replicas * x.accelerators_per_replica for x in w.fleet.workloads)
    assert len(run.shifts) <= limits.moves
    scale = max(demand_scale(x, seen[f"c{i}"]) for i, x in enumerate(w.fleet.workloads))
    assert sum(s.gpus for s in run.shifts) <= limits.share * (max(1.0, scale) * gpus + len(w.fleet.cells))
    assert {s.cell for s in run.shifts}.isdisjoint({h.cell for h in run.held if h.reason.code != "rebalance.saving"})
    if scale == 1:  # more demand may need more machines where it is
        assert run.cost_then.amount <= run.cost_now.amount
    assert found.home == tuple(s.cell for s in run.shifts if s.order == "home")
    assert (found.plan is None) == (run.shifts == ())
    for s in run.shifts:
        r = w.store.load(s.cell)
        assert s.source != s.target
        assert (s.order == "home") == (r is not None and r.ended == "complete")
    again = w.propose(limits, None, None, **seen)
    assert [(s.cell, s.target) for s in again.run.shifts] == [(s.cell, s.target) for s in run.shifts], "looking changes nothing"


@given(st.sampled_from(ODD), st.sampled_from(ODD))
def test_odd_readings_count_for_nothing(rate: float, p95: float) -> None:
    w = workload("a")
    assert demand_scale(w, Measured(requests_per_s=rate)) in (1.0, 4.0)
    assert latency_scale(w, Measured(p95_ms=p95)) in (1.0, 2.0)
    assert demand_scale(w, Measured(requests_per_s=nan)) == latency_scale(w, Measured(p95_ms=nan)) == 1.0
