"""A target whose caches are cold: both shares are shown, the latency verdict is marked, and nobody goes home for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleetctl.domain.evidence import Arm, Counts, cached_shares
from tests.fakes.evidence import Served
from tests.rollouts import CELL
from tests.simulator import Simulation, quick


class Cold(Simulation):
    """Customers whose prompts the target has in its cache less often than the source, and answers a little later for that.

    It answers a fifth later than the source, which without the gap of the caches is a FAIL.
    """

    cached: int = 12

    def serve(self, seconds: float) -> None:
        n = round(self.rate_per_s * seconds)
        for i in range(n):
            is_canary = self.random.random() * 10_000 < self.target.splits[CELL].target_bp
            at = self.clock.now() + timedelta(seconds=seconds * i / n)
            latency = 52 * self.random.lognormvariate(0, 0.1) * (1.2 if is_canary else 1.0)
            cached = self.cached if is_canary else 32
            arm: Arm = "canary" if is_canary else "baseline"
            self.evidence.add(Served(cell=CELL, arm=arm, started=at, latency_ms=latency, prompt_tokens=40, cached_tokens=cached))
        self.clock.advance(timedelta(seconds=seconds))


def test_a_gap_of_the_caches_is_shown_and_marks_latency_and_never_rolls_back() -> None:
    s = Cold(of=quick(), rate_per_s=80)
    s.begin()
    s.run(90, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.rollout().phase, s.bp()) == ("", "canary", 1_000)
    look = next(r.look for r in reversed(s.results) if r.look is not None)
    assert [v.guardrail for v in look.verdicts if v.confounded] == ["latency"]
    assert "confounded: cached prompt tokens differ by 50 points (source 80%, target 30%)" in look.why


def test_without_the_gap_the_same_latency_takes_it_home() -> None:
    s = Cold(of=quick(), rate_per_s=80)
    s.cached = 32
    s.begin()
    s.run(90, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "rolled_back"


@pytest.mark.parametrize("silent", ["baseline", "canary"])
def test_shares_are_told_only_where_both_arms_tell_their_tokens(silent: Arm) -> None:
    arms: dict[Arm, Counts] = {}
    arms["baseline"], arms["canary"] = Counts(prompt_tokens=100, cached_tokens=80), Counts(prompt_tokens=50, cached_tokens=10)
    assert cached_shares(arms) == {"baseline": 0.8, "canary": 0.2}
    assert cached_shares({**arms, silent: Counts()}) is None
