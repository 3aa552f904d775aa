"""Coming home, use-case layer: take home a weight that nobody renews any more, beside a router that has no guard of its own.

It needs the ways home and the routers, no store and no plan. It keeps the token as it stands: whoever comes back goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Split, Stale
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError
from fleetctl.usecases.home import HomePorts
from fleetctl.usecases.home_choice import readable

Seen = Literal["quiet", "watched", "home", "held", "lost", "foreign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardLook:
    """What a look at one cell found and did.

    Args:
        kind: "quiet" nobody is on the target; "watched" its lease runs; "home" taken home now; "held" its lease has lapsed and the source
            proves nothing; "lost" its router or way home cannot be read; "foreign" a weight that nobody ever fenced, so none of ours.
    """

    cell: CellId
    kind: Seen
    text: str = ""


def guard(ports: HomePorts) -> tuple[GuardLook, ...]:
    """Look at every cell with a way home once, and take home those whose lease has lapsed while the source answers real completions."""
    good, bad = readable(ports.ways)
    looks = [GuardLook(cell=f.cell, kind="lost", text=f.error.message) for f in bad]
    return (*looks, *(_look(way, ports) for way in good if not way.router.guards_leases))


def _look(way: WayHome, ports: HomePorts) -> GuardLook:
    try:
        shown = ports.router(way).read(way.cell)
        now = ports.clock.now()
        if shown.target_bp == 0:
            return GuardLook(cell=way.cell, kind="quiet")
        if shown.lease_until > now:
            return GuardLook(cell=way.cell, kind="watched")
        if not shown.token:
            return GuardLook(cell=way.cell, kind="foreign", text=f"leaves {shown.target_bp / 100:g} % as it is: fleetctl never set it")
        return _home(way, shown, ports, now)
    except FleetctlError as e:
        return GuardLook(cell=way.cell, kind="lost", text=e.message)
    except Exception as e:  # what nobody expected of one router keeps no other cell from home
        return GuardLook(cell=way.cell, kind="lost", text=f"unexpected {type(e).__name__}: {e}"[:300])


def _home(way: WayHome, shown: Split, ports: HomePorts, now: Instant) -> GuardLook:
    late = (now - shown.lease_until).total_seconds()
    since = f"its lease has lapsed {late:,.0f} s ago"
    try:
        ready = ports.prober(way).ready(way.source, way.cell)
        proven, why = ready.ready > 0, ready.detail
    except FleetctlError as e:
        proven, why = False, e.message
    if not proven:
        text = f"holds {shown.target_bp / 100:g} % on the target: {since}, and no replica of {way.source} answers a completion"
        return GuardLook(cell=way.cell, kind="held", text=f"{text} ({why})" if why else text)
    done = ports.router(way).set(Split(cell=way.cell, target_bp=0, cap_bp=shown.cap_bp, token=shown.token, lease_until=shown.lease_until))
    if isinstance(done, Stale):
        return GuardLook(cell=way.cell, kind="watched", text="somebody came back in this moment")
    return GuardLook(cell=way.cell, kind="home", text=f"took {shown.target_bp / 100:g} % home: {since}")
