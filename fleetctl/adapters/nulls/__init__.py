"""Inventory, plan and migrate, adapters layer: what stands where nothing real does yet, and says so. Never touches anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.domain.holds import Said
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.pool import Priority
from fleetctl.domain.provision import CapacityVerdict, Owner


class NullHolds:
    """`Holds` for pools that nothing scales: no owner, nothing to pin."""

    def owners(self, pool: PoolId) -> tuple[Owner, ...]:
        """Return nobody."""
        return ()

    def found(self, c: CellId, pools: Sequence[PoolId]) -> tuple[Owner | Gap, ...]:
        """Return nobody."""
        return ()

    def pin(self, pool: PoolId, minimum: int, token: Token, c: CellId) -> tuple[Said, ...]:
        """Do nothing: no one would take this capacity."""
        return ()

    def watch(self, pool: PoolId, c: CellId) -> str:
        """Return that nobody did anything."""
        return ""

    def is_unheld(self, pool: PoolId, c: CellId) -> bool:
        """Return False: nothing was to be pinned."""
        return False

    def writer(self, c: CellId) -> str:
        """Return that nobody can tell."""
        return ""

    def restore(self, pool: PoolId, token: Token, c: CellId) -> tuple[Said, ...]:
        """Do nothing: nothing was pinned."""
        return ()

    def release(self, pool: PoolId) -> tuple[tuple[CellId, Said], ...]:
        """Do nothing: nothing was pinned."""
        return ()

    def sweep(self) -> tuple[tuple[CellId, Said], ...]:
        """Do nothing: nothing was pinned."""
        return ()

    def warm(self, pool: PoolId) -> None:
        """Do nothing: its replicas are up."""


class UnknownCapacity:
    """`Capacity` that asks nobody: "unknown" is an answer."""

    def verdict(self, sku: str, region: str, count: int, priority: Priority) -> CapacityVerdict:
        """Return unknown, with the reason."""
        reason = "no capacity source is connected; provisioning will tell"
        return CapacityVerdict(sku=sku, region=region, count=count, priority=priority, kind="unknown", reason=reason)


class FixedDiscovery:
    """`Discovery` of facts that were given to it.

    Args:
        found: what every scan yields; a scope keeps those whose source, or gap's scope, is that scope.
    """

    def __init__(self, found: Sequence[Facts | Gap] = ()) -> None:
        self._found = tuple(found)

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield facts of everything in the scope ("" is all)."""
        for item in self._found:
            if not scope or scope in (item.source, getattr(item, "scope", "")):
                yield item
