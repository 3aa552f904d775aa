"""Migrate, pure layer: when a cell is looked at again. Never I/O."""

from __future__ import annotations

from datetime import timedelta

from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.rollout import Observation, Rollout

MOVING = timedelta(seconds=1)
BAKING = timedelta(seconds=5)
SOAKING = timedelta(seconds=60)
SETTLING = timedelta(milliseconds=100)
"""While traffic moves, in bake, in soak, and for a read-back. Source: design section 5; in bake 5 s and not its 10 s, so that a target
whose every request fails is left within 10 s."""
FINISHED = timedelta(minutes=5)
"""A finished cell: others write."""
FINISHED_LEASE = timedelta(days=365)
"""A finished weight's lease lasts longer: else a guard would take it home."""

DOUBT = 2.0
"""FAIL e-value from which a cell is looked at every second: alike sides seldom reach it, and nothing bad waits for the next look."""


def look_every(step: PhaseSpec) -> timedelta:
    """Return how long a step waits between looks as long as all is well."""
    if step.phase == "soak" and step.bake > timedelta(hours=1):
        return SOAKING
    return MOVING if step.bake < timedelta(minutes=2) else BAKING


def look_after(r: Rollout, seen: Observation) -> timedelta:
    """Return when to look again at a cell that stands at its step."""
    in_doubt = any(v.guardrail == "all" and v.e_value >= DOUBT for v in seen.verdicts)
    return MOVING if in_doubt else look_every(r.spec.phases[r.step])
