"""Other hands, ports layer: who else writes a pool's size or a cell's route. Never an implementation."""

from __future__ import annotations

from typing import Protocol

from fleetctl.domain.holds import Standing
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner


class Scaler(Protocol):
    """One place where owners of a pool's size are found, and the minimums of its autoscalers. Each call ends within 5 s.

    Raises CredentialsMissing, InventoryFailed, ToolMissing.
    """

    def find(self) -> tuple[Owner | Gap, ...]:
        """List autoscalers and GitOps owners; what cannot be told is a Gap."""
        ...

    def standing(self, ref: str) -> Standing:
        """Return a minimum as it stands now."""
        ...

    def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Set a minimum that is still `was`, compared at the target where it can; False where it is not. Idempotent.

        Args:
            default: the owner's own, put back where ours stands; None to leave it.
        """
        ...


class Marks(Protocol):
    """Finds whose a cell's route is. Each call ends within 5 s. Raises CredentialsMissing, InventoryFailed, ToolMissing."""

    def find(self) -> tuple[Owner | Gap, ...]:
        """List GitOps owners by their marks; what cannot be told is a Gap."""
        ...

    def writer(self) -> str:
        """Name who wrote the route last beside us, "" where nobody can tell."""
        ...


class Hands(Protocol):
    """All other hands of a fleet. `of_pool`, `of_route` and `writer` never raise: what cannot be asked is a Gap, or ""."""

    def of_pool(self, pool: PoolId) -> tuple[Owner | Gap, ...]:
        """List who else writes a pool's size."""
        ...

    def of_route(self, c: CellId) -> tuple[Owner | Gap, ...]:
        """List who else writes a cell's route."""
        ...

    def writer(self, c: CellId) -> str:
        """Name who wrote a cell's route last beside us, "" where nobody can tell."""
        ...

    def standing(self, pool: PoolId, ref: str) -> Standing:
        """Return a minimum as it stands now. Raises as `Scaler`."""
        ...

    def set_minimum(self, pool: PoolId, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Set a minimum that is still `was`, and put a default back; False where it is not. Raises as `Scaler`."""
        ...
