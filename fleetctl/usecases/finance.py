"""Report, use-case layer: planned against realised money and energy per cell and cost centre. Pure; never I/O, never a guess.

Shares are by GPUs, so the cells' sum is less than the bill of whole VMs: the row `shared` is what no cell's share covers. Both sides of a
cell are up from the first `rollout.start` until it went home for good, until its source pool was released, or until now. Only from the
release on is anything saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.finance import Amounts, FinanceRow
from fleetctl.domain.plan import Outcome, Plan, Wave
from fleetctl.domain.report import ReportData
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.units import Instant, Money

CENT = Decimal("0.01")
FINE = Decimal("0.0001")
NOBODY = "(none)"
"""Cost centre of workloads that declare none."""
RELEASED = frozenset({"release.done", "release.handed_over"})
FREED = "complete, source released"
NAMES = tuple(f.name for f in fields(Amounts))
OF_WHOLE_VMS = ("now", "then", "saving", "planned_overlap", "planned_extra", "planned_validation")
"""Amounts that the plan knows for whole VMs; the fleet's others are the sums of its cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """When both sides came up; when the target went out of use (None: still up); hours so far, and of them before any customer."""

    started: Instant | None = None
    ended: Instant | None = None
    hours: Decimal | None = None
    before: Decimal | None = None


def finance(data: ReportData) -> tuple[FinanceRow, ...]:
    """Return a row per cell of the newest plan, then a sum per cost centre, then what is shared, then the fleet."""
    plan = data.plan
    if plan is None:
        return ()
    works = {w.id: w for w in data.fleet.workloads}
    waves = {c: w for w in plan.waves for c in w.cells}
    rollouts = {r.cell: r for r in data.rollouts}
    events: dict[str, list[Event]] = {}
    for e in data.events:
        if e.cell is not None:
            events.setdefault(e.cell, []).append(e)
    released = {str(e.data.get("pool")): e.at for e in data.events if e.kind in RELEASED}
    rows = []
    for o in plan.outcomes:
        work, rollout = works.get(o.workload), rollouts.get(o.cell)
        span = _span(rollout, events.get(o.cell, []), data.looks.get(o.cell, ()), data.made_at, released.get(o.source))
        centre = (work.cost_centre if work is not None else "") or NOBODY
        rows.append(_cell(o, centre, plan, waves.get(o.cell), rollout, span))
    by_centre: dict[str, list[FinanceRow]] = {}
    for row in rows:
        by_centre.setdefault(row.cost_centre, []).append(row)
    sums = (FinanceRow(row="cost_centre", cost_centre=c, cells=len(r), amounts=_total(r)) for c, r in sorted(by_centre.items()))
    return (*rows, *sums, *_whole(plan, rows))


def _cell(o: Outcome, centre: str, plan: Plan, wave: Wave | None, rollout: Rollout | None, span: _Span) -> FinanceRow:
    moves = o.kind == "move"
    now = _amount(o.cost_now)
    then = _amount(o.cost_then) if moves else now
    kw_now = _decimal(o.kw_now)
    kw_then = _decimal(o.kw_then) if moves else kw_now
    hours, before = _planned(plan, wave)
    saving = None if now is None or then is None else now - then
    amounts = Amounts(
        now=now,
        then=then,
        saving=saving,
        planned_overlap=_product(_plus(now, then), hours, CENT),
        planned_extra=_product(then, hours, CENT),
        planned_validation=_product(then, before, CENT),
        planned_kwh=_product(_plus(kw_now, kw_then), hours, FINE),
        kw_now=kw_now,
        kw_then=kw_then,
        hours_both=span.hours,
        realised_overlap=_product(_plus(now, then), span.hours, CENT),
        realised_extra=_product(then, span.hours, CENT),
        realised_validation=_product(then, span.before, CENT),
        realised_kwh=_product(_plus(kw_now, kw_then), span.hours, FINE),
        realised_saving=None if not moves else saving if _state(o, rollout, span) == FREED else Decimal(0),
    )
    return FinanceRow(
        row="cell",
        amounts=amounts,
        cost_centre=centre,
        workload=o.workload,
        cell=o.cell,
        outcome="arrived" if o.arrived else o.kind,
        reason=o.reason.code,
        source=o.source,
        target=o.target or "",
        wave=wave.index if wave is not None else None,
        state=_state(o, rollout, span),
        started=span.started,
        ended=span.ended,
    )


def _planned(plan: Plan, wave: Wave | None) -> tuple[Decimal | None, Decimal | None]:
    """Return the hours from the start of the cell's stage to the end of its soak, and of its wave's steps before any customer."""
    dates = next((d for d in plan.calendar.waves if wave is not None and d.index == wave.index), None) if plan.calendar else None
    if plan.calendar is None or wave is None or dates is None:
        return None, None
    before = sum(s.hours for s in wave.steps if s.weight_bp == 0)
    mine = {w.index for w in plan.waves if w.stage == wave.stage}
    begin = min(d.start for d in plan.calendar.waves if d.index in mine)
    return _hours(dates.end - begin), _decimal(before)


def _span(rollout: Rollout | None, events: Sequence[Event], looks: Sequence[LookRow], now: Instant, released: Instant | None) -> _Span:
    starts = [e.at for e in events if e.kind == "rollout.start"]
    if rollout is None or not starts:
        return _Span()
    ended = events[-1].at if rollout.ended not in ("", "complete") else None
    if rollout.ended == "complete" and released is not None and released >= starts[0]:
        ended = released
    served = next((look.at for look in looks if look.target_bp > 0 and look.at >= starts[0]), None)
    last = ended or now
    return _Span(started=starts[0], ended=ended, hours=_hours(last - starts[0]), before=_hours((served or last) - starts[0]))


def _state(o: Outcome, rollout: Rollout | None, span: _Span) -> str:
    if rollout is None:
        return "not started" if o.kind == "move" else ""
    if rollout.ended == "complete":
        return FREED if span.ended is not None else "complete, source held"
    return rollout.ended.replace("_", " ") if rollout.ended else f"under way: {rollout.phase}"


def _total(rows: Iterable[FinanceRow]) -> Amounts:
    sums: dict[str, Decimal | None] = dict.fromkeys(NAMES)
    for row in rows:
        for name in NAMES:
            sums[name] = _more(sums[name], getattr(row.amounts, name))
    return Amounts(**sums)


def _whole(plan: Plan, rows: Sequence[FinanceRow]) -> tuple[FinanceRow, FinanceRow]:
    """Return what the bill of whole VMs has beyond the cells' shares, and the fleet's bill."""
    cells = _total(rows)
    known = (
        plan.cost_now.amount,
        plan.cost_then.amount,
        plan.cost_now.amount - plan.cost_then.amount,
        plan.overlap_cost.amount,
        _amount(plan.overlap_extra),
        plan.calendar.validation.amount if plan.calendar is not None else None,
    )
    whole: dict[str, Decimal | None] = dict(zip(OF_WHOLE_VMS, known, strict=True))
    rest: dict[str, Decimal | None] = {
        name: amount - (getattr(cells, name) or Decimal(0)) for name, amount in whole.items() if amount is not None
    }
    total: dict[str, Decimal | None] = {name: whole.get(name, getattr(cells, name)) for name in NAMES}
    return (
        FinanceRow(row="shared", cells=0, amounts=Amounts(**rest)),
        FinanceRow(row="fleet", cells=len(rows), amounts=Amounts(**total)),
    )


def _amount(money: Money | None) -> Decimal | None:
    return money.amount if money is not None else None


def _decimal(number: float | None) -> Decimal | None:
    return None if number is None else Decimal(str(round(number, 6)))


def _plus(a: Decimal | None, b: Decimal | None) -> Decimal | None:
    return None if a is None or b is None else a + b


def _more(a: Decimal | None, b: Decimal | None) -> Decimal | None:
    return b if a is None else a if b is None else a + b


def _hours(span: timedelta) -> Decimal:
    return Decimal(str(round(max(0.0, span.total_seconds()) / 3600, 6)))


def _product(rate: Decimal | None, hours: Decimal | None, unit: Decimal) -> Decimal | None:
    return None if rate is None or hours is None else (rate * hours).quantize(unit, ROUND_HALF_UP)
