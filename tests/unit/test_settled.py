"""Streams that hang are errors only when the router cuts them: no step passes on those that ended before."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import log

import numpy as np
import pytest

from fleetctl.adapters.routers.evidence import SETTLE_MS
from fleetctl.adapters.routers.route import STREAM_TIMEOUT_S
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.memory import unpack
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, SETTLED, Arm, Counts, Cursor, SignalState, Thresholds
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(START.timestamp() * 1_000)
ALIVE: dict[Arm, SignalState] = {"baseline": "ok", "canary": "ok"}
FROZEN = Thresholds(class_edges=(), latency_ms=(), scales=(), baseline_n=1_000, baseline_error_ratio=0.005, log_sd=0.0)
CURSOR = Cursor(position="", since=START, thresholds=FROZEN)


def streams(per_min: int, share: float, hanging: float, minutes: float, seed: int) -> list[Attempt]:
    """Return what the log tells, in that order: 0.5 % fail at once on both arms, and a part of the canary's hangs until it is cut."""
    rng = np.random.default_rng(seed)
    n = round(per_min * minutes)
    starts = T0 + np.sort(rng.uniform(0, 60_000 * minutes, n))
    took = 1_000 * rng.lognormal(log(8), 0.6, n)
    on_canary, fails, hangs = rng.random(n) < share, rng.random(n) < 0.005, rng.random(n) < hanging
    found = []
    for at, ms, is_canary, failed, hung in zip(starts, took, on_canary, fails, hangs, strict=True):
        stuck = bool(is_canary and hung)
        end = at + (1_000 * STREAM_TIMEOUT_S if stuck else ms)
        arm: Arm = "canary" if is_canary else "baseline"
        found.append(Attempt(cell=CELL, arm=arm, started_ms=round(at), ended_ms=round(end), failed=bool(failed) or stuck, latency_ms=None))
    return sorted(found, key=lambda a: a.ended_ms)


def kinds(found: list[Attempt], margin: float, minutes: float, settle_ms: float = SETTLE_MS) -> list[str]:
    """Return the whole verdict of every look, one in 20 s."""
    spec = GuardrailSpec(name=Guardrail("errors"), margin=margin, fail_margin=0.0)
    tally = Tally(CELL, CURSOR, streaming=True, slo_latency_ms=None, settle_ms=settle_ms)
    state, done = fresh(6, 4), 0
    out: list[str] = []
    for second in range(20, round(60 * minutes) + 1, 20):
        while done < len(found) and found[done].ended_ms <= T0 + 1_000 * second:
            tally.add(found[done])
            done += 1
        seen = replace(tally.evidence(START + timedelta(seconds=second)), state=ALIVE)
        state, verdicts = judge(state, seen, (spec,))
        out.append(verdicts[0].kind)
    return out


CASES = ((0.01, 0.05, 0.10, 10), (0.05, 0.02, 0.04, 12), (0.25, 0.01, 0.02, 20))
"""Canary's share, margin, part of its streams that hangs, minutes."""


@pytest.mark.parametrize("case", [CASES[0], *(pytest.param(c, marks=pytest.mark.slow) for c in CASES[1:])])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_streams_that_hang_pass_no_step(case: tuple[float, float, float, float], seed: int) -> None:
    share, margin, hanging, minutes = case
    assert "PASS" not in kinds(streams(2_000, share, hanging, minutes, seed), margin, minutes)


def test_counted_as_they_end_they_would_pass() -> None:
    share, margin, hanging, minutes = CASES[0]
    assert "PASS" in kinds(streams(2_000, share, hanging, minutes, 0), margin, minutes, settle_ms=0.0)


def test_streams_alike_pass_once_they_would_have_been_cut() -> None:
    found = kinds(streams(1_000, 0.25, 0.0, 18, 3), 0.02, 18)
    waits = round(SETTLE_MS / 20_000)
    assert "PASS" not in found[:waits]
    assert found[-1] == "PASS"


def test_streams_that_fail_at_once_fail_at_once() -> None:
    found = [replace(a, failed=a.failed or (a.arm == "canary" and i % 5 == 0)) for i, a in enumerate(streams(1_000, 0.25, 0.0, 3, 4))]
    assert "FAIL" in kinds(found, 0.02, 3)


def test_each_request_settles_once_however_often_somebody_looks() -> None:
    found = streams(300, 0.3, 0.05, 14, 5)
    often, once = (Tally(CELL, CURSOR, streaming=True, slo_latency_ms=None, settle_ms=SETTLE_MS) for _ in range(2))
    end = START + timedelta(minutes=40)
    for i, a in enumerate(found):
        often.add(a)
        once.add(a)
        if i % 50 == 0:
            often.evidence(START + timedelta(milliseconds=a.ended_ms - T0))
    whole = once.evidence(end).arms
    assert often.evidence(end).arms == whole
    assert {arm: c.shares[SETTLED] for arm, c in whole.items()} == {arm: (c.attempts, c.errors) for arm, c in whole.items()}


def test_what_an_older_release_took_for_a_pass_counts_afresh() -> None:
    spec = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)
    seen = Tally(CELL, CURSOR, streaming=True, slo_latency_ms=None).evidence(START + timedelta(minutes=9))
    old = replace(seen, arms={arm: Counts(attempts=2_000) for arm in ARMS}, state=ALIVE)
    state, verdicts = judge(fresh(6), old, (spec,))
    assert verdicts[0].kind == "PASS"
    now = replace(old, arms={arm: Counts(attempts=2_100, shares={SETTLED: (10, 0)}) for arm in ARMS})
    state, verdicts = judge(state, now, (spec,))
    assert verdicts[0].kind == "INCONCLUSIVE"
    assert not unpack(state).passes["errors"].reached
