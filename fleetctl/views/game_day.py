"""Coming home, view layer: what rehearsals measured, as text at 80 columns and as a page to print. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fleetctl.domain.runbook import MENDED, SEEN_BY_PEOPLE, Timing
from fleetctl.usecases.drill import Rehearsed
from fleetctl.views.columns import WIDTH, clean, columns, wrapped

PARTS = ("detect", "decide", "zero", "verified")
TITLES = ("PART", "THIS RUN", "MEDIAN", "MAXIMUM", "RUNS")
STYLE = """body{font:14px/1.45 system-ui,sans-serif;max-width:46em;margin:2em auto;color:#111}
table{border-collapse:collapse;margin:.6em 0}td,th{border:1px solid #999;padding:.2em .7em;text-align:right}td:first-child,th:first-child
{text-align:left}.red{font-weight:bold}section{break-inside:avoid}@media print{body{margin:0}}"""


def game_day_lines(done: Sequence[Rehearsed], goal_s: float, width: int = WIDTH) -> list[str]:
    """Return the report of one or more rehearsals: what was broken, when what happened, and how it compares with all before."""
    out = [line for i, d in enumerate(done) for line in (*([""] if i else []), *_one(d, goal_s, width))]
    if len(done) > 1:
        green = sum(d.timing.is_ok for d in done)
        rows = [["RUNBOOK", "FAULT", "FAULT TO VERIFIED", "RESULT"]]
        rows += [[d.timing.runbook, d.timing.fault, _seconds(d.timing.verified_s), _word(d.timing)] for d in done]
        out += ["", f"{green} of {len(done)} rehearsals are green", "", *columns(rows, right=(2,), width=width, keep=(0, 2, 3))]
    return out


def _one(done: Rehearsed, goal_s: float, width: int) -> list[str]:
    t = done.timing
    out = wrapped(f"Game day: {clean(t.runbook)} of {clean(t.cell)}, {t.at:%Y-%m-%d %H:%M:%S}Z, by {clean(t.actor.name)}", width)
    out += ["", *wrapped(f"Fault: {clean(t.fault)} (lab: hosts and engines are emulated, router and judge are real)", width)]
    return [*out, "", *columns([list(TITLES), *_rows(done)], right=(1, 2, 3, 4), width=width), "", *wrapped(_result(t, goal_s), width)]


def _rows(done: Rehearsed) -> list[list[str]]:
    by_part = {s.part: s for s in done.spread}
    rows = []
    for part in PARTS:
        s = by_part.get(part)
        known = ["-", "-", "0"] if s is None else [f"{s.median_s:.2f} s", f"{s.max_s:.2f} s", str(s.runs)]
        rows.append([part, _seconds(getattr(done.timing, f"{part}_s")), *known])
    return rows


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _word(t: Timing) -> str:
    return "GREEN" if t.is_ok else "NOT GREEN"


def _result(t: Timing, goal_s: float) -> str:
    detail = f": {clean(t.detail)}" if t.detail else ""
    kind = t.fault.partition(" ")[0]
    if kind in MENDED:
        return f"{_word(t)}{detail}. Mended in place by the runbook; the weight must only not rise."
    seen = " Only people notice this fault, so no detection is timed." if kind in SEEN_BY_PEOPLE else ""
    return f"{_word(t)}{detail}. Home was ordered by the {t.by}; the goal is {goal_s:g} s from fault to zero.{seen}"


def game_day_page(done: Sequence[Rehearsed], goal_s: float) -> str:
    """Return the same as one HTML page that prints on A4, without scripts or anything from elsewhere."""
    parts = []
    for d in done:
        t = d.timing
        rows = "".join("<tr>" + "".join(f"<td>{escape(clean(c))}</td>" for c in row) + "</tr>" for row in _rows(d))
        head = "".join(f"<th>{escape(c)}</th>" for c in TITLES)
        parts.append(
            f"<section><h2>{escape(clean(t.runbook))} of {escape(clean(t.cell))}</h2>"
            f"<p>{t.at:%Y-%m-%d %H:%M:%S}Z, by {escape(clean(t.actor.name))}. Fault: {escape(clean(t.fault))}.</p>"
            f'<table><tr>{head}</tr>{rows}</table><p class="{"green" if t.is_ok else "red"}">{escape(_result(t, goal_s))}</p></section>'
        )
    green = sum(d.timing.is_ok for d in done)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Game day</title><style>{STYLE}</style></head><body><h1>Game day</h1>"
        f"<p>{green} of {len(done)} rehearsals are green. Seconds from the fault on; median and maximum over all rehearsals kept here.</p>"
        f"{''.join(parts)}</body></html>\n"
    )
