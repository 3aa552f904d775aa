"""Migrate, rollout layer: a rollout that begins a step. Pure."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.domain.rollout import Rollout
from fleetctl.domain.units import Instant


def enter(r: Rollout, step: int, now: Instant) -> Rollout:
    """Return the rollout at the beginning of a step: not settled, not done, nobody's promise for it."""
    phase = r.spec.phases[step]
    return replace(
        r,
        shown=tuple(i for i in r.shown if i < step),
        step=step,
        step_done=False,
        promoted=False,
        weight_bp=phase.weight_bp,
        settled_at=None,
        first_settled_at=None,
        hold_reason="",
        deadline=now + r.spec.step_deadline,
    )


def from_first(r: Rollout, now: Instant) -> Rollout:
    """Return the rollout at its first step with customers; where it stands, before that."""
    first = next((i for i, p in enumerate(r.spec.phases[: r.step + 1]) if p.weight_bp > 0), None)
    return r if first is None else enter(r, first, now)
