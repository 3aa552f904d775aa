"""Plan, pure layer: by which lane each cell can get a verdict, and what fits where its own traffic cannot. Never a verdict, never I/O.

Tried in this order, within 72 h from the first step to the start of soak:
  own       its own requests
  pooled    those of equal cells too: same model, revision, image digest, flags, SKU on both sides; they move in one wave
  replay    recorded prompts sent to both sides, where the workload declares how fast copies may be made (shadow)
  accepted  a person signs for it: no PASS is asked, but a longer bake time, in which the breaker's 100 canary requests arrive
  stay      none of them
Own and pooled are given by the plan; replay and accepted are a person's to declare.

Source: evidence.md 2 (refuse above 72 h, offer a higher share, a pool of equal workloads, replay, or a signed acceptance).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil, inf, isfinite

from fleetctl.domain.fleet import PhaseSpec, Policy
from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import LaneOption, LanePlan, StepNeed
from fleetctl.domain.workload import Cell, Guardrail, GuardrailSpec, Lane, LaneKind, Requests, Workload
from fleetctl.planning.evidence_need import (
    LANE_LIMIT_HOURS,
    LEAST_REQUESTS,
    NEVER,
    RAISING,
    Baseline,
    Costs,
    Pace,
    Probed,
    distinct_needed,
    hours_to_soak,
    phases_for,
    step_needs,
)

LONGER_BAKE = 3
"""A signed acceptance bakes at least this many times as long. Source: evidence.md 2 (a step without a verdict in 3 x its p90 holds)."""
REVISION, IMAGE = "revision", "image_digest"
"""Keys of a workload's `serving` that prove two workloads equal."""
WIDER = (1.5, 2.0, 3.0)
_NOT_IDENTITY = frozenset({"target_speed", "log_sd", "error_ratio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One cell that may move: what it serves, how its baseline looks, its SKU here and there ("" while the plan chooses), its probes."""

    cell: Cell
    workload: Workload
    baseline: Baseline
    source_sku: str
    target_sku: str = ""
    probed: Probed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The lane of one cell, and the steps as they go by it."""

    plan: LanePlan
    steps: tuple[StepNeed, ...]


StepsOf = Callable[[Asking, Pace], tuple[StepNeed, ...]]


def assign_lanes(asking: Sequence[Asking], policy: Policy, costs: Costs) -> dict[CellId, Given]:
    """Return lane and steps of every cell that may move; no cell gets a lane whose evidence cannot arrive in time.

    Args:
        asking: cells in any order; those that stay anyway are left out.
    """
    known: dict[object, tuple[StepNeed, ...]] = {}

    def steps(a: Asking, pace: Pace) -> tuple[StepNeed, ...]:
        key = (a.workload.guardrails, a.workload.traffic, a.workload.shadow, a.workload.replicas, a.baseline, a.cell.lane, pace)
        if key not in known:
            known[key] = step_needs(a.cell, a.workload, policy, a.baseline, costs, pace)
        return known[key]

    alone = {a.cell.id: steps(a, _own_pace(a)) for a in asking}
    groups = {a.cell.id: group for group in make_groups(asking, policy.wave_cells) for a in group}
    given: dict[object, Given] = {}
    out: dict[CellId, Given] = {}
    for a in asking:
        group = groups.get(a.cell.id, ())
        key = a.cell.id if group else (id(alone[a.cell.id]), a.cell.lane)  # cells that stand alone and need the same get the same
        if key not in given:
            given[key] = _lane_of(a, alone[a.cell.id], group, policy, steps)
        out[a.cell.id] = given[key]
    return out


def equality(a: Asking) -> tuple[object, ...]:
    """Return what two cells must have in common to count as one: model, revision, image, flags, baseline's look, SKUs.

    Cells of one workload are declared once, hence equal. Cells of two workloads are equal only where both name revision and image.
    """
    w = a.workload
    proven = w.serving.get(REVISION, "") and w.serving.get(IMAGE, "")
    flags = tuple(sorted((k, v) for k, v in w.serving.items() if k not in _NOT_IDENTITY))
    who: object = (w.model, w.engine, w.engine_version, flags) if proven else w.id
    return who, w.adapters, w.guardrails, w.traffic.streaming, a.source_sku, a.target_sku, a.cell.wave, w.klass, a.probed is not None


def make_groups(asking: Sequence[Asking], most: int) -> tuple[tuple[Asking, ...], ...]:
    """Return groups of 2 to `most` equal cells (a wave's size), each with about the same traffic; alone ones are left out.

    Only cells that are judged on customers' requests (own, pooled) count for each other.
    """
    by_key: dict[tuple[object, ...], list[Asking]] = {}
    for a in asking:
        if a.cell.lane.kind in ("own", "pooled"):
            by_key.setdefault(equality(a), []).append(a)
    groups: list[tuple[Asking, ...]] = []
    for equal in by_key.values():
        if len(equal) < 2 or most < 2:
            continue
        parts: list[list[Asking]] = [[] for _ in range(ceil(len(equal) / most))]
        for a in sorted(equal, key=lambda a: (-a.workload.traffic.requests_per_s, a.cell.id)):
            room = [p for p in parts if len(p) < most]
            min(room, key=lambda p: sum(x.workload.traffic.requests_per_s for x in p)).append(a)
        groups += [tuple(p) for p in parts if len(p) > 1]
    return tuple(groups)


def _own_pace(a: Asking) -> Pace:
    t = a.workload.traffic
    return Pace(per_s=t.requests_per_s, trough_per_s=t.trough_per_s, probed=a.probed)


def _lane_of(a: Asking, alone: tuple[StepNeed, ...], group: tuple[Asking, ...], policy: Policy, steps: StepsOf) -> Given:
    declared = a.cell.lane.kind
    ways: dict[LaneKind, tuple[LaneOption, tuple[StepNeed, ...]]] = {"own": (_option("own", alone, "its own requests"), alone)}
    ways["pooled"] = _pooled(a, group, steps)
    ways["replay"] = _replay(a, policy, steps)
    ways["accepted"] = _accepted(a, policy, steps)
    stay = LaneOption(kind="stay", fits=True, text="no evidence is needed where nothing moves")
    fits: LaneKind = next((k for k, (o, _) in ways.items() if o.fits), "stay")
    free = declared == "own" and not ways["own"][0].fits and ways["pooled"][0].fits
    kind: LaneKind = "pooled" if free else declared
    if kind in ("own", "pooled", "replay") and not ways[kind][0].fits:
        kind = "stay"
    mine = ways[kind][1] if kind != "stay" else ways[declared][1] if declared in ways else alone
    tight = max((s for s in mine if s.binding), key=lambda s: s.hours, default=None)
    plan = LanePlan(
        kind=kind,
        fits=fits,
        binding=f"{tight.binding} at {tight.weight_bp / 100:g} %" if tight else "",
        needed=tight.requests[tight_name(tight)] if tight else 0,
        arrive=_arriving(a, tight) if tight else 0,
        group=tuple(sorted(x.cell.id for x in group)) if kind == "pooled" or (kind == "own" and _leans(a, group, steps)) else (),
        options=_kept(kind, (*(o for o, _ in ways.values()), stay)),
    )
    return Given(plan=plan, steps=mine)


def _kept(kind: LaneKind, options: tuple[LaneOption, ...]) -> tuple[LaneOption, ...]:
    """Return all options of a cell that is refused or lent evidence, of any other its own and the next that would fit."""
    if kind not in ("own", "accepted"):
        return options
    mine = next(o for o in options if o.kind == kind)
    after = next((o for o in options if o.fits and o.kind not in (kind, "own")), None)
    return (mine, after) if after is not None else (mine,)


def tight_name(step: StepNeed) -> Guardrail:
    """Return the guardrail that takes longest at this step."""
    return Guardrail(step.binding)


def _leans(a: Asking, group: tuple[Asking, ...], steps: StepsOf) -> bool:
    """Tell whether an equal cell of its group cannot do without this one's evidence: then both move in one wave."""
    return any(hours_to_soak(steps(x, _own_pace(x))) > LANE_LIMIT_HOURS or x.cell.lane.kind == "pooled" for x in group if x is not a)


def _arriving(a: Asking, step: StepNeed) -> Requests:
    _, per_s = _own_pace(a).of(tight_name(step), step.weight_bp / 10_000)
    found = per_s * LANE_LIMIT_HOURS * 3600
    return min(NEVER, int(found))


def _option(kind: LaneKind, needs: tuple[StepNeed, ...], text: str) -> LaneOption:
    hours = hours_to_soak(needs)
    return LaneOption(kind=kind, fits=hours <= LANE_LIMIT_HOURS, hours=round(hours, 6) if isfinite(hours) else None, text=text)


def _pooled(a: Asking, group: tuple[Asking, ...], steps: StepsOf) -> tuple[LaneOption, tuple[StepNeed, ...]]:
    if not group:
        return LaneOption(kind="pooled", fits=False, text="no equal cell: same model, revision, image, SKUs"), ()
    per_s = sum(x.workload.traffic.requests_per_s for x in group)
    trough = sum(x.workload.traffic.trough_per_s for x in group) if all(x.workload.traffic.trough_per_s > 0 for x in group) else 0.0
    pairs = sum(x.probed.per_s for x in group if x.probed is not None)
    probed = replace(a.probed, per_s=pairs) if a.probed is not None else None
    needs = steps(a, Pace(per_s=per_s, trough_per_s=trough, probed=probed))
    proven = bool(a.workload.serving.get(REVISION)) and bool(a.workload.serving.get(IMAGE))
    how = "equal revision, image digest and SKU" if proven else "cells of one workload, equal by declaration"
    return _option("pooled", needs, f"{len(group)} cells together ({how}), {per_s:.3g} requests/s"), needs


def _replay(a: Asking, policy: Policy, steps: StepsOf) -> tuple[LaneOption, tuple[StepNeed, ...]]:
    shadow = a.workload.shadow
    if shadow is None:
        return LaneOption(kind="replay", fits=False, text="no copies may be made: declare the workload's shadow"), ()
    needs = steps(a, Pace(per_s=2 * shadow.sample_per_s, share=0.5))
    least = distinct_needed(phases_for(policy, a.workload))
    return _option(
        "replay", needs, f"{shadow.sample_per_s:g} recorded prompts/s to both sides, of at least {least:,} different ones"
    ), needs


def _accepted(a: Asking, policy: Policy, steps: StepsOf) -> tuple[LaneOption, tuple[StepNeed, ...]]:
    """Return the longer bake time that a signature would ask for, and the steps as they go where it is signed already."""
    signed = steps(a, replace(_own_pace(a), needs_pass=False))
    bake_s = longer_bake_s(a.workload, policy)
    if a.cell.lane.kind == "accepted":
        hours = hours_to_soak(signed)
        text = f"signed; at least {a.cell.lane.bake.total_seconds() / 3600:.3g} h a step" if a.cell.lane.bake else "signed"
        return LaneOption(kind="accepted", fits=True, hours=round(hours, 6) if isfinite(hours) else None, text=text), signed
    if not isfinite(bake_s) or bake_s > LANE_LIMIT_HOURS * 3600:
        return LaneOption(
            kind="accepted", fits=False, text="100 canary requests, for the breaker, do not arrive within 72 h a step"
        ), signed
    raising = sum(p.phase in RAISING for p in phases_for(policy, a.workload))
    hours = raising * bake_s / 3600
    text = f"signed by a person, with bake: {ceil(bake_s / 60)}m"
    return LaneOption(kind="accepted", fits=hours <= LANE_LIMIT_HOURS, hours=round(hours, 6), text=text), signed


def longer_bake_s(workload: Workload, policy: Policy) -> float:
    """Return the bake time of a signed acceptance, seconds: 3 x the longest declared one, and 100 canary requests at every share."""
    raising = [p for p in phases_for(policy, workload) if p.phase in RAISING]
    longest = max((p.bake.total_seconds() for p in raising), default=0.0)
    rates = [workload.traffic.requests_per_s * p.weight_bp / 10_000 for p in raising]
    slowest = min(rates, default=0.0)
    return max(LONGER_BAKE * longest, LEAST_REQUESTS / slowest if slowest > 0 else inf)


def what_would_fit(a: Asking, policy: Policy, costs: Costs, plan: LanePlan) -> str:
    """Return, for a refused cell, the share, the margins and the lanes that would fit; each with its hours."""
    found: list[str] = []
    names = {"pooled": "Lane `pooled`", "replay": "Lane `replay`", "accepted": "Lane `accepted`"}
    for option in plan.options:
        if option.fits and option.kind in names and option.hours is not None:
            found.append(f"{names[option.kind]}: {option.text}, {option.hours:,.0f} h")
    half = _at_half(policy)
    pace = _own_pace(a)
    hours = hours_to_soak(step_needs(a.cell, a.workload, half, a.baseline, costs, pace))
    if hours <= LANE_LIMIT_HOURS:
        found.append(f"one step of 50 % instead of smaller ones: {hours:,.0f} h")
    for factor in WIDER:
        wider = _with_steps(policy, tuple(replace(p, guardrails=_wider(p.guardrails, factor)) for p in policy.steps))
        hours = hours_to_soak(step_needs(a.cell, a.workload, wider, a.baseline, costs, pace))
        if hours <= LANE_LIMIT_HOURS:
            found.append(f"margins {factor:g} times as wide: {hours:,.0f} h")
            break
    return (
        "; or ".join(found) + "." if found else "Nothing that evidence could show in 72 h: lane `stay`, or `accepted` by signature alone."
    )


def _wider(specs: tuple[GuardrailSpec, ...], factor: float) -> tuple[GuardrailSpec, ...]:
    return tuple(replace(g, margin=g.margin * factor, rungs=tuple(m * factor for m in g.rungs)) for g in specs)


def _at_half(policy: Policy) -> Policy:
    def kept(p: PhaseSpec) -> bool:
        return p.phase not in ("canary", "ramp") or p.weight_bp >= 5000

    steps = tuple(p for p in policy.steps if kept(p))
    return _with_steps(policy, steps)


def _with_steps(policy: Policy, steps: tuple[PhaseSpec, ...]) -> Policy:
    return replace(policy, steps=steps)


def lane_of(declared: Lane, plan: LanePlan | None) -> Lane:
    """Return the lane that a rollout goes by: the declared one, or pooled where the plan gave it."""
    if plan is None or plan.kind != "pooled" or declared.kind != "own":
        return declared
    return Lane(kind="pooled", reason=f"given by the plan: {len(plan.group)} equal cells", bake=timedelta(0))


def other_lane(plan: LanePlan | None) -> str:
    """Return the lane that would fit where the present one does not come to a verdict, as a person reads it; "" where there is none."""
    if plan is None:
        return ""
    found = next((o for o in plan.options if o.fits and o.kind not in (plan.kind, "own", "stay")), None)
    return f"lane {found.kind} would fit: {found.text}" if found is not None else "no other lane fits: it may stay"
