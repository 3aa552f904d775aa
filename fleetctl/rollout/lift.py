"""Migrate, pure layer: a source that answers nothing, and two people who want everybody on the target. Never I/O, clock, randomness.

The cap is a promise to people, so no number of failures lifts it: two of them do, and only while the source answers no completion. From
then on the target has everybody until a person brings the cell home, which needs a source that answers.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.people import Actor, Reason
from fleetctl.domain.rollout import Decision, Notify, Observation, Rollout, SetSplit
from fleetctl.domain.units import FULL_BP, Instant

NEEDED = 2
SILENT = timedelta(seconds=60)
"""A source of evidence that has written nothing for so long tells nothing: a dead target's router still logs its errors."""
SETTLING = timedelta(milliseconds=100)
LOST = "source.lost"
"""Hold reason of a cell whose cap was lifted."""
FAILING, BLIND = "lifted.failing", "lifted.blind"
"""Hold reasons of such a cell whose target fails, or of which nobody can tell: people are told, since there is no way home."""
LIFTED = (LOST, FAILING, BLIND)
REFUSED = "lift.refused"
NEWEST, LEAST = 50, 20
"""Newest requests that tell whether the target fails now, and how few of them tell nothing."""
BEGINS, ENDS = 0.5, 0.1
"""Share of errors from which the target counts as failing, and below which it does no more. Between them what was said stands."""


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


def is_lifted(r: Rollout, seen_bp: int) -> bool:
    """Tell whether everybody is on the target by people's word."""
    return is_wanted(r) and r.direction == "forward" and not r.ended and seen_bp == FULL_BP


def stands(r: Rollout, seen: Observation, now: Instant) -> Reason:
    """Say how a target does that has everybody: no verdict is possible without a baseline, and nobody could go home by one.

    A hard fault of its GPUs or runtime, half of its newest customers' requests in error, or nothing at all to see is told.
    """
    home = f"there is no way home while {r.spec.source} answers nothing; once it does: fleetctl fallback {r.cell}"
    e = seen.evidence
    if e is None or (e.source_at is not None and now - e.source_at > SILENT):
        return Reason(code=BLIND, text=f"nobody can see how {r.spec.target} does, which has everybody; {home}")
    newest = e.customers.canary_outcomes[-NEWEST:]
    wrong = newest.count("x")
    from_share = ENDS if r.hold_reason == FAILING else BEGINS
    if e.faults:
        return Reason(code=FAILING, text=f"{r.spec.target} has everybody and a hard fault ({'; '.join(e.faults[:3])}); {home}")
    if len(newest) >= LEAST and wrong >= from_share * len(newest):
        return Reason(code=FAILING, text=f"{r.spec.target} has everybody and fails {wrong} of the newest {len(newest)} requests; {home}")
    return Reason(code=LOST, text=f"the cap is lifted: everybody is on {r.spec.target} until: fleetctl fallback {r.cell}")


def raised(r: Rollout, seen: Observation) -> Decision:
    """Return the step to everybody on the target; who asks for it is asked again once both sides were."""
    who = " and ".join(r.lifted_by)
    text = f"the source is lost; {who} lifted the cap: everybody is on {r.spec.target} until: fleetctl fallback {r.cell}"
    after = replace(r, weight_bp=FULL_BP, settled_at=None, lost_since=None, step_done=False, promoted=False, hold_reason=LOST)
    page = () if r.hold_reason == LOST else (Notify(level="page", text=f"{r.cell}: {text}"),)
    return Decision(next=after, effects=(SetSplit(target_bp=FULL_BP), *page), why=Reason(code=LOST, text=text), look_again=SETTLING)
