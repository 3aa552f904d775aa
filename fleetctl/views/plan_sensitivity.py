"""Plan, view layer: the plan under other speeds and prices, as text of 80 columns. Never I/O, never a decision."""

from __future__ import annotations

from fleetctl.domain.sensitivity import Sensitivity
from fleetctl.views.columns import WIDTH, clean, clipped, columns, counted, wrapped

MOST_FLIPS = 25
LONGEST = 8
"""Letters of a case's name above its column."""
WORDS = {"move": "move", "stay": "stay", "infeasible": "blocked"}


def covered_text(s: Sensitivity) -> str:
    """Return how many pools each book prices, where one does not price all; the others' price says nothing about that book."""
    partly = [c for c in s.cases if c.by_book is not None and c.by_book < c.pools]
    said = ", ".join(f"{clean(c.name).removeprefix('prices: ')} {c.by_book} of {c.pools}" for c in partly)
    return f"pools that a book prices itself, the others go by list or the fleet file: {said}" if said else ""


def render_sensitivity(s: Sensitivity, *, width: int = WIDTH, most: int = MOST_FLIPS) -> str:
    """Return a table of all cases and one of the cells that flip."""
    currency = s.cases[0].cost_now.currency if s.cases else ""
    lines = [f"What if ({currency} an hour; each case is a whole plan, none of them saved)"]
    head = ["CASE", "NOW", "THEN", "CHANGE", "MOVE", "STAY", "BLOCKED", "FLIP"]
    rows = [
        [
            c.name,
            f"{c.cost_now.amount:,.2f}",
            f"{c.cost_then.amount:,.2f}",
            f"{c.cost_then.amount - c.cost_now.amount:+,.2f}",
            f"{c.moves:,}",
            f"{c.stays:,}",
            f"{c.blocked:,}",
            f"{c.flips:,}" if c.flips else "-",
        ]
        for c in s.cases
    ]
    lines += columns([head, *rows], right=range(1, 8), indent="  ", width=width)
    lines += wrapped(covered_text(s), width, "  ")
    if not s.flips:
        return "\n".join([*lines, "", "No cell flips."]) + "\n"
    lines += ["", f"{counted(len(s.flips), 'cell')} flip; the dearest first"]
    short = [clean(c.name).removeprefix("prices: ").removeprefix("AMD ").removeprefix("as ").upper() for c in s.cases]
    titles = ["CELL", *(clipped(name, LONGEST) for name in short)]
    told = [[f.cell, *(WORDS[t] if i == 0 or t != f.told[0] else "." for i, t in enumerate(f.told))] for f in s.flips[:most]]
    lines += columns([titles, *told], indent="  ", width=width, gap=1, keep=[0])
    if len(s.flips) > most:
        lines.append(f"  and {len(s.flips) - most:,} more: fleetctl report, or -o json")
    lines += wrapped("a dot is the same as planned; the chart stands in the report: fleetctl report", width, "  ")
    return "\n".join(lines) + "\n"
