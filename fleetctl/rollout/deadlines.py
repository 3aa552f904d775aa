"""Migrate, pure layer: until when a pool's machines are there, told ahead of time. Never I/O, clock, randomness."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import Decision, Effect, Notify, Observation
from fleetctl.domain.units import Instant

PAGES = (timedelta(hours=24), timedelta(hours=1))
"""How long before an end people are paged, once each."""
MOST_TOLD = 16
ENDS = " ends in "
"""Stands in the sentence that names an end, so that a status line can find it."""


def with_deadlines(d: Decision, seen: Observation, now: Instant) -> Decision:
    """Return the decision with what is known of an end in its reason, and a page for each hour of `PAGES` that has come."""
    r = d.next
    if r.ended:
        return d
    parts: list[str] = []
    effects: list[Effect] = []
    told = list(r.ends_told)
    for side, pool in (("source", r.spec.source), ("target", r.spec.target)):
        end = _next_end(seen.signals, pool, now)
        if end is None or end.deadline is None:
            continue
        left = end.deadline - now
        text = f"{side}{ENDS}{_span(left)}, {end.deadline:%Y-%m-%d %H:%M} UTC ({end.kind} of {end.subject})"
        parts.append(text)
        due = [f"{side} {end.deadline:%Y%m%dT%H%M} {p / timedelta(hours=1):g}h" for p in PAGES if left <= p]
        fresh = [mark for mark in due if mark not in told]
        told += fresh
        if fresh and end.severity != "critical":  # one that takes a machine now has its own page
            effects.append(Notify(level="page", text=f"{r.cell}: {text}"))
    if not parts:
        return d
    why = replace(d.why, text="; ".join((d.why.text, *parts)))
    return replace(d, next=replace(r, ends_told=tuple(told[-MOST_TOLD:])), effects=(*d.effects, *effects), why=why)


def _next_end(signals: Iterable[Signal], pool: PoolId, now: Instant) -> Signal | None:
    ends = [s for s in signals if s.pool == pool and s.deadline is not None and s.deadline > now]
    return min(ends, key=lambda s: s.deadline or now, default=None)


def _span(left: timedelta) -> str:
    hours = left / timedelta(hours=1)
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{left / timedelta(minutes=1):.0f} min"
