"""Coming home, use-case layer: what is left where the source was given back, best first. Moves nothing, imports no adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import PoolId
from fleetctl.errors import FleetctlError, UnsafeFallback
from fleetctl.ports.state import Records, Store
from fleetctl.usecases.capacity import PoolHosts
from fleetctl.usecases.home_choice import Failure
from fleetctl.usecases.ready_time import ready_times


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """One way to have a source again.

    Args:
        stands: its machines are there; seconds: what making its machines ready took last time, None where that was never measured.
        failure: the last time that a cloud refused it, "" where none did.
    """

    pool: PoolId
    stands: bool
    seconds: float | None
    failure: str

    @property
    def text(self) -> str:
        """The way in one sentence."""
        took = (
            "its machines stand"
            if self.stands
            else "time never measured"
            if self.seconds is None
            else f"{self.seconds / 60:.0f} min to ready"
        )
        refused = f"; last refused: {self.failure}" if self.failure else "; never refused that we know of"
        what = f"move it to pool {self.pool}" if self.stands else f"make pool {self.pool} anew"
        return f"{what}: {took}{'' if self.stands else refused}"


def is_released(way: WayHome, records: Records | None) -> bool:
    """Tell whether a cell's source was given back and nothing of it was made since; `records`: None where the store is down."""
    if not way.released or records is None:
        return way.released
    made = records.get(PoolHosts, way.source)
    return made is None or not made.hosts


def ways_back(way: WayHome, fleet: Fleet, store: Store, records: Records) -> tuple[WayBack, ...]:
    """Return the pools of the source's vendor that could be a source again: standing ones first, then by time and refusals."""
    vendor = next((p.vendor for p in fleet.pools if p.id == way.source), None)
    pools = [p for p in fleet.pools if p.vendor == vendor] if vendor is not None else []
    times = ready_times(records, [p.id for p in pools])
    refused = {
        str(e.data.get("pool", "")): f"{e.at:%Y-%m-%d %H:%M} UTC, {e.text}"[:160]
        for e in store.events(None, 0)
        if e.kind == "provision.failed"
    }
    found = [
        WayBack(
            pool=p.id,
            stands=p.id != way.source and p.count > 0,
            seconds=times[p.id].seconds if p.id in times else None,
            failure=refused.get(p.id, ""),
        )
        for p in pools
    ]
    return tuple(sorted(found, key=lambda w: (not w.stands, bool(w.failure), w.seconds is None, w.seconds or 0.0, w.pool)))


def refuse_released(ways: Sequence[WayHome], fleet: Fleet | None, store: Store | None, records: Records | None) -> tuple[Failure, ...]:
    """Return why cells whose source was given back go nowhere, with what is left to do; fleet and store: None where they are down."""
    out = []
    for way in ways:
        if not is_released(way, records):
            continue
        details: tuple[str, ...] = ()
        if fleet is not None and store is not None and records is not None:
            try:
                details = tuple(f"{n}. {w.text}" for n, w in enumerate(ways_back(way, fleet, store, records), start=1))
            except FleetctlError:
                details = ()
        text = f"the source {way.source} of {way.cell} was given back, so there is nothing to go home to; nothing was moved."
        hint = f"Run: fleetctl fallback {way.cell} --rebuild (or say another one in the fleet file, and: fleetctl plan)"
        out.append(Failure(cell=way.cell, error=UnsafeFallback("fallback.released", text, hint=hint, details=details)))
    return tuple(out)
