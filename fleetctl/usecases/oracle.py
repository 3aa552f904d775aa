"""Plan and provision, use-case layer: what clouds say now, joined with what refused lately. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.domain.capacity import Candidate, PlaceFailure, SkuReading
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.pool import Pool, PoolSpec, Priority
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Instant
from fleetctl.planning.capacity import verdict_of
from fleetctl.ports.capacity import CapacitySource
from fleetctl.ports.state import Records


class Oracle:
    """Answers the port `Capacity`.

    Args:
        source: of a (size, region), None where nobody can be asked; records: hold the failures that are remembered.
    """

    def __init__(self, *, source: Callable[[str, str], CapacitySource | None], records: Records, now: Callable[[], Instant]) -> None:
        self._source = source
        self._records = records
        self._now = now

    def verdict(self, sku: str, region: str, count: int, priority: Priority) -> CapacityVerdict:
        """Answer yes, no or unknown with reasons, for any zone of a region."""
        return self.at(Candidate(sku=sku, region=region, priority=priority), count)

    def at(self, place: Candidate, count: int, source: CapacitySource | None = None) -> CapacityVerdict:
        """Answer for one place."""
        asked = source or self._source(place.sku, place.region)
        reading: SkuReading | None = None if asked is None else asked.read(place.sku, place.region)
        return verdict_of(place, count, reading, self._records.all(PlaceFailure), self._now())


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapacity:
    """What may be had for one pool: a verdict per allowed place, what was asked for first."""

    pool: Pool
    count: int
    verdicts: tuple[CapacityVerdict, ...]


def capacity(
    fleet: Fleet,
    oracle: Oracle,
    places: Callable[[PoolSpec], tuple[Candidate, ...]],
    source: Callable[[PoolSpec], CapacitySource | None],
    *,
    pool: str = "",
) -> tuple[PoolCapacity, ...]:
    """Return what may be had for every pool that fleetctl provisions, or for one.

    Args:
        places: allowed for a pool; source: that a pool's cloud is read by; pool: its name, "" for all.
    """
    rows = []
    for p in fleet.pools:
        if p.provisioned_by == "existing" or pool not in ("", p.id):
            continue
        spec = PoolSpec(pool=p.id, vendor=p.vendor, sku=p.sku, region=p.region, count=p.limit, priority=p.priority, stack=p.provisioned_by)
        need = max(p.limit - p.count, 0)
        verdicts = tuple(oracle.at(place, need, source(spec)) for place in places(spec))
        rows.append(PoolCapacity(pool=p, count=need, verdicts=verdicts))
    return tuple(rows)
