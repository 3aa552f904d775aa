"""What gets worse at any moment of a step: capital by hand, its sum, what it costs alike sides, and how soon a late fault is found."""

from __future__ import annotations

import json
from math import exp, inf, log, log1p
from typing import Any

import numpy as np
import pytest

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis import sudden
from fleetctl.analysis.batch import BurstEffects, Effects, Floats, LadderFails, Shares, Suddens
from fleetctl.analysis.eprocess import Block
from fleetctl.analysis.guardrails import FAIL_BOUND
from fleetctl.analysis.judge import fresh
from fleetctl.analysis.memory import Memory, SuddenMemory, pack, unpack
from fleetctl.domain.evidence import LADDER, JudgeState

BLOCK = Block(n0=225, k0=1, n1=75, k1=2)
STEPS = 6
PER_S, SHARE = 20.0, 0.25
P4_S = 90
NOMINAL = 1 - np.array(LADDER)


@pytest.mark.parametrize("stakes", [sudden.SHARES, sudden.LADDERS])
def test_the_capital_is_one_however_often_it_is_staked(stakes: sudden.Stakes) -> None:
    for restarts in (0, 1, 7, 80, 81, 200, 201, 5_000):
        staked = sum(stakes.stake(j) for j in range(restarts))
        assert staked + stakes.cash(restarts) == pytest.approx(1.0)
    assert sudden.log_sudden(SuddenMemory(), stakes) == 0.0


def test_the_value_is_the_sum_over_restarts_by_hand() -> None:
    memory, stakes = SuddenMemory(), sudden.SHARES
    for _ in range(5):  # of 75 canary requests each: restarts before blocks 0, 2 and 4
        sudden.feed_share(memory, BLOCK, 0.002, 0.0, 1.5)
    by_hand = stakes.cash(3)
    for j, blocks in ((0, 5), (1, 3), (2, 1)):
        by_hand += stakes.stake(j) * exp(blocks * ep.log_e(BLOCK, 0.002, sudden.RATE, 0.0, worse=True) / 1.5)
    assert sudden.log_sudden(memory, stakes) == pytest.approx(log(by_hand))
    whole = sudden.beside(memory, stakes, log(3.0))
    assert whole == pytest.approx(log((1 - stakes.kept_back) * 3.0 + stakes.kept_back * by_hand))


def test_a_ladders_value_is_the_sum_over_restarts_and_alternatives_by_hand() -> None:
    memory, stakes, more = SuddenMemory(), sudden.LADDERS, (0.4, -0.2, 0.1, 0.0)
    for _ in range(3):  # restarts before blocks 0 and 2
        sudden.feed(memory, stakes, 25, more)
    by_hand = stakes.cash(2)
    for j, blocks in ((0, 3), (1, 1)):
        by_hand += sum(stakes.stake(j) / len(more) * exp(blocks * value) for value in more)
    assert sudden.log_sudden(memory, stakes) == pytest.approx(log(by_hand))


def test_what_is_kept_is_read_back() -> None:
    whole = Memory(
        steps=STEPS, suddens={"errors": SuddenMemory(capital=[-1.0], restarts=3, waited=40), "ttft": SuddenMemory(capital=[0.5])}
    )
    assert unpack(pack(whole)) == whole
    assert b"sudden" not in fresh().numbers


@pytest.mark.parametrize("restarts", [1, 3, 40, 41, 500])
def test_what_an_older_release_kept_is_worth_the_same_and_can_go_on(restarts: int) -> None:
    data = json.loads(fresh().numbers)
    data["sudden"] = [[-1.0, 2.0], restarts, 40]
    memory = unpack(JudgeState(format_version=1, numbers=json.dumps(data).encode())).sudden("errors")
    before = exp(-1.0) + exp(2.0) + 40 / (40 + restarts)
    assert before - 0.01 <= exp(sudden.log_sudden(memory, sudden.SHARES)) <= before + 1e-9
    sudden.feed_share(memory, BLOCK, 0.002, 0.0, 1.0)
    assert memory.waited == 40 + BLOCK.n1


def test_a_rate_that_is_high_already_is_staked_on_by_its_odds() -> None:
    assert sudden.alternative(0.002, 0.0) == sudden.RATE
    assert sudden.alternative(0.5, 0.0) == pytest.approx(0.75)
    assert sudden.alternative(0.999, 0.1) == 0.97


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
    took = late(runs, 5, errors1=0.05, onset_s=onset_s, after_s=P4_S)
    assert (took <= 0).mean() <= 0.01, "a FAIL before the fault is a false one"
    assert ((took > 0) & (took <= P4_S)).mean() >= 0.98


@pytest.mark.parametrize("cluster", [pytest.param(1.0, marks=pytest.mark.slow), 3.0])
@pytest.mark.parametrize("runs", [200, pytest.param(5_000, marks=pytest.mark.slow)])
def test_alike_sides_fail_in_at_most_one_percent(runs: int, cluster: float) -> None:
    seconds = 300 if runs < 1_000 else 3_600
    assert np.isfinite(late(runs, 6, errors1=0.002, onset_s=0, after_s=seconds, cluster=cluster)).mean() <= 0.01


def slow(runs: int, seed: int, *, factor: float, log_sd: float, quiet: tuple[int, int], after_s: int, per_s: float = PER_S) -> Floats:
    """Return seconds from when all requests take `factor` times as long to FAIL, looked at every second.

    The whole rule at a FAIL margin of 5 %, with seven guardrails that say nothing. Before the fault both sides are alike for so many
    looks of so many seconds (`quiet`); a FAIL there is 0 or less.
    """
    rng = np.random.default_rng(seed)
    process, pauses, at, now = LadderFails(runs, steps=STEPS), BurstEffects((len(LADDER), runs)), np.full(runs, inf), 0.0
    looks = [(quiet[1], 1.0, (i - quiet[0]) * quiet[1]) for i in range(quiet[0])] + [(1, factor, s + 1) for s in range(after_s)]
    for seconds, times, when in looks:
        slower = np.array([ep.slowed(p, log(times) - log1p(0.05), log_sd) for p in NOMINAL])
        n = [rng.poisson(per_s * share * seconds, runs) for share in (1 - SHARE, SHARE)]
        k = [_rungs(rng, m, rates) for m, rates in zip(n, (NOMINAL, slower), strict=True)]
        now += seconds
        pauses.note(np.array(n, dtype=float), np.array(k), now)
        process.feed(n[0].astype(float), k[0], n[1].astype(float), k[1], sudden.MOST_PER_S * seconds)
        whole = (np.exp(np.minimum(process.late.beside(process.log_fail(pauses.effect())), 600)) + 7) / 8
        at[(whole >= FAIL_BOUND) & np.isinf(at)] = when
    return at


def _rungs(rng: np.random.Generator, n: Any, rates: Any) -> Floats:
    """Draw how many of n requests are slower than each rung; who is slower than one is slower than those below."""
    out, among, before = [], n, 1.0
    for rate in rates:
        among = rng.binomial(among, rate / before)
        before = rate
        out.append(among)
    return np.array(out, dtype=float)


@pytest.mark.parametrize("runs", [100, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("log_sd", [0.25, 0.6])
@pytest.mark.parametrize("quiet", [(0, 1), (66, 5), (360, 60), pytest.param((7 * 1440, 60), marks=pytest.mark.slow)], ids=str)
def test_twice_the_latency_is_found_within_90_seconds_after_hours_and_days_of_health(
    runs: int, log_sd: float, quiet: tuple[int, int]
) -> None:
    took = slow(min(runs, 500) if quiet[0] > 1_000 else runs, 5, factor=2.0, log_sd=log_sd, quiet=quiet, after_s=P4_S)
    assert (took <= 0).mean() <= 0.01
    assert ((took > 0) & (took <= P4_S)).mean() >= 0.98


@pytest.mark.parametrize("runs", [300, pytest.param(5_000, marks=pytest.mark.slow)])
def test_alike_latencies_at_the_very_margin_fail_in_at_most_one_percent(runs: int) -> None:
    """As slow as is tolerated, and all FAIL capital in one guardrail and one step: the hardest case for false alarms."""
    rng = np.random.default_rng(8)
    process, failed = LadderFails(runs), np.zeros(runs, dtype=bool)
    for _ in range(300 if runs < 1_000 else 3_600):
        n = [rng.poisson(PER_S / 2, runs) for _ in range(2)]
        k = [_rungs(rng, m, NOMINAL) for m in n]
        process.feed(n[0].astype(float), k[0], n[1].astype(float), k[1])
        failed |= process.late.beside(process.log_fail()) >= log(FAIL_BOUND)
    assert failed.mean() <= 0.01
