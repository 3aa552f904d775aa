"""Plan, view layer: waves in time, what running both sides costs, time from a fault to no traffic. Never I/O, never a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fleetctl.domain.calendar import Calendar
from fleetctl.domain.fleet import DRAWING_ROUTERS, Fleet
from fleetctl.domain.plan import Plan, StepNeed, Wave
from fleetctl.domain.units import Instant, Money
from fleetctl.views.columns import clean, columns, counted, duration, percent, wrapped

STEPS_OF = 2
"""Waves whose steps are shown one by one; of more, those of the slowest."""

MOST_SHORT_S = 300 * 86_400
"""Within this, dates in the table need no year."""


def calendar_lines(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    """Yield when each wave begins, is in soak and is over, what both sides cost meanwhile, and what the deadline leaves out."""
    calendar = plan.calendar
    if not plan.waves or calendar is None:
        yield "Calendar: nothing moves"
        yield from _blocked_for_now(plan, width)
        return
    span = (calendar.end - calendar.start).total_seconds()
    count = counted(len(plan.waves), "wave")
    yield from wrapped(
        f"Calendar (UTC) from {_at(calendar.start)}, if begun now: {count}, over {_at(calendar.end)} ({duration(span)})", width
    )
    rows = [["WAVE", "CELLS", "STARTS", "IN SOAK", "SOAK OVER", ""]]
    waves = {w.index: w for w in plan.waves}
    for d in calendar.waves[:most]:
        cells = waves[d.index].cells
        rows.append([str(d.index), f"{len(cells):,}", *(_short(t, span) for t in (d.start, d.soak, d.end)), _names(cells, 4)])
    yield from columns(rows, right=[0, 1], indent="  ", width=width)
    if len(plan.waves) > most:
        yield f"  and {len(plan.waves) - most:,} more: fleetctl show {plan.id} -o wide"
    for t in calendar.ready:
        models = f", {duration(t.models_seconds)} of it for models" if t.models_seconds >= 1 else ""
        text = f"hosts of {clean(t.pool)} count as ready after {duration(t.seconds)}{models}, as measured on {_at(t.at)}"
        yield from wrapped(text, width, "  ")
    yield from _stages(plan, width)
    yield from _double_run(plan, width)
    for r in calendar.releases[: max(1, most // 4)]:
        yield from wrapped(f"{_at(r.at)}: {counted(r.vms, 'VM')} of {clean(r.pool)} can be released (wave {r.wave} is over)", width, "  ")
    if len(calendar.releases) > max(1, most // 4):
        yield f"  and {len(calendar.releases) - max(1, most // 4)} more releases"
    names = dict.fromkeys(name for d in calendar.waves for name in d.waits)
    for window in fleet.policy.freeze:
        waits = "; waves wait for it" if window.name in names else ""
        yield from wrapped(f"nothing advances {_at(window.start)} to {_at(window.end)} UTC: {clean(window.name)}{waits}", width, "  ")
    yield from _deadline(plan, fleet, width, most)
    yield from _blocked_for_now(plan, width)
    yield from _steps(plan, width)


def _at(at: Instant) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _short(at: Instant, span: float) -> str:
    return f"{at:%m-%d %H:%M}" if span < MOST_SHORT_S else f"{at:%Y-%m-%d}"


def _names(cells: tuple[str, ...], most: int) -> str:
    return ", ".join(clean(c) for c in cells[:most]) + (f" and {len(cells) - most:,} more" if len(cells) > most else "")


def _usd(money: Money) -> str:
    return f"{money.amount:,.2f} {money.currency}"


def _double_run(plan: Plan, width: int) -> Iterator[str]:
    calendar = plan.calendar
    if calendar is None:
        return
    text = f"both sides up: {_usd(plan.overlap_cost)} in all"
    if plan.overlap_extra is not None:
        text += f", {_usd(plan.overlap_extra)} of it on top of today's bill; validation before any customer {_usd(calendar.validation)}"
    yield from wrapped(text, width, "  ")
    if calendar.payback_hours is not None:
        yield from wrapped(_payback(plan, calendar), width, "  ")
        if calendar.after_freeze is not None and calendar.extra_then is not None:
            text = f"begun after that, on {_at(calendar.after_freeze)}: {_usd(calendar.extra_then)} on top of today's bill instead"
            yield from wrapped(text, width, "  ")
    else:
        yield from wrapped("never paid back: the plan saves nothing an hour", width, "  ")


def _payback(plan: Plan, calendar: Calendar) -> str:
    saving = plan.cost_now.amount - plan.cost_then.amount
    if not calendar.payback_hours:
        return f"nothing comes on top of today's bill, so each hour saves from the first release on: {saving:,.2f} USD once all is over"
    by = f"; if begun now, by {_at(calendar.payback_at)}" if calendar.payback_at is not None else ""
    names = dict.fromkeys(name for d in calendar.waves for name in d.waits)
    waits = f" (what waiting for {', '.join(clean(n) for n in names)} costs is in it)" if names else ""
    return f"paid back in {duration(calendar.payback_hours * 3600)} of the saving of {saving:,.2f} USD an hour{by}{waits}"


def _stages(plan: Plan, width: int) -> Iterator[str]:
    """Yield what has to be given back before a later stage may begin."""
    calendar = plan.calendar
    stages = sorted({w.stage for w in plan.waves if w.stage > 1})
    for stage in stages:
        mine = [w.index for w in plan.waves if w.stage == stage]
        after = next((d.after for d in calendar.waves if d.index == mine[0]), ()) if calendar is not None else ()
        which = f"wave {mine[0]}" if len(mine) == 1 else f"waves {mine[0]} to {mine[-1]}"
        pools = ", ".join(clean(p) for p in after[:4]) + (f" and {len(after) - 4} more" if len(after) > 4 else "")
        yield from wrapped(
            f"{which} ({counted(sum(len(w.cells) for w in plan.waves if w.stage == stage), 'cell')}): stage {stage}, on what stage "
            f"{stage - 1} releases ({pools or 'held capacity'}). Not begun by this plan: after the release run fleetctl plan again",
            width,
            "  ",
        )


def _deadline(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    calendar = plan.calendar
    if calendar is None or calendar.deadline is None:
        return
    if calendar.deadline <= plan.made_at:
        yield from wrapped(f"deadline {_at(calendar.deadline)} UTC: it has passed already", width, "  ")
        return
    if not calendar.late:
        yield f"  deadline {_at(calendar.deadline)} UTC: everything fits"
        return
    late = set(calendar.late)
    waves = [w.index for w in plan.waves if late.intersection(w.cells)]
    yield from wrapped(
        f"deadline {_at(calendar.deadline)} UTC: {counted(len(late), 'cell')} of {counted(len(waves), 'wave')} will not fit, from wave "
        f"{min(waves)} on: {_names(calendar.late, max(1, most // 2))}",
        width,
        "  ",
    )
    if calendar.wave_cells:
        text = f"it would be met with policy.wave_cells: {calendar.wave_cells} (now {fleet.policy.wave_cells}); soaks overlap as they do"
        yield from wrapped(text, width, "    ")
    elif calendar.wave_cells == 0:
        why = "releases between stages, freeze windows, or the steps and soak of a single wave take too long"
        yield from wrapped(f"no number of cells a wave would meet it: {why}", width, "    ")


def _blocked_for_now(plan: Plan, width: int) -> Iterator[str]:
    """Yield the "blocked, because" list: how many cells wait for what."""
    held = Counter(
        o.reason.code for o in plan.outcomes if o.kind == "infeasible" and o.reason.code.startswith(("pool.", "limit.", "capacity."))
    )
    if held:
        said = ", ".join(f"{code} {n:,}" for code, n in held.most_common())
        yield from wrapped(f"blocked, because: {said}", width, "  ")
    yield from (line for c in plan.checks if c.name == "stages" for line in wrapped(clean(c.detail), width, "  "))


def _steps(plan: Plan, width: int) -> Iterator[str]:
    if any(n.requests for w in plan.waves for n in w.steps):
        yield from wrapped("evidence in canary requests: if both arms are equal, 9 of 10 runs PASS by then", width, "  ")
    waves = plan.waves if len(plan.waves) <= STEPS_OF else (max(plan.waves, key=lambda w: (w.hours, -w.index)),)
    for wave in waves:
        which = "the slowest wave, " if len(plan.waves) > STEPS_OF else ""
        yield f"  steps of {which}wave {wave.index}, about {duration(wave.hours * 3600)}:"
        yield from columns(
            [["STEP", "SHARE", "BAKE", "TIME", "EVIDENCE NEEDED"], *_rows(wave)], right=[1, 2, 3], indent="    ", width=width
        )


def _rows(wave: Wave) -> Iterator[list[str]]:
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


def fault_lines(plan: Plan, fleet: Fleet, width: int, most: int) -> Iterator[str]:
    """Yield the planned time from a fault of the target to no traffic on it, slowest cells first."""
    known = sorted((-o.fault_to_zero_s, o.cell) for o in plan.outcomes if o.kind == "move" and o.fault_to_zero_s is not None)
    if not known:
        return
    yield "From a fault on the target to none of its traffic (planned)"
    by_time: dict[str, list[str]] = {}
    for seconds, cell in known:
        by_time.setdefault(duration(-seconds), []).append(cell)
    for time, cells in list(by_time.items())[: max(1, most // 4)]:
        yield from wrapped(f"{time}: {_names(tuple(cells), 6)}", width, "  ")
    rest = sum(len(c) for c in list(by_time.values())[max(1, most // 4) :])
    if rest:
        yield f"  less: {counted(rest, 'cell')}"
    lease = duration(fleet.policy.weight_lease.total_seconds())
    moved = {o.cell for o in plan.outcomes if o.kind == "move"}
    left = [c for c in fleet.cells if c.id in moved and not fleet.router(c.router.name).guards(c.id, c.router.baseline_backend)]
    bare, exposed = sorted({c.router.name for c in left}), tuple(c.id for c in left)
    if len(exposed) < len(moved):
        yield from wrapped(f"with nobody left to judge: {lease} (the weight's lease)", width, "  ")
    if exposed:
        text = f"with nobody left to judge: only by a fleetctl guard (router {', '.join(bare)} keeps no lease): {_names(exposed, 6)}"
        yield from wrapped(text, width, "  ")
    unfenced = sorted({c.router.name for c in fleet.cells if c.id in moved and not fleet.router(c.router.name).fences})
    if unfenced:
        yield from wrapped(f"no stale writer is refused by router {', '.join(unfenced)}: let one process write there", width, "  ")
    drawn = tuple(c.id for c in fleet.cells if c.id in moved and c.affinity is None and fleet.router(c.router.name).kind in DRAWING_ROUTERS)
    if drawn:
        yield from wrapped(f"no affinity key, so the router draws each request's side by chance: {_names(drawn, 6)}", width, "  ")
    yield from wrapped("by hand at any time: fleetctl fallback WORKLOAD", width, "  ")
