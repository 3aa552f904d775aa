"""Rebalance, view layer: what a run would do, or began, as text. Never I/O, never a decision."""

from __future__ import annotations

from collections import Counter

from fleetctl.domain.rebalance import RebalanceRun, Shift, StandingApproval
from fleetctl.views.columns import WIDTH, clean, columns, counted, duration, wrapped

MOST_ROWS = 40
WORDS = {"amd": "to AMD", "nvidia": "back to NVIDIA"}


def render_run(run: RebalanceRun, *, dry: bool, width: int = WIDTH) -> str:
    """Return a run as text of at most `width` columns."""
    change = run.cost_then.amount - run.cost_now.amount
    lines = [
        f"Rebalance at {run.at:%Y-%m-%d %H:%M} UTC, price book {clean(run.price_book_id)}",
        f"  now {run.cost_now.amount:,.2f} USD an hour, then {run.cost_then.amount:,.2f} ({change:+,.2f})",
        *wrapped(_moves(run), width, "  "),
    ]
    if run.shifts:
        lines += ["", *_table(run.shifts[:MOST_ROWS], width)]
        if len(run.shifts) > MOST_ROWS:
            lines.append(f"  and {len(run.shifts) - MOST_ROWS:,} more: -o json")
    held = Counter(h.reason.code for h in run.held)
    if held:
        lines += ["", f"Held back: {counted(len(run.held), 'cell')}"]
        first = {h.reason.code: h for h in reversed(run.held)}
        lines += [
            line for code, n in held.most_common() for line in wrapped(_why(n, first[code].cell, first[code].reason.text), width, "  ")
        ]
    for note in run.notes[:MOST_ROWS]:
        lines += wrapped(clean(note), width, "  ")
    end = "Nothing was changed and nothing was saved. Next: fleetctl rebalance --apply" if dry else f"Begun under {run.standing}."
    return "\n".join([*lines, "", end if run.shifts or not dry else "Nothing is worth moving. Nothing was changed."]) + "\n"


def _moves(run: RebalanceRun) -> str:
    by = Counter(s.to for s in run.shifts)
    words = ", ".join(f"{n:,} {WORDS[to]}" for to, n in sorted(by.items())) or "none"
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
            "?" if s.saving_usd_per_hour is None else f"{s.saving_usd_per_hour.amount:,.2f}",
            "-" if s.payback_hours is None else duration(s.payback_hours * 3600),
        )
        for s in shifts
    ]
    head = ("CELL", "FROM", "TO", "BY", "USD/H SAVED", "PAYBACK")
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
