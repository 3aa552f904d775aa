"""Rebalance, pure layer: the fleet as it stands: moved cells where they are, replicas as demand was measured. Never I/O.

What the fleet file declares of a workload (replicas on its declared source) stays the reference for speed, so moving to and fro never
adds a replica by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil, inf

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.pool import Pool
from fleetctl.domain.rebalance import Standing
from fleetctl.domain.workload import Cell, Workload

DEAD_BAND = 0.2
"""Measured demand within 20 % of what was declared changes nothing: most days differ by that (our choice, no source)."""
MOST_SCALE = 4.0
"""Demand is not scaled by more than this: a wrong reading must not fill a cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What discovery measured of a cell; None where nobody does."""

    requests_per_s: float | None = None
    p95_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a cell's replicas are reckoned from.

    Args:
        workload: as declared; source: pool that it is declared on; replicas: there, at the measured demand.
    """

    workload: Workload
    source: PoolId
    replicas: float


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The fleet as it stands.

    Args:
        refs: by the view's own workload ids; names: the declared workload of each of those; only: where a moved cell may go.
        notes: what was measured and changed a number.
    """

    fleet: Fleet
    refs: Mapping[WorkloadId, Reference]
    names: Mapping[WorkloadId, WorkloadId]
    only: Mapping[CellId, PoolId]
    notes: tuple[str, ...]


def view_of(
    fleet: Fleet,
    catalog: Catalog,
    standing: Mapping[CellId, Standing],
    measured: Mapping[CellId, Measured],
    hosts: Mapping[PoolId, int],
    payback: timedelta,
    spread: int,
) -> View:
    """Return the fleet as it stands.

    Args:
        standing: cells that an earlier migration brought to a target for good; hosts: VMs known per pool.
        payback: time in which a move must earn back what it costs; spread: VMs that a cell of as many replicas stands on at least.
    """
    works = {w.id: w for w in fleet.workloads}
    cells: list[Cell] = []
    new: dict[WorkloadId, Workload] = {}
    refs: dict[WorkloadId, Reference] = {}
    notes: list[str] = []
    for c in fleet.cells:
        w, now, seen = works[c.workload], standing.get(c.id), measured.get(c.id, Measured())
        scale = demand_scale(w, seen)
        slow = latency_scale(w, seen)
        if scale != 1.0:
            notes.append(f"{c.id}: {seen.requests_per_s:g} requests/s measured, {w.traffic.requests_per_s:g} declared: x {scale:.2f}")
        if slow != 1.0:
            notes.append(f"{c.id}: p95 of {seen.p95_ms:g} ms misses its SLO of {w.slo.latency_ms:g} ms: counted with x {slow:.2f} replicas")
        if now is None and scale == slow == 1.0:
            cells.append(c)
            new[w.id] = w
            continue
        mine = WorkloadId(f"{w.id}@{c.id}")
        replicas = ceil((now.replicas if now is not None else w.replicas) * scale * slow - 1e-9)
        new[mine] = replace(w, id=mine, replicas=max(min(2, w.replicas), replicas))
        refs[mine] = Reference(workload=w, source=c.source, replicas=w.replicas * scale)
        cells.append(replace(c, workload=mine, source=now.pool if now is not None else c.source, target=c.target if now is None else None))
    seen_cells = tuple(cells)
    return View(
        fleet=replace(
            fleet,
            workloads=tuple(new.values()),
            cells=seen_cells,
            pools=_pools(fleet, catalog, seen_cells, new, hosts, frozenset(standing), spread),
            policy=replace(fleet.policy, horizon=payback),
        ),
        refs=refs,
        names={mine: ref.workload.id for mine, ref in refs.items()},
        only={c.id: c.source for c in fleet.cells if c.id in standing},
        notes=tuple(notes),
    )


def demand_scale(w: Workload, seen: Measured) -> float:
    """Return measured over declared requests/s, 1 where nothing is measured or they are close."""
    if seen.requests_per_s is None or not 0 < seen.requests_per_s < inf or w.traffic.requests_per_s <= 0:
        return 1.0
    ratio = seen.requests_per_s / w.traffic.requests_per_s
    return 1.0 if abs(ratio - 1) <= DEAD_BAND else min(MOST_SCALE, max(1 / MOST_SCALE, ratio))


def latency_scale(w: Workload, seen: Measured) -> float:
    """Return by how much a cell that misses its SLO is short of replicas where it is: p95 over the SLO, at most 2; an estimate."""
    if seen.p95_ms is None or w.slo.latency_ms is None or not w.slo.latency_ms < seen.p95_ms < inf:
        return 1.0
    return min(2.0, seen.p95_ms / w.slo.latency_ms)


HELD = "held"
"""Stack of a pool that others built, while it is held for cells that have left it: its VMs exist, so it may fill up again."""


@dataclass(frozen=True, slots=True)
class _Use:
    """What cells take of a pool: GPUs, and the most VMs that one of them must be spread over."""

    gpus: int = 0
    spread: int = 0

    def plus(self, w: Workload, spread: int) -> _Use:
        gpus = w.replicas * w.accelerators_per_replica
        return _Use(self.gpus + gpus, max(self.spread, spread if w.replicas >= spread else 1))

    def vms(self, size: int, most: int) -> int:
        return max(-(-self.gpus // size), min(self.spread, most))


def _pools(
    fleet: Fleet,
    catalog: Catalog,
    cells: tuple[Cell, ...],
    works: Mapping[WorkloadId, Workload],
    hosts: Mapping[PoolId, int],
    gone: frozenset[CellId],
    spread: int,
) -> tuple[Pool, ...]:
    """Return the pools with the VMs that they must have by now: those known, and those that their cells fill.

    VMs held for cells that have left are not counted, else going back to them would look free; they may be used again.

    Args:
        gone: cells that stand elsewhere than the fleet file says.
    """
    sizes = {s.name: s.accelerators for s in catalog.skus}
    declared = {w.id: w for w in fleet.workloads}
    here: dict[PoolId, _Use] = {}
    for c in cells:
        here[c.source] = here.get(c.source, _Use()).plus(works[c.workload], spread)
    whole = dict(here)
    for c in fleet.cells:
        if c.id in gone:
            whole[c.source] = whole.get(c.source, _Use()).plus(declared[c.workload], spread)
    out = []
    for p in fleet.pools:
        size = sizes.get(p.sku) or 0
        known = max(p.count, hosts.get(p.id, 0))
        needed = here.get(p.id, _Use()).vms(size, known) if size else 0
        freed = whole.get(p.id, _Use()).vms(size, known) - needed if size else 0
        count = max(here[p.id].vms(size, 0) if size and p.id in here else 0, known - freed)
        stack = HELD if count < known and p.provisioned_by == "existing" else p.provisioned_by
        most = max(known, count) if p.provisioned_by == "existing" else max(p.limit, known, count)
        out.append(p if (count, most) == (p.count, p.limit) else replace(p, count=count, limit=most, provisioned_by=stack))
    return tuple(out)
