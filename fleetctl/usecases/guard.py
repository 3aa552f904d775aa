"""Coming home, use-case layer: take home a weight that nobody renews any more, beside a router that has no guard of its own.

It needs the ways home and the routers, no store and no plan. It keeps the token as it stands: whoever comes back goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fleetctl.domain.event import Event
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.split import Split, Stale, stays_bp
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError
from fleetctl.usecases.home import PROOF_LASTS_S, HomePorts, side_by_side
from fleetctl.usecases.home_choice import Failure, readable

Seen = Literal["quiet", "watched", "home", "part", "held", "lost", "foreign"]
GUARD = Actor(kind="schedule", name="guard", via="timer")
_CAUSES: dict[Seen, str] = {
    "home": "guard.home",
    "part": "guard.held",
    "held": "guard.held",
    "lost": "guard.lost",
    "foreign": "guard.foreign",
}
"""Causes of notices, by what was seen: home warns, the others page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLook:
    """What a look at one cell found and did.

    Args:
        kind: "quiet" nobody is on the target; "watched" its lease runs; "home" taken home now; "part" taken home now as far as ready
            replicas of the source allow; "held" its lease has lapsed and no more of the source is proven; "lost" its router or way home
            cannot be read; "foreign" a weight that nobody ever fenced, so none of ours.
    """

    cell: CellId
    kind: Seen
    text: str = ""


def guard(ports: HomePorts) -> tuple[GuardLook, ...]:
    """Look at every cell with a way home once, side by side, and take home those whose lease has lapsed.

    No more of a cell goes home than replicas of its source that answered a real completion lately.
    """
    good, bad = readable(ports.ways)
    ways = [way for way in good if not way.router.guards(way.cell, way.baseline_backend)]
    found = (*bad, *side_by_side(ways, lambda way: _look(way, ports)))
    return tuple(GuardLook(cell=f.cell, kind="lost", text=f.error.message) if isinstance(f, Failure) else f for f in found)


def notices(looks: Sequence[GuardLook], told: dict[CellId, str], now: Instant) -> tuple[Event, ...]:
    """Return what people must be told of these looks: of each cell's matter once, until it is over.

    Args:
        told: of what each cell's people were told; kept up to date here.
    """
    events = []
    for look in looks:
        cause = _CAUSES.get(look.kind, "")
        if cause and told.get(look.cell) != cause:
            level = "warning" if look.kind == "home" else "page"
            text = f"{look.cell}: the guard {look.text}" if look.kind != "lost" else f"{look.cell}: the guard cannot see it: {look.text}"
            events.append(Event(at=now, kind=f"notify.{level}", actor=GUARD, text=text, cell=look.cell, data={"cause": cause}))
        told[look.cell] = cause
    return tuple(events)


def _look(way: WayHome, ports: HomePorts) -> GuardLook:
    shown = ports.router(way).read(way.cell)
    now = ports.clock.now()
    if shown.target_bp == 0:
        return GuardLook(cell=way.cell, kind="quiet")
    if shown.lease_until > now:
        return GuardLook(cell=way.cell, kind="watched")
    if not shown.token:
        text = (
            f"leaves {shown.target_bp / 100:g} % as it is: the router shows no mark of ours, so fleetctl never set it, or its mark is lost"
        )
        return GuardLook(cell=way.cell, kind="foreign", text=text)
    return _home(way, shown, ports, now)


def _home(way: WayHome, shown: Split, ports: HomePorts, now: Instant) -> GuardLook:
    since = f"its lease has lapsed {(now - shown.lease_until).total_seconds():,.0f} s ago"
    share, proof = _proof(way, ports)
    stays = stays_bp(shown.target_bp, share)
    if stays == shown.target_bp:
        return GuardLook(cell=way.cell, kind="held", text=f"holds {stays / 100:g} % on the target: {since}, and {proof}")
    done = ports.router(way).set(replace(shown, target_bp=stays))
    if isinstance(done, Stale):
        return GuardLook(cell=way.cell, kind="watched", text="somebody came back in this moment")
    text = f"took {(shown.target_bp - stays) / 100:g} % home: {since}"
    if stays:
        return GuardLook(cell=way.cell, kind="part", text=f"{text}; {stays / 100:g} % stay on the target: {proof}")
    if done.split.unseen:
        return GuardLook(cell=way.cell, kind="part", text=f"{text}; not proven: {done.split.unseen}")
    return GuardLook(cell=way.cell, kind="home", text=text)


def _proof(way: WayHome, ports: HomePorts) -> tuple[float, str]:
    """Return which share of the source answered a real completion lately, and that in words."""
    nobody = f"no replica of {way.source} answers a completion"
    try:
        found = ports.prober(way).ready(way.source, way.cell)
    except FleetctlError as e:
        return 0.0, f"{nobody} ({e.message})"
    why = f" ({found.detail})" if found.detail else ""
    if not found.ready:
        return 0.0, f"{nobody}{why}"
    if found.age_s > PROOF_LASTS_S:
        return 0.0, f"the last completion of {way.source} is {found.age_s:,.0f} s old{why}"
    return found.share, f"{found.ready} of {found.total} replicas of {way.source} answer a completion{why}"
