"""Errors that begin at any moment of a step: capital by hand, its sum, what it costs alike sides, and how soon a late fault is found."""

from __future__ import annotations

from math import exp, inf, log
from typing import Any

import numpy as np
import pytest

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis import sudden
from fleetctl.analysis.batch import Effects, Floats, LadderFails, Shares, Suddens
from fleetctl.analysis.eprocess import Block
from fleetctl.analysis.guardrails import FAIL_BOUND
from fleetctl.analysis.judge import fresh
from fleetctl.analysis.memory import Memory, SuddenMemory, pack, unpack

BLOCK = Block(n0=450, k0=1, n1=150, k1=2)
STEPS = 6
PER_S, SHARE = 20.0, 0.25


def test_the_capital_is_one_however_often_it_is_staked() -> None:
    for restarts in (0, 1, 7, 500):
        staked = sum(sudden.stake(j) for j in range(restarts))
        assert staked + sudden.cash(restarts) == pytest.approx(1.0)
    assert sudden.log_sudden(SuddenMemory()) == 0.0


def test_the_value_is_the_sum_over_restarts_by_hand() -> None:
    memory = SuddenMemory()
    for _ in range(5):  # of 150 canary requests each: restarts before blocks 0, 2 and 4
        sudden.feed(memory, BLOCK, 0.002, 0.0, 1.5)
    by_hand = sudden.cash(3)
    for j, blocks in ((0, 5), (1, 3), (2, 1)):
        for rate in sudden.RATES:
            by_hand += sudden.stake(j) / 2 * exp(blocks * ep.log_e(BLOCK, 0.002, rate, 0.0, worse=True) / 1.5)
    assert sudden.log_sudden(memory) == pytest.approx(log(by_hand))
    whole = Memory(steps=STEPS, sudden=memory)
    assert unpack(pack(whole)) == whole
    assert b"sudden" not in fresh().numbers, "what an older release wrote is read as a process that has not begun"


def late(runs: int, seed: int, *, errors1: float, onset_s: int, after_s: int, cluster: float = 1.0) -> Floats:
    """Return seconds from a fault to FAIL, looked at every second, infinite without one; with onset 0 and alike sides: false ones.

    The whole rule with a latency guardrail that says nothing; 0.2 % errors before.
    """
    rng = np.random.default_rng(seed)
    shares = Shares.of_errors(rng.binomial(3000, 0.002, runs) / 3000, 3000, steps=STEPS)
    process, effects, sums = Suddens(runs), Effects(runs), np.zeros((2, 2, runs))
    at = np.full(runs, inf)
    quiet = np.exp(LadderFails(1, steps=STEPS).log_fail()[0])
    for second in range(onset_s + after_s):
        rates = 0.002, errors1 if second >= onset_s else 0.002
        n = [rng.poisson(PER_S * share, runs) for share in (1 - SHARE, SHARE)]
        k = [np.minimum(m, _errors(rng, m, p, cluster)) for m, p in zip(n, rates, strict=True)]
        sums += np.array([k, np.square(k)])
        effects.note(sums[0], sums[1], second + 1.0)
        block = np.array([n[0], k[0], n[1], k[1]], dtype=float)
        process.feed(block, shares.baseline, effects.effect())
        shares.feed(block)
        whole = (np.exp(np.minimum(process.beside(shares.log_fail(effects.effect())), 600)) + quiet) / 2
        at[(whole >= FAIL_BOUND) & np.isinf(at)] = second + 1 - onset_s
    return at


def _errors(rng: np.random.Generator, n: Any, rate: float, cluster: float) -> Any:
    if cluster <= 1:
        return rng.binomial(n, rate)
    groups = rng.binomial(n, rate / cluster)
    return groups + rng.negative_binomial(np.maximum(groups, 1), 1 / cluster) * (groups > 0)


@pytest.mark.parametrize("runs", [300, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("onset_s", [0, 330, pytest.param(1_800, marks=pytest.mark.slow)])
def test_five_percent_errors_are_found_within_90_seconds_whenever_they_begin(runs: int, onset_s: int) -> None:
    took = late(runs, 5, errors1=0.05, onset_s=onset_s, after_s=90)
    assert (took > 0).all(), "not before the fault"
    assert (took <= 90).mean() >= 0.98


@pytest.mark.parametrize("cluster", [pytest.param(1.0, marks=pytest.mark.slow), 3.0])
@pytest.mark.parametrize("runs", [200, pytest.param(5_000, marks=pytest.mark.slow)])
def test_alike_sides_fail_in_at_most_one_percent(runs: int, cluster: float) -> None:
    seconds = 300 if runs < 1_000 else 3_600
    assert np.isfinite(late(runs, 6, errors1=0.002, onset_s=0, after_s=seconds, cluster=cluster)).mean() <= 0.01
