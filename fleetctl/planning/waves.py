"""Plan, pure layer: which cells move together and in which order. Never I/O.

The order is that of `fleetctl.planning.order`. No wave has more than `policy.wave_cells` cells,
no wave mixes classes unless its cells declare it, and waves are numbered 1, 2, ... without holes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from math import isfinite

from fleetctl.domain.fleet import Fleet, PhaseSpec
from fleetctl.domain.ids import CellId, WorkloadId
from fleetctl.domain.plan import StepNeed, Wave
from fleetctl.domain.workload import Cell, Guardrail, Requests, Workload
from fleetctl.planning.order import in_order

UNKNOWN_HOURS = 0.0


def make_waves(fleet: Fleet, moving: tuple[Cell, ...], needs: Mapping[CellId, tuple[StepNeed, ...]]) -> tuple[Wave, ...]:
    """Group moving cells into waves.

    Args:
        moving: cells that the plan moves; needs: per cell, what each of its steps needs.
    """
    works = {w.id: w for w in fleet.workloads}
    order = in_order(moving, works, fleet.policy)
    waves: list[Wave] = []
    size = max(1, fleet.policy.wave_cells)
    for _, group in groupby(sorted(moving, key=lambda c: order[c.id]), key=lambda c: order[c.id][0]):
        cells = tuple(group)
        for start in range(0, len(cells), size):
            together = tuple(sorted(cells[start : start + size], key=lambda c: c.id))
            waves.append(_wave(len(waves) + 1, together, fleet, works, needs))
    return tuple(waves)


def _wave(
    index: int, cells: tuple[Cell, ...], fleet: Fleet, works: Mapping[WorkloadId, Workload], needs: Mapping[CellId, tuple[StepNeed, ...]]
) -> Wave:
    has_shadow = any(works[c.workload].shadow is not None for c in cells)
    phases = tuple(p for p in fleet.policy.steps if p.phase != "shadow" or has_shadow)
    steps = tuple(_merged(phase, cells, needs) for phase in phases)
    widest: Mapping[Guardrail, Requests] = {}
    for step in steps:
        widest = step.requests or widest
    return Wave(
        index=index,
        cells=tuple(c.id for c in cells),
        phases=phases,
        evidence_needed=widest,
        steps=steps,
        hours=round(max(sum(n.hours for n in needs[c.id]) for c in cells), 6),
    )


def _merged(phase: PhaseSpec, cells: tuple[Cell, ...], needs: Mapping[CellId, tuple[StepNeed, ...]]) -> StepNeed:
    requests: dict[Guardrail, Requests] = {}
    hours, positions = 0.0, 0
    for cell in cells:
        for need in needs[cell.id]:
            if (need.phase, need.weight_bp) != (phase.phase, phase.weight_bp):
                continue
            for guardrail, count in need.requests.items():
                requests[guardrail] = max(count, requests.get(guardrail, 0))
            hours, positions = max(hours, need.hours), max(positions, need.positions)
    return StepNeed(phase=phase.phase, weight_bp=phase.weight_bp, requests=requests, hours=hours, positions=positions)


def finite(needs: tuple[StepNeed, ...]) -> tuple[StepNeed, ...]:
    """Return the steps with endless ones as 0 hours, for cells whose end no evidence decides."""
    return tuple(
        n
        if isfinite(n.hours)
        else StepNeed(phase=n.phase, weight_bp=n.weight_bp, requests=n.requests, hours=UNKNOWN_HOURS, positions=n.positions)
        for n in needs
    )
