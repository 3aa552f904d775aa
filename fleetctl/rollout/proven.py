"""Migrate, pure layer: what proves that customers have left the target once its weight is 0. Never I/O, clock, randomness.

Going home never waits for it: only the end of the rollout, and the word that a cell is home, do.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.people import Reason
from fleetctl.domain.rollout import Decision, HomeSeen, Notify, Observation, Rollout
from fleetctl.domain.units import Instant
from fleetctl.rollout.looks import BAKING, MOVING
from fleetctl.rollout.router_faults import LEAKED_LEAST

NOT_PROVEN = "home.not_proven"
"""Hold reason of a cell whose weight is 0, and of which nothing shows that customers have left the target."""
SETTLED, SETTLED_LATE = timedelta(seconds=2), timedelta(seconds=60)
"""How long a request may still begin on the target after its weight is 0, and where a router acts by the minute. Source: promise P3."""
COUNTED = timedelta(seconds=1)
"""How long nobody may have begun on the target after that."""
BY_THE_MINUTE = timedelta(seconds=60)
PATIENCE = timedelta(seconds=60)
"""How much longer than a router needs to tell of them people are left alone."""


def counted_from(left_at: Instant, told_within: timedelta, now: Instant) -> Instant:
    """Return from when customers are counted who must not have begun on the target any more."""
    return max(left_at + _settled(told_within), now - told_within)


def still_out(r: Rollout, seen: Observation, now: Instant) -> Decision | None:
    """Wait, with the weight at 0, for what proves that customers have left; people are paged once where it does not come. None: it has."""
    home = seen.home
    if home is None or r.left_at is None:
        return None
    why = _unproven(home, seen.split.unseen, r.left_at, now)
    if not why:
        return None
    leaks = home.served is not None and home.served.canary >= LEAKED_LEAST
    overdue = now - r.left_at >= _settled(home.told_within) + home.told_within + PATIENCE
    if not (leaks or overdue or r.hold_reason == NOT_PROVEN):
        return Decision(next=r, effects=(), why=Reason(code="home.settling", text=f"weight 0 is set; {why}"), look_again=MOVING)
    text = f"weight 0 is set, and it is not proven that customers have left the target: {why}"
    page = () if r.hold_reason == NOT_PROVEN else (Notify(level="page", text=f"{r.cell}: {text}"),)
    held = replace(r, hold_reason=NOT_PROVEN)
    return Decision(next=held, effects=page, why=Reason(code=NOT_PROVEN, text=text), look_again=BAKING)


def _settled(told_within: timedelta) -> timedelta:
    return SETTLED_LATE if told_within > BY_THE_MINUTE else SETTLED


def _unproven(home: HomeSeen, unseen: str, left_at: Instant, now: Instant) -> str:
    left = (left_at + _settled(home.told_within) + COUNTED - now).total_seconds()
    if left > 0:
        return f"looking for {left:.0f} s whether customers leave the target"
    if unseen:
        return unseen
    if home.served is not None and home.served.canary:
        return f"{home.served.canary} requests that began since then were answered there"
    if home.tells == "counts" and (home.served is None or not home.served.baseline):
        return "nobody was counted on the source yet" if home.served is not None else "who answers customers cannot be counted"
    return ""
