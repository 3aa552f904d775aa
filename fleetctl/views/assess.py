"""Assess, views layer: a verdict as table or SARIF, a fleet's verdicts as table. Never I/O; every discovered text comes out inert."""

from __future__ import annotations

import json
from urllib.parse import quote

from fleetctl.assess.route import label, waived_by
from fleetctl.domain.plan import Assessment, Finding, Waiver
from fleetctl.usecases.assess import FleetVerdict
from fleetctl.views.columns import counted
from fleetctl.views.output import Column, Table, clean

SARIF_VERSION = "2.1.0"
GRADES = ("blocker", "rework", "risk", "perf", "info")
_LEVELS = {"blocker": "error", "rework": "warning", "risk": "warning", "perf": "note", "info": "note"}
STALE_MARK, BLOCKING_MARK = "*", "!"
MOST_BLOCKING = 10
"""Listed with their evidence under the table."""

COLUMNS = (
    Column(title="GRADE"),
    Column(title="RULE", shrink=2, middle=True),
    Column(title="WHERE", shrink=3, middle=True, least=16),
    Column(title="N", right=True),
    Column(title="WHAT", shrink=4, wraps=True, least=32),
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


def assessment_table(assessment: Assessment, *, all_: bool = False) -> Table:
    """Return the findings as a table, under it the verdict, why earlier routes are closed, and what blocks with its evidence.

    Args:
        all_: also infos, findings that their owners have dealt with, and routes that are not needed.
    """
    shown = [f for f in assessment.findings if all_ or (f.grade != "info" and not f.is_guarded)]
    blocking = {label(f) for f in assessment.blocking}
    rows = tuple(
        (
            _grade(f, assessment.waived, blocking),
            f.rule + (STALE_MARK if f.is_stale else ""),
            f.where or "-",
            str(f.count),
            f.text,
            f.evidence,
            f.as_of,
        )
        for f in shown
    )
    foot = ["", clean(verdict_line(assessment)), clean(counts_line(assessment))]
    if any(f.is_stale for f in shown):
        foot.append(f"{STALE_MARK} this rule was last checked more than 180 days ago")
    for verdict in assessment.routes:
        foot.append(clean(f"  {verdict.route} ({'open' if verdict.is_open else 'closed'}): {verdict.reason}"))
        if verdict.route == assessment.route and not all_:
            break
    foot += [clean(f"  waived {w.rule} by {w.actor.name}: {w.reason}") for w in assessment.waived]
    foot += _blocking_lines(assessment)
    return Table(columns=COLUMNS, rows=rows, foot=tuple(foot if shown else foot[1:]), empty="Nothing stands in the way.")


def _grade(finding: Finding, waived: tuple[Waiver, ...], blocking: set[str]) -> str:
    if waived_by(finding, waived):
        return "waived"
    return finding.grade + (BLOCKING_MARK if label(finding) in blocking and not finding.is_guarded else "")


def _blocking_lines(assessment: Assessment) -> list[str]:
    if not assessment.blocking:
        return []
    lines = ["", f"{BLOCKING_MARK} Blocking: mend it, or accept it with a reason (--waive RULE=REASON, kept by --save)"]
    for finding in assessment.blocking[:MOST_BLOCKING]:
        stale = ", over 180 days old" if finding.is_stale else ""
        place = f" {finding.where}" if finding.where else ""
        lines.append(clean(f"  {label(finding)}{place}: evidence {finding.evidence} (as of {finding.as_of or 'never'}{stale})"))
    more = len(assessment.blocking) - MOST_BLOCKING
    return [*lines, f"  and {more} more: -o wide"] if more > 0 else lines


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


def assessment_sarif(assessments: tuple[Assessment, ...], version: str) -> str:
    """Return the findings as SARIF 2.1.0, for code hosts, one run per assessment: waived ones are suppressed, with the reason."""
    runs = [_sarif_run(a, version) for a in assessments]
    sarif = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": SARIF_VERSION, "runs": runs}
    return json.dumps(sarif, indent=2, ensure_ascii=True)


def _sarif_run(assessment: Assessment, version: str) -> dict[str, object]:
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
    of = clean(assessment.workload or assessment.subject)
    return {"tool": {"driver": driver}, "automationDetails": {"id": f"fleetctl/{of}/"}, "results": results, "properties": properties}


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
    uri = quote(path.encode("utf-8", "replace"), safe="/-._~")
    place: dict[str, object] = {"artifactLocation": {"uri": uri or "unknown"}}
    if line:
        place["region"] = {"startLine": line}
    return {"physicalLocation": place}
