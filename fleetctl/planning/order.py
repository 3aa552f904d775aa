"""Plan, pure layer: which moving cells go first. Never I/O.

Declared waves come first, in their order; then classes in the policy's order. Within them what is simple and small goes first: by route
(native before what has to be built or translated), then by requests per second. A cell never goes before one of a workload that its own
waits for (`after`), nor in the same wave.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from fleetctl.domain.fleet import Policy
from fleetctl.domain.ids import CellId, WorkloadId
from fleetctl.domain.portability import ROUTES
from fleetctl.domain.workload import Cell, Workload

Group = tuple[tuple[float, int], int]
"""(declared wave, rank of the class), how many others must be in soak before: cells of one group may share a wave."""


def wave_key(cell: Cell, klass: str, policy: Policy) -> tuple[float, int]:
    """Return what orders a cell: its declared wave (none is last), then the rank of its class."""
    rank = policy.order.index(klass) if klass in policy.order else len(policy.order)
    return (cell.wave, 0) if cell.wave > 0 else (inf, rank)


def in_order(
    moving: tuple[Cell, ...], works: Mapping[WorkloadId, Workload], policy: Policy
) -> dict[CellId, tuple[Group, int, float, CellId]]:
    """Return per moving cell its group and its place in it."""
    cells: dict[WorkloadId, list[Cell]] = {}
    for cell in moving:
        cells.setdefault(cell.workload, []).append(cell)
    known: dict[WorkloadId, Group] = {}

    def last_of(name: WorkloadId, seen: frozenset[WorkloadId]) -> Group:
        """Return the latest group of a workload's cells; circles are cut."""
        if name not in known:
            own = max(wave_key(c, works[name].klass, policy) for c in cells[name])
            known[name] = _not_before((own, 0), name, seen | {name})
        return known[name]

    def _not_before(group: Group, name: WorkloadId, seen: frozenset[WorkloadId]) -> Group:
        for other in works[name].after:
            if other in cells and other not in seen:
                key, level = last_of(other, seen)
                group = max(group, (max(group[0], key), level + 1))
        return group

    out: dict[CellId, tuple[Group, int, float, CellId]] = {}
    for cell in moving:
        w = works[cell.workload]
        group: Group = (wave_key(cell, w.klass, policy), 0)
        if w.after:
            group = _not_before(group, cell.workload, frozenset({cell.workload}))
        route = next((i for i, r in enumerate(ROUTES) if r == w.route), len(ROUTES))
        out[cell.id] = (group, route, w.traffic.requests_per_s, cell.id)
    return out
