"""Plan, pure layer: what a plan is worked out from, and what the optimiser decided. Values only; never I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Assessment, Certificate
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Workload
from fleetctl.planning.candidates import Candidates, Choice, Site
from fleetctl.planning.evidence_need import Baseline, Costs
from fleetctl.planning.options import PlanOptions

if TYPE_CHECKING:
    from fleetctl.planning.program import Floats
    from fleetctl.planning.rooms import Rooms

FaultTime = Callable[[float, float], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageVms:
    """VMs per pool, in the fleet's order, while both sides of a stage are up, and once its sources are released."""

    peak: tuple[int, ...]
    then: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What the optimiser decided.

    Args:
        stages: VMs of each, at least one; stage_of: of cells that move after the first one's release.
        extra: USD/h of a move itself per (cell, pool), spread over the horizon; None where nothing was asked.
        rooms: what pools and shared limits could still take once all is released; None where nothing was asked.
        unstaged: cells above which later stages are not looked at, where this fleet has more and a release might help; 0 elsewhere.
    """

    stages: tuple[StageVms, ...]
    stage_of: Mapping[CellId, int] = field(default_factory=dict)
    certificate: Certificate | None = None
    extra: Floats | None = None
    rooms: Rooms | None = None
    unstaged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that decides a plan.

    Args:
        sites: of the fleet's pools, in their order; index: of each pool in it; kw: all-in draw of one accelerator there.
        pins: cells with one declared target, and what they would take there; filled while the cells are asked.
    """

    fleet: Fleet
    catalog: Catalog
    sites: tuple[Site, ...]
    index: Mapping[PoolId, int]
    workloads: Mapping[str, Workload]
    assessments: Mapping[str, Assessment]
    baselines: Mapping[str, Baseline]
    costs: Costs
    candidates: Candidates
    options: PlanOptions
    sent: Mapping[CellId, PoolId]
    fault_time: FaultTime | None
    kw: tuple[float | None, ...]
    now: Instant
    pins: dict[CellId, Choice] = field(default_factory=dict)
