"""Migrate, pure layer: until when a pool's machines are there, told ahead of time. Never I/O, clock, randomness."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import Decision, Effect, Notify, Observation, Rollout
from fleetctl.domain.units import Instant

PAGES = (timedelta(hours=24), timedelta(hours=1))
"""How long before an end people are paged, once each."""
MOST_TOLD = 16
ENDS = " ends in "
"""Stands in the sentence that names an end, so that a status line can find it."""
_SHOWN = " shown"
"""Ends the mark of the one end that a finished cell's last look names."""


def with_deadlines(d: Decision, seen: Observation, now: Instant) -> Decision:
    """Return the decision with what is known of an end in its reason, and a page for each hour of `PAGES` that has come."""
    r = d.next
    if r.ended not in ("", "complete"):
        return d
    parts: list[str] = []
    effects: list[Effect] = []
    told = [mark for mark in r.ends_told if not mark.endswith(_SHOWN)]
    for side, pool in _sides(r):
        end = _next_end(seen.signals, pool, now)
        if end is None or end.deadline is None:
            continue
        text = f"{side}{ENDS}{_span(end.deadline - now)}, {end.deadline:%Y-%m-%d %H:%M} UTC ({end.kind} of {end.subject})"
        parts.append(text)
        fresh = [mark for mark in _due(side, end.deadline, now) if mark not in told]
        told += fresh
        if fresh and end.severity != "critical":  # one that takes a machine now has its own page
            effects.append(Notify(level="page", text=f"{r.cell}: {text}"))
    told = [*told[1 - MOST_TOLD :], *_shown(r, seen.signals, now)]
    if not parts and tuple(told) == r.ends_told:
        return d
    why = replace(d.why, text="; ".join((d.why.text, *parts)))
    return replace(d, next=replace(r, ends_told=tuple(told)), effects=(*d.effects, *effects), why=why)


def is_news(r: Rollout, signals: Iterable[Signal], now: Instant) -> bool:
    """Tell whether a finished cell's target has an end that its last look does not name, or of which people are to be paged by now."""
    known = tuple(signals)
    due = [m for side, pool in _sides(r) if (end := _next_end(known, pool, now)) and end.deadline for m in _due(side, end.deadline, now)]
    return _shown(r, known, now) != [m for m in r.ends_told if m.endswith(_SHOWN)] or not {*due} <= {*r.ends_told}


def _sides(r: Rollout) -> tuple[tuple[str, PoolId], ...]:
    """Return the pools whose end is told; a finished cell lives on its target alone."""
    target = ("target", r.spec.target)
    return (target,) if r.ended else (("source", r.spec.source), target)


def _due(side: str, end: Instant, now: Instant) -> list[str]:
    return [f"{side} {end:%Y%m%dT%H%M} {p / timedelta(hours=1):g}h" for p in PAGES if end - now <= p]


def _shown(r: Rollout, signals: Iterable[Signal], now: Instant) -> list[str]:
    """Return the mark of the end that a finished cell's look names: it is looked at so seldom that nothing else says that it is stale."""
    end = _next_end(signals, r.spec.target, now) if r.ended else None
    return [] if end is None else [f"target {end.deadline:%Y%m%dT%H%M}{_SHOWN}"]


def _next_end(signals: Iterable[Signal], pool: PoolId, now: Instant) -> Signal | None:
    ends = [s for s in signals if s.pool == pool and s.deadline is not None and s.deadline > now]
    return min(ends, key=lambda s: s.deadline or now, default=None)


def _span(left: timedelta) -> str:
    hours = left / timedelta(hours=1)
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{left / timedelta(minutes=1):.0f} min"
