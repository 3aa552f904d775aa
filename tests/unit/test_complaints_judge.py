"""What users complain of in canary judges, as tests of the judge alone: each named after its complaint in the research on other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from fleetctl.analysis.batch import Shares
from fleetctl.analysis.judge import fresh, judge, start_step
from fleetctl.analysis.memory import unpack
from fleetctl.domain.evidence import Evidence, SignalState, Verdict
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from tests.fakes.recorder import Recorder, even, lognormal_table

ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.01, fail_margin=0.0)
LATENCY = GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.10)
TABLE = lognormal_table(0.3)


def judged(looks: Sequence[Evidence], specs: Sequence[GuardrailSpec] = (ERRORS, LATENCY)) -> list[tuple[Verdict, ...]]:
    state, out = fresh(), []
    for e in looks:
        state, verdicts = judge(state, e, specs)
        out.append(verdicts)
    return out


def per_minute(minutes: Sequence[tuple[float, int]], n: int = 60, errors_before: int = 0) -> list[Evidence]:
    """Looks at each minute of a canary with (latency factor, errors) beside a steady baseline of n requests a minute."""
    r, looks = Recorder(TABLE, errors_before=errors_before), []
    for i, (factor, errors) in enumerate(minutes):
        r.serve("baseline", even(n, TABLE))
        r.serve("canary", even(n - errors, TABLE, factor), errors, second=60 * i)
        looks.append(r.look(60.0 * (i + 1)))
    return looks


def test_t01_no_single_minute_decides_seven_bad_of_ten_fail_wherever_they_are() -> None:
    for good in combinations(range(10), 3):
        rows = judged(per_minute([(1.0 if i in good else 100.0, 0) for i in range(10)], n=20))
        assert rows[-1][0].kind == "FAIL", good
    for bad in (10, 9, 8):  # one minute more or less changes nothing
        assert judged(per_minute([(100.0 if i < bad else 1.0, 0) for i in range(10)]))[-1][0].kind == "FAIL"
    alike = judged(per_minute([(1.0, 0)] * 10))
    assert all(v[0].kind != "FAIL" for v in alike)


def test_t02_rare_errors_are_counted_and_wait_until_they_suffice() -> None:
    rows = judged(per_minute([(1.0, k) for k in (0, 1, 2, 1, 0, 0)] * 5), (ERRORS,))
    kinds = [v[0].kind for v in rows]
    assert kinds[5] == "INCONCLUSIVE"
    assert kinds[-1] == "FAIL"
    assert kinds == sorted(kinds, key=["INCONCLUSIVE", "FAIL"].index)


def test_t03_seven_times_as_slow_is_found_within_fifty_requests() -> None:
    r, looks = Recorder(TABLE), []
    for i in range(1, 6):
        r.serve("baseline", even(10, TABLE))
        r.serve("canary", even(10, TABLE, 7.5))
        looks.append(r.look(float(i)))
    assert judged(looks)[-1][0].kind == "FAIL"


def test_t04_the_interval_and_what_is_missing_are_told_per_guardrail() -> None:
    rows = judged(per_minute([(1.17, 0)] * 4, n=40))
    errors, latency = rows[-1][1], rows[-1][2]
    assert latency.interval is not None
    assert latency.interval[0] < 1.17 < latency.interval[1]
    assert latency.missing is not None
    assert errors.missing is not None
    assert latency.missing > 0
    assert errors.missing > 0
    assert rows[-1][0].missing == max(errors.missing, latency.missing)


def test_t05_a_baseline_without_one_error_is_a_baseline_of_zero_errors() -> None:
    assert judged(per_minute([(1.0, 4)] * 12), (ERRORS,))[-1][0].kind == "FAIL"
    r = Recorder(TABLE)
    r.serve("canary", even(500, TABLE), 3)
    verdicts = judged([r.look(60.0, states=("empty", "ok"))], (ERRORS,))[-1]
    assert verdicts[0].kind == "NO_DATA"
    assert "baseline empty" in verdicts[0].detail


def test_t06_a_verdict_holds_the_numbers_it_rests_on() -> None:
    rows = judged(per_minute([(1.0, 3)] * 20), (ERRORS,))
    whole, errors, *_ = rows[-1]
    assert (whole.kind, whole.fail_bound, whole.pass_bound) == ("FAIL", 100.0, 20.0)
    assert whole.e_value >= 100
    assert (errors.look.baseline_n, errors.look.baseline_events) == (1200, 0)
    assert (errors.look.canary_n, errors.look.canary_events) == (1200, 60)
    assert errors.look.share == 0.5
    assert errors.interval is not None
    assert 0 < errors.interval[0] < 0.05 < errors.interval[1]


def test_t07_both_arms_from_one_series_give_no_verdict() -> None:
    r = Recorder(TABLE)
    for arm in ("baseline", "canary"):
        r.serve(arm, even(2000, TABLE), 10)
    verdicts = judged([r.look(60.0, states=("same_series", "same_series"))])[-1]
    assert {v.kind for v in verdicts} == {"PROVIDER_ERROR"}
    assert "same_series" in verdicts[0].detail


@pytest.mark.parametrize("states", [("empty", "empty"), ("ok", "empty"), ("stale", "ok"), ("nan", "nan"), ("down", "down"), ("ok", "ok")])
def test_t11_nothing_valid_is_never_a_pass(states: tuple[SignalState, SignalState]) -> None:
    r = Recorder(TABLE)
    rows = judged([r.look(10.0 * i, states=states) for i in range(1, 100)])
    assert all(v.kind not in ("PASS", "FAIL") for verdicts in rows for v in verdicts)


def test_t12_a_fail_is_a_latch() -> None:
    state, bad = fresh(), per_minute([(3.0, 0)] * 3)
    for e in bad:
        state, _ = judge(state, e, (ERRORS, LATENCY))
    assert unpack(state).failed == "latency"
    healed = per_minute([(1.0, 0)] * 40, n=200)
    state = start_step(state)
    for e in healed:
        state, verdicts = judge(state, replace(e, cursor=replace(e.cursor, position="2:0")), (ERRORS, LATENCY))
        assert verdicts[0].kind == "FAIL"


def test_t25_one_failure_at_next_to_no_traffic_neither_fails_nor_passes() -> None:
    rows = judged(per_minute([(1.0, 1 if i == 0 else 0) for i in range(60)], n=1))
    assert {v[0].kind for v in rows} == {"INCONCLUSIVE"}
    quiet = judged(per_minute([(1.0, 0)] * 19, n=5))
    assert [v[0].kind for v in quiet] == ["INCONCLUSIVE"] * 19
    assert quiet[-1][0].missing is not None


def test_t26_the_share_that_was_really_served_is_tested_never_the_declared_one() -> None:
    e = per_minute([(1.0, 2)] * 3)[-1]
    declared = [judged([replace(e, served_bp=bp)], (ERRORS,))[-1] for bp in (100, 500, 9000)]
    assert declared[0] == declared[1] == declared[2]
    rng, runs = np.random.default_rng(26), 1000
    shares, failed = Shares(np.full(runs, 0.005), np.full(runs, 1000.0)), np.zeros(runs, dtype=bool)
    for _ in range(120):  # declared 5 %, really 6 %, alike
        n = rng.poisson(3760, runs), rng.poisson(240, runs)
        shares.feed(np.array([v for m in n for v in (m, rng.binomial(m, 0.005))], dtype=float))
        failed |= shares.log_fail() >= np.log(100)
    assert failed.mean() <= 0.01


def test_t37_bursts_and_incidents_of_both_arms_burn_nothing() -> None:
    r, looks = Recorder(TABLE), []
    for i in range(40):
        n = 600 if i % 7 == 0 else 12
        for arm in ("baseline", "canary"):
            errors = n // 10 if i in (7, 21) else 0  # a common incident
            r.serve(arm, even(n - errors, TABLE, 3.0 if i in (7, 21) else 1.0), errors, second=10 * i)
        looks.append(r.look(10.0 * (i + 1)))
    rows = judged(looks)
    assert all(v[0].kind != "FAIL" for v in rows)
    assert max(v[0].e_value for v in rows) < 5


def test_t38_a_hard_failure_is_found_in_the_first_look_that_shows_it() -> None:
    r = Recorder(TABLE)
    r.serve("baseline", even(2000, TABLE))
    r.serve("canary", even(15, TABLE), 5)
    verdicts = judged([r.look(1.0)])[-1]
    assert verdicts[0].kind == "FAIL"
    assert verdicts[-1].guardrail == "breaker"


def test_t44_a_request_that_crosses_a_bound_moves_the_evidence_a_little() -> None:
    r, edge = Recorder(TABLE), None
    edge = r.thresholds.latency_ms[0][4]
    values = []
    for last in (edge * 1.1 - 0.01, edge * 1.1 + 0.01):
        r = Recorder(TABLE)
        r.serve("baseline", even(400, TABLE))
        r.serve("canary", [*even(399, TABLE, 1.3), last])
        values.append(judged([r.look(10.0)], (LATENCY,))[-1][1].e_value)
    assert values[0] < values[1] < 2.5 * values[0]


@pytest.mark.parametrize("factor", [1.0, 1.4])
def test_swapping_the_arms_of_a_regression_that_fails_does_not_fail(factor: float) -> None:
    """A better canary is no regression, however clear the difference."""
    looks = per_minute([(factor, 3 if factor > 1 else 0)] * 20)
    swapped = [replace(e, arms={"baseline": e.arms["canary"], "canary": e.arms["baseline"]}, canary_outcomes="") for e in looks]
    kinds = [judged(rows)[-1][0].kind for rows in (looks, swapped)]
    assert kinds[0] == ("FAIL" if factor > 1 else kinds[0])
    assert kinds[1] != "FAIL"
