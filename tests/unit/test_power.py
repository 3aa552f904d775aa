"""Planned requests against the measured tables and against simulations of the judge itself."""

from __future__ import annotations

from math import log

import pytest
from scipy import stats

from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.power import LEAST_CANARY, NEVER, Walk, passage, planned_fail, planned_requests, rung_walk
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from tests.fakes.simulated_evidence import Setting, looks


@pytest.mark.parametrize(
    ("base", "share", "median", "p90"),
    [
        (0.001, 0.5, 1026, 1931),
        (0.001, 0.05, 780, 1616),
        (0.005, 0.5, 2535, 5416),
        (0.005, 0.05, 1688, 3836),
        (0.01, 0.5, 4593, 10056),
        (0.01, 0.05, 2764, 6544),
        (0.02, 0.5, 8562, 18986),
        (0.02, 0.05, 5140, 10969),
    ],
)
def test_errors_at_half_a_point_cost_what_was_measured(base: float, share: float, median: int, p90: int) -> None:
    found = planned_requests(Guardrail("errors"), 0.005, base, 0.6, share)
    assert found[0] == pytest.approx(median, rel=0.3)
    assert found[1] == pytest.approx(p90, rel=0.3)


@pytest.mark.parametrize(
    ("log_sd", "margin", "rung", "p90"),
    [
        (0.25, 0.1, 0.5, 388),
        (0.25, 0.1, 0.95, 1062),
        (0.25, 0.1, 0.99, 3621),
        (0.25, 0.2, 0.95, 433),
        (0.25, 0.2, 0.99, 1489),
        (0.6, 0.1, 0.5, 1741),
        (0.6, 0.2, 0.95, 1463),
        (0.6, 0.2, 0.99, 5198),
        (0.85, 0.1, 0.95, 9683),
    ],
)
def test_rungs_cost_what_was_measured(log_sd: float, margin: float, rung: float, p90: int) -> None:
    assert passage(rung_walk(rung, margin, log_sd, 0.5), log(20 / 0.7), 0.9) == pytest.approx(p90, rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "setting"),
    [
        (GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0), Setting(per_s=60, looks=120)),
        (GuardrailSpec(name=Guardrail("errors"), margin=0.01, fail_margin=0.0), Setting(per_s=300, share=0.1, looks=120)),
        (GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.1), Setting(per_s=60, log_sd=0.25, looks=120)),
    ],
)
def test_the_judge_costs_what_was_planned(spec: GuardrailSpec, setting: Setting) -> None:
    runs, ends = 80, []
    for seed in range(runs):
        state = fresh()
        for e in looks(setting, seed):
            state, verdicts = judge(state, e, (spec,))
            if verdicts[0].kind == "PASS":
                ends.append(e.arms["canary"].attempts)
                break
    ends.sort()
    median, p90 = planned_requests(spec.name, spec.margin, setting.errors0, setting.log_sd, setting.share)
    assert len(ends) > 0.9 * runs
    assert ends[runs // 2] == pytest.approx(median, rel=0.35)
    assert ends[int(runs * 0.9)] == pytest.approx(p90, rel=0.4)


def test_passage_is_scipys_inverse_gaussian() -> None:
    mean, shape = 3.0 / 0.01, 9.0 / 0.02
    law = stats.invgauss(mu=mean / shape, scale=shape)
    for part in (0.5, 0.9):
        assert passage(Walk(drift=0.01, variance=0.02), 3.0, part) == pytest.approx(float(law.ppf(part)), rel=1e-6)


def test_wider_margins_and_lower_shares_need_fewer_canary_requests() -> None:
    needs = [planned_requests("errors", m, 0.005, 0.6, 0.5)[1] for m in (0.005, 0.01, 0.02)]
    assert needs == sorted(needs, reverse=True)
    assert planned_requests("latency", 0.1, 0.0, 0.6, 0.05)[1] < planned_requests("latency", 0.1, 0.0, 0.6, 0.5)[1]
    assert planned_requests("errors", 0.5, 0.0, 0.6, 0.5) == (LEAST_CANARY, LEAST_CANARY)


@pytest.mark.parametrize(
    ("guardrail", "margin", "base", "log_sd", "share"),
    [("errors", 0.0, 0.01, 0.6, 0.5), ("errors", 0.5, 0.6, 0.6, 0.5), ("latency", 0.1, 0.0, 0.0, 0.5), ("errors", 0.01, 0.01, 0.6, 1.0)],
)
def test_what_cannot_be_shown_is_never(guardrail: str, margin: float, base: float, log_sd: float, share: float) -> None:
    assert planned_requests(guardrail, margin, base, log_sd, share) == (NEVER, NEVER)


def test_fails_cost_what_was_measured() -> None:
    assert planned_fail("errors", 0.005, 0.005, 0.6, 0.5)[0] == pytest.approx(5700, rel=0.3)
    assert planned_fail("errors", 0.005, 0.001, 0.6, 0.5)[0] == pytest.approx(2700, rel=0.3)
    assert planned_fail("latency", 0.10, 0.0, 0.6, 0.5)[0] == pytest.approx(1500, rel=0.35)
    assert planned_fail("latency", 0.0, 0.0, 0.6, 0.5) == (NEVER, NEVER)
    alone, shared = (
        planned_fail("errors", 0.05, 0.005, 0.6, 0.5)[0],
        planned_fail("errors", 0.05, 0.005, 0.6, 0.5, guardrails=2, steps=6)[0],
    )
    assert alone < shared < 2 * alone
