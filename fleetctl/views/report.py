"""Report, view layer: one self-contained HTML page from gathered data. Never I/O, never a script, every text escaped.

Works from file://: no outside asset, charts drawn as inline SVG, a content security policy that allows one style sheet by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import cached_shares
from fleetctl.domain.report import ReportData
from fleetctl.domain.units import Money
from fleetctl.views.columns import clean, counted, duration, percent
from fleetctl.views.report_charts import Band, Chart, Lane, Mark, legend, svg, swim_lanes
from fleetctl.views.report_sensitivity import sensitivity_section
from fleetctl.views.report_series import (
    ENDS,
    CellStory,
    bands,
    evidence_charts,
    latency_chart,
    marks,
    share_chart,
    stories,
)
from fleetctl.views.report_style import STYLE

BADGE = {
    "complete": "pass",
    "in soak": "pass",
    "rolled back": "fail",
    "fell back": "home",
    "aborted": "home",
    "lost evidence": "home",
    "under way": "warn",
}
OPEN_EVENTS = 60
"""Events shown before the rest is folded away."""
PINNED = tuple(kind for kind in ENDS if kind != "verdict.fail")
"""Moments on the timeline; a FAIL is followed at once by its rollback."""
MOST_COSTS = 200
"""Cells in the costs table; the sums are of all."""


def render_report(data: ReportData) -> str:
    """Return the report as one HTML document."""
    told = stories(data)
    name = f"Migration report: {_t(data.fleet.name)}"
    body = "".join(
        (
            _header(data, name),
            _summary(data, told),
            _timeline(told),
            *(_cell(data, story) for story in told),
            _events(data.events),
            _costs(data),
            sensitivity_section(data.sensitivity) if data.plan is not None else "",
            _lab(data),
            _audit(data),
        )
    )
    policy = f"default-src 'none'; style-src 'sha256-{style_hash()}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>{name}</title><style>{STYLE}</style></head>"
        f'<body><div class="shell">{_nav(data, told)}<main>{body}</main></div></body></html>\n'
    )


def style_hash() -> str:
    """Return the base64 SHA-256 of the style sheet as a content security policy wants it."""
    return base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def _t(text: object) -> str:
    """Escape any text for HTML; control characters become "?"."""
    return escape(clean(text), quote=True)


def _nav(data: ReportData, told: tuple[CellStory, ...]) -> str:
    cells = "".join(f'<a class="sub" href="#cell-{_t(s.cell)}">{_t(s.cell)}</a>' for s in told)
    lab = '<a href="#lab">Real and emulated</a>' if data.lab else ""
    return (
        '<nav aria-label="Contents"><div class="brand">fleetctl</div><a href="#top">Summary</a><a href="#timeline">Cells</a>'
        f'{cells}<a href="#events">Events</a><a href="#costs">Costs</a><a href="#sensitivity">What if</a>{lab}'
        '<a href="#audit">Audit</a></nav>'
    )


def _header(data: ReportData, name: str) -> str:
    plan = f" · plan <code>{_t(data.plan.id)}</code>" if data.plan is not None else ""
    made = f"{data.made_at:%Y-%m-%d %H:%M:%S} UTC"
    return f'<h1 id="top">{name}</h1><p class="meta">Made {made} · fleet serial {data.fleet.serial}{plan}</p>'


def _card(label: str, value: str, more: str = "", style: str = "") -> str:
    shown = f'<div class="value {style}">{value}</div><div class="more">{_t(more)}</div>'
    return f'<div class="card"><div class="label">{_t(label)}</div>{shown}</div>'


def _table(heads: Iterable[str], rows: str) -> str:
    """Return a table in a panel; a head that begins with "#" is of a column of numbers."""
    cells = "".join(f'<th class="num">{_t(h[1:])}</th>' if h.startswith("#") else f"<th>{_t(h)}</th>" for h in heads)
    return f'<div class="panel scroll"><table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>'


def _names(told: Iterable[CellStory]) -> str:
    names = [s.cell for s in told]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _summary(data: ReportData, told: tuple[CellStory, ...]) -> str:
    moved = [s for s in told if s.was_complete]
    back = [s for s in told if s.was_rolled_back]
    home = [s for s in told if s.came_home]
    cards = [
        _card("Reached soak", str(len(moved)), _names(moved) or "no cell yet", "good" if moved else ""),
        _card("Rolled back", str(len(back)), f"on evidence: {_names(back)}" if back else "no cell", "bad" if back else ""),
        _card("Brought home", str(len(home)), f"by order: {_names(home)}" if home else "no cell", "homed" if home else ""),
        _errors_card(data, told),
    ]
    if data.plan is not None:
        saved = data.plan.cost_now.amount - data.plan.cost_then.amount
        word = "saves" if saved >= 0 else "adds"
        label = f"The plan {word}, {data.plan.cost_now.currency}/h"
        cards.append(_card(label, f"{abs(saved):,.2f}", "once the source is released"))
    broken = [c for c in data.chains if c.broken]
    total = sum(c.events for c in data.chains)
    cards.append(
        _card(
            "Audit log",
            "broken" if broken else "holds",
            f"{counted(total, 'event')} in {counted(len(data.chains), 'chain')}",
            "bad" if broken else "good",
        )
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def _errors_card(data: ReportData, told: tuple[CellStory, ...]) -> str:
    if data.clients is not None:
        share = data.clients.errors / data.clients.requests if data.clients.requests else 0.0
        more = f"of {counted(data.clients.requests, 'request')} ({share:.3%}), counted by the clients"
        return _card("Client errors", f"{data.clients.errors:,}", more, "" if data.clients.errors else "good")
    attempts, failed = sum(s.attempts for s in told), sum(s.failed for s in told)
    return _card("Failed attempts", f"{failed:,}", f"of {attempts:,} that were evidence, both arms", "" if failed else "good")


def _timeline(told: tuple[CellStory, ...]) -> str:
    if not told:
        return '<h2 id="timeline">Cells</h2><p class="meta">No cell has started. Next: fleetctl migrate</p>'
    start = min(s.start for s in told)
    seconds = max((s.start - start).total_seconds() + s.seconds for s in told)
    lanes = []
    for s in told:
        offset = (s.start - start).total_seconds()
        moved = tuple(Band(start=b.start + offset, end=b.end + offset, name=b.name, style=b.style) for b in bands(s))
        pins = tuple(Mark(at=m.at + offset, name=m.name, style=m.style) for m in marks(s, PINNED))
        lanes.append(Lane(name=clean(s.cell), bands=moved, marks=pins))
    keys = "".join(
        f'<li><svg viewBox="0 0 14 10" class="swatch"><rect class="seg {style}" width="14" height="10"/></svg>{text}</li>'
        for style, text in (
            ("w0", "no traffic on the target"),
            ("w1", "canary"),
            ("w2", "up to 60 %"),
            ("w3", "up to 95 %"),
            ("w4", "95 % and more"),
        )
    ) + "".join(
        f'<li><svg viewBox="0 0 12 12" class="swatch"><path class="pin {style}" d="M6 1l5 5-5 5-5-5z"/></svg>{text}</li>'
        for style, text in (("fail", "FAIL, rolled back"), ("home", "brought home"), ("pass", "complete"))
    )
    heading = f'<header><h3>All cells from {start:%H:%M:%S} UTC</h3><ul class="legend">{keys}</ul></header>'
    return f'<h2 id="timeline">Cells</h2><div class="panel">{heading}<div class="scroll">{swim_lanes(lanes, seconds)}</div></div>' + _table(
        ("Cell", "Outcome", "#Share now", "#Attempts", "#Failed", "Last word"), "".join(_row(s) for s in told)
    )


def _row(s: CellStory) -> str:
    last = s.looks[-1] if s.looks else None
    why = s.events[-1].text if s.events else (last.why if last else "")
    share = percent(last.target_bp) if last else "-"
    return (
        f'<tr><td class="nowrap"><a href="#cell-{_t(s.cell)}">{_t(s.cell)}</a></td><td>{_badge(s.outcome)}</td><td class="num">{share}</td>'
        f'<td class="num">{s.attempts:,}</td><td class="num">{s.failed:,}</td><td class="text">{_t(why)}</td></tr>'
    )


def _badge(text: str) -> str:
    return f'<span class="badge {BADGE.get(text, "")}">{_t(text)}</span>'


def _cell(data: ReportData, s: CellStory) -> str:
    outcome = next((o for o in data.plan.outcomes if o.cell == s.cell), None) if data.plan is not None else None
    route = f"{_t(outcome.source)} → {_t(outcome.target)}" if outcome is not None and outcome.target is not None else ""
    declared = next((c for c in data.fleet.cells if c.id == s.cell), None)
    lane = ""
    if declared is not None:
        by = f", by {declared.lane.actor.name}" if declared.lane.actor is not None else ""
        reason = f": {declared.lane.reason}{by}" if declared.lane.reason else ""
        lane = f"Evidence lane {declared.lane.kind}{reason}. "
    last = s.looks[-1].why if s.looks else "no look yet"
    cached = next((c for look in reversed(s.looks) if (c := cached_shares(look.arms)) is not None), None)
    shares = ""
    if cached is not None:
        shares = f" Cached prompt tokens: {cached['baseline']:.1%} on the source, {cached['canary']:.1%} on the target."
    charts = [share_chart(s), latency_chart(s), *evidence_charts(s)]
    panels = "".join(_panel(c) for c in charts)
    return (
        f'<section class="cell" id="cell-{_t(s.cell)}">'
        f'<header><h2>{_t(s.cell)}</h2>{_badge(s.outcome)}<span class="meta">{route}</span></header>'
        f'<p class="why">{_t(lane)}Started {s.start:%H:%M:%S} UTC, {duration(s.seconds)} long. Last look: {_t(last)}.{_t(shares)}</p>'
        f'<div class="grid">{panels}</div></section>'
    )


def _panel(chart: Chart) -> str:
    return f'<div class="panel"><header><h3>{_t(chart.title)}</h3>{legend(chart.lines)}</header>{svg(chart)}</div>'


def _events(events: tuple[Event, ...]) -> str:
    if not events:
        return '<h2 id="events">Events</h2><p class="meta">No event yet.</p>'
    heads = ("Time (UTC)", "Cell", "What", "Who", "In words")
    earlier, newest = ("".join(_event(e) for e in part) for part in (events[:-OPEN_EVENTS], events[-OPEN_EVENTS:]))
    title = counted(max(0, len(events) - OPEN_EVENTS), "earlier event")
    folded = f"<details><summary>{title}</summary>{_table(heads, earlier)}</details>" if earlier else ""
    return f'<h2 id="events">Events</h2>{folded}{_table(heads, newest)}'


def _event(e: Event) -> str:
    style = ENDS[e.kind][1] if e.kind in ENDS else "home" if e.kind.startswith("order.") else "pass" if e.kind == "verdict.pass" else ""
    return (
        f'<tr><td class="nowrap mono">{e.at:%H:%M:%S}</td><td class="nowrap">{_t(e.cell or "fleet")}</td>'
        f'<td><span class="badge {style}">{_t(e.kind)}</span></td><td class="nowrap">{_t(e.actor.name)}</td>'
        f'<td class="text">{_t(e.text)}</td></tr>'
    )


def _money(m: Money | None) -> str:
    return "unknown" if m is None else f"{m.amount:,.2f}"


def _costs(data: ReportData) -> str:
    plan = data.plan
    if plan is None:
        return '<h2 id="costs">Costs</h2><p class="meta">No plan was made. Next: fleetctl plan</p>'
    unit = f"{plan.cost_now.currency}/h"
    rows = "".join(
        f'<tr><td class="nowrap">{_t(o.cell)}</td><td class="nowrap">{_t(o.source)}{" → " + _t(o.target) if o.target else ""}</td>'
        f'<td class="num">{_money(o.cost_now)}</td><td class="num">{_money(o.cost_then)}</td><td class="text">{_t(o.reason.text)}</td></tr>'
        for o in plan.outcomes[:MOST_COSTS]
    )
    calendar = plan.calendar
    hours = duration((calendar.end - calendar.start).total_seconds() if calendar else sum(w.hours for w in plan.waves) * 3600)
    overlap = f"overlap: {_money(plan.overlap_cost)} {_t(plan.overlap_cost.currency)} in all while both sides run ({hours} planned)"
    if plan.overlap_extra is not None:
        overlap += f", {_money(plan.overlap_extra)} of it on top of today's bill"
    rows += (
        '<tr class="sum"><td class="nowrap">all pools</td><td></td>'
        f'<td class="num">{_money(plan.cost_now)}</td><td class="num">{_money(plan.cost_then)}</td><td class="text">{overlap}</td></tr>'
    )
    notes = "; ".join(c.detail for c in plan.checks if c.name == "prices")
    return (
        f'<h2 id="costs">Costs</h2>{_table(("Cell", "Pools", f"#Now, {unit}", f"#Then, {unit}", "Why"), rows)}'
        '<p class="note">A cell pays its share of a VM by GPUs; the last line pays for whole VMs. '
        f"Catalogue {_t(plan.catalog_id)}. {_t(notes)}.</p>"
    )


def _lab(data: ReportData) -> str:
    if not data.lab:
        return ""
    rows = "".join(
        f'<tr><td class="nowrap">{_t(name)}</td><td><span class="badge {"pass" if kind == "real" else "warn"}">{_t(kind)}</span></td>'
        f'<td class="text">{_t(what)}</td></tr>'
        for name, kind, what in data.lab
    )
    return (
        '<h2 id="lab">What was real and what was emulated</h2><p class="meta">This fleet is a lab on one machine. No GPU took part; '
        f"prices are list prices of the machines that the emulated ones stand for.</p>{_table(('Part', 'Kind', 'What it is'), rows)}"
    )


def _audit(data: ReportData) -> str:
    rows = "".join(
        f'<tr><td class="nowrap">{_t(c.cell or "fleet")}</td><td class="num">{c.events:,}</td>'
        f'<td><span class="badge {"fail" if c.broken else "pass"}">{_t(c.broken or "holds")}</span></td>'
        f'<td class="mono hash">{_t(c.head or "-")}</td></tr>'
        for c in data.chains
    )
    return (
        '<h2 id="audit">Audit</h2><p class="meta">Each event holds the hash of the one before it. Whoever kept a head can prove that '
        "nothing up to it was edited, removed or reordered. Run: fleetctl audit verify</p>"
        f"{_table(('Chain', '#Events', 'Links', 'Head (SHA-256)'), rows)}"
        "<footer>Made by fleetctl. One file, no outside asset, no script.</footer>"
    )
