"""Provision, tests: what the lab double of Azure tells of sizes, quota and refusals. Data and its shape only.

Source: family names and vCPUs from Azure/karpenter-provider-azure pkg/providers/instancetype/known_skus.yaml; messages
after pkg/fake/aksmachinesapi.go,
in our own words where long. Read 2026-11-30.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SUBSCRIPTION = "00000000-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class Size:
    """One VM size: its quota family as the cloud writes it, vCPUs, GPUs."""

    family: str
    vcpus: int
    gpus: int


SIZES = {
    "Standard_ND96isr_MI300X_v5": Size("standardNDISv5MI300XFamily", 96, 8),
    "Standard_ND96is_MI300X_v5": Size("standardNDISv5MI300XFamily", 96, 8),
    "Standard_ND96isr_H100_v5": Size("standardNDSH100v5Family", 96, 8),
    "Standard_ND96isr_H200_v5": Size("standardNDISRH200V5Family", 96, 8),
    "Standard_NC80adis_H100_v5": Size("StandardNCadsH100v5Family", 80, 2),
    "Standard_NC96ads_A100_v4": Size("StandardNCADSA100v4Family", 96, 4),
}
REGIONS = ("eastus2", "westus3", "francecentral", "swedencentral")
ZONES = ("1", "2", "3")

MESSAGES = {
    "SkuNotAvailable": "The requested VM size is currently not available in location. Please try another size or deploy to a "
    "different location or zone.",
    "AllocationFailed": "Allocation failed. We do not have sufficient capacity for the requested VM size in this region.",
    "ZonalAllocationFailed": "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone.",
    "OverconstrainedAllocationRequest": "Create or update VM allocation request is overconstrained: Ephemeral disk, "
    "Accelerated Networking.",
    "OverconstrainedZonalAllocationRequest": "The VM cannot be allocated to the conditions requested: Availability Zone, VM Size.",
    "VMMarketplaceInvalidInput": "Creating a virtual machine from Marketplace image requires Plan information in the request.",
    "TooManyRequests": "The request is being throttled.",
    "AuthorizationFailed": "The client does not have authorization to perform this action.",
    "ExpiredAuthenticationToken": "The access token expiry is in the past.",
    "quota": "Operation could not be completed as it results in exceeding approved {name} quota. Additional details - "
    "Deployment Model: Resource Manager, "
    "Location: {region}, Current Limit: {limit}, Current Usage: {used}, Additional Required: {required}, (Minimum) New Limit "
    "Required: {least}.",
}


def skus(region: str, restricted: dict[tuple[str, str], tuple[str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Return rows of the SKU list.

    Args:
        restricted: (size, region) -> (reason code, zones that are closed; () closes the region).
    """
    rows: list[dict[str, Any]] = []
    for place in (region,) if region else REGIONS:
        if place.lower() not in REGIONS:
            continue
        for name, size in SIZES.items():
            closed = restricted.get((name, place))
            restrictions: list[dict[str, Any]] = []
            if closed is not None:
                info = {"locations": [place], **({"zones": list(closed[1])} if closed[1] else {})}
                kind = "Zone" if closed[1] else "Location"
                restrictions.append({"type": kind, "values": [place], "reasonCode": closed[0], "restrictionInfo": info})
            rows.append(
                {
                    "resourceType": "virtualMachines",
                    "name": name,
                    "family": size.family,
                    "locations": [place],
                    "locationInfo": [{"location": place, "zones": list(ZONES)}],
                    "capabilities": [
                        {"name": "vCPUs", "value": str(size.vcpus)},
                        {"name": "GPUs", "value": str(size.gpus)},
                        {"name": "LowPriorityCapable", "value": "True"},
                    ],
                    "restrictions": restrictions,
                }
            )
    return rows


def usages(region: str, limits: dict[tuple[str, str], int], used: dict[str, int]) -> list[dict[str, Any]]:
    """Return rows of the usage list; the family's name differs in case and spaces from the SKU's, as it does in Azure."""
    families = sorted({s.family for s in SIZES.values()})
    shown = [(f, f"{f[:8]} {f[8:]}" if f.startswith("Standard") else f) for f in families]
    rows = [*shown, ("cores", "cores"), ("lowPriorityCores", "lowPriorityCores")]
    return [
        {
            "unit": "Count",
            "currentValue": used.get(bucket, 0),
            "limit": limits.get((region.lower(), bucket), 10_000),
            "name": {"value": written, "localizedValue": written},
        }
        for bucket, written in rows
    ]
