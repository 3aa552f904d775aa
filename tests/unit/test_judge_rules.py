"""The judge's rules look by look: what passes, fails, waits and latches, on evidence written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp, log

import pytest

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis import guardrails as rules
from fleetctl.analysis import sudden
from fleetctl.analysis.eprocess import Block
from fleetctl.analysis.judge import ALL, BREAKER, fresh, judge, needed_scales, start_step
from fleetctl.analysis.memory import unpack
from fleetctl.domain.evidence import (
    Arm,
    ClusterSums,
    Counts,
    Cursor,
    Evidence,
    JudgeState,
    SignalState,
    Thresholds,
    Verdict,
    ladder_key,
)
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import Guardrail, GuardrailSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
FROZEN = Thresholds(
    class_edges=(),
    latency_ms=((50.0, 60.0, 70.0, 80.0, 90.0),),
    scales=(1.0, 1.1, 1.25, 1.5),
    baseline_n=3000,
    baseline_error_ratio=0.001,
    log_sd=0.25,
)
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.005, fail_margin=0.0)
LATENCY = GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.10)
EQUAL = {1.0: (500, 250, 100, 50, 10), 1.1: (350, 140, 48, 21, 3), 1.25: (186, 57, 15, 5, 1), 1.5: (52, 11, 2, 1, 0)}
"""Slower than scale x quantile among 1,000 of a lognormal with log-sd 0.25."""


def arm(n: int, errors: int = 0, ladders: Mapping[float, Sequence[int]] | None = None) -> Counts:
    """n attempts; the ladder is EQUAL scaled to n unless given."""
    timed = n - errors
    own = ladders if ladders is not None else {s: tuple(round(k * timed / 1000) for k in row) for s, row in EQUAL.items()}
    return Counts(
        attempts=n,
        errors=errors,
        timed=timed,
        ladders={ladder_key(s): tuple(row) for s, row in own.items()},
        clusters=ClusterSums(clusters=errors, errors=errors, sum_sq=errors),
    )


def look(
    baseline: Counts,
    canary: Counts,
    *,
    second: float = 10.0,
    since: datetime = START,
    states: tuple[SignalState, SignalState] = ("ok", "ok"),
    outcomes: str = "",
    recent: tuple[int, int] = (0, 0),
    thresholds: Thresholds | None = FROZEN,
) -> Evidence:
    arms: dict[Arm, Counts] = {"baseline": baseline, "canary": canary}
    return Evidence(
        cell=CellId("chat"),
        at=since + timedelta(seconds=second),
        arms=arms,
        state={"baseline": states[0], "canary": states[1]},
        cursor=Cursor(position="1:0", since=since, thresholds=thresholds),
        canary_outcomes=outcomes,
        baseline_recent=recent[0],
        baseline_recent_errors=recent[1],
    )


def steadily(n: int, looks: int, *, canary_errors: float = 0.0, **more: object) -> list[Evidence]:
    """Equal arms that grow to n attempts each."""
    out = []
    for i in range(1, looks + 1):
        size = n * i // looks
        out.append(look(arm(size), arm(size, round(size * canary_errors)), second=10.0 * i, **more))  # type: ignore[arg-type]
    return out


def run(
    looks: Sequence[Evidence], specs: Sequence[GuardrailSpec], state: JudgeState | None = None
) -> tuple[JudgeState, list[tuple[Verdict, ...]]]:
    state = fresh() if state is None else state
    out = []
    for e in looks:
        state, verdicts = judge(state, e, specs)
        out.append(verdicts)
    return state, out


def kinds(verdicts: Sequence[Verdict]) -> dict[str, str]:
    return {v.guardrail: v.kind for v in verdicts}


def test_equal_arms_wait_and_then_pass() -> None:
    _, rows = run(steadily(3000, 30), (ERRORS, LATENCY))
    assert kinds(rows[0]) == {"all": "INCONCLUSIVE", "errors": "INCONCLUSIVE", "latency": "INCONCLUSIVE"}
    missing = [v[0].missing for v in rows]
    assert missing[0] is not None
    assert missing[0] > 300
    assert kinds(rows[-1]) == {"all": "PASS", "errors": "PASS", "latency": "PASS"}
    assert missing[-1] == 0
    whole = rows[-1][0]
    assert whole.guardrail == ALL
    assert whole.pass_e_value == min(v.pass_e_value for v in rows[-1][1:]) >= 20
    assert whole.e_value < 100


def test_fewer_than_100_canary_requests_never_pass() -> None:
    wide = replace(ERRORS, margin=0.2)
    _, rows = run(steadily(99, 3), (wide,))
    assert rows[-1][1].pass_e_value > 20
    assert kinds(rows[-1]) == {"all": "INCONCLUSIVE", "errors": "INCONCLUSIVE"}
    assert rows[-1][0].missing == 1


def test_what_a_pass_reached_stays_reached_in_its_step_and_not_in_the_next() -> None:
    looks = steadily(3000, 30)
    state, _rows = run(looks, (ERRORS, LATENCY))
    worse = look(arm(3500), arm(3500, 4), second=400)
    state, verdicts = judge(state, worse, (ERRORS, LATENCY))
    assert kinds(verdicts)["errors"] == "PASS"
    later = look(arm(200), arm(200), since=START + timedelta(hours=1))
    _, verdicts = judge(start_step(state), later, (ERRORS, LATENCY))
    assert kinds(verdicts)["all"] == "INCONCLUSIVE"


def test_the_worst_rung_decides_a_pass() -> None:
    tail = {s: (*row[:4], 60) for s, row in EQUAL.items()}
    looks = [
        look(arm(100 * i), arm(100 * i, ladders={s: tuple(k * i // 10 for k in row) for s, row in tail.items()}), second=10.0 * i)
        for i in range(1, 31)
    ]
    state, rows = run(looks, (LATENCY,))
    reached = [unpack(state).passes[f"latency/{i}"].reached for i in range(5)]
    assert reached == [True, True, True, True, False]
    assert all(kinds(v)["all"] != "PASS" for v in rows)


def test_a_rung_may_have_its_own_margin_and_every_rung_must_still_pass() -> None:
    slower = {1.0: (500, 250, 100, 60, 40), 1.1: (350, 140, 50, 40, 25), 1.25: (186, 57, 25, 20, 12), 1.5: (52, 11, 6, 5, 2)}
    counts = [arm(400 * i, ladders={s: tuple(k * 400 * i // 1000 for k in row) for s, row in slower.items()}) for i in range(1, 31)]
    looks = [look(arm(400 * i), canary, second=10.0 * i) for i, canary in enumerate(counts, start=1)]
    lenient = replace(LATENCY, fail_margin=0.25, rungs=(0.25, 0.25, 0.25, 0.25, 0.5))
    kinds_of = [kinds(run(looks, (spec,))[1][-1])["all"] for spec in (replace(LATENCY, fail_margin=0.25), lenient)]
    assert kinds_of == ["INCONCLUSIVE", "PASS"]
    assert needed_scales((lenient,)) == (1.0, 1.25, 1.5)
    assert lenient.rung_margin(4) == 0.5
    assert LATENCY.rung_margin(4) == 0.25


def test_a_step_that_judges_fewer_guardrails_hands_nobody_the_capital_of_the_others() -> None:
    others = tuple(replace(ERRORS, name=Guardrail(f"counter_{i}")) for i in range(3))

    def step(since: datetime, canary_errors: int) -> list[Evidence]:
        found = []
        for n in (100, 200, 300):
            counts = {a: replace(arm(n, k * n // 300), shares={o.name: (n, 0) for o in others}) for a, k in ((0, 0), (1, canary_errors))}
            found.append(look(counts[0], counts[1], since=since, second=n / 10))
        return found

    state = fresh(guardrails=4)
    before: Sequence[Verdict] = ()
    now: Sequence[Verdict] = ()
    for e in step(START, 6):
        state, before = judge(state, e, (ERRORS, *others))
    assert before[0].e_value == pytest.approx(sum(v.e_value for v in before[1:5]) / 4)
    later = step(START + timedelta(hours=1), 6)
    alone = state
    for e in later:
        alone, now = judge(alone, e, (ERRORS,))
        stood = sum(v.e_value for v in before if v.guardrail in {o.name for o in others})
        assert now[0].e_value == pytest.approx((now[1].e_value + stood) / 4), "those not judged here stand as they were"
    new = fresh(guardrails=4)
    new, first = judge(new, later[-1], (ERRORS,))
    assert first[0].e_value == pytest.approx((first[1].e_value + 3) / 4), "those that were never judged stand at 1"


def test_a_failing_canary_fails_and_stays_failed() -> None:
    state, rows = run(steadily(600, 12, canary_errors=0.08), (ERRORS, LATENCY))
    assert kinds(rows[-1])["all"] == "FAIL"
    assert kinds(rows[-1])["errors"] == "FAIL"
    assert rows[-1][0].detail == "failed on errors"
    healthy = look(arm(9000), arm(9000, 48), second=900)
    state, verdicts = judge(state, healthy, (ERRORS, LATENCY))
    assert verdicts[0].kind == "FAIL"
    state, verdicts = judge(start_step(state), look(arm(50), arm(50), since=START + timedelta(hours=1)), (ERRORS, LATENCY))
    assert verdicts[0].kind == "FAIL"


def test_a_better_canary_never_fails() -> None:
    looks = [look(arm(50 * i, 4 * i), arm(50 * i), second=10.0 * i) for i in range(1, 20)]
    _, rows = run(looks, (ERRORS, LATENCY))
    assert all(v[0].kind != "FAIL" for v in rows)
    assert max(v[0].e_value for v in rows if v[0].kind != "PASS") < 2.0


def test_one_guardrail_over_the_bound_alone_waits_for_the_whole() -> None:
    looks = steadily(320, 16, canary_errors=0.045)
    _, alone = run(looks, (ERRORS,), fresh(1))
    crossed = next(i for i, v in enumerate(alone) if v[0].kind == "FAIL")
    assert alone[crossed][1].e_value >= 100
    more = tuple(GuardrailSpec(name=Guardrail(n), margin=0.0001, fail_margin=0.0) for n in ("slo_misses", "quality"))
    _, rows = run(looks[: crossed + 1], (ERRORS, *more), fresh(1))
    whole, errors = rows[-1][0], rows[-1][1]
    assert errors.e_value == pytest.approx(alone[crossed][1].e_value)
    assert whole.e_value == pytest.approx(sum(v.e_value for v in rows[-1][1:]) / 3)
    assert (whole.kind, errors.kind) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert "the whole is below 100" in errors.detail
    assert errors.blocked


def test_the_fail_value_is_the_mean_over_steps_of_the_restarted_process() -> None:
    steps = [steadily(400, 4, canary_errors=0.01), steadily(300, 3, canary_errors=0.02)]
    steps[1] = [replace(e, cursor=replace(e.cursor, since=START + timedelta(hours=1)), at=e.at + timedelta(hours=1)) for e in steps[1]]
    state, _ = run(steps[0], (ERRORS,), fresh(4))
    state, rows = run(steps[1], (ERRORS,), start_step(state))
    logs: list[list[float]] = []  # per look, per alternative, both steps: by hand from the look log
    for looks in steps:
        before = (0, 0, 0, 0)
        for e in looks:
            now = (e.arms["baseline"].attempts, 0, e.arms["canary"].attempts, e.arms["canary"].errors)
            block = Block(n0=now[0] - before[0], k0=0, n1=now[2] - before[2], k1=now[3] - before[3])
            rate = (before[1] + (3 + 0.5) / 3001 * 1000) / (before[0] + 1000)
            logs.append([ep.log_e(block, rate, min(rate * r, 0.97), 0.0, worse=True) for r in rules.RATIOS])
            before = now
    weights = (0.23, 0.35, 0.2, 0.12, 0.1)
    restarted = [sum(w * exp(sum(row[i] for row in logs[first:])) for i, w in enumerate(weights)) for first in (0, 4)]
    kept = sudden.SHARES.kept_back
    late = exp(sudden.log_sudden(unpack(state).sudden("errors"), sudden.SHARES))  # the rest of the capital; by hand in test_sudden.py
    assert rows[-1][1].e_value == pytest.approx((1 - kept) * (restarted[0] + restarted[1] + 1 + 1) / 4 + kept * late)


def test_a_step_without_evidence_costs_no_restart() -> None:
    state = fresh(3)
    for _ in range(5):
        state = start_step(state)
    assert unpack(state).started == 1
    state, _ = run(steadily(100, 1), (ERRORS,), state)
    for hour in range(1, 6):
        moved = [replace(e, cursor=replace(e.cursor, since=START + timedelta(hours=hour))) for e in steadily(100, 1)]
        state, _ = run(moved, (ERRORS,), start_step(state))
    assert unpack(state).started == 3
    assert len(unpack(state).fails["errors"].marks) == 3


def test_a_new_cursor_begins_a_step_by_itself() -> None:
    state, _ = run(steadily(3000, 30), (ERRORS, LATENCY))
    refrozen = look(arm(40), arm(40), thresholds=replace(FROZEN, baseline_n=2000))
    state, verdicts = judge(state, refrozen, (ERRORS, LATENCY))
    assert kinds(verdicts)["all"] == "INCONCLUSIVE"
    assert unpack(state).started == 2


def test_the_same_look_again_changes_nothing() -> None:
    looks = steadily(1000, 10)
    state, rows = run(looks, (ERRORS, LATENCY))
    again, verdicts = judge(state, looks[-1], (ERRORS, LATENCY))
    assert again == state
    assert verdicts == rows[-1]


def test_few_attempts_wait_for_the_next_look() -> None:
    state, _ = run([look(arm(10), arm(5))], (ERRORS,))
    assert unpack(state).fed is False
    state, _ = run([look(arm(40), arm(0), second=20)], (ERRORS,), state)
    assert unpack(state).fed is False
    state, _ = run([look(arm(40), arm(6), second=30)], (ERRORS,), state)
    assert unpack(state).seen["canary"].attempts == 6


def test_a_guardrail_that_is_not_judged_gates_nothing() -> None:
    shown = replace(LATENCY, judged=False)
    slow = dict.fromkeys(EQUAL, (1000, 1000, 1000, 1000, 1000))
    looks = [
        look(arm(1000 * i), arm(1000 * i, ladders={s: tuple(k * i for k in r) for s, r in slow.items()}), second=10.0 * i)
        for i in (1, 2, 3)
    ]
    _, rows = run(looks, (ERRORS, shown))
    assert kinds(rows[-1]) == {"all": "PASS", "errors": "PASS", "latency": "INCONCLUSIVE"}
    _, rows = run(looks, (shown,))
    assert kinds(rows[-1])["all"] == "INCONCLUSIVE"
    _, rows = run(looks, ())
    assert (rows[-1][0].kind, rows[-1][0].detail) == ("INCONCLUSIVE", "no guardrail is judged here")


STATES: tuple[SignalState, ...] = ("ok", "empty", "nan", "stale", "reset", "down", "mislabelled", "same_series")


@pytest.mark.parametrize("canary", STATES)
@pytest.mark.parametrize("baseline", STATES)
def test_truth_table_of_source_states(baseline: SignalState, canary: SignalState) -> None:
    state, _ = run(steadily(3000, 30), (ERRORS, LATENCY))
    e = look(arm(3001), arm(3001), second=301, states=(baseline, canary))
    _, verdicts = judge(state, e, (ERRORS, LATENCY))
    silent, either = {"empty", "stale"}, {baseline, canary}
    expected = "PASS" if either == {"ok"} else "NO_DATA" if either <= {"ok", *silent} else "PROVIDER_ERROR"
    assert set(kinds(verdicts).values()) == {expected}


def test_counts_that_went_back_are_a_providers_error_and_are_not_used() -> None:
    state, _ = run(steadily(1000, 10), (ERRORS,))
    after, verdicts = judge(state, look(arm(900), arm(1001), second=110), (ERRORS,))
    assert verdicts[0].kind == "PROVIDER_ERROR"
    assert "baseline went back" in verdicts[0].detail
    assert after == state


def test_untrustworthy_evidence_cannot_fail() -> None:
    _, rows = run([look(arm(1000), arm(1000, 500), states=("ok", "mislabelled"), outcomes="x" * 500)], (ERRORS,))
    assert kinds(rows[0]) == {"all": "PROVIDER_ERROR", "errors": "PROVIDER_ERROR"}


def test_a_dead_canary_fails_on_its_last_errors_though_it_fell_silent() -> None:
    looks = steadily(400, 4, canary_errors=0.3)
    looks[-1] = replace(looks[-1], state={"baseline": "ok", "canary": "stale"})
    _, rows = run([looks[-1]], (ERRORS,))
    assert rows[-1][0].kind == "FAIL"


def cached(n: int, share: float, ladders: Mapping[float, Sequence[int]] | None = None) -> Counts:
    return replace(arm(n, ladders=ladders), prompt_tokens=1000, cached_tokens=round(1000 * share))


def test_a_cache_gap_blocks_latency_pass_and_slight_fail_but_not_a_gross_one() -> None:
    looks = [look(cached(100 * i, 0.8), cached(100 * i, 0.3), second=10.0 * i) for i in range(1, 31)]
    _, rows = run(looks, (ERRORS, LATENCY))
    assert kinds(rows[-1]) == {"all": "INCONCLUSIVE", "errors": "PASS", "latency": "INCONCLUSIVE"}
    assert "differ by 50 points (source 80%, target 30%)" in rows[-1][2].detail
    assert rows[-1][2].blocked
    assert [v.confounded for v in rows[-1]] == [False, False, True]
    slower = {1.0: (900, 700, 450, 300, 90), 1.1: (800, 550, 300, 180, 45), 1.25: (600, 300, 130, 60, 9), 1.5: (52, 11, 2, 1, 0)}
    double = dict.fromkeys(EQUAL, (990, 980, 960, 940, 900))

    def fails(ladders: Mapping[float, Sequence[int]], share: float) -> bool:
        own = [
            look(
                cached(100 * i, 0.8),
                cached(100 * i, share, {s: tuple(k * i // 10 for k in r) for s, r in ladders.items()}),
                second=10.0 * i,
            )
            for i in range(1, 31)
        ]
        return any(v[0].kind == "FAIL" for v in run(own, (LATENCY,))[1])

    assert [fails(slower, 0.8), fails(slower, 0.3)] == [True, False]
    assert [fails(double, 0.8), fails(double, 0.3)] == [True, True]


def test_a_missing_ladder_is_inconclusive_and_says_why() -> None:
    _, rows = run(steadily(3000, 10, thresholds=None), (LATENCY,))
    assert (rows[-1][0].kind, rows[-1][1].detail) == ("INCONCLUSIVE", "no frozen quantiles to count latency over")
    assert rows[-1][1].blocked
    plain = [look(arm(100 * i, ladders={1.5: (0,) * 5}), arm(100 * i, ladders={1.5: (0,) * 5})) for i in (1, 2)]
    _, rows = run(plain, (LATENCY,))
    assert rows[-1][0].kind == "INCONCLUSIVE"


def test_an_uncounted_scale_uses_the_next_that_can_only_say_less() -> None:
    counts = arm(100)
    assert rules.usable_key(FROZEN, counts, 1.2, worse=True) == ladder_key(1.25)
    assert rules.usable_key(FROZEN, counts, 1.2, worse=False) == ladder_key(1.1)
    assert rules.usable_key(FROZEN, counts, 9.0, worse=True) is None
    assert rules.usable_key(FROZEN, counts, 1.25, worse=True) == ladder_key(1.25)
    assert needed_scales((ERRORS, LATENCY, replace(LATENCY, margin=0.5))) == (1.0, 1.1, 1.25, 1.5)


def test_clustered_errors_count_for_less() -> None:
    apart = look(arm(400), arm(400, 16), second=60)
    bunch = ClusterSums(clusters=2, errors=16, sum_sq=128)
    together = replace(apart, arms={"baseline": apart.arms["baseline"], "canary": replace(apart.arms["canary"], clusters=bunch)})
    values = [run([e], (ERRORS,), fresh(1))[1][0][1].e_value for e in (apart, together)]
    assert values[0] > 100
    assert values[1] < 10


def test_the_breaker_trips_within_a_few_requests_of_a_dead_canary() -> None:
    e = look(arm(12), arm(12, 12), outcomes="x" * 12, recent=(12, 0))
    _state, verdicts = judge(fresh(), e, (ERRORS, LATENCY))
    assert kinds(verdicts) == {"all": "FAIL", "errors": "INCONCLUSIVE", "latency": "INCONCLUSIVE", "breaker": "FAIL"}
    breaker = verdicts[-1]
    assert (breaker.guardrail, breaker.fail_bound) == (BREAKER, 1000.0)
    assert breaker.e_value >= 1000
    assert verdicts[0].detail == "failed on breaker"


def test_the_breaker_spares_a_canary_whose_baseline_fails_too_and_forgets_it() -> None:
    outcomes = "." * 50 + "x" * 30
    both = look(arm(80, 30), arm(80, 30), outcomes=outcomes, recent=(80, 30))
    state, verdicts = judge(fresh(), both, (ERRORS,))
    assert verdicts[0].kind != "FAIL"
    assert (verdicts[-1].guardrail, verdicts[-1].detail) == (BREAKER, "the baseline is failing too")
    better = look(arm(180, 30), arm(180, 30), second=30, outcomes=outcomes + "." * 100, recent=(100, 0))
    state, verdicts = judge(state, better, (ERRORS,))
    assert kinds(verdicts)["all"] != "FAIL"
    assert BREAKER not in kinds(verdicts)
    again = look(arm(200, 30), arm(200, 50), second=40, outcomes=outcomes + "." * 100 + "x" * 20, recent=(100, 0))
    assert kinds(judge(state, again, (ERRORS,))[1])[BREAKER] == "FAIL"


def test_the_breaker_uses_each_outcome_once_and_only_the_newest_where_there_are_more() -> None:
    first = look(arm(40), arm(40), outcomes="." * 40)
    state, _ = judge(fresh(), first, ())
    assert unpack(state).breaker.total == 40
    state, _ = judge(state, first, ())
    assert unpack(state).breaker.total == 40
    tail_only = look(arm(9000), arm(9000, 5), second=20, outcomes="." * 4995 + "x" * 5)
    state, verdicts = judge(state, tail_only, ())
    assert unpack(state).breaker.total == 40 + 5000
    assert BREAKER not in kinds(verdicts)


def test_intervals_and_looks_say_what_was_seen() -> None:
    base = replace(arm(1000, 5), quantiles_ms=(50.0, 60.0, 70.0, 80.0, 90.0))
    canary = replace(arm(3000, 30), quantiles_ms=(55.0, 66.0, 77.0, 88.0, 99.0))
    _, rows = run([look(base, canary)], (ERRORS, LATENCY))
    errors, latency = rows[0][1], rows[0][2]
    assert errors.look.share == 0.75
    assert (errors.look.baseline_n, errors.look.canary_n, errors.look.baseline_events, errors.look.canary_events) == (1000, 3000, 5, 30)
    assert errors.interval is not None
    assert errors.interval[0] < 0.005 < errors.interval[1]
    assert latency.interval is not None
    assert latency.interval[0] < 1.1 < latency.interval[1]
    assert log(latency.interval[1]) - log(1.1) == pytest.approx(1.96 * 1.2533 * 0.25 * (1 / 995 + 1 / 2970) ** 0.5, rel=1e-3)


def test_a_state_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 99"):
        judge(replace(fresh(), format_version=99), look(arm(1), arm(1)), ())
    with pytest.raises(ValueError, match="cannot be read"):
        judge(replace(fresh(), numbers=b"{}"), look(arm(1), arm(1)), ())
