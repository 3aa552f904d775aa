"""How answers end is judged from the first of them: a reason that one arm, or neither, has ever shown is none of so many."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, LADDER, Arm, Counts, Cursor, Evidence, JudgeState, Quantiles, Thresholds, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.usecases.evidence import merged

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MS = round(START.timestamp() * 1_000)
LENGTH = GuardrailSpec(name=Guardrail("finish_length"), margin=0.02, fail_margin=0.005)
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.005)


def log_at(seconds: int) -> Evidence:
    """The log of a step in which both arms answer ten times a second, and nobody tells how."""
    return Evidence(
        cell=CELL,
        at=START + timedelta(seconds=seconds),
        arms={arm: Counts(attempts=10 * seconds) for arm in ARMS},
        state={"baseline": "ok", "canary": "ok"},
        cursor=Cursor(position="", since=START),
        canary_outcomes="." * min(10 * seconds, 5_000),
    )


def run(cut: dict[Arm, float], *, seconds: int = 1_800, silent_from: int = 10**9) -> tuple[Verdict, ...]:
    """Judge pairs of probes, one a second; `cut`: which share of an arm's answers ends by length. Stops at a FAIL."""
    random, state = Random(3), fresh(1, 2)
    probes = Tally(CELL, Cursor(position="", since=START), streaming=True, slo_latency_ms=None)
    verdicts: tuple[Verdict, ...] = ()
    for second in range(1, seconds):
        for arm in ARMS:
            t0 = MS + 1_000 * second
            finish = "length" if random.random() < cut[arm] else "stop"
            probes.add(
                Attempt(cell=CELL, arm=arm, started_ms=t0, ended_ms=t0 + 400, failed=False, latency_ms=None, finish=finish, pair=second)
            )
        if second % 10 == 0:
            e = log_at(second)
            if second < silent_from:
                e = merged(e, probes.evidence(e.at), "probes", is_tolerated=False)
            state, verdicts = judge(state, e, (ERRORS, LENGTH))
            if verdicts[0].kind == "FAIL":
                break
    return verdicts


def kind_of(verdicts: tuple[Verdict, ...], name: str = "finish_length") -> str:
    return next(v.kind for v in verdicts if v.guardrail == name)


@pytest.mark.parametrize("cut", [0.5, 0.05])
def test_a_reason_that_the_source_has_never_shown_fails_a_target_that_shows_it(cut: float) -> None:
    verdicts = run({"baseline": 0.0, "canary": cut})
    assert (verdicts[0].kind, kind_of(verdicts)) == ("FAIL", "FAIL")


def test_a_reason_that_neither_shows_passes() -> None:
    verdicts = run({"baseline": 0.0, "canary": 0.0})
    assert (verdicts[0].kind, kind_of(verdicts)) == ("PASS", "PASS")
    look = next(v.look for v in verdicts if v.guardrail == "finish_length")
    assert (look.baseline_n, look.baseline_events) == (1_790, 0)


@pytest.mark.parametrize("arm", ARMS)
def test_equal_arms_of_which_one_shows_it_later_are_not_told_apart(arm: Arm) -> None:
    cut: dict[Arm, float] = {"baseline": 0.001, "canary": 0.001}
    assert kind_of(run({**cut, arm: 0.002})) != "FAIL"


def test_a_source_that_has_become_silent_passes_nothing() -> None:
    assert kind_of(run({"baseline": 0.0, "canary": 0.0}, seconds=200, silent_from=100)) == "INCONCLUSIVE"


def test_what_an_older_release_has_counted_is_counted_once() -> None:
    """A state without the number of finished answers goes on: neither all of them at once on one arm nor any twice."""
    old = replace(
        log_at(100), arms={"baseline": Counts(attempts=1_000, shares={"finish_length": (1_000, 10)}), "canary": Counts(attempts=1_000)}
    )
    state: JudgeState = judge(fresh(1, 2), old, (ERRORS, LENGTH))[0]
    shares = {"finished": (1_100, 1_100), "finish_length": (1_100, 11)}
    e = replace(log_at(110), arms={arm: Counts(attempts=1_100, shares=shares) for arm in ARMS})
    assert judge(state, e, (ERRORS, LENGTH))[1][0].kind != "FAIL"


def test_answers_count_by_when_they_began_so_that_short_ones_are_not_first() -> None:
    """Answers that are cut are the longest: in the first minute a slow arm shows none of them, and that is no difference."""
    rows = (tuple(20_000.0 + i for i in range(len(LADDER))),)
    frozen = Thresholds(class_edges=(), latency_ms=rows, scales=(1.0, 1.5), baseline_n=1_000, baseline_error_ratio=0.0, log_sd=0.5)
    assert isinstance(frozen.quantiles("latency"), Quantiles)
    tally = Tally(CELL, Cursor(position="", since=START, thresholds=frozen), streaming=False, slo_latency_ms=None)
    shown = []
    for second in range(1, 90):
        for n, (finish, took) in enumerate((("stop", 1_000), ("length", 29_000))):
            t0 = MS + 1_000 * second - took
            if t0 >= MS:  # told as it ends
                tally.add(
                    Attempt(
                        cell=CELL, arm="canary", started_ms=t0 + n, ended_ms=t0 + took, failed=False, latency_ms=float(took), finish=finish
                    )
                )
        counts = tally.evidence(START + timedelta(seconds=second)).arms["canary"].shares
        if counts:
            shown.append(counts["finish_length"][1] / counts["finished"][0])
    assert len(shown) > 50
    assert min(shown) > 0.45
