"""Report, view layer: looks and events of one cell to the lines, bands and marks of its charts. Never I/O, never a judgement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import ARMS, LADDER, LookRow, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.report import ReportData
from fleetctl.domain.units import Instant
from fleetctl.views.columns import percent
from fleetctl.views.report_charts import Band, Chart, Line, Mark, nice_step

E_LOW, E_HIGH = 0.01, 10_000.0
"""Range of the evidence axis; what lies outside is drawn at the edge."""
ENDS = {
    "rollout.rolled_back": ("rolled back", "fail"),
    "rollout.fell_back": ("fallback", "home"),
    "rollout.aborted": ("aborted", "home"),
    "rollout.lost_evidence": ("evidence lost", "home"),
    "rollout.complete": ("complete", "pass"),
    "fallback.returned": ("fallback", "home"),
    "verdict.fail": ("FAIL", "fail"),
}
ARM_NAME = {"baseline": "source", "canary": "target"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStory:
    """What happened to one cell.

    Args:
        outcome: "complete", "soak", "rolled back", "home", "under way" or "not started"; came_home: by order or lost evidence.
        attempts, failed: over all looks and arms, each piece of evidence counted once.
    """

    cell: CellId
    looks: tuple[LookRow, ...]
    events: tuple[Event, ...]
    start: Instant
    seconds: float
    outcome: str
    was_complete: bool
    was_rolled_back: bool
    came_home: bool
    attempts: int
    failed: int


def stories(data: ReportData) -> tuple[CellStory, ...]:
    """Return one story per cell of the fleet that has looks, events or a rollout, in the fleet's order."""
    ended = {r.cell: r for r in data.rollouts}
    known = [c.id for c in data.fleet.cells]
    others = sorted((set(data.looks) | set(ended)) - set(known))
    found = []
    for cell in (*known, *others):
        looks = tuple(data.looks.get(cell, ()))
        events = tuple(e for e in data.events if e.cell == cell)
        if looks or events or cell in ended:
            found.append(_story(cell, looks, events, data))
    return tuple(found)


def _story(cell: CellId, looks: tuple[LookRow, ...], events: tuple[Event, ...], data: ReportData) -> CellStory:
    rollout = next((r for r in data.rollouts if r.cell == cell), None)
    kinds = {e.kind for e in events}
    end = rollout.ended if rollout is not None else _end_told(events)
    complete = "rollout.complete" in kinds or end == "complete"
    back = "rollout.rolled_back" in kinds or end == "rolled_back"
    home = bool(kinds & {"rollout.fell_back", "rollout.aborted", "rollout.lost_evidence", "fallback.returned"}) or end in (
        "fell_back",
        "aborted",
        "lost_evidence",
    )
    times = [look.at for look in looks] + [e.at for e in events]
    start = min(times) if times else data.made_at
    attempts, failed = counted_once(looks)
    return CellStory(
        cell=cell,
        looks=looks,
        events=events,
        start=start,
        seconds=max(1.0, (max(times) - start).total_seconds()) if times else 1.0,
        outcome=_outcome(end, looks, rollout is not None),
        was_complete=complete or any(look.phase == "soak" for look in looks),
        was_rolled_back=back,
        came_home=home,
        attempts=attempts,
        failed=failed,
    )


def _end_told(events: tuple[Event, ...]) -> str:
    kinds = [e.kind for e in events if e.kind.startswith("rollout.") and (e.kind in ENDS or e.kind == "rollout.start")]
    told = [kind.removeprefix("rollout.") for kind in kinds]
    return told[-1] if told and told[-1] != "start" else ""


def _outcome(end: str, looks: tuple[LookRow, ...], has_rollout: bool) -> str:
    words = {"rolled_back": "rolled back", "fell_back": "fell back", "lost_evidence": "lost evidence"}
    if end:
        return words.get(end, end)
    if looks:
        return "in soak" if looks[-1].phase == "soak" else "under way"
    return "under way" if has_rollout else "not started"


def counted_once(looks: Iterable[LookRow]) -> tuple[int, int]:
    """Return (attempts, errors) of both arms; counts grow within a step and start afresh at the next, so each peak counts once."""
    attempts = errors = 0
    for arm in ARMS:
        before = None
        for look in looks:
            now = look.arms.get(arm)
            if now is None:
                continue
            if before is not None and now.attempts < before.attempts:
                attempts, errors = attempts + before.attempts, errors + before.errors
            before = now
        if before is not None:
            attempts, errors = attempts + before.attempts, errors + before.errors
    return attempts, errors


def bands(story: CellStory) -> tuple[Band, ...]:
    """Return the steps as bands; a step ends where the next begins."""
    out: list[Band] = []
    for look in story.looks:
        at = _at(look.at, story)
        name = look.phase + (f" {percent(look.target_bp)}" if look.target_bp else "")
        if out and out[-1].name == name:
            out[-1] = Band(start=out[-1].start, end=at, name=name, style=out[-1].style)
            continue
        if out:
            out[-1] = Band(start=out[-1].start, end=at, name=out[-1].name, style=out[-1].style)
        out.append(Band(start=at, end=at, name=name, style=weight_style(look.target_bp)))
    return tuple(out)


def weight_style(target_bp: int) -> str:
    """Return the class of a weight: w0 (nothing) to w4 (95 % and more)."""
    return "w" + str(sum(target_bp >= least for least in (1, 2_000, 6_000, 9_500)))


def marks(story: CellStory, kinds: Sequence[str] = tuple(ENDS)) -> tuple[Mark, ...]:
    """Return the moments that matter; of two at the same second the first is kept."""
    out: list[Mark] = []
    for e in story.events:
        if e.kind in ENDS and e.kind in kinds:
            name, style = ENDS[e.kind]
            at = _at(e.at, story)
            if not out or at - out[-1].at > story.seconds / 50:
                out.append(Mark(at=at, name=name, style=style))
    return tuple(out)


def _at(at: Instant, story: CellStory) -> float:
    return (at - story.start).total_seconds()


def _gap(story: CellStory) -> float:
    times = [_at(look.at, story) for look in story.looks]
    steps = [b - a for a, b in pairwise(times) if b > a]
    return max(15.0, 6 * median(steps)) if steps else 15.0


def share_chart(story: CellStory) -> Chart:
    """Return the share of traffic: what was asked and what was served."""
    asked = tuple((_at(look.at, story), look.target_bp / 100) for look in story.looks)
    served = tuple((_at(look.at, story), look.served_bp / 100) for look in story.looks if look.served_bp is not None)
    return Chart(
        title="Share of requests on the target",
        unit="% of requests",
        seconds=story.seconds,
        low=0.0,
        high=100.0,
        lines=(Line(name="asked", style="asked", points=asked, is_step=True), Line(name="served", style="served", points=served)),
        bands=bands(story),
        marks=marks(story),
        gap_s=_gap(story) if served else 1e12,
        empty="no look yet",
    )


def latency_chart(story: CellStory) -> Chart:
    """Return p50 and p95 of each arm; counted since the step began, so a line starts afresh with each step."""
    lines = []
    for arm in ARMS:
        for rung in (0.50, 0.95):
            place = LADDER.index(rung)
            points = tuple(
                (_at(look.at, story), look.arms[arm].quantiles_ms[place])
                for look in story.looks
                if arm in look.arms and len(look.arms[arm].quantiles_ms) == len(LADDER)
            )
            name = f"{ARM_NAME[arm]} p{rung * 100:.0f}"
            lines.append(Line(name=name, style=ARM_NAME[arm], points=points, dashed=rung > 0.5))
    top = max((value for line in lines for _, value in line.points), default=1.0)
    step = nice_step(max(top, 1e-9) * 1.08 / 4)
    return Chart(
        title="Latency per arm",
        unit="ms",
        seconds=story.seconds,
        low=0.0,
        high=step * (1 + int(top * 1.08 / step)),
        lines=tuple(lines),
        bands=bands(story),
        marks=marks(story),
        gap_s=_gap(story),
        empty="no latency evidence (the router's log has none for streams)",
    )


def evidence_charts(story: CellStory) -> tuple[Chart, Chart]:
    """Return the evidence of every guardrail for FAIL against its bound, and for PASS against its own, on log axes."""
    seen = [(_at(look.at, story), v) for look in story.looks for v in look.verdicts]
    names = sorted({v.guardrail for _, v in seen}, key=lambda n: (n != "all", n))
    fail = tuple(
        Line(
            name=_spoken(n),
            style=_guardrail_style(n),
            points=tuple((at, _edge(v.e_value)) for at, v in seen if v.guardrail == n),
        )
        for n in names
    )
    passing = tuple(
        Line(name=_spoken(n), style=_guardrail_style(n), points=tuple((at, _edge(_pass_value(v))) for at, v in seen if v.guardrail == n))
        for n in names
        if n != "breaker"
    )
    fail_bound = next((v.fail_bound for _, v in seen), 100.0)
    pass_bound = next((v.pass_bound for _, v in seen), 20.0)
    return (
        _evidence_chart(story, "Evidence that the target is worse", fail, (fail_bound, f"FAIL at {fail_bound:g}", "fail")),
        _evidence_chart(story, "Evidence that it is as good", passing, (pass_bound, f"PASS at {pass_bound:g}", "pass")),
    )


def _evidence_chart(story: CellStory, title: str, lines: tuple[Line, ...], bound: tuple[float, str, str]) -> Chart:
    return Chart(
        title=title,
        unit="e-value (log)",
        seconds=story.seconds,
        low=E_LOW,
        high=E_HIGH,
        lines=lines,
        bands=bands(story),
        marks=marks(story),
        bounds=(bound,),
        is_log=True,
        gap_s=_gap(story),
        empty="no verdict yet",
    )


def _spoken(guardrail: str) -> str:
    return "all together" if guardrail == "all" else guardrail.replace("_", " ")


def _guardrail_style(guardrail: str) -> str:
    known = {"all": "g0", "errors": "g1", "latency": "g2", "quality": "g3", "slo_misses": "g4", "breaker": "g5"}
    return known.get(guardrail, "g4")


def _pass_value(v: Verdict) -> float:
    return v.pass_e_value


def _edge(value: float) -> float:
    return min(E_HIGH, max(E_LOW, value))
