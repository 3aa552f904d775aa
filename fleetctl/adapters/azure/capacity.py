"""Plan and provision, adapters layer: the port CapacitySource by azure-mgmt-compute. Never makes or changes anything.

A quota family is read from the SKU list, never built from a size's name, and compared without case and spaces: Azure varies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fleetctl.adapters.azure.capacity_client import told
from fleetctl.domain.capacity import NamedPlaces, QuotaRow, SkuReading
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient

REGIONAL = "cores"
SPOT = "lowprioritycores"
FRESH_S = 30.0
"""A "no" must rest on a read no older than this. Source: provision.md 7."""


class AzureCapacity:
    """Reads sizes, quota and reservations; each region is read once in 30 s.

    Args:
        client: made at the first read; now: the clock.
    """

    def __init__(self, client: Callable[[], ComputeManagementClient], now: Callable[[], Instant]) -> None:
        self._make = client
        self._now = now
        self._client: ComputeManagementClient | None = None
        self._skus: dict[str, tuple[Instant, tuple[Any, ...]]] = {}
        self._usages: dict[str, tuple[Instant, Mapping[str, tuple[str, int, int]]]] = {}
        self._groups: tuple[Instant, tuple[tuple[str, str, NamedPlaces], ...]] | None = None

    def read(self, sku: str, region: str) -> SkuReading:
        """Read now; what cannot be read is a gap."""
        gaps: list[str] = []
        rows = self._or_gap(gaps, "sizes", lambda: self._sizes(region))
        row = next((r for r in rows or () if str(r.name).lower() == sku.lower()), None)
        if rows is None or row is None:
            return SkuReading(sku=sku, region=region, offered=rows is None, read_at=self._now(), gaps=tuple(gaps))
        closed, closed_zones = _restrictions(row, region)
        usages = self._or_gap(gaps, "quota", lambda: self._quota(region)) or {}
        if usages and _plain(str(row.family or "")) not in usages:
            gaps.append(f"reading quota: {region} tells none of the family {row.family or 'of this size, which has no name'}")
        named = self._or_gap(gaps, "reservations", lambda: self._reserved(sku, region)) or ()
        return SkuReading(
            sku=sku,
            region=region,
            offered=True,
            read_at=self._now(),
            zones=tuple(sorted({str(z) for place in row.location_info or () for z in place.zones or ()})),
            closed=closed,
            closed_zones=closed_zones,
            vcpus=_number(row, "vCPUs"),
            quotas=_quotas(str(row.family or ""), usages),
            named=named,
            gaps=tuple(gaps),
        )

    def _or_gap(self, gaps: list[str], what: str, read: Callable[[], Any]) -> Any:
        try:
            with told(f"reading {what}"):
                return read()
        except FleetctlError as e:
            gaps.append(e.message)
            return None

    @property
    def _azure(self) -> ComputeManagementClient:
        if self._client is None:
            self._client = self._make()
        return self._client

    def _is_fresh(self, at: Instant) -> bool:
        return (self._now() - at).total_seconds() <= FRESH_S

    def _sizes(self, region: str) -> tuple[Any, ...]:
        kept = self._skus.get(region)
        if kept is None or not self._is_fresh(kept[0]):
            rows = self._azure.resource_skus.list(filter=f"location eq '{region}'")
            kept = (self._now(), tuple(r for r in rows if r.resource_type == "virtualMachines"))
            self._skus[region] = kept
        return kept[1]

    def _quota(self, region: str) -> Mapping[str, tuple[str, int, int]]:
        kept = self._usages.get(region)
        if kept is None or not self._is_fresh(kept[0]):
            found: dict[str, tuple[str, int, int]] = {}
            for u in self._azure.usage.list(region):
                name = str(u.name.value or "")
                found[_plain(name)] = (name, int(u.limit), int(u.current_value))
            kept = (self._now(), found)
            self._usages[region] = kept
        return kept[1]

    def _reserved(self, sku: str, region: str) -> tuple[NamedPlaces, ...]:
        """Return the free places of each group; a VM takes none of a group that it does not name."""
        if self._groups is None or not self._is_fresh(self._groups[0]):
            self._groups = (self._now(), tuple(self._free_places()))
        same = [n for s, r, n in self._groups[1] if s == sku.lower() and r == region.lower() and n.free > 0]
        return tuple(sorted(same, key=lambda n: (n.id, n.zone)))

    def _free_places(self) -> Iterable[tuple[str, str, NamedPlaces]]:
        for group in self._azure.capacity_reservation_groups.list_by_subscription():
            parts = str(group.id).split("/")
            for r in self._azure.capacity_reservations.list_by_capacity_reservation_group(parts[4], parts[-1]):
                used = len(r.properties.virtual_machines_associated or ()) if r.properties is not None else 0
                zone, pool = str((r.zones or [""])[0]), str((group.tags or {}).get("fleetctl-pool", ""))
                free = NamedPlaces(id=str(group.id).lower(), zone=zone, free=int(r.sku.capacity or 0) - used, pool=pool)
                yield str(r.sku.name).lower(), str(r.location or group.location).lower(), free


def _restrictions(row: Any, region: str) -> tuple[str, tuple[str, ...]]:
    """Return the reason code that closes the region ("" for none), and the zones that are closed."""
    closed, zones = "", set()
    for r in row.restrictions or ():
        info = r.restriction_info
        if r.type == "Zone":
            zones |= {str(z) for z in (info.zones if info is not None else None) or ()}
        elif region.lower() in {
            str(v).lower() for v in [*(r.values_property or ()), *((info.locations if info is not None else None) or ())]
        }:
            closed = str(getattr(r.reason_code, "value", r.reason_code) or "restricted")
    return closed, tuple(sorted(zones))


def _number(row: Any, name: str) -> int:
    value = next((c.value for c in row.capabilities or () if c.name == name), None)
    return int(value) if value is not None and str(value).isdigit() else 0


def _plain(name: str) -> str:
    return "".join(name.split()).lower()


def _quotas(family: str, usages: Mapping[str, tuple[str, int, int]]) -> tuple[QuotaRow, ...]:
    """Return the buckets that bind: the family's and the region's on demand, the low-priority one for spot."""
    found = []
    for key in (_plain(family), REGIONAL):
        if key in usages:
            name, limit, used = usages[key]
            found.append(QuotaRow(name=name, limit=limit, used=used, binds="regular"))
    if SPOT in usages:
        name, limit, used = usages[SPOT]
        found.append(QuotaRow(name=name, limit=limit, used=used, binds="spot"))
    return tuple(found)
