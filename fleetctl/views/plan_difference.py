"""Plan, view layer: what a new plan would do otherwise than a saved one, as text. Never I/O, never a decision."""

from __future__ import annotations

from fleetctl.planning.difference import CellChange, Difference
from fleetctl.views.columns import WIDTH, clean, counted, wrapped
from fleetctl.views.plan import change_text, money_text

MOST_CELLS = 40


def render_difference(d: Difference, *, width: int = WIDTH, most: int = MOST_CELLS) -> str:
    """Return the difference as text of at most `width` columns."""
    lines = [f"Plan {d.old} (serial {d.old_serial}) against a new plan (serial {d.new_serial})"]
    lines.append("  the fleet is the same" if d.same_fleet else "  the fleet file has changed: the old plan is stale")
    for name, before, after in d.inputs:
        lines += wrapped(f"{name}: {clean(before)} > {clean(after)}", width, "  ")
    lines.append(
        f"  in the end {money_text(d.then_before)} > {money_text(d.then_after)} {d.then_after.currency} an hour "
        f"({change_text(d.then_before, d.then_after)})"
    )
    lines += ["", f"{counted(len(d.cells), 'cell')} otherwise" if d.cells else "No cell otherwise"]
    for c in d.cells[:most]:
        lines += _cell(c, width)
    if len(d.cells) > most:
        lines.append(f"  and {len(d.cells) - most:,} more: -o json")
    if d.waves:
        names = ", ".join(clean(c) for c in d.waves[:8]) + (f" and {len(d.waves) - 8:,} more" if len(d.waves) > 8 else "")
        lines += ["", *wrapped(f"in another wave: {names}", width)]
    return "\n".join([*lines, "", "Nothing was changed and nothing was saved. Next: fleetctl plan"]) + "\n"


def _cell(c: CellChange, width: int) -> list[str]:
    before, after = c.before or "not in the plan", c.after or "not in the fleet"
    out = [*wrapped(f"- {clean(c.cell)}: {clean(before)}", width, "  "), *wrapped(f"+ {clean(c.cell)}: {clean(after)}", width, "  ")]
    cost = change_text(c.cost_before, c.cost_after)
    return [*out, *wrapped(f"{clean(c.why)} ({cost} USD/h)", width, "      ")]
