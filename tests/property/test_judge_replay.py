"""Whatever the looks were: replaying them gives the identical state, stopping between any two changes nothing, nothing passes unjudged."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.judge import fresh, judge, start_step
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.evidence import ClusterSums, Counts, Cursor, Evidence, JudgeState, SignalState, Thresholds, Verdict, ladder_key
from fleetctl.domain.workload import REFUSALS, Guardrail, GuardrailSpec
from tests.fakes.simulated_evidence import CELL, START

SCALES = (1.0, 1.1, 1.25, 1.5)
FROZEN = Thresholds(
    class_edges=(), latency_ms=((1.0, 2.0, 3.0, 4.0, 5.0),), scales=SCALES, baseline_n=900, baseline_error_ratio=0.002, log_sd=0.4
)
SPECS = (
    GuardrailSpec(name=Guardrail("errors"), margin=0.01, fail_margin=0.002),
    GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.1),
    GuardrailSpec(name=Guardrail("slo_misses"), margin=0.05, fail_margin=0.0),
)
STATES: tuple[SignalState, ...] = ("ok", "ok", "ok", "ok", "stale", "empty", "down", "reset")


@st.composite
def increments(draw: st.DrawFn) -> Counts:
    attempts = draw(st.integers(0, 400))
    errors = draw(st.integers(0, attempts))
    timed = attempts - errors
    rows = {}
    for scale in SCALES:
        at_most, row = timed, []
        for _ in range(5):
            at_most = draw(st.integers(0, at_most))
            row.append(at_most)
        rows[ladder_key(scale)] = tuple(row)
    misses = draw(st.integers(0, timed))
    refused, gone = draw(st.integers(0, attempts)), draw(st.integers(0, 100))
    return Counts(
        attempts=attempts,
        errors=errors,
        misses=misses,
        timed=timed,
        ladders=rows,
        clusters=_together(errors),
        shares={REFUSALS: (attempts, refused)},
        clusters_of={REFUSALS: _together(refused)},
        gave_up=_together(gone),
        prompt_tokens=attempts * 100,
        cached_tokens=draw(st.integers(0, attempts * 100)),
    )


def _together(events: int) -> ClusterSums:
    return ClusterSums(clusters=min(1, events), errors=events, sum_sq=events**2)


def _sum(a: ClusterSums, b: ClusterSums) -> ClusterSums:
    return ClusterSums(clusters=a.clusters + b.clusters, errors=a.errors + b.errors, sum_sq=a.sum_sq + b.sum_sq)


def _plus(a: Counts, b: Counts) -> Counts:
    attempts = a.attempts + b.attempts
    refused = a.shares.get(REFUSALS, (0, 0))[1] + b.shares[REFUSALS][1]
    return Counts(
        attempts=attempts,
        errors=a.errors + b.errors,
        misses=a.misses + b.misses,
        timed=a.timed + b.timed,
        ladders={k: tuple(x + y for x, y in zip(a.ladders.get(k, (0,) * 5), v, strict=True)) for k, v in b.ladders.items()},
        clusters=_sum(a.clusters, b.clusters),
        shares={REFUSALS: (attempts, refused)},
        clusters_of={REFUSALS: _sum(a.clusters_of.get(REFUSALS, ClusterSums()), b.clusters_of[REFUSALS])},
        gave_up=_sum(a.gave_up, b.gave_up),
        prompt_tokens=a.prompt_tokens + b.prompt_tokens,
        cached_tokens=a.cached_tokens + b.cached_tokens,
    )


@st.composite
def runs(draw: st.DrawFn) -> list[Evidence]:
    out = []
    for step in range(draw(st.integers(1, 3))):
        since = START + timedelta(hours=step)
        arms = (Counts(), Counts())
        outcomes = ""
        for i in range(draw(st.integers(1, 5))):
            more = draw(increments()), draw(increments())
            arms = _plus(arms[0], more[0]), _plus(arms[1], more[1])
            outcomes += "x" * more[1].errors + "." * (more[1].attempts - more[1].errors)
            states = draw(st.sampled_from(STATES)), draw(st.sampled_from(STATES))
            out.append(
                Evidence(
                    cell=CELL,
                    at=since + timedelta(seconds=7 * (i + 1)),
                    arms={"baseline": arms[0], "canary": arms[1]},
                    state={"baseline": states[0], "canary": states[1]},
                    cursor=Cursor(position=f"{step}:0", since=since, thresholds=FROZEN),
                    canary_outcomes=outcomes[-300:],
                    baseline_recent=more[0].attempts,
                    baseline_recent_errors=more[0].errors,
                )
            )
    return out


def _judge_all(looks: list[Evidence], stop_every: bool) -> tuple[JudgeState, list[tuple[Verdict, ...]]]:
    state, rows = fresh(2), []
    for before, e in zip([None, *looks], looks, strict=False):
        if before is not None and before.cursor != e.cursor:
            state = start_step(state)
        if stop_every:
            state = decode(JudgeState, canonical(state))
        state, verdicts = judge(state, e, SPECS)
        rows.append(verdicts)
    return state, rows


@settings(deadline=None, max_examples=40)
@given(looks=runs())
def test_replaying_and_resuming_give_the_identical_state(looks: list[Evidence]) -> None:
    once = _judge_all(looks, stop_every=False)
    assert _judge_all(looks, stop_every=False) == once
    assert _judge_all(looks, stop_every=True) == once


@settings(deadline=None, max_examples=40)
@given(looks=runs())
def test_what_always_holds_of_verdicts(looks: list[Evidence]) -> None:
    failed = False
    for e, verdicts in zip(looks, _judge_all(looks, stop_every=False)[1], strict=True):
        whole = verdicts[0]
        assert all(v.e_value >= 0 and v.pass_e_value >= 0 for v in verdicts)
        if whole.kind == "PASS":
            assert set(e.state.values()) == {"ok"}
            assert e.arms["canary"].attempts >= 100
            asked = [v for v in verdicts if v.guardrail in {s.name for s in SPECS}]  # refusals are judged beside them and can only fail
            assert len(asked) == len(SPECS)
            assert all(v.kind == "PASS" and v.pass_e_value >= 20 for v in asked)
        if failed:
            assert whole.kind == "FAIL"
        failed = failed or whole.kind == "FAIL"
        if not failed:
            assert all(v.kind != "FAIL" for v in verdicts)
