"""Faults that begin late in a step, on the judge itself: whatever shows them is found in the promised time, and not with arms swapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import log

import pytest

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import LADDER, LADDER_METRICS, Arm, ClusterSums, Counts, Cursor, Evidence, Quantiles, Thresholds, ladder_key
from fleetctl.domain.workload import REFUSALS, Guardrail, GuardrailSpec
from tests.fakes.simulated_evidence import CELL, START

SCALES = (1.0, 1.1, 1.25, 1.5)
ROWS = ((50.0, 60.0, 70.0, 80.0, 90.0),)
LOG_SD = 0.6
QUANTILES = Quantiles(class_edges=(), rows=ROWS, n=3000, log_sd=LOG_SD)
FROZEN = Thresholds(
    class_edges=(),
    latency_ms=ROWS,
    scales=SCALES,
    baseline_n=3000,
    baseline_error_ratio=0.002,
    log_sd=LOG_SD,
    others=tuple((metric, QUANTILES) for metric in LADDER_METRICS if metric != "latency"),
)
PER_S: Mapping[Arm, float] = {"baseline": 15.0, "canary": 5.0}
P4_S = 90
SHARES = ("errors", REFUSALS, "slo_misses", "quality", "counter_failed_orders", "model_errors_sql")
SPECS = (
    *(GuardrailSpec(name=Guardrail(n), margin=0.01, fail_margin=0.0, needs_pass=False) for n in SHARES),
    *(GuardrailSpec(name=Guardrail(n), margin=0.25, fail_margin=0.10, needs_pass=False) for n in LADDER_METRICS),
)


@dataclass(frozen=True, kw_only=True)
class Does:
    """What an arm does: times as slow by metric, and events a request by share (`gave_up`: the client goes away)."""

    slower: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)


class Steady:
    """An arm's cumulative counts, as even as whole numbers can be, and how its newest requests ended."""

    def __init__(self, metrics: tuple[str, ...]) -> None:
        self.metrics, self.sums, self.outcomes = metrics, dict.fromkeys(("attempts", "errors"), 0.0), ""

    def run(self, n: float, does: Does) -> None:
        before = int(self.sums["attempts"]), int(self.sums["errors"])
        self._run(n, does)
        more, bad = int(self.sums["attempts"]) - before[0], int(self.sums["errors"]) - before[1]
        step = more / max(1, bad)
        where = {int((i + 0.5) * step) for i in range(bad)}
        self.outcomes = (self.outcomes + "".join("x" if i in where else "." for i in range(more)))[-400:]

    def _run(self, n: float, does: Does) -> None:
        for name in (*SHARES, "gave_up"):
            self._add(name, n * does.shares.get(name, 0.01 if name == "gave_up" else 0.002))
        self._add("attempts", n)
        for metric in self.metrics:
            for scale in SCALES:
                for i, rung in enumerate(LADDER):
                    rate = ep.slowed(1 - rung, log(does.slower.get(metric, 1.0) / scale), LOG_SD)
                    self._add(f"{ladder_key(scale, metric)}/{i}", n * rate)

    def _add(self, name: str, more: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + more

    def counts(self) -> Counts:
        got = {name: int(value) for name, value in self.sums.items()}
        n = got["attempts"]
        one_by_one = ClusterSums(clusters=got["errors"], errors=got["errors"], sum_sq=got["errors"])
        return Counts(
            attempts=n,
            errors=got["errors"],
            misses=got["slo_misses"],
            mismatches=got["quality"],
            timed=n,
            ladders={ladder_key(s, m): tuple(got[f"{ladder_key(s, m)}/{i}"] for i in range(5)) for m in self.metrics for s in SCALES},
            clusters=one_by_one,
            timed_of={m: n for m in self.metrics if m != "latency"},
            shares={name: (n, got[name]) for name in SHARES if name not in ("errors", "slo_misses", "quality")},
            gave_up=ClusterSums(clusters=got["gave_up"], errors=got["gave_up"], sum_sq=got["gave_up"]),
        )


HEALTHY = Does()


def failed_after(
    name: str, quiet: tuple[int, int], *phases: tuple[int, Does, Does], swapped: bool = False, breaker: bool = False
) -> tuple[float, str]:
    """Return seconds into the last phase until FAIL and what failed, (0, "") without one.

    Args:
        name: the guardrail that is judged, among as many as there are; quiet: so many looks of so many seconds in which both arms are
            healthy; phases: seconds, what the baseline does, and the canary, looked at every second; swapped: the canary's counts are
            told as the baseline's; breaker: outcomes are told one by one.
    """
    metrics = tuple(m for m in LADDER_METRICS if m == name)
    specs = tuple(s for s in SPECS if s.name in (name, "errors"))
    arms: dict[Arm, Steady] = {"baseline": Steady(metrics), "canary": Steady(metrics)}
    state, at = fresh(6, len(SPECS)), 0.0
    looks = [(quiet[1], HEALTHY, HEALTHY, 0.0)] * quiet[0]
    for number, (length, *does) in enumerate(phases, start=1):
        looks += [(1, does[0], does[1], i + 1.0 if number == len(phases) else 0.0) for i in range(length)]
    for seconds, baseline, canary, since in looks:
        at += seconds
        arms["baseline"].run(PER_S["baseline"] * seconds, baseline)
        arms["canary"].run(PER_S["canary"] * seconds, canary)
        told = [arms[arm].counts() for arm in (("canary", "baseline") if swapped else ("baseline", "canary"))]
        seen = Evidence(
            cell=CELL,
            at=START + timedelta(seconds=at),
            arms={"baseline": told[0], "canary": told[1]},
            state={"baseline": "ok", "canary": "ok"},
            cursor=Cursor(position="0:0", since=START, thresholds=FROZEN),
            canary_outcomes=arms["canary"].outcomes if breaker else "",
        )
        state, verdicts = judge(state, seen, specs)
        if verdicts[0].kind == "FAIL":
            assert since > 0, f"a FAIL before the last phase: {verdicts[0].detail}"
            return since, next(v.guardrail for v in verdicts[1:] if v.kind == "FAIL")
    return 0.0, ""


FAULTS: dict[str, Does] = {
    **{metric: Does(slower={metric: 2.0}) for metric in LADDER_METRICS},
    **{name: Does(shares={name: 0.05}) for name in SHARES},
    "gave_up": Does(shares={"gave_up": 0.2}),
}


@pytest.mark.parametrize("quiet", [(240, 60), pytest.param((1440, 60), marks=pytest.mark.slow)], ids=["4 h", "a day"])
@pytest.mark.parametrize("name", FAULTS)
def test_whatever_shows_a_fault_it_is_found_in_90_seconds_after_hours_of_health(name: str, quiet: tuple[int, int]) -> None:
    seconds, guardrail = failed_after(name, quiet, (P4_S, HEALTHY, FAULTS[name]))
    assert guardrail == name
    assert 0 < seconds <= P4_S


@pytest.mark.parametrize("name", FAULTS)
def test_the_same_fault_of_the_source_is_no_fail(name: str) -> None:
    assert failed_after(name, (20, 60), (P4_S, HEALTHY, FAULTS[name]), swapped=True) == (0.0, "")


BOTH_FAIL = Does(shares={"errors": 0.3})


@pytest.mark.parametrize("joint_s", [30, 120])
@pytest.mark.parametrize("rate", [0.05, 0.2, 1.0])
def test_a_canary_that_goes_on_failing_once_the_source_has_recovered_is_found_by_the_errors_guardrail(joint_s: int, rate: float) -> None:
    """The breaker excuses it for as long as the canary has not recovered, since the source was seen to fail too."""
    still = Does(shares={"errors": rate})
    seconds, guardrail = failed_after("errors", (60, 60), (joint_s, BOTH_FAIL, BOTH_FAIL), (600, HEALTHY, still), breaker=True)
    assert guardrail == "errors"
    assert 0 < seconds <= P4_S


def test_sides_that_fail_and_recover_together_are_no_fail() -> None:
    phases = (120, BOTH_FAIL, BOTH_FAIL), (600, HEALTHY, HEALTHY)
    assert failed_after("errors", (60, 60), *phases, breaker=True) == (0.0, "")


@pytest.mark.parametrize(
    ("share", "failures", "found_by"),
    [pytest.param(0.005, 28, "errors", marks=pytest.mark.slow), (0.01, 21, "errors"), (0.05, 11, "errors"), (0.2, 7, "breaker")],
)
def test_how_many_failures_of_one_client_take_a_cell_home(share: float, failures: int, found_by: str) -> None:
    """One client that keeps to the target, whose failures are this share of the target's requests: what evidence.md says of it."""
    failing = Does(shares={"errors": 0.002 + share})
    seconds, guardrail = failed_after("errors", (60, 10), (1_500, HEALTHY, failing), breaker=True)
    assert guardrail == found_by
    assert seconds * PER_S["canary"] * share == pytest.approx(failures, abs=2)
