"""Plan, pure layer: which cells move together and in which order. Never I/O.

The order is that of `fleetctl.planning.order` within each stage (`fleetctl.planning.stages`). No wave has more than `policy.wave_cells`
cells, no wave mixes classes unless its cells declare it, and waves are numbered 1, 2, ... without holes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from math import inf, isfinite

from fleetctl.domain.fleet import Fleet, PhaseSpec
from fleetctl.domain.ids import CellId, WorkloadId
from fleetctl.domain.plan import GuardrailNeed, StepNeed, Wave
from fleetctl.domain.workload import Cell, Guardrail, Requests, Workload
from fleetctl.planning.order import in_order

UNKNOWN_HOURS = 0.0


def make_waves(
    fleet: Fleet,
    moving: tuple[Cell, ...],
    needs: Mapping[CellId, tuple[StepNeed, ...]],
    groups: Mapping[CellId, tuple[CellId, ...]] | None = None,
    stage_of: Mapping[CellId, int] | None = None,
    *,
    size: int | None = None,
) -> tuple[Wave, ...]:
    """Group moving cells into waves.

    Args:
        moving: cells that the plan moves; needs: per cell, what each of its steps needs.
        groups: cells whose evidence counts together, per cell: they share a wave, which is begun anew where they would not fit in.
        stage_of: of cells that wait for a release, 2 and more; those of one stage come after all of the stages before.
        size: cells a wave, None for the policy's.
    """
    works = {w.id: w for w in fleet.workloads}
    order = in_order(moving, works, fleet.policy)
    stages = stage_of or {}
    waves: list[Wave] = []
    size = max(1, fleet.policy.wave_cells if size is None else size)
    key = {c.id: (stages.get(c.id, 1), order[c.id]) for c in moving}
    for (stage, _), group in groupby(sorted(moving, key=lambda c: key[c.id]), key=lambda c: (key[c.id][0], key[c.id][1][0])):
        for cells in _packed(tuple(group), groups or {}, size):
            together = tuple(sorted(cells, key=lambda c: c.id))
            waves.append(replace(_wave(len(waves) + 1, together, fleet, works, needs), stage=stage))
    return tuple(waves)


def _packed(cells: tuple[Cell, ...], groups: Mapping[CellId, tuple[CellId, ...]], size: int) -> Iterator[tuple[Cell, ...]]:
    """Yield the cells of each wave; groups stay whole and fill first, cells that stand alone fill the rest in their order."""
    known = {c.id: c for c in cells}
    blocks: dict[tuple[CellId, ...], list[Cell]] = {}
    alone: list[Cell] = []
    for cell in cells:
        together = tuple(c for c in groups.get(cell.id, ()) if c in known)
        if len(together) > 1:
            blocks.setdefault(together, []).append(cell)
        else:
            alone.append(cell)
    if not blocks:
        yield from (cells[start : start + size] for start in range(0, len(cells), size))
        return
    waves: list[list[Cell]] = []
    for block in sorted(blocks.values(), key=lambda b: (-len(b), b[0].id)):
        room = next((w for w in waves if len(w) + len(block) <= size), None)
        if room is None:
            waves.append(list(block))
        else:
            room += block
    for cell in alone:
        room = next((w for w in waves if len(w) < size), None)
        if room is None:
            waves.append([cell])
        else:
            room.append(cell)
    yield from (tuple(w) for w in waves)


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
    dearest: dict[Guardrail, GuardrailNeed] = {}
    hours, positions, trough = 0.0, 0, 0.0
    slowest, binding = (-1.0, 0), ""
    for cell in cells:
        for need in needs[cell.id]:
            if (need.phase, need.weight_bp) != (phase.phase, phase.weight_bp):
                continue
            for guardrail, count in need.requests.items():
                requests[guardrail] = max(count, requests.get(guardrail, 0))
            for g in need.guardrails:
                if g.guardrail not in dearest or g.passes[1] > dearest[g.guardrail].passes[1]:
                    dearest[g.guardrail] = g
            hours, positions = max(hours, need.hours), max(positions, need.positions)
            if need.binding and (here := (need.hours, need.requests[Guardrail(need.binding)])) > slowest:
                slowest, binding = here, need.binding
            trough = max(trough, inf if need.trough_hours is None else need.trough_hours)
    return StepNeed(
        phase=phase.phase,
        weight_bp=phase.weight_bp,
        requests=requests,
        hours=hours,
        trough_hours=trough if isfinite(trough) else None,
        positions=positions,
        binding=binding,
        guardrails=tuple(dearest[g] for g in sorted(dearest)),
    )


def finite(needs: tuple[StepNeed, ...]) -> tuple[StepNeed, ...]:
    """Return the steps with endless ones as 0 hours, for cells whose end no evidence decides."""
    return tuple(
        replace(
            n,
            hours=n.hours if isfinite(n.hours) else UNKNOWN_HOURS,
            trough_hours=n.trough_hours if n.trough_hours is not None and isfinite(n.trough_hours) else None,
        )
        for n in needs
    )
