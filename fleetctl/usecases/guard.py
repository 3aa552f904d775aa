"""Coming home, use-case layer: take home a weight that nobody renews any more, beside a router that has no guard of its own.

A router with one is only watched: what that guard did, or cannot do, it tells nobody but its log. The ways home and the routers are needed,
no store and no plan. It takes the next token: a holder that was stopped before it cannot write after it, and whoever comes back goes on
from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from fleetctl.domain.event import Event
from fleetctl.domain.home import GUARD_TOKENS, WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.split import Split, Stale, stays_bp
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError
from fleetctl.usecases.home import PROOF_LASTS_S, HomePorts, side_by_side, thrown_back
from fleetctl.usecases.home_choice import Failure, readable

Seen = Literal["quiet", "watched", "home", "part", "held", "lost", "foreign"]
GUARD = Actor(kind="schedule", name="guard", via="timer")
OWN_GUARD_S = 5.0
"""How long after a lease's end a router's own guard may take to act; it looks twice a second."""
Shown = dict[CellId, Split]
"""What each router with a guard of its own showed at the look before, by cell."""
_CAUSES: dict[Seen, str] = {
    "home": "guard.home",
    "part": "guard.held",
    "held": "guard.held",
    "lost": "guard.lost",
    "foreign": "guard.foreign",
}
"""Causes of notices, by what was seen: home warns, the others page."""


PATIENCE = timedelta(seconds=10)
"""How long a router that was asked too much at a time is asked again, while the cells of others wait for their next look."""


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


def guard(ports: HomePorts, before: Shown | None = None) -> tuple[GuardLook, ...]:
    """Look at every cell with a way home once, side by side, and take home those whose lease has lapsed.

    No more of a cell goes home than replicas of its source that answered a real completion lately. Of a router with a guard of its own
    only that is told which it did since the look before, and what it holds.

    Args:
        before: what such routers showed at the look before; kept up to date here. None: this is the only look.
    """
    good, bad = readable(ports.ways)
    seen: Shown = {} if before is None else before

    def look(way: WayHome) -> GuardLook:
        return _watch(way, ports, seen) if way.router.guards(way.cell, way.baseline_backend) else _look(way, ports)

    found = (*bad, *thrown_back(good, side_by_side(good, look), ports.clock, look, patience=PATIENCE))
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


def _watch(way: WayHome, ports: HomePorts, before: Shown) -> GuardLook:
    """Tell what a router's own guard did: it alone lowers a weight and leaves its lease, which has lapsed, as it is."""
    shown = ports.router(way).read(way.cell)
    last, before[way.cell] = before.get(way.cell), shown
    late_s = (ports.clock.now() - shown.lease_until).total_seconds()
    since = f"its lease has lapsed {late_s:,.0f} s ago"
    is_same = last is not None and last.lease_until == shown.lease_until and 0 <= shown.token - last.token < GUARD_TOKENS
    took = last.target_bp - shown.target_bp if last is not None and is_same and late_s >= 0 else 0
    if took > 0 and shown.target_bp == 0:
        return GuardLook(cell=way.cell, kind="home", text=f"of its router took {took / 100:g} % home: {since}")
    if shown.target_bp == 0:
        return GuardLook(cell=way.cell, kind="quiet")
    if late_s < OWN_GUARD_S:
        return GuardLook(cell=way.cell, kind="watched")
    if not shown.token:
        return GuardLook(cell=way.cell, kind="foreign", text=f"leaves {shown.target_bp / 100:g} % as it is: fleetctl never set it")
    stays = f"{shown.target_bp / 100:g} % on the target: {since}, and its router does not find more of its source proven"
    if took > 0:
        return GuardLook(cell=way.cell, kind="part", text=f"of its router took {took / 100:g} % home and holds {stays}")
    return GuardLook(cell=way.cell, kind="held", text=f"of its router holds {stays}")


def _home(way: WayHome, shown: Split, ports: HomePorts, now: Instant) -> GuardLook:
    since = f"its lease has lapsed {(now - shown.lease_until).total_seconds():,.0f} s ago"
    share, proof = _proof(way, ports)
    stays = stays_bp(shown.target_bp, share)
    if stays == shown.target_bp:
        return GuardLook(cell=way.cell, kind="held", text=f"holds {stays / 100:g} % on the target: {since}, and {proof}")
    router = ports.router(way)
    fenced = router.fence(way.cell, Token(shown.token + 1))
    done = fenced if isinstance(fenced, Stale) else router.set(replace(shown, target_bp=stays, token=fenced.token))
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
