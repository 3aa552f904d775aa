"""Analyze, use-case layer: recorded evidence judged again, with any settings, look by look. Never imports an adapter, never moves a weight.

It judges as a rollout of one step would have: quantiles frozen from the baseline before the canary's first request, warm-up left out,
attempts by their start, a look at steady times. What differs from a rollout: no gate, no orders, and one step only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from fleetctl.analysis.buckets import METRICS, BucketTally, freeze_edges
from fleetctl.analysis.freeze import FREEZE_MOST, frozen
from fleetctl.analysis.gave_up import GAVE_UP
from fleetctl.analysis.judge import fresh, judge, needed_scales
from fleetctl.analysis.power import LEAST_CANARY
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import LADDER_METRICS, SETTLE_S, Arm, Cursor, Evidence, JudgeState, LookRow, Thresholds, Verdict, VerdictKind
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, GaveUp, Record, Scrape
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import REFUSALS, GuardrailSpec, model_guardrails
from fleetctl.errors import UsageError
from fleetctl.usecases.evidence import merged

LEAST_BASELINE = 200
"""Baseline attempts (or scraped requests) from which quantiles are frozen here; a rollout asks for 1,000."""
MOST_LOOKS = 20_000
_OWN_BOUNDS = ("breaker", GAVE_UP)
"""Guardrails that are held against bounds of their own, whatever `alpha` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeSettings:
    """With what recorded evidence is judged.

    Args:
        guardrails: with their margins.
        look_every: time between looks, above 0; warm_up: left out after the canary's first request; settle: after which counters count.
        since: where evidence begins, None for the canary's first request plus warm-up; until: the last look, None for the end.
        alpha: chance of a false FAIL, the bound is 1/alpha; beta: of a false PASS; both above 0 and below 1.
        steps: that share the FAIL capital, as in a rollout of that many steps; 1 uses all of it.
        slo_latency_ms: promised latency, for slo_misses.
        streaming: a whole answer's time is no evidence, and a PASS on errors waits until no request of them still runs (`settle_errors`).
        sticky: all requests of one client go to one side, as where the cell has an affinity key.
    """

    guardrails: tuple[GuardrailSpec, ...]
    look_every: timedelta = timedelta(seconds=10)
    warm_up: timedelta = timedelta(0)
    settle: timedelta = timedelta(seconds=30)
    since: Instant | None = None
    until: Instant | None = None
    alpha: float = 0.01
    beta: float = 0.05
    steps: int = 1
    slo_latency_ms: float | None = None
    streaming: bool = False
    sticky: bool = False
    settle_errors: timedelta = timedelta(seconds=SETTLE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What came out.

    Args:
        kind: at the end: FAIL and PASS as soon as their bound was reached at some look.
        decided_at: that look's time, None where nothing was decided; decided_n: canary attempts by then.
        looks: every one, with all counts; state: of the judge after the last one.
        thresholds: what was frozen, and `frozen_from`: how it was.
    """

    cell: CellId
    kind: VerdictKind
    decided_at: Instant | None
    decided_n: int
    looks: tuple[LookRow, ...]
    state: JudgeState
    thresholds: Thresholds | None
    frozen_from: str
    attempts: int = 0
    scrapes: int = 0
    notes: tuple[str, ...] = field(default_factory=tuple)


def cells_of(records: Iterable[Record]) -> tuple[str, ...]:
    """Return the cells that a recording tells of."""
    return tuple(sorted({r.cell for r in records}))


def untold(guardrail: str, records: Iterable[Record], c: CellId, *, has_slo: bool) -> str:
    """Return why a recording says nothing of a guardrail for a cell, "" where it does."""
    own = [r for r in records if r.cell == c]
    attempts = [r for r in own if isinstance(r, Attempt)]
    keys = {key for r in own if isinstance(r, Scrape) for key in (*r.values, *r.buckets)}
    if guardrail == "slo_misses":
        return "" if has_slo else "no latency was promised: add --slo"
    if guardrail in LADDER_METRICS:
        series = METRICS.get(guardrail, "")
        told = any(a.measured(guardrail) is not None for a in attempts) or any(key.partition("/")[0] == series for key in keys)
    elif guardrail == REFUSALS:
        told = any(a.refused for a in attempts)
    elif guardrail.startswith("finish_"):
        told = any(a.finish == guardrail.removeprefix("finish_") for a in attempts) or any(k.startswith("finish_reason") for k in keys)
    elif guardrail.startswith("model_"):
        told = any(guardrail in model_guardrails(a.model) for a in attempts if a.model)
    elif guardrail.startswith("counter_"):
        told = any(key.startswith(f"counter.{guardrail.removeprefix('counter_')}/") for key in keys)
    else:
        told = guardrail == "errors" or (guardrail == "errors_scrapes" and bool(keys) and bool(attempts))
    return "" if told else "the recording tells nothing of it"


def by_cohort(records: Sequence[Record], cohorts: tuple[str, str] | None, *, model: str = "", arm: Arm | None = None) -> list[Record]:
    """Return the attempts of two cohorts (an A/B test of a team) as if the first were the baseline and the second the canary.

    Args:
        cohorts: as the router's log names them; None leaves the arms as they are.
        model: only requests of this adapter model; arm: only requests that this arm served, before cohorts take the arms' place.

    Raises:
        UsageError: analyze.cohort, analyze.model: nothing of that name is there.
    """
    if cohorts is None and not model and arm is None:
        return list(records)
    attempts = [r for r in records if isinstance(r, Attempt) and (arm is None or r.arm == arm)]
    if model and not any(a.model == model for a in attempts):
        known = sorted({a.model for a in attempts if a.model})[:8]
        raise UsageError("analyze.model", f"no request asked for the model {model[:60]!r}.", hint=f"Known: {', '.join(known) or 'none'}")
    attempts = [a for a in attempts if not model or a.model == model]
    if cohorts is None:
        return list(attempts)
    known = sorted({a.cohort for a in attempts if a.cohort})
    missing = [c for c in cohorts if c not in known]
    if missing or cohorts[0] == cohorts[1]:
        text = f"no request is of the cohort {missing[0][:60]!r}." if missing else "a cohort cannot be compared with itself."
        raise UsageError("analyze.cohort", text, hint=f"Known: {', '.join(known[:8]) or 'none: the router logs no cohort'}")
    sides: dict[str, Arm] = {cohorts[0]: "baseline", cohorts[1]: "canary"}
    return [replace(a, arm=sides[a.cohort]) for a in attempts if a.cohort in sides]


def analyze(records: Sequence[Record], c: CellId, settings: AnalyzeSettings, *, query: str = "", notes: tuple[str, ...] = ()) -> Analysis:
    """Judge one cell's records.

    Args:
        query: where they are from; notes: what was found wrong while they were read.

    Raises:
        UsageError: analyze.no_canary, analyze.no_baseline, analyze.too_many_looks.
    """
    own = sorted((r for r in records if r.cell == c), key=_visible_ms)
    attempts = [r for r in own if isinstance(r, Attempt)]
    scrapes = [r for r in own if isinstance(r, Scrape)]
    begin = _begin(attempts, scrapes, settings)
    end = min(settings.until or _instant(_visible_ms(own[-1])), _instant(_visible_ms(own[-1])))
    scales = needed_scales(settings.guardrails)
    thresholds, frozen_from = _thresholds(attempts, scrapes, begin, scales, settings)
    cursor = Cursor(position="", since=begin, thresholds=thresholds)
    looks = int((end - begin) / settings.look_every) + 1
    if looks > MOST_LOOKS:
        raise UsageError("analyze.too_many_looks", f"{looks} looks are too many.", hint="Add: --every with a longer time")
    is_log = any(a.refused for a in attempts) or any(isinstance(r, GaveUp) for r in own)  # probes tell neither
    tally = _tally(c, cursor, settings, refusals=is_log) if attempts else None
    slo, settle_s = settings.slo_latency_ms, settings.settle.total_seconds()
    counters = BucketTally(c, cursor, settle_s=settle_s, slo_latency_ms=slo, leads=not attempts) if scrapes else None
    state, rows, done = fresh(settings.steps, sum(g.judged for g in settings.guardrails)), [], 0
    kind: VerdictKind = "NO_DATA"
    decided: LookRow | None = None
    for i in range(1, looks + 1):
        at = min(begin + i * settings.look_every, end)
        while done < len(own) and _visible_ms(own[done]) <= at.timestamp() * 1_000:
            r = own[done]
            if isinstance(r, Attempt) and tally is not None:
                tally.add(r)
            elif isinstance(r, GaveUp) and tally is not None:
                tally.give_up(r)
            elif isinstance(r, Scrape) and counters is not None:
                counters.add(r)
            done += 1
        evidence = replace(_evidence(tally, counters, at, query), sticky=settings.sticky)
        state, verdicts = judge(state, evidence, settings.guardrails)
        verdicts = _bounded(verdicts, evidence.arms["canary"].attempts, settings)
        rows.append(_row(c, at, evidence, verdicts))
        if decided is None:
            kind = verdicts[0].kind
            decided = rows[-1] if kind in ("FAIL", "PASS") else None
        elif kind == "PASS" and verdicts[0].kind == "FAIL":
            kind, decided = "FAIL", rows[-1]
    return Analysis(
        cell=c,
        kind=kind,
        decided_at=decided.at if decided else None,
        decided_n=decided.verdicts[0].look.canary_n if decided else 0,
        looks=tuple(rows),
        state=state,
        thresholds=thresholds,
        frozen_from=frozen_from,
        attempts=len(attempts),
        scrapes=len(scrapes),
        notes=notes,
    )


def _tally(c: CellId, cursor: Cursor, settings: AnalyzeSettings, *, refusals: bool) -> Tally:
    """Return what counts as the source of a rollout would: see `RouterLogEvidence`."""
    settle_ms = settings.settle_errors.total_seconds() * 1_000 if settings.streaming else 0.0
    return Tally(c, cursor, streaming=settings.streaming, slo_latency_ms=settings.slo_latency_ms, refusals=refusals, settle_ms=settle_ms)


def _visible_ms(r: Record) -> int:
    return r.at_ms if isinstance(r, Scrape) else r.ended_ms


def _instant(ms: float) -> Instant:
    return datetime.fromtimestamp(ms / 1_000, UTC)


def _begin(attempts: Sequence[Attempt], scrapes: Sequence[Scrape], settings: AnalyzeSettings) -> Instant:
    if settings.since is not None:
        return settings.since
    canary = [a.started_ms for a in attempts if a.arm == "canary"] or [s.at_ms for s in scrapes if s.arm == "canary"]
    if not canary:
        raise UsageError("analyze.no_canary", "the recording holds nothing of the canary.", hint="Look: head of the recording")
    return _instant(min(canary)) + settings.warm_up


def _thresholds(
    attempts: Sequence[Attempt], scrapes: Sequence[Scrape], begin: Instant, scales: tuple[float, ...], settings: AnalyzeSettings
) -> tuple[Thresholds | None, str]:
    """Freeze quantiles from the baseline before evidence begins; where too little was recorded then, from its first part after."""
    wanted = [g.name for g in settings.guardrails if g.name in LADDER_METRICS]
    baseline = [a for a in attempts if a.arm == "baseline"]
    begin_ms = begin.timestamp() * 1_000
    before = [a for a in baseline if a.ended_ms < begin_ms][-FREEZE_MOST:]
    for chosen, how in ((before, "before the canary"), (baseline[:FREEZE_MOST], "from the same time as the evidence")):
        measured = [m for m in wanted if any(a.measured(m) is not None for a in chosen)]
        found = frozen(chosen, measured, scales, LEAST_BASELINE, slo_latency_ms=settings.slo_latency_ms)
        if found is not None:
            return found, f"{len(chosen)} baseline attempts {how}"
    early = [s for s in scrapes if s.at_ms < begin_ms + settings.settle.total_seconds() * 1_000]
    edges = freeze_edges(early or scrapes, scales, LEAST_BASELINE, slo_latency_ms=settings.slo_latency_ms)
    if edges is not None:
        return edges, "bounds of buckets near to the baseline's quantiles"
    if wanted and not baseline and not scrapes:
        raise UsageError("analyze.no_baseline", "the recording holds nothing of the baseline.", hint="Look: head of the recording")
    return None, "nothing: too few baseline requests"


def _evidence(tally: Tally | None, counters: BucketTally | None, at: Instant, query: str) -> Evidence:
    if tally is None:
        if counters is None:
            raise UsageError("analyze.no_canary", "the recording is empty.", hint="Look: head of the recording")
        return counters.evidence(at, query)
    first = replace(tally.evidence(at), query=query)
    return first if counters is None else merged(first, counters.evidence(at), "scrapes", is_tolerated=True)


def _bounded(verdicts: Sequence[Verdict], canary: int, settings: AnalyzeSettings) -> tuple[Verdict, ...]:
    """Hold e-values against these bounds instead of the judge's own; what keeps the judge from a PASS keeps it from one here.

    Args:
        verdicts: of the whole, then of its parts; canary: requests that it has answered.
    """
    whole, *each = verdicts
    has_enough = canary >= LEAST_CANARY
    parts = [_one_bounded(v, settings, may_pass=has_enough and not v.blocked) for v in each]
    passed = {v.guardrail for v in parts if v.kind == "PASS"}
    wanted = {g.name for g in settings.guardrails if g.judged and g.needs_pass}
    return (_one_bounded(whole, settings, may_pass=bool(wanted) and not whole.blocked and wanted <= passed), *parts)


def _one_bounded(v: Verdict, settings: AnalyzeSettings, *, may_pass: bool) -> Verdict:
    fail, passed = 1 / settings.alpha, 1 / settings.beta
    if v.guardrail in _OWN_BOUNDS or v.holds:
        return v
    kind = v.kind
    is_of_another = kind == "FAIL" and any(v.detail == f"failed on {name}" for name in _OWN_BOUNDS)
    if kind in ("FAIL", "PASS", "INCONCLUSIVE") and not is_of_another:
        kind = "FAIL" if v.e_value >= fail else "PASS" if may_pass and v.pass_e_value >= passed else "INCONCLUSIVE"
    return replace(v, kind=kind, fail_bound=fail, pass_bound=passed)


def _row(c: CellId, at: Instant, e: Evidence, verdicts: tuple[Verdict, ...]) -> LookRow:
    total = sum(a.attempts for a in e.arms.values())
    share = round(10_000 * e.arms["canary"].attempts / total) if total else None
    why = verdicts[0].detail or verdicts[0].kind
    return LookRow(
        cell=c, at=at, phase="analyze", target_bp=share or 0, served_bp=share, arms=e.arms, verdicts=verdicts, why=why, query=e.query
    )
