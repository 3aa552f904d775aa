"""Composition root, cloud part: which adapter serves a stack. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    from azure.mgmt.compute import ComputeManagementClient

    from fleetctl.domain.capacity import Candidate, SkuReading
    from fleetctl.domain.catalog import Catalog
    from fleetctl.domain.ids import PoolId
    from fleetctl.domain.units import Instant
    from fleetctl.ports.capacity import CapacitySource, Leftovers


def leftovers_of(stack: str, settings: Mapping[str, str], regions: Sequence[str]) -> Leftovers:
    """Return what finds and removes what a try left in a stack's cloud, in any of the regions where it may have tried."""
    if stack == "azure":
        from fleetctl.adapters.azure.leftovers import AzureLeftovers

        return AzureLeftovers(lambda: _azure(settings), settings.get("azure.subscription_id", ""))
    if stack == "aws":
        from fleetctl.adapters.aws.leftovers import AwsLeftovers

        return AwsLeftovers(regions)
    from fleetctl.usecases.capacity import NoLeftovers

    return NoLeftovers()


def source_of(stack: str, settings: Mapping[str, str], now: Callable[[], Instant]) -> CapacitySource | None:
    """Return what reads capacity from a stack's cloud, None where nobody can be asked."""
    if stack == "azure" and settings.get("azure.subscription_id"):
        from fleetctl.adapters.azure.capacity import AzureCapacity

        return AzureCapacity(lambda: _azure(settings), now)
    if stack == "aws":
        from fleetctl.adapters.aws.capacity import AwsCapacity

        return AwsCapacity(now)
    return None


class UsableSource:
    """Reads like another source, but counts only reserved places that all the given pools can use.

    Args:
        pools: the ids of the reservations that each one's settings name.
    """

    def __init__(self, source: CapacitySource, pools: Mapping[PoolId, frozenset[str]]) -> None:
        self._source = source
        self._pools = pools

    def read(self, sku: str, region: str) -> SkuReading:
        """Read now; see `CapacitySource`."""
        from fleetctl.planning.capacity import usable_by_all

        return usable_by_all(self._source.read(sku, region), self._pools)


def _azure(settings: Mapping[str, str]) -> ComputeManagementClient:
    from fleetctl.adapters.azure.capacity_client import AzureConnection, FixedToken, connect, default_credential, is_loopback
    from fleetctl.wiring.sources import quiet_clients

    quiet_clients()
    connection = AzureConnection(
        subscription=settings.get("azure.subscription_id", ""),
        endpoint=settings.get("azure.endpoint", ""),
        ca=settings.get("azure.ca", ""),
    )
    return connect(connection, FixedToken() if is_loopback(connection) else default_credential())


def list_price(place: Candidate, catalog: Catalog) -> Decimal | None:
    """Return the catalogue's list price of one machine, USD per hour; None for spot, whose price moves."""
    found = catalog.price(place.sku, place.region)
    return None if found is None or place.priority == "spot" else found.usd_per_hour


def is_gone(holder: str) -> bool:
    """Tell whether a lease's holder was a process of this machine that is no more; any doubt is a no."""
    name, _, pid = holder.rpartition(":")
    if not pid.isdigit() or not name.endswith(f"@{socket.gethostname()}"):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and only waits for its parent to look: it writes nothing any more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 :][:1] in (b"Z", b"X")
