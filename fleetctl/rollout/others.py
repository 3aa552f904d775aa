"""Migrate, pure layer: somebody else writes the weight, or takes the source's capacity. Never I/O, clock, randomness.

Whoever writes, a person decides: the cell is held until `fleetctl resume`. A weight above ours is set back, three times at most: a tool
that puts its own back each time would fight for ever. After that its lease is renewed no more, so the guard takes it home.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleetctl.domain.holds import MOST_WRITES
from fleetctl.domain.rollout import Decision, Observation, Rollout, SetSplit
from fleetctl.domain.split import Split, stays_bp
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError

FOREIGN = "foreign_write"
"""Hold reason of a cell whose weight, or whose source's minimum, somebody else wrote; latched until a person resumes."""

GUARDED = "guard.home"
"""Cause of a notice that a guard took customers home while nobody judged their cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """What is done about it.

    Args:
        next: the rollout, with what was found latched; text: for people, "" where nothing is wrong.
        set_bp: the weight to set back, None to write nothing; pins_again: the source's minimum is put back too.
    """

    next: Rollout
    text: str = ""
    set_bp: int | None = None
    pins_again: bool = False


def against(r: Rollout, seen: Observation, now: Instant) -> Against:
    """Tell what somebody else wrote since this step was shown, and what is done about it."""
    shown, ours = seen.split.target_bp, r.weight_bp
    is_over = r.settled_at is not None and shown > ours  # whatever its lease says: a guard only lowers
    if is_over and not r.foreign and shown == _next_bp(r) and r.foreign_writes == 0:
        return Against(next=replace(r, foreign_writes=1))  # a raise of ours, killed before it was recorded: once
    found = seen.foreign_write or _weight_text(r, seen, now)
    held = replace(r, foreign=found) if found and not r.foreign else r
    if not held.foreign:
        return Against(next=held)
    text = f"{found or held.foreign}; resume or abort it"
    if not is_over:
        return Against(next=held, text=text, pins_again=bool(seen.foreign_write))
    if held.foreign_writes >= MOST_WRITES:
        text = f"{found or held.foreign}; we have set it back {MOST_WRITES} times and stop: take it from them, then resume or abort it"
        return Against(next=held, text=text, pins_again=bool(seen.foreign_write))
    least = max(ours, stays_bp(shown, 1.0 if seen.source_ready is None else seen.source_ready))  # nobody is sent to a source that is away
    counted = replace(held, foreign_writes=held.foreign_writes + 1) if least < shown else held
    return Against(next=counted, text=text, set_bp=least, pins_again=bool(seen.foreign_write))


def guard_text(r: Rollout, seen: Observation, now: Instant) -> str:
    """Say what a guard took home since this step was shown, "" where none did: it alone lowers a weight whose lease has lapsed."""
    shown, since = seen.split.target_bp, seen.split.lease_until
    if r.ended or r.direction == "home" or r.settled_at is None or shown >= r.weight_bp or since > now:
        return ""
    took = f"the router's guard took {(r.weight_bp - shown) / 100:g} % home"
    left = f", {shown / 100:g} % stayed" if shown else ""
    return f"{took}{left}: nobody had judged this cell, or renewed its weight, when the lease ended at {since:%H:%M:%S} UTC"


def after_failed(r: Rollout, d: Decision, seen: Observation, e: FleetctlError) -> Rollout:
    """Return what stands of a decision that could not be carried out: a raise that was not shown is a person's matter, never tried again.

    Else customers would go to and fro: it may stand all the same, is set back by the next look, and would be raised by the one after.
    """
    kept = replace(r, foreign_writes=max(r.foreign_writes, d.next.foreign_writes), foreign=r.foreign or d.next.foreign)
    is_raise = any(isinstance(effect, SetSplit) and effect.target_bp > seen.split.target_bp for effect in d.effects)
    if not is_raise or e.code != "traffic.not_shown" or kept.foreign:
        return kept
    return replace(kept, foreign=e.message, arms=replace(kept.arms, told=(*kept.arms.told, FOREIGN)))


def resumed(r: Rollout) -> Rollout:
    """Return the rollout after a person's word: its step begins anew, and a new foreign write is told anew.

    What was earned or promoted before others set the weight was for a step that others have ended.
    """
    told = tuple(mark for mark in r.arms.told if mark != FOREIGN)
    earned = not r.foreign
    r = replace(r, step_done=r.step_done and earned, promoted=r.promoted and earned)
    again = replace(r, foreign="", foreign_writes=0, arms=replace(r.arms, told=told))
    return replace(again, paused=False, settled_at=None, first_settled_at=None, hold_reason="")


def is_ours(r: Rollout, shown: Split, now: Instant) -> bool:
    """Tell whether a weight is ours, or what a guard has left of it: that one lowers, and only a weight whose lease has lapsed."""
    return shown.target_bp == r.weight_bp or (shown.target_bp < r.weight_bp and shown.lease_until <= now)


def _next_bp(r: Rollout) -> int:
    last = r.step + 1 >= len(r.spec.phases)
    return -1 if last else min(r.spec.phases[r.step + 1].weight_bp, r.spec.cap_bp)


def _weight_text(r: Rollout, seen: Observation, now: Instant) -> str:
    """Say who set another weight than ours."""
    if r.settled_at is None or is_ours(r, seen.split, now):
        return ""
    shown = seen.split.target_bp
    if r.spec.phases[r.step].weight_bp <= shown < r.weight_bp:
        return ""  # a step lower of ours, killed before it was recorded
    return f"{seen.writer or 'somebody else'} set {shown / 100:g} % where {r.weight_bp / 100:g} % was"
