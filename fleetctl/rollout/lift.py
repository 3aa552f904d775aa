"""Migrate, pure layer: a source that answers nothing, and two people who want everybody on the target. Never I/O, clock, randomness.

The cap is a promise to people, so no number of failures lifts it: two of them do, and only while the source answers no completion. From
then on the target has everybody until a person brings the cell home, which needs a source that answers.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.people import Actor, Reason
from fleetctl.domain.rollout import Decision, Notify, Observation, Rollout, SetSplit
from fleetctl.domain.units import FULL_BP

NEEDED = 2
SETTLING = timedelta(milliseconds=100)
LOST = "source.lost"
"""Hold reason of a cell whose cap was lifted."""
REFUSED = "lift.refused"


def is_wanted(r: Rollout) -> bool:
    """Tell whether enough people want the cap lifted."""
    return len(r.lifted_by) >= NEEDED


def signed(r: Rollout, actor: Actor) -> Rollout:
    """Return the rollout with one person's word more, where its fleet file declares that; the same person counts once."""
    if r.spec.on_source_loss != "lift_after_two_signatures" or r.direction == "home":
        return r
    return replace(r, lifted_by=tuple(dict.fromkeys((*r.lifted_by, actor.name))))


def refusal(seen: Observation) -> str:
    """Say why the cap is not lifted, "" where nothing is known against it."""
    if seen.source_ready is not None and seen.source_ready > 0:
        return f"the source answers on {seen.source_ready:.0%} of its replicas: the cap stays"
    if seen.target_ready is not None and seen.target_ready <= 0:
        return "the target answers on none of its replicas: the cap stays"
    return ""


def raised(r: Rollout, seen: Observation) -> Decision:
    """Return the step to everybody on the target; who asks for it is asked again once both sides were."""
    who = " and ".join(r.lifted_by)
    text = f"the source is lost; {who} lifted the cap: everybody is on {r.spec.target} until: fleetctl fallback {r.cell}"
    after = replace(r, weight_bp=FULL_BP, settled_at=None, lost_since=None, step_done=False, promoted=False, hold_reason=LOST)
    page = () if r.hold_reason == LOST else (Notify(level="page", text=f"{r.cell}: {text}"),)
    return Decision(next=after, effects=(SetSplit(target_bp=FULL_BP), *page), why=Reason(code=LOST, text=text), look_again=SETTLING)
