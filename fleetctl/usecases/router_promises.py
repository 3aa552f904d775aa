"""Migrate, use-case layer: no start behind a router that does less than its settings promise. Never imports an adapter.

The plan, the ways home and the guard go by the settings alone, as they are read while a router is down. Going home never asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fleetctl.domain.fleet import Connection, Fleet
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import RouterCapabilities
from fleetctl.errors import ConfigInvalid, TrafficNotApplied
from fleetctl.ports.traffic import Refusing, Router


def ask_routers(cells: Iterable[CellId], fleet: Fleet, router: Callable[[CellId], Router]) -> None:
    """Ask the routers of cells that would start whether they keep what their settings promise, each once, and would raise each cell.

    Raises:
        ConfigInvalid: config.router_promise; TrafficNotApplied: traffic.refused; traffic.router_down, so nobody can tell.
    """
    cells = tuple(cells)
    asked: dict[str, CellId] = {fleet.cell(c).router.name: c for c in cells}
    for name, c in asked.items():
        connection = fleet.router(name)
        if connection.fences or connection.guards_leases:
            _compare(connection, router(c).capabilities())
    for c in cells:
        if (
            fleet.router(fleet.cell(c).router.name).kind in ACTED_FOR
            and isinstance(port := router(c), Refusing)
            and (why := port.refusal(c))
        ):
            text = f"router {fleet.cell(c).router.name} would raise no weight of {c}: {why}."
            raise TrafficNotApplied("traffic.refused", text, hint="Mend it there, then: fleetctl doctor")


ACTED_FOR = ("alb", "httproute")
"""Kinds of routers whose weights others act upon, and which can say beforehand what speaks against it."""


def _compare(connection: Connection, can: RouterCapabilities) -> None:
    lacks = []
    if connection.fences and can.fence != "target":
        lacks.append("refuses no stale writer")
    if connection.guards_leases and can.weight_lease == "none":
        lacks.append("has no guard")
    if lacks:
        text = f"router {connection.name} {' and '.join(lacks)}, and its settings do not say so: nobody would take its cells home."
        raise ConfigInvalid(
            "config.router_promise",
            text,
            hint=f"Load fleetctl.lua there, or add to the settings of router {connection.name} `fence: single_writer`, and plan again",
        )
