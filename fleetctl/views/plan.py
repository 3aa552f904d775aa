"""Plan, view layer: a plan as text for the person who approves it, cash first. Never I/O, never a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.plan import Outcome, Plan, StepNeed, Wave
from fleetctl.domain.units import Money
from fleetctl.views.columns import WIDTH, clean, columns, counted, duration, percent, wrapped
from fleetctl.views.plan_evidence import evidence_lines, lane_lines

MOST_ROWS = 20
"""Cells shown per kind, and waves shown in full, before the rest is summed up."""
WORD = {"move": "move", "stay": "stay", "infeasible": "blocked"}


def render_plan(plan: Plan, fleet: Fleet, *, width: int = WIDTH, most: int = MOST_ROWS) -> str:
    """Return the plan as plain text of at most `width` columns: cash, outcomes, fit, waves, lanes, approval, checks, next step."""
    made = plan.made_at.strftime("%Y-%m-%d %H:%M UTC")
    lines = [f"Plan {plan.id} for fleet {clean(fleet.name)} (serial {plan.serial}), made {made}"]
    for section in (_cash, _outcomes, _fit, _waves, evidence_lines, lane_lines, _approval, _checks):
        found = list(section(plan, fleet, width, most))
        lines.extend(["", *found] if found else ())
    lines += ["", f"Nothing was changed. Next: fleetctl approve {plan.id}"]
    return "\n".join(lines) + "\n"


def _money(money: Money | None, *, sign: bool = False) -> str:
    if money is None:
        return "unknown"
    return f"{money.amount:+,.2f}" if sign else f"{money.amount:,.2f}"


def _delta(outcome: Outcome) -> str:
    if outcome.cost_now is None or outcome.cost_then is None:
        return "unknown"
    return f"{outcome.cost_then.amount - outcome.cost_now.amount:+,.2f}"


def _cash(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del most
    change = plan.cost_then.amount - plan.cost_now.amount
    share = f" ({change / plan.cost_now.amount:+.0%})" if plan.cost_now.amount else ""
    hours = sum(w.hours for w in plan.waves)
    yield f"Cash ({plan.cost_now.currency}; price book {clean(plan.price_book_id)})"
    rows = [
        ["now", _money(plan.cost_now), "an hour", ""],
        ["then", _money(plan.cost_then), "an hour", f"{change:+,.2f}{share} once the source is released"],
    ]
    if hours:
        rows.append(["overlap", _money(plan.overlap_cost), "in all", f"both sides up for {duration(hours * 3600)}"])
        if plan.overlap_extra is not None:
            rows.append(["", _money(plan.overlap_extra), "of it", "on top of today's bill"])
    yield from columns(rows, right=[1], indent="  ", width=width)
    sources = {o.source for o in plan.outcomes if o.kind == "move"}
    for c in fleet.commitments:
        if c.pool in sources and c.until >= plan.made_at.date().isoformat():
            yield from wrapped(
                f"{counted(c.count, 'VM')} of {clean(c.pool)} still paid for until {clean(c.until)} (commitment)", width, "  "
            )
    yield from (line for c in plan.checks if c.name == "prices" and not c.ok for line in wrapped(clean(c.detail), width, "  "))


def _outcomes(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del fleet
    by_kind = Counter(o.kind for o in plan.outcomes)
    yield f"{counted(len(plan.outcomes), 'cell')}: {by_kind['move']:,} move, {by_kind['stay']:,} stay, {by_kind['infeasible']:,} blocked"
    moves = [o for o in plan.outcomes if o.kind == "move"]
    if moves:
        head = ["CELL", "FROM", "TO", "REPLICAS", f"{plan.cost_now.currency}/H", ""]
        note = {"move.dearer": "dearer", "move.unpriced": "no source price"}
        rows = [[o.cell, o.source, o.target, o.replicas, _delta(o), note.get(o.reason.code, "")] for o in moves[:most]]
        yield from columns([head, *rows], right=[3, 4], indent="  ", width=width)
        yield from _rest(len(moves) - most, plan)
    others = [o for o in plan.outcomes if o.kind != "move"]
    for (kind, code), count in Counter((o.kind, o.reason.code) for o in others).most_common():
        same = [o for o in others if (o.kind, o.reason.code) == (kind, code)]
        yield f"  {WORD[kind]}: {counted(count, 'cell')}, {clean(code)}"
        for o in same[: max(1, most // 4)]:
            yield from wrapped(f"{clean(o.cell)}: {clean(o.reason.text)}", width, "    ")
            if o.change:
                yield from wrapped(f"to change it: {clean(o.change)}", width, "      ")
        yield from _rest(count - max(1, most // 4), plan, "    ")


def _rest(more: int, plan: Plan, indent: str = "  ") -> Iterator[str]:
    if more > 0:
        yield f"{indent}and {more:,} more: fleetctl show {plan.id} -o wide"


def _fit(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del fleet
    known = [o for o in plan.outcomes if o.fit is not None]
    yield "Fit (GiB per replica: weights, KV cache, runtime; estimates are named)"
    if not known:
        yield "  nothing was placed"
        return
    known.sort(key=lambda o: (-_fill(o), o.cell))
    rows = [
        [o.cell, f"{o.fit.needed_gib:,.1f}", f"{o.fit.available_gib:,.1f}", f"{_fill(o):.0%}", o.fit.estimated]
        for o in known[:most]
        if o.fit
    ]
    yield from columns([["CELL", "NEEDS", "HAS", "FULL", "ESTIMATED"], *rows], right=[1, 2, 3], indent="  ", width=width)
    yield from _rest(len(known) - most, plan)


def _fill(outcome: Outcome) -> float:
    return outcome.fit.needed_gib / outcome.fit.available_gib if outcome.fit is not None and outcome.fit.available_gib else 0.0


def _waves(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    total = sum(w.hours for w in plan.waves) * 3600
    yield f"{counted(len(plan.waves), 'wave')}, {duration(total)} in all"
    if any(n.requests for w in plan.waves for n in w.steps):
        yield from wrapped("evidence in canary requests: if both arms are equal, 9 of 10 runs PASS by then", width, "  ")
    for wave in plan.waves[:most]:
        names = ", ".join(clean(c) for c in wave.cells[:most]) + (f" and {len(wave.cells) - most} more" if len(wave.cells) > most else "")
        yield from wrapped(f"wave {wave.index}, about {duration(wave.hours * 3600)}: {names}", width, "  ")
        yield from columns(
            [["STEP", "SHARE", "BAKE", "TIME", "EVIDENCE NEEDED"], *_steps(wave)], right=[1, 2, 3], indent="    ", width=width
        )
    yield from _rest(len(plan.waves) - most, plan)
    for window in fleet.policy.freeze:
        yield f"  nothing advances {window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC: {clean(window.name)}"


def _steps(wave: Wave) -> Iterator[list[str]]:
    needs = wave.steps or tuple(StepNeed(phase=p.phase, weight_bp=p.weight_bp) for p in wave.phases)
    for phase, need in zip(wave.phases, needs, strict=True):
        evidence = [f"{name} {count:,}" for name, count in sorted(need.requests.items())]
        if need.positions:
            evidence.append(f"{need.positions:,} token positions compared")
        yield [
            phase.phase,
            percent(phase.weight_bp),
            duration(phase.bake.total_seconds()),
            duration(need.hours * 3600),
            ", ".join(evidence) or "-",
        ]


def _approval(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del plan, most
    wanted = fleet.policy.approvals
    yield "Who must approve"
    if wanted == 0:
        yield from wrapped("nobody: the policy asks for no approvals, so the newest plan counts as approved", width, "  ")
    else:
        who = "1 person" if wanted == 1 else f"{wanted} different people"
        yield from wrapped(f"{who}, of this plan and no other; coming home never needs approval", width, "  ")


def _checks(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    del fleet, most
    bad = sum(not c.ok for c in plan.checks)
    yield "Checks" + (f": {bad} of {len(plan.checks)} not met" if bad else f": all {len(plan.checks)} met")
    for check in plan.checks:
        head = f"  {'ok  ' if check.ok else 'FAIL'}  {check.name:<13}"
        first, *rest = wrapped(clean(check.detail), width, " " * len(head)) or [""]
        yield head + first.strip()
        yield from rest
    if plan.bound is not None:
        gap = f", proven gap {plan.gap_pct:.2f} %" if plan.gap_pct is not None else ""
        yield f"  no plan can cost less than {_money(plan.bound)} {plan.bound.currency} an hour{gap}"
