"""Requests that have not ended yet, or were given up after long, are slow ones: a step does not pass on the fast ones that end first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import log

import numpy as np
import pytest

from fleetctl.analysis.judge import fresh, judge, needed_scales
from fleetctl.analysis.memory import unpack
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, LADDER, Arm, Cursor, Quantiles, SignalState, Thresholds, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(START.timestamp() * 1000)
MEDIAN_MS, LOG_SD = 20_000.0, 0.3
LATENCY = GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.10)
ALIVE: dict[Arm, SignalState] = {"baseline": "ok", "canary": "ok"}
_NORMAL = {0.50: 0.0, 0.75: 0.6745, 0.90: 1.2816, 0.95: 1.6449, 0.99: 2.3263}
FROZEN = Thresholds(
    class_edges=(),
    latency_ms=(tuple(MEDIAN_MS * float(np.exp(LOG_SD * _NORMAL[q])) for q in LADDER),),
    scales=needed_scales((LATENCY,)),
    baseline_n=3_000,
    baseline_error_ratio=0.0,
    log_sd=LOG_SD,
)


def rungs_passed(factor: float, *, seconds: int, per_s: int = 17) -> set[str]:
    """Return the rungs whose PASS latched at some look, of requests that a log tells when they end."""
    rng = np.random.default_rng(2)
    n = seconds * per_s
    found = []
    for arm in ARMS:
        took = rng.lognormal(log(MEDIAN_MS), LOG_SD, n) * (factor if arm == "canary" else 1.0)
        starts = T0 + np.arange(n) * 1_000 // per_s
        found += [
            Attempt(cell=CELL, arm=arm, started_ms=int(s), ended_ms=int(s + t), failed=False, latency_ms=float(t))
            for s, t in zip(starts, took, strict=True)
        ]
    found.sort(key=lambda a: a.ended_ms)
    tally = Tally(CELL, Cursor(position="", since=START, thresholds=FROZEN), streaming=False, slo_latency_ms=None)
    state, done = fresh(1), 0
    out: set[str] = set()
    for second in range(2, seconds, 2):
        while done < len(found) and found[done].ended_ms <= T0 + 1_000 * second:
            tally.add(found[done])
            done += 1
        state, _ = judge(state, tally.evidence(START + timedelta(seconds=second)), (LATENCY,))
        out |= {name for name, bank in unpack(state).passes.items() if bank.reached}
    return out


def test_a_slower_target_does_not_pass_on_the_requests_that_end_first() -> None:
    assert rungs_passed(1.5, seconds=160) == set(), "counted as they end, two rungs pass within 32 s"


def test_an_equal_target_still_passes() -> None:
    assert rungs_passed(1.0, seconds=300) == {f"latency/{i}" for i in range(len(LADDER))}


@pytest.mark.parametrize(("took_ms", "counted"), [(10, 0), (45_000, 0), (90_000, 1)])
def test_a_request_that_was_given_up_after_long_is_an_error_and_a_slow_one(took_ms: int, counted: int) -> None:
    tally = Tally(CELL, Cursor(position="", since=START, thresholds=FROZEN), streaming=False, slo_latency_ms=30_000.0)
    tally.add(Attempt(cell=CELL, arm="canary", started_ms=T0, ended_ms=T0 + took_ms, failed=True, latency_ms=None))
    canary = tally.evidence(START + timedelta(minutes=3)).arms["canary"]
    assert (canary.errors, canary.timed, canary.misses) == (1, counted, counted)
    assert set(canary.ladders[ladder_key(1.5)]) == {counted}


def of_ttft(spec: GuardrailSpec) -> Thresholds:
    own = Quantiles(class_edges=(), rows=FROZEN.latency_ms, n=FROZEN.baseline_n, log_sd=LOG_SD)
    return replace(FROZEN, latency_ms=(), scales=needed_scales((spec,)), others=(("ttft", own),))


@pytest.mark.parametrize(("took_ms", "first_ms", "counted"), [(10, None, 0), (45_000, None, 0), (90_000, None, 1), (90_000, 900.0, 0)])
def test_a_request_without_a_first_token_after_long_is_slow_to_it(took_ms: int, first_ms: float | None, counted: int) -> None:
    ttft = replace(LATENCY, name=Guardrail("ttft"))
    tally = Tally(CELL, Cursor(position="", since=START, thresholds=of_ttft(ttft)), streaming=False, slo_latency_ms=None)
    tally.add(Attempt(cell=CELL, arm="canary", started_ms=T0, ended_ms=T0 + took_ms, failed=True, latency_ms=None, ttft_ms=first_ms))
    canary = tally.evidence(START + timedelta(minutes=3)).arms["canary"]
    assert (canary.errors, canary.timed_for("ttft")) == (1, counted)
    assert set(canary.ladders.get(ladder_key(1.5, "ttft"), (0,))) == {counted}


@pytest.mark.parametrize("name", ["latency", "ttft"])
@pytest.mark.parametrize("hanging", [0.0, 0.1])
def test_answers_that_never_begin_count_against_their_time(name: str, hanging: float) -> None:
    """The times of all that answer are alike, so a target of which a tenth hangs would pass on those alone."""
    spec = GuardrailSpec(name=Guardrail(name), margin=0.25, fail_margin=0.10)
    thresholds = FROZEN if name == "latency" else of_ttft(spec)
    tally = Tally(CELL, Cursor(position="", since=START, thresholds=thresholds), streaming=False, slo_latency_ms=None)
    rng = np.random.default_rng(3)
    found = []
    for i in range(8_000):
        arm, start = ARMS[i % 2], T0 + 50 * i
        took = float(rng.lognormal(log(MEDIAN_MS), LOG_SD))
        if arm == "canary" and rng.random() < hanging:
            found.append(Attempt(cell=CELL, arm=arm, started_ms=start, ended_ms=start + 120_000, failed=True, latency_ms=None))
        else:
            first = took if name == "ttft" else None
            end = start + round(took)
            found.append(Attempt(cell=CELL, arm=arm, started_ms=start, ended_ms=end, failed=False, latency_ms=took, ttft_ms=first))
    found.sort(key=lambda a: a.ended_ms)
    state, done, kind = fresh(1), 0, "INCONCLUSIVE"
    for second in range(10, 560, 10):
        while done < len(found) and found[done].ended_ms <= T0 + 1_000 * second:
            tally.add(found[done])
            done += 1
        state, verdicts = judge(state, replace(tally.evidence(START + timedelta(seconds=second)), state=ALIVE), (spec,))
        kind = verdicts[0].kind
        if kind in ("PASS", "FAIL"):
            break
    assert kind == ("FAIL" if hanging else "PASS")


def test_counts_do_not_depend_on_when_somebody_looked() -> None:
    often, once = (Tally(CELL, Cursor(position="", since=START, thresholds=FROZEN), streaming=False, slo_latency_ms=None) for _ in range(2))
    rng = np.random.default_rng(8)
    for i, took in enumerate(rng.lognormal(log(MEDIAN_MS), LOG_SD, 200)):
        at = T0 + 500 * i
        attempt = Attempt(cell=CELL, arm=ARMS[i % 2], started_ms=at, ended_ms=at + int(took), failed=False, latency_ms=float(took))
        often.add(attempt)
        once.add(attempt)
        often.evidence(START + timedelta(milliseconds=500 * i))
    end = START + timedelta(seconds=130)
    assert often.evidence(end).arms == once.evidence(end).arms
