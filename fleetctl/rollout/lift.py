"""Coming home, pure layer: a cap that two people lifted stands as long as the source is dead. Never I/O, clock, randomness."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.people import Reason
from fleetctl.domain.rollout import Decision, Effect, Notify, Observation, Rollout, SetSplit
from fleetctl.domain.units import FULL_BP, Instant

LOOK = timedelta(seconds=1)
LIFTED, OVER, WAITS = "lift.set", "lift.over", "lift.waits"


def lifted(r: Rollout, seen: Observation, now: Instant) -> Decision | None:
    """Let the target serve all while no replica of the source answers, and take it back once one does. None: nothing is lifted."""
    if r.lifted_at is None:
        return None
    shown, step_bp = seen.split.target_bp, min(r.spec.phases[r.step].weight_bp, r.spec.cap_bp)
    if seen.source_ready is None or seen.source_ready > 0:  # not asked counts as alive: nothing is raised on a guess
        why = Reason(code=OVER, text=f"the source answers again: back to {step_bp / 100:g} %")
        back = replace(r, lifted_at=None, weight_bp=step_bp, settled_at=None, hold_reason="")
        effects: tuple[Effect, ...] = (SetSplit(target_bp=step_bp),) if shown != step_bp else ()
        return Decision(next=back, effects=(*effects, Notify(level="warning", text=f"{r.cell}: {why.text}")), why=why, look_again=LOOK)
    held = replace(r, settled_at=None, lost_since=None)
    if seen.target_ready is None or seen.target_ready < 1.0:
        why = Reason(code=WAITS, text="the cap is lifted, but the target does not answer on all its replicas; nothing is raised")
        told: tuple[Effect, ...] = () if r.hold_reason == WAITS else (Notify(level="page", text=f"{r.cell}: {why.text}"),)
        renew: tuple[Effect, ...] = (SetSplit(target_bp=shown),) if shown and _is_old(r, seen, now) else ()
        return Decision(next=replace(held, hold_reason=WAITS), effects=(*renew, *told), why=why, look_again=LOOK)
    why = Reason(code=LIFTED, text="the source is dead and two people lifted the cap: all is on the target until it answers again")
    full = replace(held, weight_bp=FULL_BP, hold_reason=LIFTED)
    if shown < FULL_BP:
        page = Notify(level="page", text=f"{r.cell}: {why.text}")
        return Decision(next=full, effects=(SetSplit(target_bp=FULL_BP), page), why=why, look_again=LOOK)
    return Decision(next=full, effects=(SetSplit(target_bp=FULL_BP),) if _is_old(r, seen, now) else (), why=why, look_again=LOOK)


def _is_old(r: Rollout, seen: Observation, now: Instant) -> bool:
    """Tell whether the weight's lease has to be renewed."""
    return seen.split.lease_until - now <= r.spec.weight_lease / 2
