"""Plan and provision, adapters layer: the port CapacitySource by boto3. Never makes or changes anything.

AWS counts vCPUs per bucket of families (Service Quotas codes), on demand and spot apart; which zones offer a type is EC2's own list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleetctl.domain.capacity import NamedPlaces, QuotaRow, SkuReading
from fleetctl.domain.units import Instant

FRESH_S = 30.0
_BUCKETS: Mapping[str, tuple[str, str]] = {
    "p": ("L-417A185B", "L-7212CCBC"),
    "g": ("L-DB2E81BA", "L-3819A6DF"),
}
"""Service Quotas codes of running on-demand and of spot vCPUs, by the first letter of the family (P and G/VT instances).
Source: AWS Service Quotas, service ec2; p5 spot has a bucket of its own (L-C4BD4855). Read 2026-11-30."""
_P5_SPOT = "L-C4BD4855"
_LIVE = ("pending", "running", "stopping", "shutting-down")


class AwsCapacity:
    """Reads offers, quota and reservations; each (size, region) is read once in 30 s.

    Args:
        client: makes a boto3 client of (service, region); None for boto3's own.
    """

    def __init__(self, now: Callable[[], Instant], client: Callable[[str, str], Any] | None = None) -> None:
        self._now = now
        self._client = client or _boto3_client
        self._kept: dict[tuple[str, str], SkuReading] = {}

    def read(self, sku: str, region: str) -> SkuReading:
        """Read now; what cannot be read is a gap."""
        kept = self._kept.get((sku, region))
        if kept is not None and (self._now() - kept.read_at).total_seconds() <= FRESH_S:
            return kept
        gaps: list[str] = []
        ec2 = self._or_gap(gaps, "AWS", lambda: self._client("ec2", region))
        zones = self._or_gap(gaps, "offers", lambda: _zones(ec2, sku)) if ec2 is not None else None
        vcpus = self._or_gap(gaps, "sizes", lambda: _vcpus(ec2, sku)) if zones else 0
        quotas = self._or_gap(gaps, "quota", lambda: self._quotas(ec2, sku, region)) if zones else ()
        reserved = self._or_gap(gaps, "reservations", lambda: _reserved(ec2, sku)) if zones else None
        free, named = reserved or ((), ())
        self._kept[sku, region] = SkuReading(
            sku=sku,
            region=region,
            offered=zones is None or bool(zones),
            read_at=self._now(),
            zones=tuple(zones or ()),
            vcpus=vcpus or 0,
            quotas=tuple(quotas or ()),
            reserved=free,
            named=named,
            gaps=tuple(gaps),
        )
        return self._kept[sku, region]

    def _or_gap(self, gaps: list[str], what: str, read: Callable[[], Any]) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            return read()
        except ClientError as e:
            gaps.append(f"reading {what}: AWS says {e.response.get('Error', {}).get('Code', 'no')}")
        except ResponseParserError as e:  # its text quotes what came instead, such as a proxy's page
            gaps.append(f"reading {what}: what answered is not AWS ({type(e).__name__})")
        except BotoCoreError as e:
            gaps.append(f"reading {what}: {type(e).__name__}: {str(e)[:200]}")
        return None

    def _quotas(self, ec2: Any, sku: str, region: str) -> tuple[QuotaRow, ...]:
        codes = _BUCKETS.get(sku[:1])
        if codes is None:
            return ()
        spot = _P5_SPOT if sku.startswith("p5.") else codes[1]
        limits = self._client("service-quotas", region)
        used = _used(ec2, sku[:1])
        rows = []
        for code, binds in ((codes[0], "regular"), (spot, "spot")):
            quota = limits.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
            name = f"{quota['QuotaName']} ({code})"
            rows.append(QuotaRow(name=name, limit=int(quota["Value"]), used=used[binds], binds="spot" if binds == "spot" else "regular"))
        return tuple(rows)


def ec2_client(region: str) -> Any:
    """Return a boto3 client of EC2 that does not wait for long."""
    return _boto3_client("ec2", region)


def _boto3_client(service: str, region: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(service, region_name=region, config=Config(connect_timeout=5, read_timeout=20, retries={"max_attempts": 3}))


def _zones(ec2: Any, sku: str) -> tuple[str, ...]:
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [sku]}]
    )
    return tuple(sorted(o["Location"] for page in pages for o in page["InstanceTypeOfferings"]))


def _vcpus(ec2: Any, sku: str) -> int:
    found = ec2.describe_instance_types(InstanceTypes=[sku])["InstanceTypes"]
    return int(found[0]["VCpuInfo"]["DefaultVCpus"]) if found else 0


def _used(ec2: Any, letter: str) -> dict[str, int]:
    """Return vCPUs of live instances of the families with that first letter, on demand and spot."""
    used = {"regular": 0, "spot": 0}
    sizes: dict[str, int] = {}
    pages = ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-state-name", "Values": list(_LIVE)}])
    for instance in (i for page in pages for r in page["Reservations"] for i in r["Instances"]):
        kind = instance["InstanceType"]
        if kind.startswith(letter):
            sizes[kind] = sizes[kind] if kind in sizes else _vcpus(ec2, kind)
            used["spot" if instance.get("InstanceLifecycle") == "spot" else "regular"] += sizes[kind]
    return used


def _reserved(ec2: Any, sku: str) -> tuple[tuple[tuple[str, int], ...], tuple[NamedPlaces, ...]]:
    """Return free places that any Linux machine of shared tenancy takes by zone, and those of reservations that must be named."""
    wanted = [{"Name": "instance-type", "Values": [sku]}, {"Name": "state", "Values": ["active"]}]
    free: dict[str, int] = {}
    named: list[NamedPlaces] = []
    for page in ec2.get_paginator("describe_capacity_reservations").paginate(Filters=wanted):
        for r in page["CapacityReservations"]:
            zone, left = str(r.get("AvailabilityZone", "")), int(r.get("AvailableInstanceCount", 0))
            if left <= 0 or r.get("Tenancy", "default") != "default" or r.get("InstancePlatform", "Linux/UNIX") != "Linux/UNIX":
                continue
            named.append(NamedPlaces(id=str(r["CapacityReservationId"]).lower(), zone=zone, free=left))
            if r.get("InstanceMatchCriteria") == "open" and r.get("ReservationType", "default") == "default":
                free[zone] = free.get(zone, 0) + left
    return tuple(sorted(free.items())), tuple(sorted(named, key=lambda n: n.id))
