"""Benches of coming home: the way home of a made-up cell."""

from __future__ import annotations

from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.units import Instant


def way_home(c: CellId, router: Connection, source: PoolId, now: Instant) -> WayHome:
    """Return the way home of a cell behind a router."""
    return WayHome(
        fleet="bench",
        cell=c,
        workload=WorkloadId(c),
        region="lab",
        tenant="",
        klass="online",
        router=router,
        source=source,
        cap_bp=10_000,
        paper=(),
        made_at=now,
    )
