"""Assess, views layer: verdicts as one self-contained HTML page, light and dark, wide and narrow. Never I/O, never a script.

Works from file://: nothing is fetched, every discovered text is escaped, the content security policy allows one style sheet by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape

from fleetctl.assess.route import label, waived_by
from fleetctl.domain.plan import Assessment, Finding, Route
from fleetctl.usecases.assess import FleetVerdict, RouteTotal
from fleetctl.views.columns import clean, counted
from fleetctl.views.report_style import STYLE

MOST_SECTIONS = 200
"""Workloads with a section of their own, the most expensive ones; the table holds all."""
MEANS: dict[Route, str] = {
    "native": "Images and wheels built for ROCm take the place of the CUDA ones.",
    "rebuild": "Artefacts are made again, packages are exchanged for ones that AMD has.",
    "hipify": "CUDA source of its own is translated to HIP, then built for ROCm.",
    "scale": "Its CUDA source is compiled by SCALE, under the licence on record.",
    "zluda": "CUDA calls are translated while it runs; for 32-wide cards only.",
    "stay": "It stays on NVIDIA until what blocks it is mended or accepted.",
}
BADGE: dict[Route, str] = {"native": "pass", "rebuild": "pass", "hipify": "warn", "scale": "warn", "zluda": "warn", "stay": "fail"}
TONE = {"blocker": "fail", "rework": "warn", "risk": "home", "perf": "", "info": "", "waived": ""}
GRADE_MEANS = {
    "blocker": "no way round it",
    "rework": "work",
    "risk": "may give wrong answers or fail at run time",
    "perf": "costs speed",
    "info": "good to know",
}
_MORE = """
.bar{height:18px;border-radius:6px;overflow:hidden;margin:6px 0 12px}
@media(min-width:701px){.stack .num+td,.stack .num+th{padding-left:20px}}
.bar .native{fill:var(--pass)}.bar .rebuild{fill:var(--g3)}.bar .hipify{fill:var(--g2)}.bar .scale{fill:var(--g4)}
.bar .zluda{fill:var(--g5)}.bar .stay{fill:var(--fail)}
.panel.blocks{border-left:3px solid var(--fail);margin:12px 0}
.panel.blocks h3{color:var(--fail);margin-bottom:8px}
.panel+.panel,.panel+h3,.cards+.panel{margin-top:12px}
h3.part{margin:22px 0 8px}
ul.plain{list-style:none;margin:0;padding:0}ul.plain li{padding:5px 0;border-bottom:1px solid var(--rule2)}
ul.plain li:last-child{border-bottom:0}
.soft{color:var(--soft);font-size:12.5px}
.nowrap{white-space:nowrap}.places{overflow-wrap:anywhere;min-width:190px}.places code{display:block}
.evidence{overflow-wrap:anywhere;min-width:130px;color:var(--soft);font-size:12.5px}
code{overflow-wrap:anywhere}
.section{scroll-margin-top:12px}
@media(max-width:700px){
table.stack thead{display:none}table.stack,table.stack tbody,table.stack tr,table.stack td{display:block;width:auto}
table.stack tr{padding:9px 0;border-bottom:1px solid var(--rule)}table.stack tr:last-child{border-bottom:0}
table.stack td{border:0;padding:2px 0;text-align:left;white-space:normal;min-width:0}
table.stack td[data-k]::before{content:attr(data-k) " ";color:var(--faint);font-size:12px;margin-right:6px}
table.stack td.head{display:inline-block;margin-right:8px}}
"""
_STYLE = STYLE + _MORE


def assessment_html(assessments: tuple[Assessment, ...], fleet: FleetVerdict | None, version: str) -> str:
    """Return the page: a fleet's verdict where one is given, then a section per assessment."""
    shown = assessments[:MOST_SECTIONS]
    title = f"Assessment of fleet {fleet.fleet}" if fleet is not None else f"Assessment of {_title(shown[0])}" if shown else "Assessment"
    body = [f'<h1 id="top">{_t(title)}</h1>', _meta(assessments, fleet, version)]
    if fleet is not None:
        body.append(_fleet(fleet, shown))
    body += [_section(a, n, alone=fleet is None and len(shown) == 1) for n, a in enumerate(shown)]
    if len(assessments) > len(shown):
        body.append(
            f'<p class="note">Sections of the {len(shown)} most expensive workloads; <code>fleetctl assess NAME</code> shows one.</p>'
        )
    body.append("<footer>Nothing of what was read has been run. No verdict is a promise of speed or of equal answers.</footer>")
    policy = f"default-src 'none'; style-src 'sha256-{_hash()}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>{_t(title)}</title><style>{_STYLE}</style></head>"
        f'<body><div class="shell">{_nav(shown, fleet)}<main>{"".join(body)}</main></div></body></html>\n'
    )


def _hash() -> str:
    return base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def _t(text: object) -> str:
    return escape(clean(text), quote=True)


def _title(assessment: Assessment) -> str:
    return assessment.workload or assessment.subject or "what was read"


def _badge(route: Route) -> str:
    return f'<span class="badge {BADGE[route]}">{_t(route)}</span>'


def _nav(shown: tuple[Assessment, ...], fleet: FleetVerdict | None) -> str:
    links = "".join(f'<a class="sub" href="#a{n}">{_t(_title(a))}</a>' for n, a in enumerate(shown)) if fleet or len(shown) > 1 else ""
    parts = "" if fleet or len(shown) != 1 else '<a class="sub" href="#routes0">Routes</a><a class="sub" href="#findings0">Findings</a>'
    return f'<nav aria-label="Contents"><div class="brand">fleetctl</div><a href="#top">Verdict</a>{links}{parts}</nav>'


def _meta(assessments: tuple[Assessment, ...], fleet: FleetVerdict | None, version: str) -> str:
    said = f"Made by fleetctl {_t(version)}"
    if fleet is not None:
        money = sum(float(t.usd_per_hour) for t in fleet.totals)
        said = f"{counted(len(fleet.rows), 'workload')}, {money:,.2f} USD an hour · {said}"
    elif assessments:
        a = assessments[0]
        said = f"{a.as_of:%Y-%m-%d %H:%M} UTC · target <code>{_t(a.target)}</code> · {said}"
    return f'<p class="meta">{said}</p>'


def _fleet(fleet: FleetVerdict, shown: tuple[Assessment, ...]) -> str:
    money = sum(float(t.usd_per_hour) for t in fleet.totals)
    cards = "".join(_route_card(t, money) for t in fleet.totals)
    places = {str(a.workload): n for n, a in enumerate(shown)}
    rows = []
    for r in fleet.rows:
        name = f'<a href="#a{places[r.workload]}">{_t(r.workload)}</a>' if r.workload in places else _t(r.workload)
        usd = "-" if r.usd_per_hour is None else f"{r.usd_per_hour:,.2f}"
        stale = f'<span class="soft"> {counted(r.stale, "old rule")}</span>' if r.stale else ""
        rows.append(
            f'<tr><td class="head">{name}</td><td class="head">{_badge(r.route)}</td><td data-k="Verdict">{_t(r.kind)}{stale}</td>'
            f'<td class="num" data-k="Blocking">{r.blocking}</td><td class="num" data-k="USD an hour">{usd}</td>'
            f'<td class="nowrap" data-k="As of">{_t(r.as_of)}</td></tr>'
        )
    declared = sum(r.kind == "declared" for r in fleet.rows)
    note = (
        f'<p class="note">{counted(declared, "workload")} only declared by their owners. Look for yourself: '
        "<code>fleetctl assess PATH --save WORKLOAD</code></p>"
        if declared
        else ""
    )
    table = _table(("Workload", "Route", "Verdict", "#Blocking", "#USD an hour", "As of"), rows)
    return f'<div class="cards">{cards}</div>{_bar(fleet, money)}{table}{note}'


def _route_card(total: RouteTotal, money: float) -> str:
    share = f", {float(total.usd_per_hour) / money:.0%} of the money" if money else ""
    unpriced = f", {total.unpriced} without a price" if total.unpriced else ""
    return (
        f'<div class="card"><div class="label">{_badge(total.route)}</div><div class="value">{total.usd_per_hour:,.2f}</div>'
        f'<div class="more">USD an hour, {_t(counted(total.workloads, "workload"))}{share}{unpriced}</div></div>'
    )


def _bar(fleet: FleetVerdict, money: float) -> str:
    """Return the money by route as one bar; its figures stand in the cards."""
    if not money:
        return ""
    at, parts = 0.0, []
    for total in fleet.totals:
        width = 1000 * float(total.usd_per_hour) / money
        parts.append(f'<rect class="{total.route}" x="{at:.1f}" y="0" width="{width:.1f}" height="18"></rect>')
        at += width
    said = ", ".join(f"{t.route} {float(t.usd_per_hour) / money:.0%}" for t in fleet.totals)
    return f'<svg class="bar" viewBox="0 0 1000 18" preserveAspectRatio="none" role="img" aria-label="{_t(said)}">{"".join(parts)}</svg>'


def _table(heads: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table in a panel; a head that begins with "#" is of a column of numbers."""
    cells = "".join(f'<th class="num">{_t(h[1:])}</th>' if h.startswith("#") else f"<th>{_t(h)}</th>" for h in heads)
    return f'<div class="panel scroll"><table class="stack"><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _section(a: Assessment, n: int, *, alone: bool) -> str:
    head = "" if alone else f'<h2 class="section" id="a{n}">{_t(_title(a))}</h2>'
    read = f"{counted(a.files, 'file')} and {counted(a.lines, 'line')} read"
    subject = f" of <code>{_t(a.subject)}</code>" if a.subject else ""
    when = "" if alone else f", {a.as_of:%Y-%m-%d %H:%M} UTC, target <code>{_t(a.target)}</code>"
    licence = f" Licence: {_t(a.licence)}." if a.licence else ""
    parts = [
        head,
        f"<p>{_badge(a.route)} {_t(MEANS[a.route])}{licence}</p>",
        f'<p class="meta">{read}{subject}{when}.</p>',
        _counts(a),
        _blocking(a),
        _routes(a, n),
        _findings(a, n),
    ]
    return "".join(parts)


def _counts(a: Assessment) -> str:
    numbers = [(g, sum(f.grade == g and not waived_by(f, a.waived) for f in a.findings)) for g in GRADE_MEANS]
    cards = "".join(
        f'<div class="card"><div class="label"><span class="badge {TONE[g]}">{g}</span></div><div class="value">{count}</div>'
        f'<div class="more">{GRADE_MEANS[g]}</div></div>'
        for g, count in numbers
        if count
    )
    return f'<div class="cards">{cards}</div>' if cards else ""


def _blocking(a: Assessment) -> str:
    if not a.blocking:
        return ""
    items = "".join(f"<li><b>{_t(label(f))}</b> {_t(f.text)} {_where(f)}<br>{_evidence(f)}</li>" for f in a.blocking)
    how = '<p class="note">Mend it, or accept it with a reason that is kept: <code>--waive RULE=REASON --save WORKLOAD</code></p>'
    return f'<div class="panel blocks"><h3>What blocks it</h3><ul class="plain">{items}</ul>{how}</div>'


def _where(finding: Finding) -> str:
    return f"<code>{_t(finding.where)}</code>" if finding.where else ""


def _evidence(finding: Finding) -> str:
    stale = ", over 180 days old" if finding.is_stale else ""
    as_of = f'<span class="nowrap">(as of {_t(finding.as_of or "never")}{stale})</span>'
    return f'<span class="soft">{_t(finding.evidence or "no evidence")} {as_of}</span>'


def _routes(a: Assessment, n: int) -> str:
    if not a.routes:
        return ""
    rows = []
    for v in a.routes:
        state = "taken" if v.route == a.route else "open" if v.is_open else "closed"
        tone = {"taken": BADGE[v.route], "open": "", "closed": ""}[state]
        rows.append(
            f'<tr><td class="head nowrap">{_t(v.route)}</td><td class="head"><span class="badge {tone}">{state}</span></td>'
            f'<td class="text">{_t(v.reason)}</td></tr>'
        )
    return f'<h3 class="part section" id="routes{n}">Routes, in the order tried</h3>{_table(("Route", "", "Why"), rows)}'


def _findings(a: Assessment, n: int) -> str:
    if not a.findings:
        return f'<h3 class="part section" id="findings{n}">Findings</h3><p>Nothing stands in the way.</p>'
    first = [f for f in a.findings if f.grade != "info" and not f.is_guarded]
    rest = [f for f in a.findings if f.grade == "info" or f.is_guarded]
    heads = ("Grade", "Rule", "What", "Where", "#Places", "Evidence")
    out = f'<h3 class="part section" id="findings{n}">Findings</h3>'
    if first:
        out += _table(heads, (_finding(f, a) for f in first))
    if rest:
        folded = _table(heads, (_finding(f, a) for f in rest))
        out += f"<details><summary>{len(rest):,} more to know, or dealt with by their owners</summary>{folded}</details>"
    return out


def _finding(f: Finding, a: Assessment) -> str:
    waived = waived_by(f, a.waived)
    grade = "waived" if waived else f.grade
    what = _t(f.text) + (f'<div class="soft"><b>Waived by {_t(waived.actor.name)}:</b> {_t(waived.reason)}</div>' if waived else "")
    places = "".join(f"<code>{_t(p)}</code>" for p in f.places or (f.where,) if p)
    more = f.count - len(f.places)
    rest = f'<span class="soft">and {more} more</span>' if f.places and more > 0 else ""
    return (
        f'<tr><td class="head"><span class="badge {TONE[grade]}">{grade}</span></td><td class="head nowrap">{_t(f.rule)}</td>'
        f'<td class="text">{what}</td><td class="places">{places}{rest}</td><td class="num" data-k="Places">{f.count}</td>'
        f'<td class="evidence">{_evidence(f)}</td></tr>'
    )
