"""Cells led by counters: the breaker sees failures between two scrapes, clusters of errors weigh less, and neither is looser for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import log

import numpy as np
import pytest

from fleetctl.analysis import buckets, clusters
from fleetctl.analysis.batch import Shares
from fleetctl.analysis.breaker import note_outcomes
from fleetctl.analysis.buckets import BucketTally
from fleetctl.analysis.counted import evenly
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.memory import BreakerMemory, ClusterMemory, unpack
from fleetctl.domain.evidence import ARMS, Arm, Cursor, Evidence, Thresholds, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Scrape
from fleetctl.domain.workload import Guardrail, GuardrailSpec

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(START.timestamp() * 1000)
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)
FROZEN = Thresholds(class_edges=(), latency_ms=(), scales=(), baseline_n=1_000, baseline_error_ratio=0.01, log_sd=0.0)
EVERY_S = 10

Growth = Sequence[tuple[int, int]]


def scrape(arm: Arm, i: int, n: int, k: int) -> Scrape:
    values = {"requests_total/engine": float(n), "errors_total/engine": float(k)}
    return Scrape(cell=CELL, arm=arm, replica=arm, at_ms=T0 + 1_000 * EVERY_S * i, values=values)


def looks(baseline: Growth, canary: Growth, *, new_process_at: int = -1) -> Iterator[Evidence]:
    """Yield the evidence after each scrape; each pair is requests and failures since the scrape before."""
    cursor = Cursor(position="", since=START, thresholds=FROZEN)
    tally, sums = BucketTally(CELL, cursor, settle_s=0), dict.fromkeys(ARMS, (5_000, 50))
    for i in range(len(canary) + 1):
        if i == new_process_at:
            bases = tally.bases()
            tally = BucketTally(CELL, cursor, settle_s=0)
            for base in bases:
                tally.add(base)
        for arm, growth in zip(ARMS, (baseline, canary), strict=True):
            if i:
                sums[arm] = sums[arm][0] + growth[i - 1][0], sums[arm][1] + growth[i - 1][1]
            tally.add(scrape(arm, i, *sums[arm]))
        yield tally.evidence(START + timedelta(seconds=EVERY_S * i + 1))


def judged(found: Iterator[Evidence], specs: tuple[GuardrailSpec, ...]) -> tuple[tuple[Verdict, ...], int]:
    """Return the verdicts of the first FAIL, else the last ones, and after how many looks."""
    state = fresh()
    verdicts: tuple[Verdict, ...] = ()
    n = -1
    for e in found:
        state, verdicts = judge(state, e, specs)
        n += 1
        if verdicts[0].kind == "FAIL":
            break
    return verdicts, n


@pytest.mark.parametrize("new_process_at", [-1, 6])
def test_a_canary_whose_requests_fail_trips_the_breaker_and_every_failure_counts_once(new_process_at: int) -> None:
    good, bad = [(100, 1)] * 5, [(50, 12)] * 6
    verdicts, n = judged(looks([(100, 1)] * 11, [*good, *bad], new_process_at=new_process_at), ())
    assert [(v.guardrail, v.kind) for v in verdicts if v.guardrail == "breaker"] == [("breaker", "FAIL")]
    assert 6 <= n <= (7 if new_process_at < 0 else 9), "a new process misses the failures before its first look"
    memory, told = BreakerMemory(), 0
    for e in looks([(100, 1)] * 8, [(100, 1)] * 8, new_process_at=new_process_at):
        note_outcomes(memory, e)
        told = e.arms["canary"].attempts
    assert memory.total == told - (100 if new_process_at >= 0 else 0)


def test_a_baseline_that_fails_too_holds_the_breaker() -> None:
    verdicts, _ = judged(looks([(100, 40)] * 8, [(100, 40)] * 8), ())
    assert verdicts[0].kind != "FAIL"
    assert any("baseline is failing too" in v.detail for v in verdicts)


def test_the_breaker_on_counters_trips_at_its_tolerated_rate_no_more_often_than_it_may() -> None:
    rng, tripped, runs = np.random.default_rng(4), 0, 60
    (e,) = looks([], [])
    counts = e.arms["canary"]
    for _ in range(runs):
        memory = BreakerMemory()
        for i, k in enumerate(rng.binomial(60, 0.03, 30), start=1):
            canary = replace(counts, attempts=60 * i)
            note_outcomes(memory, replace(e, arms={**e.arms, "canary": canary}, canary_outcomes=evenly(60, int(k))))
        tripped += memory.tripped
    assert tripped <= 1, "0.1 % of the runs may"


def grown(rng: np.random.Generator, rate: float, mean_cluster: float, *, scrapes: int, n: int) -> Growth:
    """Errors that come in clusters of a geometric size."""
    out = []
    for starts in rng.poisson(n * rate / mean_cluster, scrapes):
        sizes = rng.geometric(1 / mean_cluster, starts)
        out.append((n, min(n, int(sizes.sum()))))
    return out


def effect_of(mean_cluster: float, *, seed: int, rate: float = 0.02, n: int = 300, scrapes: int = 100) -> float:
    rng, state = np.random.default_rng(seed), fresh()
    for e in looks(*(grown(rng, rate, mean_cluster, scrapes=scrapes, n=n) for _ in ARMS)):
        state, _ = judge(state, e, ())
    return clusters.effect_on(unpack(state), "errors")


def test_the_design_effect_of_counters_is_that_of_the_clusters_and_a_little_more() -> None:
    single = [effect_of(1.0, seed=s) for s in range(3)]
    triple = [effect_of(3.0, seed=s) for s in range(3)]
    assert max(single) < 1.8
    assert 4.0 < float(np.mean(triple)) < 8.0, "mean square over mean of a geometric size of 3 is 5"
    few = [effect_of(1.0, seed=s, scrapes=4) for s in range(3)]
    assert min(few) > 2.5, "four intervals tell little"
    rising = looks([(300, 6)] * 40, [*[(300, 6)] * 20, *[(300, 30)] * 20])
    state = fresh()
    for e in rising:
        state, _ = judge(state, e, ())
    assert clusters.effect_on(unpack(state), "errors") < 1.8, "a rate that rises once is no cluster"


def false_fails(rate: float, mean_cluster: float, n: int, *, runs: int, scrapes: int, is_corrected: bool = True) -> int:
    """Return how many of many equal canaries fail on errors at some scrape, with the judge's own processes for all runs at once."""
    rng = np.random.default_rng(1)
    whole = Shares.of_errors(rng.binomial(3_000, rate, runs) / 3_000, 3_000)
    sums = [{arm: buckets._Clusters() for arm in ARMS} for _ in range(runs)]
    before, failed = dict.fromkeys(ARMS, np.zeros(0)), np.zeros(runs, dtype=bool)
    for i in range(scrapes):
        errors, effect = {}, np.ones(runs)
        for arm in ARMS:
            starts = rng.poisson(n * rate / mean_cluster, runs)
            sizes = rng.negative_binomial(np.maximum(starts, 1), 1 / mean_cluster) * (starts > 0) if mean_cluster > 1 else 0
            errors[arm] = np.minimum(starts + sizes, n).astype(float)
            spread = (errors[arm] - before[arm]) ** 2 / 2 if i else errors[arm]
            before[arm] = errors[arm]
            for run in range(runs):
                mine = sums[run][arm]
                mine.errors, mine.spread, mine.intervals = mine.errors + errors[arm][run], mine.spread + spread[run], mine.intervals + 1
        whole.feed(np.array([np.full(runs, n), errors["baseline"], np.full(runs, n), errors["canary"]], dtype=float))
        for run in range(runs) if is_corrected else ():
            memory, told = ClusterMemory(), {arm: buckets.cluster_sums(sums[run], arm) for arm in ARMS}
            clusters.note_clusters(memory, told, EVERY_S * (i + 1.0))
            effect[run] = clusters.design_effect(memory)
        failed |= whole.log_fail(effect) >= log(100)
    return int(failed.sum())


def test_without_the_correction_clustered_errors_fail_equal_canaries() -> None:
    assert false_fails(0.02, 3.0, 1_000, runs=200, scrapes=120, is_corrected=False) > 20


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "mean_cluster", "n"), [(0.02, 3.0, 170), (0.02, 3.0, 1_000), (0.005, 3.0, 1_000), (0.02, 1.0, 170)])
def test_clustered_errors_seldom_fail_an_equal_canary_by_counters(rate: float, mean_cluster: float, n: int) -> None:
    assert false_fails(rate, mean_cluster, n, runs=400, scrapes=120) <= 4


def test_a_process_that_began_to_count_later_takes_nothing_off() -> None:
    rng = np.random.default_rng(9)
    growth = [grown(rng, 0.02, 3.0, scrapes=80, n=300) for _ in ARMS]
    effects = []
    for at in (-1, 40):
        state = fresh()
        for e in looks(*growth, new_process_at=at):
            state, _ = judge(state, e, (ERRORS,))
        effects.append(clusters.effect_on(unpack(state), "errors"))
    assert effects[1] > 0.6 * effects[0]
