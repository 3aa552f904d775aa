"""Migrate, rollout layer: a rollout that begins a step. Pure."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.domain.evidence import Cursor
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


def is_above(r: Rollout) -> bool:
    """Tell whether more stands on the target than the step asks for, since the source cannot take them yet."""
    return r.weight_bp > r.spec.phases[r.step].weight_bp


def begun(r: Rollout, mark: Cursor, at: Instant) -> Rollout:
    """Return the rollout with the evidence of what is shown now beginning at a moment; thresholds that are frozen stay so."""
    since = replace(mark, since=at, thresholds=mark.thresholds or (r.since.thresholds if r.since else None))
    return replace(r, settled_at=at, since=since)
