"""Migrate, use-case layer: what a tick changed, as events for the record, and what a router reports to people. Never decides."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import Verdict
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Decision, Observation, Rollout, SetSplit
from fleetctl.domain.split import Applied
from fleetctl.domain.units import Instant, Scalar
from fleetctl.ports.state import Notifier
from fleetctl.rollout.others import FOREIGN

JUDGE = Actor(kind="judge", name="judge", via="timer")
BREAKER = Actor(kind="breaker", name="breaker", via="timer")


def event_of(r: Rollout, at: Instant, kind: str, text: str, actor: Actor = JUDGE, **data: Scalar) -> Event:
    """Return one event of a cell, with its plan and phase."""
    return Event(at=at, kind=kind, actor=actor, text=text, cell=r.cell, data={"plan": r.plan, "phase": r.phase, **data})


def events_of(r: Rollout, d: Decision, seen: Observation, now: Instant) -> Iterator[Event]:
    """Say what changed: orders obeyed, a FAIL, steps, weights, holds, the end."""
    after = d.next
    for order in r.orders:
        yield event_of(r, now, f"order.{order.kind}", order.note or f"{order.kind} by {order.actor.name}", order.actor)
    if after.latched is not None and r.latched is None:
        v = after.latched
        who = BREAKER if v.guardrail == "breaker" else JUDGE
        yield event_of(r, now, "verdict.fail", f"{v.guardrail}: {v.detail or 'FAIL'}", who, e_value=min(v.e_value, 1e300), **_look(v))
    if after.step != r.step:
        yield event_of(after, now, "rollout.step", d.why.text, step=after.step)
    for effect in d.effects:
        if isinstance(effect, SetSplit) and effect.target_bp != seen.split.target_bp:
            yield event_of(after, now, "traffic.set", d.why.text, from_bp=seen.split.target_bp, to_bp=effect.target_bp)
    if after.settled_at is not None and r.settled_at is None:
        yield event_of(after, now, "rollout.shown", d.why.text, target_bp=seen.split.target_bp)
    is_held = not after.ended or after.hold_reason == FOREIGN  # what others write to a finished cell is on record too
    if after.hold_reason and after.hold_reason != r.hold_reason and is_held:
        yield event_of(after, now, "rollout.hold", d.why.text)
    if after.step_done and not r.step_done and not after.promoted:
        yield event_of(after, now, "verdict.pass" if after.phase != "preflight" else "rollout.ready", d.why.text)
    if after.ended and not r.ended:
        yield event_of(after, now, f"rollout.{after.ended}", d.why.text)


def _look(v: Verdict) -> dict[str, Scalar]:
    n = v.look
    return {
        "canary_n": n.canary_n,
        "canary_events": n.canary_events,
        "baseline_n": n.baseline_n,
        "baseline_events": n.baseline_events,
        "share": n.share,
    }


def reported(r: Rollout, now: Instant, done: Applied, notifier: Notifier) -> tuple[Event, ...]:
    """Put on record what failed beside a weight that stands; people are paged where a restart of the router would undo a way home."""
    if done.unfiled and not done.split.target_bp:
        text = f"{r.cell} is at 0 %, and a restart of its router may bring back the weight before: {done.reported}; it is tried again"
        notifier.send(event_of(r, now, "notify.page", text, cause="traffic.reported"))
    return (event_of(r, now, "traffic.reported", done.reported),) if done.reported else ()
