"""Every way home, use-case layer: what each router took, kept for plans made from then on. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.home import HomeTime
from fleetctl.domain.units import Instant
from fleetctl.ports.state import Records

KEPT = 20
"""Newest measurements per router."""


def note_home_time(records: Records, router: str, took_ms: float, at: Instant) -> None:
    """Keep one measured return to 0 of a router. Raises StoreUnavailable."""
    known = records.get(HomeTime, router)
    before = known.took_ms if known is not None else ()
    records.put(router, HomeTime(router=router, took_ms=(*before, round(took_ms, 1))[-KEPT:], at=at))


def home_times(records: Records, fleet: Fleet) -> Mapping[str, HomeTime]:
    """Return what was measured of the fleet's routers; what never was is left out."""
    return {r.name: found for r in fleet.routers if (found := records.get(HomeTime, r.name)) is not None}
