"""Plan, pure layer: which ways between regions a plan uses, and what crosses them. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal

from fleetctl.domain.calendar import PathUse
from fleetctl.domain.ids import PoolId, WorkloadId
from fleetctl.domain.plan import Outcome
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload
from fleetctl.planning.candidates import BarriersOf, Site
from fleetctl.planning.cost import CENT


def path_uses(
    outcomes: Sequence[Outcome],
    sites: Sequence[Site],
    index: Mapping[PoolId, int],
    works: Mapping[WorkloadId, Workload] | Mapping[str, Workload],
    barriers: BarriersOf,
) -> tuple[PathUse, ...]:
    """Return a line per pair of regions between which cells move, most cells first; none for moves within a region."""
    held: dict[tuple[str, str, str, str], list[tuple[Outcome, Site, Site]]] = {}
    for o in outcomes:
        if o.kind != "move" or o.target is None:
            continue
        a, b = sites[index[o.source]], sites[index[o.target]]
        if a.pool.region != b.pool.region:
            held.setdefault((a.pool.region, b.pool.region, _cloud(a), _cloud(b)), []).append((o, a, b))
    found = []
    for (here, there, one, other), members in held.items():
        path = barriers.path(members[0][1], members[0][2])
        egress = sum(barriers.egress(works[o.workload], path) for o, _, _ in members) if path is not None else 0.0
        found.append(
            PathUse(
                regions=(here, there),
                clouds=(one, other),
                cells=len(members),
                round_trip_ms=path.round_trip_ms if path is not None else None,
                is_private=path.is_private if path is not None else None,
                egress=Money(amount=Decimal(str(egress)).quantize(CENT, ROUND_HALF_UP))
                if path is not None and path.egress_usd_per_gb is not None
                else None,
            )
        )
    return tuple(sorted(found, key=lambda p: (-p.cells, p.regions)))


def _cloud(site: Site) -> str:
    return site.sku.cloud if site.sku is not None else ""
