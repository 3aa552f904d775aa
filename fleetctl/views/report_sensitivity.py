"""Report, view layer: the plan under other speeds and prices: bars of bill and outcomes, and the cells that flip. Never I/O."""

from __future__ import annotations

from html import escape

from fleetctl.domain.sensitivity import Case, Sensitivity
from fleetctl.views.columns import clean, counted
from fleetctl.views.plan_sensitivity import covered_text

MOST_FLIPS = 60
"""Flipping cells in the table, the dearest ones."""
WIDTH, ROW, TOP, BOTTOM = 960, 34, 34, 10
NAMES_END, BARS, BARS_END, COUNTS, COUNTS_END = 176, 188, 560, 640, 948
WORDS = {"move": "move", "stay": "stay", "infeasible": "blocked"}
BADGE = {"move": "warn", "stay": "home", "infeasible": "fail"}
"""How a flip is marked, by what it flips to."""


def sensitivity_section(s: Sensitivity | None) -> str:
    """Return the section: a chart over all cases, and a table of the cells that at least one case treats otherwise."""
    head = '<h2 id="sensitivity">What if</h2>'
    if s is None:
        return f'{head}<p class="meta">Not worked out for the newest plan. Next: fleetctl plan --sensitivity</p>'
    keys = "".join(
        f'<li><svg viewBox="0 0 14 10" class="swatch"><rect class="bar {style}" width="14" height="10"/></svg>{text}</li>'
        for style, text in (("bill", "bill after the plan"), ("move", "move"), ("stay", "stay"), ("infeasible", "blocked"))
    )
    title = f'<header><h3>Bill and outcomes by case</h3><ul class="legend">{keys}<li>| bill of today at those prices</li></ul></header>'
    return (
        f'{head}<p class="meta">Each case is a whole plan, with its own proof: AMD throughput 10 % less and more, and each price book.</p>'
        f'<div class="panel">{title}<div class="scroll">{_chart(s)}</div></div>{_covered(s)}{_flips(s)}'
    )


def _covered(s: Sensitivity) -> str:
    text = covered_text(s)
    return f'<p class="meta">{_t(text)}.</p>' if text else ""


def _t(text: object) -> str:
    return escape(clean(text), quote=True)


def _chart(s: Sensitivity) -> str:
    height = TOP + ROW * len(s.cases) + BOTTOM
    most = max((float(max(c.cost_now.amount, c.cost_then.amount)) for c in s.cases), default=0.0) or 1.0
    unit = _t(s.cases[0].cost_now.currency) if s.cases else ""
    parts = [
        f'<text class="unit" x="{BARS}" y="18">{unit} an hour</text><text class="unit" x="{COUNTS}" y="18">cells</text>',
        f'<path class="axis" d="M{BARS} {TOP - 6}V{height - BOTTOM}"/>',
    ]
    parts += [_bars(c, TOP + ROW * i, most) for i, c in enumerate(s.cases)]
    label = _t("Bill and outcomes: " + "; ".join(f"{c.name}: {c.cost_then.amount:,.2f}, {c.moves} move" for c in s.cases))
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _bars(c: Case, y: int, most: float) -> str:
    scale = (BARS_END - BARS) / most
    bill, today = float(c.cost_then.amount) * scale, BARS + float(c.cost_now.amount) * scale
    out = [
        f'<text class="barname end" x="{NAMES_END}" y="{y + 17}">{_t(c.name)}</text>',
        f'<rect class="bar bill" x="{BARS}" y="{y + 3}" width="{bill:.1f}" height="20" rx="2"/>',
        f'<path class="tick now" d="M{today:.1f} {y}V{y + 26}"/>',
        f'<text class="barvalue" x="{max(BARS + bill, today) + 6:.1f}" y="{y + 17}">{c.cost_then.amount:,.0f}</text>',
    ]
    total = max(1, c.moves + c.stays + c.blocked)
    x = float(COUNTS)
    for style, count in (("move", c.moves), ("stay", c.stays), ("infeasible", c.blocked)):
        wide = (COUNTS_END - COUNTS) * count / total
        if not count:
            continue
        out.append(
            f'<rect class="bar {style}" x="{x:.1f}" y="{y + 3}" width="{wide:.1f}" height="20"><title>{count} {WORDS[style]}</title></rect>'
        )
        if wide > 8 * len(f"{count:,}") + 6:
            out.append(f'<text class="segname w4" x="{x + wide / 2:.1f}" y="{y + 17}">{count:,}</text>')
        x += wide
    return "".join(out)


def _flips(s: Sensitivity) -> str:
    if not s.flips:
        return '<p class="note">No workload flips: every case moves, keeps and blocks the same cells.</p>'
    heads = "".join(f"<th>{_t(h)}</th>" for h in ("Cell", "Workload")) + f'<th class="num">Now, {_t(s.cases[0].cost_now.currency)}/h</th>'
    heads += "".join(f"<th>{_t(c.name)}</th>" for c in s.cases)
    rows = "".join(
        f'<tr><td class="nowrap">{_t(f.cell)}</td><td class="nowrap">{_t(f.workload)}</td>'
        f'<td class="num">{"unknown" if f.cost_now is None else format(f.cost_now.amount, ",.2f")}</td>'
        + "".join(f'<td><span class="badge {BADGE[t] if t != f.told[0] else ""}">{WORDS[t]}</span></td>' for t in f.told)
        + "</tr>"
        for f in s.flips[:MOST_FLIPS]
    )
    more = f" The {MOST_FLIPS} dearest are shown." if len(s.flips) > MOST_FLIPS else ""
    table = f'<div class="panel scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    return f'<p class="note">{counted(len(s.flips), "cell")} flip in at least one case.{more}</p>{table}'
