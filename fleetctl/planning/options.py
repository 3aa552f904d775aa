"""Plan, pure layer: what a person may ask of a plan beyond the fleet file. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.domain.calendar import ReadyTime
from fleetctl.domain.home import HomeTime
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Reason
from fleetctl.domain.units import Instant
from fleetctl.planning.speed import SpeedOf

MOST_STAGES = 4
"""Each waits for the soak of the one before (7 days by the policy's default), so the fourth begins after about three weeks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How to plan.

    Args:
        allow_dearer: as many cells move as have a place and room, also where staying costs less; of all ways to do so the cheapest.
        both_vendors: cells may go to any pool of their regions, back to NVIDIA too (rebalancing).
        migrating: cells on their way, and where to: they are not placed anew, and their pools are held.
        arrived: cells that an earlier plan brought to a target for good, and where: they stay there, in no wave.
        deadline: by when soaks should be over; what ends later is named, never dropped.
        held: cells that stay, and why (rebalancing); only: the one pool that a cell may go to, or stay.
        most_moves, most_gpus: cells that may move, and GPUs of those where they are now; None: no limit.
        speed_of: instead of the catalogue's records (a fleet as it stands, whose replicas have another reference).
        home: what each router took to bring a cell home, by its name, where that was measured.
        ready: how long a pool's hosts took from bare to ready, where that was measured.
        amd_factor: multiplies the throughput of AMD accelerators (sensitivity), 1.0 as recorded.
        stages: at most; each places on what the release of the one before leaves. 1: nothing waits for a release (rebalancing, which
            plans again anyway).
    """

    allow_dearer: bool = False
    both_vendors: bool = False
    migrating: Mapping[CellId, PoolId] = field(default_factory=dict)
    amd_factor: float = 1.0
    arrived: Mapping[CellId, PoolId] = field(default_factory=dict)
    deadline: Instant | None = None
    held: Mapping[CellId, Reason] = field(default_factory=dict)
    only: Mapping[CellId, PoolId] = field(default_factory=dict)
    most_moves: int | None = None
    most_gpus: float | None = None
    speed_of: SpeedOf | None = None
    ready: Mapping[PoolId, ReadyTime] = field(default_factory=dict)
    home: Mapping[str, HomeTime] = field(default_factory=dict)
    stages: int = MOST_STAGES

    @property
    def sent(self) -> Mapping[CellId, PoolId]:
        """Return the cells that are not placed anew, and where they go or are."""
        return {**self.migrating, **self.arrived}


DEFAULT = PlanOptions()
