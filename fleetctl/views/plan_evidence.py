"""Plan, view layer: what evidence each step costs, and the lane of each cell, as text. Never I/O, never a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.domain.evidence import LADDER_METRICS
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.plan import GuardrailNeed, LanePlan, Outcome, Plan, StepNeed
from fleetctl.domain.workload import Cell, Lane, Requests
from fleetctl.views.columns import clean, columns, counted, duration, wrapped

NEVER = 10**12
"""Requests from here on stand for "never"."""
HEAD = ["STEP", "GUARDRAIL", "MARGIN", "PASS", "AT HALF", "FAIL", "TIME"]


def evidence_lines(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    """Yield per guardrail and step what a verdict costs, for each group of waves that need the same."""
    del fleet
    alike: dict[tuple[object, ...], list[int]] = {}
    steps: dict[tuple[object, ...], tuple[StepNeed, ...]] = {}
    for wave in plan.waves:
        needed = tuple(s for s in wave.steps if s.guardrails)
        if needed:
            key: tuple[object, ...] = tuple((s.phase, s.weight_bp, s.guardrails, s.hours, s.trough_hours) for s in needed)
            alike.setdefault(key, []).append(wave.index)
            steps.setdefault(key, needed)
    if not alike:
        return
    yield "Evidence in canary requests, median/p90; * decides when the step may end"
    yield from wrapped(
        "PASS: both arms equal. AT HALF: at half the margin. FAIL: worse by twice the margin. TIME: at mean/trough rate.", width, "  "
    )
    shown = max(1, most // 10)
    for key, waves in list(alike.items())[:shown]:
        first = next(g for s in steps[key] for g in s.guardrails)
        arms = f"{first.replicas[0]} and {first.replicas[1]} replicas" if all(first.replicas) else ""
        base = f"baseline {first.origin}: errors {first.error_ratio:.2%}, log-sd {first.log_sd:.2f}"
        yield from wrapped(f"{_waves(waves)}: {', '.join(x for x in (base, arms) if x)}", width, "  ")
        rows = [row for s in steps[key] for row in _rows(s)]
        yield from columns([HEAD, *rows], right=[2, 3, 4, 5, 6], indent="   ", width=width, gap=1)
        others = [
            f"{g.guardrail} {g.error_ratio:.2%} ({g.origin})"
            for g in _once(steps[key])
            if (g.error_ratio, g.origin) != (first.error_ratio, first.origin)
        ]
        if others:
            yield from wrapped(f"other shares of the baseline: {', '.join(others)}", width, "    ")
        paired = [f"{g.guardrail} {g.pairs_per_s:g}/s" for g in _once(steps[key]) if g.pairs_per_s is not None]
        if paired:
            yield from wrapped(f"in pairs of probes, whatever the traffic: {', '.join(paired)}", width, "    ")
        least = [f"{g.guardrail} {_margin(g.guardrail, g.least_margin)}" for g in _once(steps[key]) if g.least_margin is not None]
        yield from wrapped("smallest margin by A/A: " + (", ".join(least) or "not measured (fleetctl calibrate)"), width, "    ")
    if len(alike) > shown:
        yield f"  {counted(len(alike) - shown, 'more group')} of waves: fleetctl show {plan.id} -o wide"


def _once(steps: tuple[StepNeed, ...]) -> Iterator[GuardrailNeed]:
    seen: set[str] = set()
    for g in (g for s in steps for g in s.guardrails):
        if g.guardrail not in seen:
            seen.add(g.guardrail)
            yield g


def _waves(indexes: list[int]) -> str:
    if len(indexes) == 1:
        return f"wave {indexes[0]}"
    if indexes == list(range(indexes[0], indexes[-1] + 1)):
        return f"waves {indexes[0]}-{indexes[-1]}"
    return f"waves {', '.join(str(i) for i in indexes[:6])}" + (f" and {len(indexes) - 6} more" if len(indexes) > 6 else "")


def _rows(s: StepNeed) -> Iterator[list[str]]:
    for i, g in enumerate(s.guardrails):
        hours = f"{duration(s.hours * 3600)}/{'?' if s.trough_hours is None else duration(s.trough_hours * 3600)}"
        yield [
            f"{s.phase} {s.weight_bp / 100:g}%" if i == 0 else "",
            f"{g.guardrail}{'*' if g.guardrail == s.binding else ''}",
            _margin(g.guardrail, g.margin) if not g.rungs else f"{min(g.rungs) * 100:.3g}-{max(g.rungs) * 100:.3g} %",
            _pair(g.passes),
            _pair(g.half),
            _pair(g.fails) if g.fails is not None else "-",
            hours if i == 0 else "",
        ]


def _pair(requests: tuple[Requests, Requests]) -> str:
    return "/".join("never" if n >= NEVER else _short(n) for n in requests)


def _short(requests: Requests) -> str:
    """Return a count in at most 6 letters, so that no column cuts a number: 9,870, 23.8k, 1.3M."""
    if requests < 10_000:
        return f"{requests:,}"
    return f"{requests / 1000:,.3g}k" if requests < 999_500 else f"{requests / 1e6:,.3g}M"


def _margin(guardrail: str, margin: float | None) -> str:
    if margin is None:
        return "-"
    return f"{margin * 100:.3g} %" if guardrail in LADDER_METRICS else f"{margin * 100:.3g} pt"


def lane_lines(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    """Yield how each moving cell gets its verdicts, and the lanes that would fit those that are refused."""
    yield "Evidence lane"
    cells = {c.id: c for c in fleet.cells}
    moving = [(o, cells[o.cell]) for o in plan.outcomes if o.kind == "move" and not o.arrived]
    if not moving:
        yield "  no cell moves"
    by_kind: dict[str, list[tuple[Outcome, Cell]]] = {}
    for o, cell in moving:
        by_kind.setdefault(o.lane.kind if o.lane is not None else cell.lane.kind, []).append((o, cell))
    own = by_kind.pop("own", [])
    if own:
        names = ", ".join(clean(c.id) for _, c in own[:most]) + (f" and {len(own) - most:,} more" if len(own) > most else "")
        yield from wrapped(f"own: {names}", width, "  ")
    for kind, members in by_kind.items():
        for o, cell in members[:most]:
            yield from wrapped(f"{kind}: {clean(cell.id)}{_why(cell.lane, o.lane)}", width, "  ")
        if len(members) > most:
            yield f"  {kind}: and {len(members) - most:,} more"
    yield from _refused(plan, width)
    losses = Counter(c.on_source_loss for _, c in moving)
    for loss, count in sorted(losses.items()):
        yield from wrapped(f"if the source is lost: {loss} ({counted(count, 'cell')})", width, "  ")


def _why(declared: Lane, lane: LanePlan | None) -> str:
    if declared.kind != "own":
        by = f" by {clean(declared.actor.name)}" if declared.actor is not None else ""
        return f"{by}: {clean(declared.reason)}"
    option = next((p for p in lane.options if p.kind == lane.kind), None) if lane is not None else None
    return f": {option.text}" if option is not None else ""


def _refused(plan: Plan, width: int) -> Iterator[str]:
    fits = Counter(o.lane.fits for o in plan.outcomes if o.lane is not None and o.reason.code == "lane.too_slow")
    if fits:
        text = ", ".join(f"{kind} {count:,}" for kind, count in sorted(fits.items()))
        yield from wrapped(f"too little traffic for its lane: {counted(sum(fits.values()), 'cell')}; would fit: {text}", width, "  ")
