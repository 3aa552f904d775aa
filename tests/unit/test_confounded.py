"""Times of requests that the arms' caches made differ tell nothing of the hardware, neither while they differ nor once they are alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fleetctl.analysis.freeze import frozen
from fleetctl.analysis.judge import fresh, judge, needed_scales
from fleetctl.analysis.memory import Memory, pack, unpack
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import Arm, Cursor, JudgeState, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATENCY = GuardrailSpec(name=Guardrail("latency"), margin=0.20, fail_margin=0.05)
PROMPT = 100
WARM, COLD = 60, 10
Canary = Callable[[int], tuple[float, int]]
"""By number of request: how many times as long as the source the target takes, and how many prompt tokens it has in its cache."""


class Traffic:
    """Customers of one cell: one request in 0.1 s, one look in 20 s, and what the judge remembers over all steps."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)
        self.at_s = 0.0
        before = [self._attempt("baseline", 1.0, WARM) for _ in range(3_000)]
        self.thresholds = frozen(before, ("latency",), needed_scales((LATENCY,)), 1_000)
        self.state: JudgeState = fresh(6, 1)

    def _attempt(self, arm: Arm, slower: float, cached: int) -> Attempt:
        self.at_s += 0.1
        took = 1_000 * self.rng.lognormal(0, 0.6) * slower
        start = round((START.timestamp() + self.at_s) * 1_000)
        return Attempt(
            cell=CELL,
            arm=arm,
            started_ms=start,
            ended_ms=start + round(took),
            failed=False,
            latency_ms=took,
            prompt_tokens=PROMPT,
            cached_tokens=cached,
        )

    def step(self, n: int, canary: Canary, *, share: float = 0.5, baseline_cached: int = WARM) -> list[Verdict]:
        """Serve one step and return the verdict on latency of every look."""
        cursor = Cursor(position=f"{self.at_s}", since=START + timedelta(seconds=self.at_s), thresholds=self.thresholds)
        tally = Tally(CELL, cursor, streaming=False, slo_latency_ms=None)
        out = []
        for i in range(n):
            is_canary = self.rng.random() < share
            tally.add(self._attempt("canary", *canary(i)) if is_canary else self._attempt("baseline", 1.0, baseline_cached))
            if i % 200 == 199:
                self.state, verdicts = judge(self.state, tally.evidence(START + timedelta(seconds=self.at_s)), (LATENCY,))
                out.append(next(v for v in verdicts if v.guardrail == "latency"))
        return out


def kinds(verdicts: list[Verdict]) -> set[str]:
    return {v.kind for v in verdicts}


def test_what_a_cold_cache_slowed_is_no_fail_of_a_later_step_where_the_caches_are_alike() -> None:
    t = Traffic()
    cold = t.step(8_000, lambda _: (1.25, COLD), share=0.25)
    assert (kinds(cold), cold[-1].confounded) == ({"INCONCLUSIVE"}, True)
    warm = t.step(5_000, lambda _: (1.0, WARM))
    assert kinds(warm) == {"INCONCLUSIVE", "PASS"}
    assert not warm[-1].confounded
    assert max(v.e_value for v in (*cold, *warm)) < 2


def test_a_cache_that_warms_up_within_a_step_fails_nothing_and_passes_then() -> None:
    def warming(i: int) -> tuple[float, int]:
        cold = max(0.0, 1 - i / 3_000)
        return 1 + 0.25 * cold, round(WARM - (WARM - COLD) * cold)

    seen = Traffic().step(12_000, warming)
    assert "FAIL" not in kinds(seen)
    assert (seen[0].confounded, seen[-1].confounded, seen[-1].kind) == (True, False, "PASS")


def test_what_a_warmer_cache_made_fast_passes_nothing_once_the_caches_are_alike() -> None:
    def slow_hardware(i: int) -> tuple[float, int]:
        return (1.0, WARM) if i < 6_000 else (1.25, COLD)  # as slow as its cache made up for

    t = Traffic()
    t.thresholds = frozen([t._attempt("baseline", 1.0, COLD) for _ in range(3_000)], ("latency",), needed_scales((LATENCY,)), 1_000)
    seen = t.step(12_000, slow_hardware, baseline_cached=COLD)
    assert "PASS" not in kinds(seen)
    assert seen[-1].kind == "FAIL", "what is left of it is a fair comparison"


@pytest.mark.parametrize("earlier", [0, 6_000])
def test_gross_slowness_fails_while_the_caches_differ(earlier: int) -> None:
    seen = Traffic().step(earlier + 6_000, lambda i: (1.0, WARM) if i < earlier else (2.0, COLD))
    assert (seen[-1].kind, seen[-1].confounded) == ("FAIL", True)


def test_the_same_slowness_with_equal_caches_fails() -> None:
    assert Traffic().step(6_000, lambda _: (1.25, WARM))[-1].kind == "FAIL"


def test_chance_alone_does_not_confound_small_blocks() -> None:
    t = Traffic()
    seen = t.step(4_000, lambda _: (1.0, int(t.rng.choice([0, 90]))), share=0.1, baseline_cached=45)
    assert sum(v.confounded for v in seen[10:]) <= 2


def test_what_is_known_of_the_caches_is_kept_and_not_shared() -> None:
    memory = Memory(steps=1)
    memory.caches = {"canary": [10, 5, 7.5, 2.5]}
    state = pack(memory)
    unpack(state).caches["canary"][0] = 99
    assert unpack(state).caches == {"canary": [10, 5, 7.5, 2.5]}
