"""Analyze, views layer: recorded evidence judged again, as a table of looks. Never I/O."""

from __future__ import annotations

from fleetctl.domain.evidence import LookRow, Verdict, cached_shares
from fleetctl.usecases.analyze import Analysis
from fleetctl.views.output import Column, Table, clean

COLUMNS = (
    Column(title="TIME"),
    Column(title="GUARDRAIL"),
    Column(title="CANARY"),
    Column(title="BASELINE"),
    Column(title="SHARE"),
    Column(title="FAIL E"),
    Column(title="PASS E"),
    Column(title="INTERVAL"),
    Column(title="VERDICT", shrink=1),
)


def analyze_table(a: Analysis, *, every_look: bool) -> Table:
    """Return the looks at which a verdict changed, and the last one; or every look."""
    rows = []
    before: tuple[str, ...] = ()
    for i, look in enumerate(a.looks):
        kinds = tuple(v.kind for v in look.verdicts)
        if every_look or kinds != before or i == len(a.looks) - 1:
            rows += [_row(look, v) for v in look.verdicts]
        before = kinds
    return Table(columns=COLUMNS, rows=tuple(rows), foot=_foot(a))


def _row(look: LookRow, v: Verdict) -> tuple[str, ...]:
    n = v.look
    interval = f"{v.interval[0]:.4g} to {v.interval[1]:.4g}" if v.interval is not None else "-"
    return (
        f"{look.at:%H:%M:%S}",
        clean(v.guardrail),
        f"{n.canary_events}/{n.canary_n}",
        f"{n.baseline_events}/{n.baseline_n}",
        f"{n.share:.1%}",
        f"{v.e_value:.3g}",
        f"{v.pass_e_value:.3g}",
        interval,
        clean(v.kind + (f": {v.detail}" if v.detail else "")),
    )


def _foot(a: Analysis) -> tuple[str, ...]:
    end = f"{a.kind} for {a.cell}"
    if a.decided_at is not None:
        end += f" at {a.decided_at:%Y-%m-%d %H:%M:%S} UTC, after {a.decided_n} canary requests"
    last = a.looks[-1].verdicts[0] if a.looks else None
    lines = [
        "",
        end + ".",
        f"{a.attempts} attempts, {a.scrapes} scrapes, {len(a.looks)} looks; quantiles frozen of {clean(a.frozen_from)}.",
    ]
    shares = cached_shares(a.looks[-1].arms) if a.looks else None
    if shares is not None:
        lines.append(f"Cached prompt tokens: {shares['baseline']:.1%} on the source, {shares['canary']:.1%} on the target.")
    if last is not None and last.missing and a.kind == "INCONCLUSIVE":
        lines.append(f"About {last.missing} more canary requests are needed for a PASS if both arms are equal.")
    return (*lines, *map(clean, a.notes))
