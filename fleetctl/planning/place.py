"""Plan, pure layer: lets the optimiser place the cells, stage by stage, and writes what becomes of each. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Reason
from fleetctl.domain.plan import Outcome, StepNeed
from fleetctl.planning.evidence_need import baseline_of, hours_to_soak
from fleetctl.planning.given import Inputs, Placed, StageVms
from fleetctl.planning.home_time import home_s
from fleetctl.planning.order import wave_key
from fleetctl.planning.outcomes import apart, full, limited, moved, stays

if TYPE_CHECKING:
    from fleetctl.planning.assemble import Asked
    from fleetctl.planning.stages import Staged

WHOLE = ", yet the fleet's whole VMs cost less with it there."


def place(given: Inputs, outcomes: dict[CellId, Outcome], asked: tuple[Asked, ...], steps: Mapping[CellId, tuple[StepNeed, ...]]) -> Placed:
    """Let the optimiser decide, write every outcome, and return the VMs per pool and stage and the proof."""
    if not any(a.choices for a in asked):
        now = tuple(s.pool.count for s in given.sites)
        return Placed(stages=(StageVms(peak=now, then=now),))
    from fleetctl.planning.assemble import assemble
    from fleetctl.planning.certificate import certificate_of
    from fleetctl.planning.solve import LINEAR_CELLS, solve
    from fleetctl.planning.stages import staged

    options = given.options
    program, raw, caps = assemble(given.fleet, given.catalog, given.sites, asked, given.now, allow_dearer=options.allow_dearer)
    if options.most_moves is not None or options.most_gpus is not None:
        most, gpus = options.most_moves, options.most_gpus
        program = replace(program, most_moves=inf if most is None else float(most), most_gpus=inf if gpus is None else gpus)
    pins = sorted((w for w, a in enumerate(asked) if a.pinned), key=lambda w: _rank(asked[w], given))
    found = staged(program, asked, given.sites, raw, caps, solve, most=options.stages, pins=pins)
    stage_of = _write(given, outcomes, asked, steps, found)
    certificate = None if options.allow_dearer else certificate_of(given.sites, given.fleet.policy, found.stages, caps)
    answers = [s.answer for s in found.stages]
    return Placed(
        stages=tuple(StageVms(peak=tuple(a.peak.tolist()), then=tuple(a.vms.tolist())) for a in answers),
        stage_of=stage_of,
        certificate=certificate,
        extra=program.move,
        rooms=found.rooms,
        unstaged=LINEAR_CELLS if found.unlooked else 0,
    )


def _rank(a: Asked, given: Inputs) -> tuple[object, ...]:
    first = a.cell.id not in given.sent
    return (first, wave_key(a.cell, a.workload.klass, given.fleet.policy), -a.workload.accelerators_per_replica, a.cell.id)


def _write(
    given: Inputs,
    outcomes: dict[CellId, Outcome],
    asked: Sequence[Asked],
    steps: Mapping[CellId, tuple[StepNeed, ...]],
    found: Staged,
) -> dict[CellId, int]:
    """Write the outcome of every cell that had a choice; return the stage of those that wait for a release."""
    from fleetctl.planning.ties import Ties

    first, last = found.stages[0], found.stages[-1]
    begin, end = first.program.start.tolist(), last.answer.pool.tolist()
    move = first.program.move
    groups = {(a.workload.apart, end[w]) for w, a in enumerate(asked) if a.workload.apart}
    ties = Ties(given, asked, found)
    stage_of: dict[CellId, int] = {}
    for w, a in enumerate(asked):
        if not a.choices:
            continue
        base = outcomes[a.cell.id]
        chosen = next((c for c in a.choices if c.pool == end[w]), None) if end[w] != begin[w] else None
        if chosen is not None:
            why = "pinned in the fleet file" if a.cell.target is not None else "cheapest place in whole VMs"
            there = a.cell.id in given.options.arrived
            site, kw = given.sites[chosen.pool], given.kw[chosen.pool]
            moves = moved(base, chosen, site, why, hours_to_soak(steps[a.cell.id]), kw, there=there)
            if moves.reason.code == "move.dearer" and not a.pinned and not given.options.allow_dearer:
                moves = replace(moves, reason=Reason(code="move.whole_vms", text=moves.reason.text.removesuffix(".") + WHOLE))
            outcomes[a.cell.id] = replace(moves, fault_to_zero_s=_fault_time(a, given))
            stage = next(n for n, s in enumerate(found.stages, 1) if s.answer.pool[w] != begin[w])
            if stage > 1:
                stage_of[a.cell.id] = stage
        elif a.pinned:
            outcomes[a.cell.id] = _refused(a, base, given, found.refused.get(w, ""))
        else:
            extra = {c.pool: float(move[w, c.pool]) for c in a.choices}
            open_ = [c for c in a.choices if (a.workload.apart, c.pool) not in groups]
            bound, rooms = ties.of(w, a)
            outcomes[a.cell.id] = stays(base, open_, given.sites, extra, rooms, bound) if open_ else apart(base, a.workload)
    return stage_of


def _refused(a: Asked, base: Outcome, given: Inputs, why: str) -> Outcome:
    choice = a.choices[0]
    if why == "apart":
        return apart(base, a.workload)
    site = given.sites[choice.pool]
    return limited(base, choice, site, why) if why else full(base, choice, site)


def _fault_time(a: Asked, given: Inputs) -> float | None:
    ratio = baseline_of(a.workload, given.baselines).error_ratio
    seen_s = given.fault_time(a.workload.traffic.requests_per_s, ratio) if given.fault_time is not None else None
    return None if seen_s is None else round(seen_s + home_s(given.fleet.router(a.cell.router.name), given.options.home), 3)
