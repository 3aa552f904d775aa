"""Quantiles frozen from few requests, such as a replay's first ones: a PASS still comes within what was planned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import exp
from random import Random

import pytest

from fleetctl.analysis.freeze import LEAST_SLOWER, frozen
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.power import planned_requests
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, LADDER, Arm, Cursor
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec

CELL = CellId("quiet")
T0 = datetime(2026, 12, 1, tzinfo=UTC)
LOG_SD = 0.1
SPECS = (
    GuardrailSpec(name=Guardrail("errors"), margin=0.1, fail_margin=0.1),
    GuardrailSpec(name=Guardrail("latency"), margin=1.5, fail_margin=0.75),
)


def attempt(arm: Arm, at_s: float, rng: Random, *, slow: float = 1.0) -> Attempt:
    at = round((T0.timestamp() + at_s) * 1_000)
    took = 8.0 * exp(rng.gauss(0, LOG_SD)) * slow
    return Attempt(cell=CELL, arm=arm, started_ms=at, ended_ms=at + 8, failed=False, latency_ms=took, prompt_tokens=5)


def canary_requests_to_pass(seed: int, least: int, *, cold: int, most: int) -> int:
    """Freeze from `least` baseline requests of which `cold` were slow, then judge equal arms, 25 pairs a second."""
    rng = Random(seed)
    first = [attempt("baseline", -1, rng, slow=20.0 if i < cold else 1.0) for i in range(least)]
    cursor = Cursor(position="", since=T0, thresholds=frozen(first, ("latency",), (1.0, 1.75, 2.5), least, per_class=50))
    tally, state = Tally(CELL, cursor, streaming=False, slo_latency_ms=None), fresh()
    for second in range(most // 25):
        for k in range(25):
            for arm in ARMS:
                tally.add(attempt(arm, second + k / 25, rng))
        state, verdicts = judge(state, tally.evidence(T0 + timedelta(seconds=second + 1)), SPECS)
        if verdicts[0].kind == "PASS":
            return 25 * (second + 1)
    return most + 1


@pytest.mark.parametrize(("least", "cold"), [(60, 0), (60, 3), (200, 3)])
def test_equal_arms_pass_within_the_planned_requests(least: int, cold: int) -> None:
    planned = planned_requests("latency", 1.5, 0.0, LOG_SD, 0.5)[1]
    assert all(canary_requests_to_pass(seed, least, cold=cold, most=round(1.3 * planned)) <= 1.3 * planned for seed in range(12))


@pytest.mark.parametrize("n", [20, 60, 200, 1_000, 3_000])
def test_every_rung_leaves_requests_that_are_slower(n: int) -> None:
    rows = frozen([attempt("baseline", -1, Random(i)) for i in range(n)], ("latency",), (1.0,), n, per_class=n)
    assert rows is not None
    values = sorted(8.0 * exp(Random(i).gauss(0, LOG_SD)) for i in range(n))
    for rung, threshold in zip(LADDER, rows.latency_ms[0], strict=True):
        slower = sum(v > threshold for v in values)
        assert slower >= LEAST_SLOWER
        assert slower >= round((1 - rung) * n) - 1
