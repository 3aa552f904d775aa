"""Inventory, provision and configure, ports layer: what finds, makes and prepares machines owes us. Never an implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fleetctl.domain.capacity import Leftover, SkuReading
from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.model_files import ModelFile, ModelStore, SignedFile
from fleetctl.domain.people import Diagnostic, Facts, Gap
from fleetctl.domain.pool import Host, PoolSpec, Priority
from fleetctl.domain.provision import (
    CapacityVerdict,
    HostResult,
    Progress,
    Provisioned,
    ProvisionFailure,
    ProvisionPlan,
    ReleasePermit,
)
from fleetctl.domain.scan import Scan


class Discovery(Protocol):
    """Finds what runs; a source that fails yields a Gap, never an exception."""

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield facts of everything in the scope ("" is all)."""
        ...


class PartedDiscovery(Discovery, Protocol):
    """A source that is asked part by part (a region of an account), each by its own `scan(part)`, at once and from several threads."""

    @property
    def name(self) -> str:
        """Return the name it has among the sources, such as "azure prod"."""
        ...

    def parts(self) -> tuple[str, ...]:
        """Return its parts. Raises CredentialsMissing (credentials.*) and InventoryFailed (inventory.*)."""
        ...


class ScanRecords(Protocol):
    """Keeps the last looks at all sources. Raises StoreUnavailable (store.*)."""

    def newest(self, back: int = 0) -> Scan | None:
        """Return the newest look, or the one that many before it; None where there is none."""
        ...

    def save(self, scan: Scan) -> Scan:
        """Keep a look and return it with its number; only the newest few are kept."""
        ...


class Capacity(Protocol):
    """Says whether capacity is to be had."""

    def verdict(self, sku: str, region: str, count: int, priority: Priority) -> CapacityVerdict:
        """Answer yes, no or unknown with a reason; never raises for a cloud that does not answer."""
        ...


class CapacitySource(Protocol):
    """Reads what a cloud says of a size in a region."""

    def read(self, sku: str, region: str) -> SkuReading:
        """Read restrictions, quota and reservations now; what cannot be read is a gap of the reading, never an exception."""
        ...


class Leftovers(Protocol):
    """Finds and removes what carries an intent's tag.

    Raises CapacityUnavailable (capacity.unreachable) and CredentialsMissing (credentials.refused).
    """

    def find(self, tag: str) -> tuple[Leftover, ...]:
        """Return everything in the cloud that carries the tag, and disks of its machines; () where there is nothing."""
        ...

    def remove(self, one: Leftover) -> None:
        """Remove it and wait until it is gone; gone already is done."""
        ...


class Provisioner(Protocol):
    """Makes machines. Raises ProvisionFailed (provision.plan_failed, provision.changed, provision.locked) and ToolMissing."""

    def plan(self, pools: Sequence[PoolSpec], run: Path) -> ProvisionPlan:
        """Save a plan file in the run folder and return what it shows, bound by digest."""
        ...

    def apply(self, p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        """Run exactly that file; one byte changed is refused (provision.changed). An interrupt is passed on once and waited for."""
        ...

    def outputs(self, pool: PoolId) -> tuple[Host, ...]:
        """Return the pool's hosts as the state has them; () where there is none."""
        ...

    def ids(self, pool: PoolId) -> frozenset[str]:
        """Return the cloud's ids, lower case, of everything that the pool's state holds; what exists beside them is an orphan."""
        ...

    def adopt(self, pool: PoolId, address: str, id_: str) -> None:
        """Take what exists already into the pool's state, at an address of its plan; nothing in the cloud is changed."""
        ...

    def drift(self, pool: PoolId) -> tuple[Diagnostic, ...]:
        """Compare the state with the world."""
        ...

    def destroy(self, pool: PoolId, permit: ReleasePermit) -> None:
        """Destroy a pool; the permit is the only key."""
        ...


class Configurator(Protocol):
    """Prepares machines. Raises ConfigureFailed (configure.timeout, configure.broken) and ToolMissing."""

    def run(
        self,
        play: str,
        hosts: Sequence[Host],
        variables: Mapping[str, object],
        token: Token,
        on: Callable[[Progress], None],
    ) -> tuple[HostResult, ...]:
        """Run a play to its end and return one result per host, in their order; running it again changes nothing.

        A host that has seen a higher token refuses and is "failed"; after `cancel` the hosts that were not done are "cancelled".

        Args:
            variables: of every host, except the key "by_host": a mapping of host id to that host's own variables.
            on: called in the caller's thread.
        """
        ...

    def cancel(self) -> None:
        """End the run; nothing of it keeps running."""
        ...

    def manifest(self, host: HostId) -> Mapping[str, str]:
        """Return what the last run wrote of that host (versions, digests); {} where nothing was."""
        ...


class ModelSources(Protocol):
    """Says how hosts get files of models. Raises CredentialsMissing (credentials.*) and ToolMissing."""

    def sign(self, file: ModelFile, store: ModelStore, seconds: int) -> SignedFile:
        """Return a way to the file that works for that many seconds and needs no credential on the host."""
        ...
