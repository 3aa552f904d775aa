"""A weight above ours that others wrote is set back only as far as the source can take its customers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.rollout.others import against
from tests.rollouts import T0, rollout, seeing


@pytest.mark.parametrize(("ready", "set_bp", "writes"), [(None, 1_000, 1), (1.0, 1_000, 1), (0.5, 5_000, 1), (0.0, 7_000, 0)])
def test_nobody_is_sent_to_a_source_that_is_away_because_others_raised(ready: float | None, set_bp: int, writes: int) -> None:
    r = replace(rollout(), weight_bp=1_000, settled_at=T0)
    seen = replace(seeing(T0, 7_000), source_ready=ready)
    seen = replace(seen, split=replace(seen.split, lease_until=T0 + timedelta(minutes=3)))
    found = against(r, seen, T0)
    assert (found.set_bp, found.next.foreign_writes) == (set_bp, writes)
