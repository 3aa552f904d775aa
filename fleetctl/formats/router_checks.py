"""Inventory, formats layer: what a kind of router cannot do for the cells behind it, and one place named for two cells. Never decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.domain.fleet import Connection
from fleetctl.formats.fleet_schema import CellShape, RouterShape, WorkloadShape

Finding = tuple[tuple[str | int, ...], str]
EXISTING = "existing"
PLACES = {"alb": "rule", "httproute": "route", "sqs": "queue"}
"""Kinds whose settings name the one thing that holds a cell's weight: KEY.CELL, or KEY where only one cell is behind the router."""


def check_routers(
    cells: Mapping[str, CellShape], workloads: Mapping[str, WorkloadShape], routers: Mapping[str, RouterShape], *, has_shadow: bool
) -> Iterator[Finding]:
    """Yield copies that a router cannot make, and cells that would set one another's weight.

    Args:
        has_shadow: the policy has a step shadow.
    """
    taken: dict[tuple[str, str], str] = {}
    for name, cell in cells.items():
        found = _router_of(cell, routers)
        if found is None:
            continue
        router, shape = found
        here = ("cells", name, "router")
        workload = workloads.get(cell.workload)
        copies = has_shadow and workload is not None and workload.shadow is not None and cell.lane.kind != "stay"
        if copies and not Connection(name=router, kind=shape.kind, settings=shape.settings).mirrors:
            yield here, _no_copies(router, shape, cell.workload)
        place = _place(name, shape)
        if not place:
            continue
        other = taken.setdefault((router, place), name)
        if other != name and "stay" not in (cell.lane.kind, cells[other].lane.kind):
            key = PLACES[shape.kind]
            yield here, f"router {router!r} has one {key} for this cell and {other!r}, one would move the other: settings {key}.{name}"


def _no_copies(router: str, shape: RouterShape, workload: str) -> str:
    why = "without our Lua " if shape.kind == "haproxy" else ""
    text = f"router {router!r} ({shape.kind}) {why}cannot copy requests, and workload {workload!r} declares shadow"
    return f"{text}: leave out its shadow, or the policy's step shadow"


def _router_of(cell: CellShape, routers: Mapping[str, RouterShape]) -> tuple[str, RouterShape] | None:
    name = cell.router.name
    if name == EXISTING and name not in routers and len(routers) == 1:
        name = next(iter(routers))
    return (name, routers[name]) if name in routers else None


def _place(cell: str, router: RouterShape) -> str:
    """Return what holds a cell's weight behind its router, "" where each cell has its own by its name."""
    key = PLACES.get(router.kind)
    if key is None:
        return ""
    return (router.settings.get(f"{key}.{cell}") or router.settings.get(key, "")).strip().removesuffix("#0")
