"""Simulator: what `fallback`, `--reconcile` and the guard touch of one cell, whose way home and mark are kept for it alone.

One cell at a time: side by side, threads would draw from the world's chances in any order, and a seed would be no history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.usecases.home import HomePorts
from tests.fakes.home import MemoryWaysHome
from tests.sim.parts import WatchedStore

if TYPE_CHECKING:
    from tests.sim.world import World

EDGE = Connection(kind="envoy", name="edge")
"""A router without a guard of its own."""


def homeward(c: CellId, world: World) -> HomePorts:
    """Return what a way home of a cell touches; each use is a writer of its own."""
    ways = MemoryWaysHome()
    ways.write(
        WayHome(
            fleet="made-up",
            cell=c,
            workload=WorkloadId("chat"),
            region="eu",
            tenant="",
            klass="online",
            router=EDGE,
            source=PoolId(world.spec.source),
            cap_bp=world.spec.cap_bp,
            paper=(),
            made_at=world.began,
        )
    )
    router = world.new_router()
    return HomePorts(
        router=lambda _: router,
        prober=lambda _: world.prober,
        ways=ways,
        clock=world.clock,
        store=lambda: WatchedStore(world.store, lambda name, call: call(), world.writers),
    )
