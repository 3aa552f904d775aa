"""Assess, views layer: a verdict as table, HTML or SARIF, a fleet's verdicts as table. Never I/O; every discovered text comes out inert."""

from __future__ import annotations

import json
from html import escape
from urllib.parse import quote

from fleetctl.assess.route import label, waived_by
from fleetctl.domain.plan import Assessment, Finding
from fleetctl.usecases.assess import FleetVerdict
from fleetctl.views.columns import counted, wrapped
from fleetctl.views.output import Column, Table, clean

SARIF_VERSION = "2.1.0"
GRADES = ("blocker", "rework", "risk", "perf", "info")
_LEVELS = {"blocker": "error", "rework": "warning", "risk": "warning", "perf": "note", "info": "note"}
STALE_MARK = "*"

COLUMNS = (
    Column(title="GRADE"),
    Column(title="RULE", shrink=2, middle=True),
    Column(title="WHERE", shrink=4, middle=True),
    Column(title="N", right=True),
    Column(title="WHAT", shrink=4),
    Column(title="EVIDENCE", wide=True),
    Column(title="AS-OF", wide=True),
)
FLEET_COLUMNS = (
    Column(title="WORKLOAD", shrink=1, middle=True),
    Column(title="ROUTE"),
    Column(title="KIND"),
    Column(title="BLOCKING", right=True),
    Column(title="USD/H", right=True),
    Column(title="AS-OF"),
    Column(title="STALE-RULES", right=True, wide=True),
)


def assessment_table(assessment: Assessment, *, width: int = 80, all_: bool = False) -> Table:
    """Return the findings as a table with the verdict under it; infos and guarded findings only in `wide` or where `all_` asks for them."""
    shown = [f for f in assessment.findings if all_ or (f.grade != "info" and not f.is_guarded)]
    rows = tuple(
        (
            "waived" if waived_by(f, assessment.waived) else f.grade,
            f.rule + (STALE_MARK if f.is_stale else ""),
            f.where or "-",
            str(f.count),
            f.text,
            f.evidence,
            f.as_of,
        )
        for f in shown
    )
    foot: list[str] = [""]
    foot += wrapped(clean(verdict_line(assessment)), width)
    foot += wrapped(clean(counts_line(assessment)), width)
    if any(f.is_stale for f in shown):
        foot += wrapped(f"{STALE_MARK} this rule was last checked more than 180 days ago", width)
    for verdict in assessment.routes:
        foot += wrapped(clean(f"{'open' if verdict.is_open else 'closed':<6} {verdict.route}: {verdict.reason}"), width, "  ")
    for waiver in assessment.waived:
        foot += wrapped(clean(f"waived {waiver.rule} by {waiver.actor.name}: {waiver.reason}"), width, "  ")
    if not shown:
        foot = foot[1:]
    return Table(columns=COLUMNS, rows=rows, foot=tuple(foot), empty="Nothing stands in the way.")


def verdict_line(assessment: Assessment) -> str:
    """Return the verdict in one line."""
    of = f"workload {assessment.workload}" if assessment.workload else assessment.subject
    return f"Route of {of} to {assessment.target}: {assessment.route}, {counted(len(assessment.blocking), 'blocking finding')}."


def counts_line(assessment: Assessment) -> str:
    """Return what was read and found, in one line."""
    parts = [f"{sum(f.grade == g for f in assessment.findings)} {g}" for g in GRADES if any(f.grade == g for f in assessment.findings)]
    read = f"{counted(assessment.files, 'file')} and {counted(assessment.lines, 'line')} read"
    return f"{read}: {', '.join(parts) or 'nothing found'}."


def assessment_names(assessment: Assessment) -> tuple[str, ...]:
    """Return the lines of `-o name`: the labels by which findings are waived."""
    return tuple(label(f) for f in assessment.findings if f.grade != "info")


def fleet_table(verdict: FleetVerdict) -> Table:
    """Return a fleet's verdicts, the most expensive workload first, with how many and how much per route."""
    rows = tuple(
        (r.workload, r.route, r.kind, str(r.blocking), "-" if r.usd_per_hour is None else f"{r.usd_per_hour:.2f}", r.as_of, str(r.stale))
        for r in verdict.rows
    )
    foot = [""]
    for total in verdict.totals:
        unpriced = f" ({total.unpriced} without a known price)" if total.unpriced else ""
        foot.append(f"{total.route:<8} {counted(total.workloads, 'workload')}, {total.usd_per_hour:.2f} USD an hour{unpriced}")
    declared = sum(r.kind == "declared" for r in verdict.rows)
    if declared:
        foot += ["", f"{declared} only declared. Look for yourself: fleetctl assess PATH --save WORKLOAD"]
    return Table(columns=FLEET_COLUMNS, rows=rows, foot=tuple(foot), empty="The fleet file declares no workloads.")


def assessment_sarif(assessment: Assessment, version: str) -> str:
    """Return the findings as SARIF 2.1.0, for code hosts: waived ones are suppressed, with the reason."""
    rules: dict[str, dict[str, object]] = {}
    results: list[dict[str, object]] = []
    for finding in assessment.findings:
        rules.setdefault(finding.rule, _sarif_rule(finding))
        waiver = waived_by(finding, assessment.waived)
        for place in finding.places or (finding.where,):
            result: dict[str, object] = {
                "ruleId": finding.rule,
                "level": _LEVELS[finding.grade],
                "message": {"text": clean(finding.text)},
                "locations": [_sarif_place(place)],
            }
            if waiver is not None:
                result["suppressions"] = [{"kind": "external", "justification": clean(waiver.reason)}]
            results.append(result)
    driver = {"name": "fleetctl", "version": version, "rules": list(rules.values())}
    properties = {"route": assessment.route, "target": assessment.target, "lines": assessment.lines, "files": assessment.files}
    run = {"tool": {"driver": driver}, "results": results, "properties": properties}
    sarif = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": SARIF_VERSION, "runs": [run]}
    return json.dumps(sarif, indent=2, ensure_ascii=True)


def _sarif_rule(finding: Finding) -> dict[str, object]:
    return {
        "id": finding.rule,
        "shortDescription": {"text": clean(finding.text)[:200]},
        "help": {"text": clean(f"Evidence: {finding.evidence or 'none given'}; last checked {finding.as_of or 'never'}")},
        "defaultConfiguration": {"level": _LEVELS[finding.grade]},
        "properties": {"grade": finding.grade, "least_route": finding.least, "stale": finding.is_stale},
    }


def _place(where: str) -> tuple[str, int]:
    path, _, line = where.rpartition(":")
    return (path, int(line)) if path and line.isascii() and line.isdigit() and len(line) < 10 else (where, 0)


def _sarif_place(where: str) -> dict[str, object]:
    path, line = _place(where)
    uri = quote(clean(path).encode("utf-8", "replace"), safe="/-._~")
    place: dict[str, object] = {"artifactLocation": {"uri": uri or "unknown"}}
    if line:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}


_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; margin-bottom: 1.5rem; } th, td { text-align: left; vertical-align: top;
padding: .35rem .6rem; border-bottom: 1px solid #8884; overflow-wrap: anywhere; } th { white-space: nowrap; } td.n { text-align: right; }
code { font: 13px ui-monospace, monospace; } .g { white-space: nowrap; font-weight: 600; }
.k { white-space: nowrap; overflow-wrap: normal; }
.blocker { color: #c4320a; } .rework { color: #b54708; } .risk { color: #8a6d00; } .info, .perf, .waived { opacity: .75; }
.small { font-size: 13px; opacity: .8; } .verdict { font-size: 1.15rem; }
"""


def assessment_html(assessments: tuple[Assessment, ...], fleet: FleetVerdict | None, version: str) -> str:
    """Return one self-contained page: no script, nothing fetched, every discovered text escaped."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Assessment</title><style>{_STYLE}</style></head><body>",
        "<h1>Assessment: what can move, and how</h1>",
    ]
    if fleet is not None:
        parts += _fleet_html(fleet)
    for assessment in assessments:
        parts += _one_html(assessment)
    parts.append(f'<p class="small">Made by fleetctl {_text(version)}. Nothing that was read has been run.</p></body></html>')
    return "\n".join(parts) + "\n"


def _text(value: object) -> str:
    return escape(clean(str(value)), quote=True)


def _row(cells: list[str], tag: str = "td") -> str:
    return "<tr>" + "".join(c if c.startswith("<t") else f"<{tag}>{c}</{tag}>" for c in cells) + "</tr>"


def _key(text: str) -> str:
    return f'<td class="k">{_text(text)}</td>'


def _fleet_html(fleet: FleetVerdict) -> list[str]:
    out = [f"<h2>Fleet {_text(fleet.fleet)}</h2><table>", _row(["Route", "Workloads", "USD an hour", "Without a price"], "th")]
    out += [_row([_text(t.route), _text(t.workloads), f"{t.usd_per_hour:.2f}", _text(t.unpriced)]) for t in fleet.totals]
    out += ["</table><table>", _row(["Workload", "Route", "Kind", "Blocking", "USD an hour", "As of"], "th")]
    for r in fleet.rows:
        usd = "-" if r.usd_per_hour is None else f"{r.usd_per_hour:.2f}"
        out.append(_row([_text(r.workload), _text(r.route), _text(r.kind), _text(r.blocking), usd, _text(r.as_of)]))
    return [*out, "</table>"]


def _one_html(assessment: Assessment) -> list[str]:
    title = assessment.workload or assessment.subject
    out = [f"<h2>{_text(title)}</h2>", f'<p class="verdict">{_text(verdict_line(assessment))}</p>']
    out += [
        f"<p>{_text(counts_line(assessment))} Read: <code>{_text(assessment.subject)}</code>, {assessment.as_of:%Y-%m-%d %H:%M} UTC.</p>"
    ]
    out += ["<table>", _row(["Route", "", "Why"], "th")]
    for v in assessment.routes:
        out.append(_row([_key(v.route), _key("open" if v.is_open else "closed"), _text(v.reason)]))
    out += ["</table>", "<h3>Findings</h3><table>", _row(["Grade", "Rule", "Where", "Places", "What", "Evidence"], "th")]
    for f in assessment.findings:
        waived = waived_by(f, assessment.waived)
        grade = "waived" if waived else f.grade
        what = _text(f.text) + (f"<br><b>Waived by {_text(waived.actor.name)}:</b> {_text(waived.reason)}" if waived else "")
        stale = " (rule older than 180 days)" if f.is_stale else ""
        evidence = f'<td class="small">{_text(f.evidence)}<br>as of {_text(f.as_of)}{stale}</td>'
        where = "<br>".join(f"<code>{_text(p)}</code>" for p in f.places or (f.where,))
        out.append(_row([f'<td class="g {grade}">{grade}</td>', _key(f.rule), where, f'<td class="n">{f.count}</td>', what, evidence]))
    return [*out, "</table>"]
