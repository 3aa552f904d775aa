"""Report, view layer: line charts and swim lanes as SVG text drawn here. Never I/O, never a script, every text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 540, 228
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 36, 38
MOST_POINTS = 500
"""Points drawn per line; more are thinned out evenly, the last kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart.

    Args:
        points: (seconds since the start, value) by time; a gap longer than `Chart.gap_s` breaks the line.
        style: CSS class: "source", "target", "asked", "served", "fail" or "pass"; `dashed` for the upper quantile.
        is_step: holds its value until the next point.
    """

    name: str
    style: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False
    is_step: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A step's time as a background band with its name on top."""

    start: float
    end: float
    name: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment: a vertical line with a name."""

    at: float
    name: str
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart.

    Args:
        seconds: length of the time axis, above 0; unit: of the y axis.
        low, high: of the y axis; is_log: powers of ten.
        bounds: (value, name, style) drawn as dashed lines across.
        gap_s: a longer time between two points breaks a line.
    """

    title: str
    unit: str
    seconds: float
    low: float
    high: float
    lines: tuple[Line, ...]
    bands: tuple[Band, ...] = ()
    marks: tuple[Mark, ...] = ()
    bounds: tuple[tuple[float, str, str], ...] = ()
    is_log: bool = False
    gap_s: float = 1e12
    empty: str = "no data"


def svg(chart: Chart) -> str:
    """Return the chart as one SVG element."""
    body = [*_bands(chart), *_y_axis(chart), *_x_axis(chart), *_bounds(chart), *_marks(chart)]
    drawn = [line for line in chart.lines if line.points]
    body += [_path(line, chart) for line in drawn]
    if not drawn:
        body.append(f'<text class="empty" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT / 2:.0f}">{escape(chart.empty)}</text>')
    label = escape(f"{chart.title}: " + ", ".join(line.name for line in chart.lines))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(body)}</svg>'


def legend(lines: Sequence[Line]) -> str:
    """Return the legend of a chart as HTML."""
    items = "".join(
        f'<li><svg viewBox="0 0 22 8" class="key"><path class="line {escape(x.style)}{" dashed" if x.dashed else ""}" d="M1 4H21"/></svg>'
        f"{escape(x.name)}</li>"
        for x in lines
    )
    return f'<ul class="legend">{items}</ul>'


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """Return at most `most` points: of each run of neighbours the lowest and the highest, in their order, and the last."""
    if len(points) <= most:
        return list(points)
    size = ceil(len(points) / (most // 2 - 1))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        run = points[start : start + size]
        low, high = min(run, key=lambda p: p[1]), max(run, key=lambda p: p[1])
        kept += sorted({low, high})
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _x(seconds: float, chart: Chart) -> float:
    return LEFT + min(1.0, max(0.0, seconds / chart.seconds)) * (WIDTH - LEFT - RIGHT)


def _y(value: float, chart: Chart) -> float:
    value = min(chart.high, max(chart.low, value))
    if chart.is_log:
        share = (log10(value) - log10(chart.low)) / (log10(chart.high) - log10(chart.low))
    else:
        share = (value - chart.low) / (chart.high - chart.low)
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _path(line: Line, chart: Chart) -> str:
    parts: list[str] = []
    before: tuple[float, float] | None = None
    for at, value in thinned(line.points):
        x, y = _x(at, chart), _y(value, chart)
        if before is None or at - before[0] > chart.gap_s:
            parts.append(f"M{x:.1f} {y:.1f}")
        elif line.is_step:
            parts.append(f"H{x:.1f}V{y:.1f}")
        else:
            parts.append(f"L{x:.1f} {y:.1f}")
        before = (at, value)
    if len(line.points) == 1 and before is not None:
        parts.append("h0.1")
    dashed = " dashed" if line.dashed else ""
    return f'<path class="line {escape(line.style)}{dashed}" d="{"".join(parts)}"><title>{escape(line.name)}</title></path>'


def _bands(chart: Chart) -> list[str]:
    out = []
    for number, band in enumerate(chart.bands):
        left, right = _x(band.start, chart), _x(band.end, chart)
        if right - left < 0.3:
            continue
        name = escape(band.name)
        out.append(
            f'<rect class="band {escape(band.style)} n{number % 2}" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}"'
            f' height="{HEIGHT - TOP - BOTTOM}"><title>{name}</title></rect>'
        )
        shown = next((t for t in (band.name, band.name.split(" ")[0]) if right - left > 5.9 * len(t) + 4), "")
        if shown:
            out.append(f'<text class="phase" x="{(left + right) / 2:.1f}" y="{TOP - 8}">{escape(shown)}</text>')
    return out


def _y_axis(chart: Chart) -> list[str]:
    out = []
    for value, text in _log_ticks(chart) if chart.is_log else _ticks(chart.low, chart.high):
        y = _y(value, chart)
        out.append(
            f'<path class="hair" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/><text class="tick end" x="{LEFT - 6}" y="{y + 3.5:.1f}">{text}</text>'
        )
    out.append(f'<text class="unit" x="4" y="11">{escape(chart.unit)}</text>')
    return out


def _log_ticks(chart: Chart) -> list[tuple[float, str]]:
    powers = range(ceil(log10(chart.low) - 1e-9), floor(log10(chart.high) + 1e-9) + 1)
    return [(10.0**p, f"{10 ** (p - 3):g}k" if p >= 3 else f"{10.0**p:g}") for p in powers]


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    step = nice_step((high - low) / 4)
    first = ceil(low / step - 1e-9)
    return [(n * step, f"{n * step:,g}") for n in range(first, floor(high / step + 1e-9) + 1)]


def nice_step(rough: float) -> float:
    """Return the 1, 2, 2.5 or 5 times a power of ten that is next above `rough`."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** floor(log10(rough))
    return next((m * power for m in (1.0, 2.0, 2.5, 5.0) if m * power >= rough - 1e-12), 10.0 * power)


def time_step(seconds: float) -> float:
    """Return the seconds between two ticks of a time axis of that length."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)
    return float(next((s for s in steps if seconds / s <= 7), ceil(seconds / 7 / 604800) * 604800))


def clock(seconds: float, length: float) -> str:
    """Return a moment on a time axis: "1:30" (min:s) up to an hour and a half, "3.5 h" up to two days, then "2 d"."""
    if length <= 5400:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
    return f"{seconds / 3600:g} h" if length <= 172800 else f"{seconds / 86400:g} d"


def time_label(length: float) -> str:
    """Return what a time axis of that length counts."""
    return "time since start, min:s" if length <= 5400 else "time since start"


def _x_axis(chart: Chart) -> list[str]:
    step = time_step(chart.seconds)
    y = HEIGHT - BOTTOM
    out = [f'<path class="axis" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>']
    for n in range(floor(chart.seconds / step + 1e-9) + 1):
        x = _x(n * step, chart)
        anchor = " end" if n and x > WIDTH - RIGHT - 14 else " mid"
        text = clock(n * step, chart.seconds)
        out.append(f'<path class="axis" d="M{x:.1f} {y}v4"/><text class="tick{anchor}" x="{x:.1f}" y="{y + 16}">{text}</text>')
    out.append(f'<text class="unit end" x="{WIDTH - RIGHT}" y="{HEIGHT - 5}">{time_label(chart.seconds)}</text>')
    return out


def _bounds(chart: Chart) -> list[str]:
    out = []
    for value, name, style in chart.bounds:
        y = _y(value, chart)
        out.append(f'<path class="bound {escape(style)}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        out.append(f'<text class="boundname {escape(style)}" x="{LEFT + 4}" y="{y - 3.5:.1f}">{escape(name)}</text>')
    return out


def _marks(chart: Chart) -> list[str]:
    out = []
    row, before = 0, -1e9
    for mark in chart.marks:
        x = _x(mark.at, chart)
        row = row + 1 if x - before < 140 else 0
        before = x
        anchor, shift = ("end", -4) if x > WIDTH - 90 else ("", 4)
        out.append(
            f'<path class="mark {escape(mark.style)}" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"><title>{escape(mark.name)}</title></path>'
            f'<text class="markname {escape(mark.style)} {anchor}" x="{x + shift:.1f}" y="{TOP + 12 + 13 * row}">{escape(mark.name)}</text>'
        )
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row of the timeline: its bands (style "w0" to "w4" by weight) and its moments."""

    name: str
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...]


LANE_WIDTH, LANE_LEFT, LANE_HEIGHT, LANE_TOP = 1100, 150, 40, 10


def swim_lanes(lanes: Sequence[Lane], seconds: float) -> str:
    """Return all cells over one time axis as one SVG element."""
    height = LANE_TOP + LANE_HEIGHT * len(lanes) + 38
    room = LANE_WIDTH - LANE_LEFT - 16

    def x(at: float) -> float:
        return LANE_LEFT + min(1.0, max(0.0, at / seconds)) * room

    base = LANE_TOP + LANE_HEIGHT * len(lanes)
    out = []
    step = time_step(seconds / 1.6)
    for n in range(floor(seconds / step + 1e-9) + 1):
        out.append(f'<path class="hair" d="M{x(n * step):.1f} {LANE_TOP}V{base + 4}"/>')
        out.append(f'<text class="tick mid" x="{x(n * step):.1f}" y="{base + 17}">{clock(n * step, seconds)}</text>')
    out.append(f'<text class="unit end" x="{LANE_WIDTH - 16}" y="{height - 4}">{time_label(seconds)}</text>')
    for row, lane in enumerate(lanes):
        top = LANE_TOP + row * LANE_HEIGHT
        out.append(f'<text class="lane end" x="{LANE_LEFT - 12}" y="{top + 23}">{escape(lane.name)}</text>')
        out.append(f'<path class="hair" d="M{LANE_LEFT} {top + LANE_HEIGHT}H{LANE_WIDTH - 16}"/>')
        for band in lane.bands:
            left, width = x(band.start), max(1.0, x(band.end) - x(band.start))
            out.append(f'<rect class="seg {escape(band.style)}" x="{left:.1f}" y="{top + 8}" width="{width:.1f}" height="22" rx="2">')
            out.append(f"<title>{escape(band.name)}</title></rect>")
            shown = next((t for t in (band.name, band.name.split(" ")[0]) if width > 6.4 * len(t) + 6), "")
            if shown:
                out.append(f'<text class="segname {escape(band.style)}" x="{left + width / 2:.1f}" y="{top + 23}">{escape(shown)}</text>')
        for mark in lane.marks:
            at = x(mark.at)
            out.append(
                f'<path class="pin {escape(mark.style)}" d="M{at:.1f} {top + 11}l8 8-8 8-8-8z"><title>{escape(mark.name)}</title></path>'
            )
    return f'<svg viewBox="0 0 {LANE_WIDTH} {height}" role="img" aria-label="Timeline of all cells">{"".join(out)}</svg>'
