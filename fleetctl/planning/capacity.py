"""Provision and plan, planning layer: where machines may be had: a verdict per place, the order to try them in. Pure; asks nobody.

There is no live answer to "is there capacity": "yes" means reserved places, "no" that trying is known to be vain, all else is "unknown".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from fleetctl.domain.capacity import Candidate, NamedPlaces, PlaceFailure, SkuReading, until_text
from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import Priority
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Instant

_RANK = {"yes": 0, "unknown": 1, "no": 2}


def verdict_of(place: Candidate, count: int, reading: SkuReading | None, failures: Iterable[PlaceFailure], now: Instant) -> CapacityVerdict:
    """Return yes, no or unknown for `count` more machines at a place, with every reason.

    Args:
        reading: None where nothing was read; failures: remembered ones, also lapsed.
    """
    against = [*_said(place, count, reading), *_remembered(place, failures, now)]
    kept = _reserved(place, reading)
    if against:
        return _verdict(place, count, "no", against)
    if kept >= count > 0:
        return _verdict(place, count, "yes", [f"{kept} reserved places are free"])
    if reading is None:
        return _verdict(place, count, "unknown", ["no capacity source is connected; provisioning will tell"])
    open_ = list(reading.gaps) or ["allowed and within quota; whether there is room only a reservation or a try can tell"]
    return _verdict(place, count, "unknown", [*open_, *_unnamed(place, reading)])


def usable(reading: SkuReading, pool: str, names: Collection[str]) -> SkuReading:
    """Return a reading whose reserved places are those that a pool can use: of what it names, or made; else what is open to any machine.

    Source: Microsoft Learn "On-demand capacity reservation" (a VM names its group), Amazon EC2 User Guide "Capacity Reservations" (open or
    targeted; a machine that targets one takes no open one); read 2026-11-30.

    Args:
        names: ids of the reservations that the pool's settings name.
    """
    wanted = {n.lower() for n in names}
    own = [n for n in reading.named if n.id in wanted or (n.pool and n.pool == pool)]
    kept = [(n.zone, n.free) for n in own]
    return replace(reading, reserved=tuple(kept if wanted else (*reading.reserved, *kept)), named=_without(reading, own))


def usable_by_all(reading: SkuReading, pools: Mapping[PoolId, Collection[str]]) -> SkuReading:
    """Return a reading with the reserved places that each of the pools can use: for who asks without saying for which pool.

    Args:
        pools: what each one's settings name.
    """
    seen = [usable(reading, pool, names) for pool, names in pools.items()] or [usable(reading, "", ())]
    return min(seen, key=lambda r: sum(free for _, free in r.reserved))


def _without(reading: SkuReading, own: Sequence[NamedPlaces]) -> tuple[NamedPlaces, ...]:
    return tuple(n for n in reading.named if n not in own)


def _unnamed(place: Candidate, reading: SkuReading) -> Iterator[str]:
    """Yield the reservations with free places that do not count, as the pool does not name them."""
    for n in reading.named if place.priority != "spot" else ():
        if n.free > 0 and (not place.zone or n.zone in ("", place.zone)):
            yield f"{n.free} free places of reservation {n.id.rsplit('/', 1)[-1]} do not count: the pool's settings do not name it"


def _verdict(place: Candidate, count: int, kind: str, reasons: Sequence[str]) -> CapacityVerdict:
    return CapacityVerdict(
        sku=place.sku,
        region=place.region,
        count=count,
        priority=place.priority,
        kind="yes" if kind == "yes" else "no" if kind == "no" else "unknown",
        reason=reasons[0],
        zone=place.zone,
        reasons=tuple(reasons),
    )


def _said(place: Candidate, count: int, reading: SkuReading | None) -> Iterator[str]:
    """Yield what the cloud says against a place; a reserved one counts against the quota already, so filling it needs none.

    Source: Microsoft Learn "Create a capacity reservation" (moving machines into a reservation frees their quota); read 2026-11-30.
    """
    if reading is None:
        return
    if not reading.offered:
        yield f"{place.region} does not offer {place.sku}"
        return
    if reading.closed:
        yield f"the subscription may not use {place.sku} in {place.region} ({reading.closed})"
    if place.zone and reading.zones and place.zone not in reading.zones:
        yield f"zone {place.zone} of {place.region} does not offer {place.sku}"
    if place.zone in reading.closed_zones and place.zone:
        yield f"zone {place.zone} of {place.region} is closed to the subscription for {place.sku}"
    need = reading.vcpus * max(0, count - _reserved(place, reading))
    for row in reading.quotas:
        if row.binds in ("both", place.priority) and need > row.limit - row.used:
            least = row.used + need
            yield f"quota {row.name}: {row.limit} vCPUs, {row.used} used, {need} more needed: raise it to at least {least}"


def _remembered(place: Candidate, failures: Iterable[PlaceFailure], now: Instant) -> Iterator[str]:
    for failure in failures:
        if failure.until > now and closes(failure, place):
            yield f"{failure.code} at {failure.place.text}; tried again after {until_text(failure.until)}"


def closes(failure: PlaceFailure, place: Candidate) -> bool:
    """Tell whether a remembered failure speaks against a place."""
    seen = failure.place
    if failure.scope == "none" or seen.sku != place.sku or seen.region != place.region:
        return False
    if failure.scope == "zone":
        return seen.zone == place.zone and seen.priority == place.priority
    if failure.scope == "spot":
        return place.priority == "spot"
    return seen.priority == place.priority


def _reserved(place: Candidate, reading: SkuReading | None) -> int:
    if reading is None or place.priority == "spot":
        return 0
    return sum(free for zone, free in reading.reserved if not place.zone or zone in ("", place.zone))


def ranked(
    places: Sequence[Candidate],
    count: int,
    readings: Mapping[tuple[str, str], SkuReading],
    failures: Sequence[PlaceFailure],
    now: Instant,
    prices: Mapping[tuple[str, str], Decimal] | None = None,
    counts: Mapping[Candidate, int] | None = None,
) -> tuple[tuple[Candidate, CapacityVerdict], ...]:
    """Return every place with its verdict, those to try first first: reserved, then as given; "no" last.

    Args:
        readings: by (size, region); prices: USD per hour by (size, region).
        counts: machines needed at places that need another number than `count`.
    """
    cost, need = prices or {}, counts or {}
    rows = [(p, verdict_of(p, need.get(p, count), readings.get((p.sku, p.region)), failures, now)) for p in places]
    order = {p: n for n, p in reversed(list(enumerate(places)))}
    return tuple(sorted(rows, key=lambda r: (_RANK[r[1].kind], order[r[0]], cost.get((r[0].sku, r[0].region), Decimal(0)))))


def places_of(
    first: Candidate,
    *,
    zones: Sequence[str] = (),
    sizes: Sequence[str] = (),
    regions: Sequence[str] = (),
    on_demand: bool = True,
) -> tuple[Candidate, ...]:
    """Return the places to try, nearest to what was asked for first: other zones, other sizes, on demand for spot, other regions.

    Args:
        zones: of the first region, () where no zone is named; sizes: that may stand in for the first; regions: that the owner allows.
        on_demand: spot may become on demand.
    """
    priorities: list[Priority] = [first.priority]
    if first.priority == "spot" and on_demand:
        priorities.append("regular")
    found: list[Candidate] = []
    for region in (first.region, *regions):
        for priority in priorities:
            for sku in (first.sku, *sizes):
                near = (first.zone, *zones) if region == first.region else ("",)
                found += [Candidate(sku=sku, region=region, zone=zone, priority=priority) for zone in near]
    return tuple(dict.fromkeys(found))


def still_open(places: Sequence[Candidate], tried: Sequence[PlaceFailure]) -> tuple[Candidate, ...]:
    """Return the places that nothing tried in this run speaks against."""
    return tuple(p for p in places if not any(closes(f, p) or f.place == p for f in tried))
