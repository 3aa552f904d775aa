"""Plan, pure layer: what a person may ask of a plan beyond the fleet file. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How to plan.

    Args:
        allow_dearer: move what can move even where staying is cheaper.
        both_vendors: cells may go to any pool of their regions, back to NVIDIA too (rebalancing).
        migrating: cells on their way, and where to: they are not placed anew, and their pools are held.
        arrived: cells that an earlier plan brought to a target for good, and where: they stay there, in no wave.
        deadline: by when soaks should be over; what ends later is named, never dropped.
        amd_factor: multiplies the throughput of AMD accelerators (sensitivity), 1.0 as recorded.
    """

    allow_dearer: bool = False
    both_vendors: bool = False
    migrating: Mapping[CellId, PoolId] = field(default_factory=dict)
    amd_factor: float = 1.0
    arrived: Mapping[CellId, PoolId] = field(default_factory=dict)
    deadline: Instant | None = None

    @property
    def sent(self) -> Mapping[CellId, PoolId]:
        """Return the cells that are not placed anew, and where they go or are."""
        return {**self.migrating, **self.arrived}


DEFAULT = PlanOptions()
