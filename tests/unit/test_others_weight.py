"""A weight above ours that others wrote is set back only as far as the source can take its customers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.rollout.others import against, resumed
from tests.rollouts import T0, rollout, seeing


@pytest.mark.parametrize(("ready", "set_bp", "writes"), [(None, 1_000, 1), (1.0, 1_000, 1), (0.5, 5_000, 1), (0.0, 7_000, 0)])
def test_nobody_is_sent_to_a_source_that_is_away_because_others_raised(ready: float | None, set_bp: int, writes: int) -> None:
    r = replace(rollout(), weight_bp=1_000, settled_at=T0)
    seen = replace(seeing(T0, 7_000), source_ready=ready)
    seen = replace(seen, split=replace(seen.split, lease_until=T0 + timedelta(minutes=3)))
    found = against(r, seen, T0)
    assert (found.set_bp, found.next.foreign_writes) == (set_bp, writes)


@pytest.mark.parametrize(("foreign", "kept"), [("", True), ("flux set 0 % where 10 % was", False)])
def test_what_a_step_had_earned_before_others_set_its_weight_is_earned_anew(foreign: str, kept: bool) -> None:
    r = resumed(replace(rollout(), foreign=foreign, step_done=True, promoted=True, settled_at=T0))
    assert (r.step_done, r.promoted, r.settled_at, r.foreign) == (kept, kept, None, "")
