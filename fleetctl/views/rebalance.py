"""Rebalance, view layer: what a run would do, or began, as text. Never I/O, never a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from fleetctl.domain.rebalance import Limits, RebalanceRun, Shift, StandingApproval
from fleetctl.domain.units import Money
from fleetctl.views.columns import WIDTH, clean, columns, counted, duration, wrapped
from fleetctl.views.plan import added_up

MOST_ROWS = 40
MONTH_H = 730
WORDS = {"amd": "to AMD", "nvidia": "back to NVIDIA"}
WITHIN = {"amd": "from AMD to AMD", "nvidia": "from NVIDIA to NVIDIA"}


def render_run(run: RebalanceRun, *, dry: bool, limits: Limits | None = None, width: int = WIDTH) -> str:
    """Return a run as text of at most `width` columns; with the limits that it kept."""
    lines = [
        f"Rebalance at {run.at:%Y-%m-%d %H:%M} UTC, price book {clean(run.price_book_id)}",
        *wrapped(_bill(run), width, "  "),
        *([] if run.on_top is None else wrapped(_once(run, run.on_top), width, "  ")),
        *([] if limits is None else wrapped(_limits(limits), width, "  ")),
        *wrapped(_moves(run), width, "  "),
    ]
    if run.shifts:
        lines += ["", *_table(run.shifts[:MOST_ROWS], width)]
        if len(run.shifts) > MOST_ROWS:
            lines.append(f"  and {len(run.shifts) - MOST_ROWS:,} more: -o json")
        lines += wrapped(_sum(run), width, "  ")
    held = Counter(h.reason.code for h in run.held)
    if held:
        lines += ["", f"Held back: {counted(len(run.held), 'cell')}"]
        first = {h.reason.code: h for h in reversed(run.held)}
        lines += [
            line for code, n in held.most_common() for line in wrapped(_why(n, first[code].cell, first[code].reason.text), width, "  ")
        ]
    for note in run.notes[:MOST_ROWS]:
        lines += wrapped(clean(note), width, "  ")
    return "\n".join([*lines, "", *wrapped(_end(run, dry), width)]) + "\n"


def _bill(run: RebalanceRun) -> str:
    change = run.cost_then.amount - run.cost_now.amount
    month = f" ({change * MONTH_H:+,.0f} in a month of {MONTH_H} h)" if change else ""
    return f"bill: now {run.cost_now.amount:,.2f} USD an hour, then {run.cost_then.amount:,.2f}: {change:+,.2f} an hour{month}"


def _once(run: RebalanceRun, extra: Money) -> str:
    """Return what the moves cost once, and by when that is earned back."""
    if not extra.amount:
        return "once: nothing on top of today's bill while both sides are up"
    by = f", earned back by {run.earned_at:%Y-%m-%d %H:%M} UTC" if run.earned_at is not None else ", never earned back"
    return f"once: {extra.amount:,.2f} USD on top of today's bill while both sides are up{by}, if begun now"


def _sum(run: RebalanceRun) -> str:
    """Return how the rows add up to the change of the bill, and what PAYBACK is; "" where a price is unknown."""
    known = [-s.saving_usd_per_hour.amount for s in run.shifts if s.saving_usd_per_hour is not None]
    if len(known) < len(run.shifts):
        return ""
    also = f", and by {counted(run.under_way, 'cell')} under way" if run.under_way else ""
    text = added_up(sum(known, Decimal(0)), run.cost_then.amount - run.cost_now.amount, also)
    return f"{text}. PAYBACK: of a cell's own double run, by its share alone"


def _end(run: RebalanceRun, dry: bool) -> str:
    if dry and not run.shifts:
        why = "Nothing may move now." if run.held and run.unlimited else "Nothing is worth moving."
        return f"{why} Nothing was changed."
    if dry:
        return "Nothing was changed and nothing was saved. Next: fleetctl rebalance --apply"
    later = [s.cell for s in run.shifts if s.cell not in run.begun]
    begun = f"Begun under {run.standing}: {_names(run.begun)}."
    return begun + (f" A later run begins {_names(later)}." if later else "")


def _names(cells: Sequence[str]) -> str:
    more = f" and {len(cells) - MOST_ROWS:,} more" if len(cells) > MOST_ROWS else ""
    return ", ".join(clean(c) for c in cells[:MOST_ROWS]) + more


def _limits(limits: Limits) -> str:
    """Return the limits in words."""
    window = duration(limits.window.total_seconds())
    of = ", ".join(limits.classes) or "no class"
    return f"limits: {counted(limits.moves, 'cell')} and {limits.share:.1%} of the GPUs in {window}, of {of}"


def _moves(run: RebalanceRun) -> str:
    by = Counter((WITHIN if s.to == s.vendor else WORDS)[s.to] for s in run.shifts)
    words = ", ".join(f"{n:,} {way}" for way, n in sorted(by.items(), key=lambda item: item[0].split()[-1])) or "none"
    gap = f"; at most {run.gap_pct:.2f} % above the least within the limits" if run.gap_pct is not None and run.shifts else ""
    return f"moves: {words}; without limits {run.unlimited:,}{gap}"


def _why(count: int, cell: str, text: str) -> str:
    more = f" (first of {count:,})" if count > 1 else ""
    return f"{clean(cell)}{more}: {clean(text)}"


def _table(shifts: tuple[Shift, ...], width: int) -> list[str]:
    rows = [
        (
            clean(s.cell),
            clean(s.source),
            clean(s.target),
            "home" if s.order == "home" else "migrate",
            "?" if s.saving_usd_per_hour is None else f"{-s.saving_usd_per_hour.amount:+,.2f}",
            "-" if s.payback_hours is None else duration(s.payback_hours * 3600),
        )
        for s in shifts
    ]
    head = ("CELL", "FROM", "TO", "BY", "USD/H", "PAYBACK")
    return columns([head, *rows], right=(4, 5), width=width)


def render_standing(s: StandingApproval, more: int) -> str:
    """Return a standing approval and its envelope as text."""
    people = ", ".join(clean(a.name) for a, _ in s.signed)
    lines = [
        f"standing/{s.id}: at most {counted(s.moves, 'cell')} and {s.share:.1%} of the GPUs in {duration(s.window.total_seconds())},",
        f"  of {', '.join(s.classes)}, until {s.until}; signed by {people}",
        f"  {more} more must sign it: the same command" if more else "  in force. Next: fleetctl rebalance --apply",
    ]
    return "\n".join(lines) + "\n"
