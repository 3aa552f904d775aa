"""Whatever fails as a canary does not fail as a baseline: the judge looks for regressions, not for differences."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import Evidence
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from tests.fakes.simulated_evidence import Setting, looks

SPECS = tuple(GuardrailSpec(name=Guardrail(n), margin=m, fail_margin=0.0) for n, m in (("errors", 0.01), ("latency", 0.25)))


def _failed(rows: list[Evidence]) -> bool:
    state = fresh(1)
    for e in rows:
        state, verdicts = judge(state, e, SPECS)
        if verdicts[0].kind == "FAIL":
            return True
    return False


def _swapped(e: Evidence) -> Evidence:
    """Exchange the arms; the breaker sees the same canary outcomes in neither, they are not part of these looks."""
    return replace(e, arms={"baseline": e.arms["canary"], "canary": e.arms["baseline"]})


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    factor=st.sampled_from([1.0, 1.3, 2.0]),
    errors=st.sampled_from([0.005, 0.05, 0.3]),
    share=st.sampled_from([0.1, 0.5, 0.9]),
)
def test_a_regression_that_fails_does_not_fail_with_arms_swapped(seed: int, factor: float, errors: float, share: float) -> None:
    rows = list(looks(Setting(per_s=60, share=share, factor=factor, errors1=errors, look_s=4, looks=15, log_sd=0.3), seed))
    if _failed(rows):
        assert not _failed([_swapped(e) for e in rows])
