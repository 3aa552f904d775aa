"""E-values of two-arm blocks against brute force and scipy: projection, expectation under the null, growth under the alternative."""

from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.eprocess import Block

relaxed = settings(deadline=None, max_examples=60)
rates = st.floats(0.001, 0.95)


@relaxed
@given(a=rates, b=rates)
def test_kl_is_scipys_entropy(a: float, b: float) -> None:
    assert ep.kl(a, b) == pytest.approx(float(stats.entropy([a, 1 - a], [b, 1 - b])), abs=1e-12)


@relaxed
@given(n=st.integers(1, 200), k=st.integers(0, 200), q=rates, p=rates)
def test_log_ratio_is_the_difference_of_binomial_log_masses(n: int, k: int, q: float, p: float) -> None:
    k = min(k, n)
    expected = float(stats.binom.logpmf(k, n, q) - stats.binom.logpmf(k, n, p))
    assert ep.log_ratio(n, k, q, p) == pytest.approx(expected, abs=1e-7, rel=1e-9)


@relaxed
@given(n0=st.integers(1, 900), n1=st.integers(1, 900), q0=st.floats(0.002, 0.6), q1=st.floats(0.002, 0.9), shift=st.floats(0.0, 0.09))
def test_the_nearest_null_is_scipys_minimum(n0: int, n1: int, q0: float, q1: float, shift: float) -> None:
    def distance(p0: float) -> float:
        return n0 * ep.kl(q0, p0) + n1 * ep.kl(q1, p0 + shift)

    p0, p1 = ep.nearest_null(n0, n1, q0, q1, shift)
    found = optimize.minimize_scalar(distance, bounds=(1e-9, 1 - shift - 1e-9), method="bounded", options={"xatol": 1e-12})
    assert p1 == pytest.approx(p0 + shift, abs=1e-15)
    assert distance(p0) <= found.fun + 1e-6 * max(1.0, found.fun)


def _expectation(n0: int, n1: int, q0: float, q1: float, shift: float, p0: float, p1: float, *, worse: bool) -> float:
    return sum(
        float(stats.binom.pmf(k0, n0, p0) * stats.binom.pmf(k1, n1, p1))
        * exp(ep.log_e(Block(n0=n0, k0=k0, n1=n1, k1=k1), q0, q1, shift, worse=worse))
        for k0 in range(n0 + 1)
        for k1 in range(n1 + 1)
    )


@pytest.mark.parametrize("worse", [True, False])
@pytest.mark.parametrize(("n0", "n1"), [(1, 1), (3, 5), (9, 1), (1, 9)])
@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_the_expectation_is_at_most_one_everywhere_in_the_null(worse: bool, n0: int, n1: int, shift: float) -> None:
    q0, q1 = (0.1, 0.4) if worse else (0.3, 0.2)
    for p0 in (0.001, 0.05, 0.3, 0.6, 0.9):
        for step in (0.0, 0.02, 0.2):
            p1 = p0 + shift - step if worse else p0 + shift + step
            if 0 <= p1 <= 1:
                assert _expectation(n0, n1, q0, q1, shift, p0, p1, worse=worse) <= 1 + 1e-9


def test_it_grows_when_the_alternative_is_true() -> None:
    block = Block(n0=1000, k0=5, n1=1000, k1=20)
    assert ep.log_e(block, 0.005, 0.02, 0.0, worse=True) == pytest.approx(1000 * (ep.kl(0.005, 0.0125) + ep.kl(0.02, 0.0125)))
    same = Block(n0=1000, k0=5, n1=1000, k1=5)
    assert ep.log_e(same, 0.005, 0.005, 0.005, worse=False) > 1.0


def test_for_rare_events_it_is_the_conditional_binomial() -> None:
    share, ratio = 0.25, 3.0
    block = Block(n0=75_000_000, k0=6, n1=25_000_000, k1=7)
    theirs = ratio * share / (ratio * share + 1 - share)
    expected = float(stats.binom.logpmf(7, 13, theirs) - stats.binom.logpmf(7, 13, share))
    exact = ep.log_ratio(block.n0, 6, 1e-6, 1.5e-6) + ep.log_ratio(block.n1, 7, 3e-6, 1.5e-6)
    assert ep.log_e(block, 1e-6, 3e-6, 0.0, worse=True) == pytest.approx(exact)
    assert 13 * log(1.0) + exact == pytest.approx(expected, abs=1e-3)


def test_an_arm_without_attempts_or_an_alternative_inside_the_null_says_nothing() -> None:
    assert ep.log_e(Block(n0=0, k0=0, n1=50, k1=50), 0.1, 0.9, 0.0, worse=True) == 0.0
    assert ep.log_e(Block(n0=50, k0=0, n1=50, k1=50), 0.1, 0.1, 0.0, worse=True) == 0.0
    assert ep.log_e(Block(n0=50, k0=0, n1=50, k1=50), 0.1, 0.2, 0.05, worse=False) == 0.0


@relaxed
@given(values=st.lists(st.floats(-900, 900), min_size=3, max_size=3))
def test_the_log_mean_is_scipys_logsumexp(values: list[float]) -> None:
    from scipy.special import logsumexp

    weights = (0.5, 0.3, 0.2)
    assert ep.log_mean(values, weights) == pytest.approx(float(logsumexp(values, b=weights)), abs=1e-9)


@relaxed
@given(rate=st.floats(0.01, 0.9), factor=st.floats(0.5, 3.0), log_sd=st.floats(0.1, 1.0))
def test_slowed_is_the_lognormal_tail(rate: float, factor: float, log_sd: float) -> None:
    law = stats.lognorm(s=log_sd)
    expected = float(law.sf(law.isf(rate) / factor))
    assert ep.slowed(rate, log(factor), log_sd) == pytest.approx(expected, abs=1e-5)


def test_odds_and_middles() -> None:
    assert ep.by_odds(0.5, 3.0) == pytest.approx(0.75)
    assert ep.between(0.2, 0.8) == pytest.approx(0.5)
    assert ep.estimate(3, 100, 0.5, 100) == pytest.approx(0.265)
