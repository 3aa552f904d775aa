"""The judge on seeded traffic: false alarms, detection, and what must not pass. Default tier: fewer runs; `slow`: the full counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.memory import unpack
from fleetctl.domain.evidence import ClusterSums, Counts, Evidence
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from tests.fakes.simulated_evidence import Setting, looks


def errors(margin: float = 0.005, fail_margin: float = 0.0) -> GuardrailSpec:
    return GuardrailSpec(name=Guardrail("errors"), margin=margin, fail_margin=fail_margin)


def latency(margin: float = 0.25, fail_margin: float = 0.10) -> GuardrailSpec:
    return GuardrailSpec(name=Guardrail("latency"), margin=margin, fail_margin=fail_margin)


@dataclass(frozen=True)
class Ends:
    """How runs ended: canary requests at the first verdict of that kind, ascending; runs in all."""

    at: tuple[int, ...]
    runs: int

    @property
    def share(self) -> float:
        return len(self.at) / self.runs

    @property
    def median(self) -> float:
        return float("inf") if len(self.at) * 2 <= self.runs else self.at[self.runs // 2]


def simulate(setting: Setting, specs: Sequence[GuardrailSpec], kind: str, runs: int, *, steps: int = 6, seed: int = 0) -> Ends:
    """Run until the first verdict of `kind` for the whole."""
    at = []
    for run in range(runs):
        state = fresh(steps)
        for e in looks(setting, seed + run):
            state, verdicts = judge(state, e, specs)
            if verdicts[0].kind == kind:
                at.append(e.arms["canary"].attempts)
                break
    return Ends(tuple(sorted(at)), runs)


EQUAL = Setting(per_s=60, look_s=6, looks=8)
ONE = 1
"""All FAIL capital in one step: the hardest case for false alarms."""


@pytest.mark.parametrize("runs", [150, pytest.param(1000, marks=pytest.mark.slow)], ids=["150-runs", "1000-runs"])
def test_equal_arms_fail_in_at_most_one_percent(runs: int) -> None:
    assert simulate(EQUAL, (errors(), latency(fail_margin=0.0)), "FAIL", runs, steps=ONE).share <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.95])
def test_equal_arms_of_unequal_size_fail_in_at_most_one_percent(share: float) -> None:
    setting = Setting(per_s=200, share=share, look_s=10, looks=8)
    assert simulate(setting, (errors(), latency(fail_margin=0.0)), "FAIL", 150, steps=ONE).share <= 0.01


@pytest.mark.parametrize("runs", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_clustered_errors_fail_in_at_most_one_percent(runs: int) -> None:
    setting = Setting(per_s=60, errors0=0.02, errors1=0.02, cluster=3, look_s=5, looks=24)
    assert simulate(setting, (errors(),), "FAIL", runs, steps=ONE).share <= 0.01


@pytest.mark.parametrize("runs", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_a_pure_tail_never_passes(runs: int) -> None:
    setting = Setting(per_s=150, errors0=0.0, errors1=0.0, log_sd=0.25, tail=0.05, tail_factor=3.0, look_s=2, looks=22)
    assert simulate(setting, (errors(), latency()), "PASS", runs).at == ()
    assert simulate(setting, (errors(),), "PASS", 3).share == 1.0


@pytest.mark.parametrize("runs", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_doubled_latency_is_found_within_200_canary_requests(runs: int) -> None:
    ends = simulate(Setting(per_s=40, log_sd=0.25, factor=2.0, looks=20), (errors(), latency()), "FAIL", runs)
    assert ends.share == 1.0
    assert ends.median <= 80
    assert ends.at[-1] <= 200


@pytest.mark.parametrize("runs", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_five_percent_errors_are_found_within_a_few_hundred_canary_requests(runs: int) -> None:
    ends = simulate(Setting(per_s=150, errors0=0.0, errors1=0.05, log_sd=0.25, looks=20), (errors(), latency()), "FAIL", runs)
    assert ends.share == 1.0
    assert ends.median <= 450
    assert ends.at[-1] <= 1000


@pytest.mark.parametrize("runs", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_what_is_worse_than_the_margin_passes_in_at_most_five_percent(runs: int) -> None:
    worse = Setting(per_s=200, errors1=0.0101, log_sd=0.25, look_s=5, looks=12)
    assert simulate(worse, (errors(),), "PASS", runs).share <= 0.05
    slower = Setting(per_s=100, factor=1.26, log_sd=0.25, look_s=4, looks=12)
    assert simulate(slower, (latency(),), "PASS", runs).share <= 0.05


def test_every_rung_alone_passes_what_is_worse_in_at_most_five_percent() -> None:
    worse, runs = Setting(per_s=100, factor=1.26, log_sd=0.25, look_s=4, looks=12), 60
    passed = [0] * 5
    for run in range(runs):
        state = fresh()
        for e in looks(worse, 500 + run):
            state, _ = judge(state, e, (latency(),))
        for rung in range(5):
            passed[rung] += unpack(state).passes[f"latency/{rung}"].reached
    assert max(passed) <= 0.05 * runs + 3


@pytest.mark.parametrize("runs", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_equal_arms_pass_in_the_time_that_the_lab_has(runs: int) -> None:
    equal = Setting(per_s=150, errors0=0.0, errors1=0.0, log_sd=0.25, looks=60)
    ends = simulate(equal, (errors(), latency()), "PASS", runs)
    assert ends.share == 1.0
    assert ends.median <= 1100


@pytest.mark.slow
def test_small_regressions_are_found_at_the_published_cost() -> None:
    slower = simulate(Setting(per_s=80, factor=1.1, look_s=1, looks=120), (latency(fail_margin=0.0),), "FAIL", 60, steps=ONE)
    assert slower.median <= 1800
    failing = simulate(Setting(per_s=120, errors0=0.001, errors1=0.006, looks=150), (errors(),), "FAIL", 60, steps=ONE)
    assert failing.median <= 3200


def test_a_fault_that_starts_late_in_a_step_is_found() -> None:
    good = list(looks(Setting(per_s=150, errors0=0.0, errors1=0.0, log_sd=0.25, looks=40), 3))
    bad = list(looks(Setting(per_s=150, errors0=0.0, errors1=0.05, factor=2.0, log_sd=0.25, looks=20), 4))
    state = fresh()
    for e in good:
        state, verdicts = judge(state, e, (errors(), latency()))
    for seconds, e in enumerate(bad, start=1):
        state, verdicts = judge(state, _after(good[-1], e), (errors(), latency()))
        if verdicts[0].kind == "FAIL":
            assert seconds <= 8
            return
    pytest.fail("not found in 20 s")


def _after(before: Evidence, e: Evidence) -> Evidence:
    """Put a run's counts on top of another's last look."""
    arms = {arm: _sum(before.arms[arm], e.arms[arm]) for arm in e.arms}
    return replace(e, arms=arms, at=before.at + (e.at - e.cursor.since), cursor=before.cursor)


def _sum(a: Counts, b: Counts) -> Counts:
    return Counts(
        attempts=a.attempts + b.attempts,
        errors=a.errors + b.errors,
        timed=a.timed + b.timed,
        ladders={k: tuple(x + y for x, y in zip(a.ladders[k], b.ladders[k], strict=True)) for k in a.ladders},
        clusters=ClusterSums(
            clusters=a.clusters.clusters + b.clusters.clusters,
            errors=a.clusters.errors + b.clusters.errors,
            sum_sq=a.clusters.sum_sq + b.clusters.sum_sq,
        ),
    )
