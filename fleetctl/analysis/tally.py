"""Judge, pure layer: attempts of one cell since one cursor, counted as they come. Never reads a file, never judges.

The same attempts in the same order give the same counts, however they were cut into reads.

A log tells of requests when they end, the fast ones first. So a request's time counts only once it began long enough ago that one which
is still running is slower than every bound; and one that ended without an answer after as long counts as slow, beside being an error.
So does one without a first token by the bounds of those.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from heapq import heappop, heappush

from fleetctl.analysis.bursts import Bursts, together
from fleetctl.analysis.freeze import quantiles
from fleetctl.domain.evidence import (
    ARMS,
    FINISHED,
    LADDER,
    LADDER_METRICS,
    SETTLED,
    Arm,
    ClusterSums,
    Counts,
    Cursor,
    Evidence,
    Quantiles,
    SignalState,
    ladder_key,
)
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, GaveUp
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.domain.workload import REFUSALS, model_guardrails

RECENT_S = 10.0
"""The newest seconds: served share, and whether the baseline is failing too."""
STALE_S = 10.0
STALE_GAPS = 8.0
"""An arm is stale after 10 s without a new attempt, or 8 of its usual gaps (up to its last one) where those are longer."""
OUTCOMES = 5_000
"""Newest canary outcomes kept; a look that finds more new ones than that sees only these one by one."""
BASELINE_OUTCOMES = 100
"""Newest baseline outcomes kept: who fails now is told by those."""
MISLABELLED_SHARE = 0.05
MOST_WAIT_MS = 600_000.0
_SECONDS_KEPT = 4_096
_RECENT_KEPT_MS = 15_000
_LATENCIES_KEPT = 2_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


SHOWN = ("output_tokens", "tokens_per_s", "ttft", "token_time", "nll")
"""What is shown as a mean beside the ladders."""
TIMES = ("latency", "ttft")
"""Ladder metrics that are times from a request's start: what ended without them after longer than every bound is slow."""
SLO_MISSES = "slo_misses"
_CACHED, _FINISH, _MODEL = "cached", "finish:", "model:"
"""What waits beside the ladder metrics until no answer of its time is missing."""
_FINISHES_KEPT = 12
_RUNG_NAMES = {metric: tuple(f"{metric}/{i}" for i in range(len(LADDER))) for metric in LADDER_METRICS}
_MODELS_KEPT = 64
_SLOW_RUNG = LADDER.index(0.90)
"""An adapter model's request is slow above this quantile of its class: enough of them at any traffic, and near enough to a tail."""


@dataclass(slots=True, kw_only=True)
class MetricTally:
    """Running sums of one ladder metric of one arm; `rungs` per ladder key: how many fell between two rungs; `bursts` of each rung."""

    n: int = 0
    rungs: dict[str, list[int]] = field(default_factory=dict)
    bursts: Bursts = field(default_factory=Bursts)


@dataclass(slots=True, kw_only=True)
class Clustered:
    """Running sums of events by second."""

    n: int = 0
    clusters: int = 0
    sum_sq: int = 0
    seconds: dict[int, int] = field(default_factory=dict)

    def add(self, second: int) -> None:
        """Count one event."""
        before = self.seconds.get(second, 0)
        self.seconds[second] = before + 1
        self.n += 1
        self.sum_sq += 2 * before + 1
        if before == 0:
            self.clusters += 1
            if len(self.seconds) > _SECONDS_KEPT:
                del self.seconds[min(self.seconds)]

    def sums(self) -> ClusterSums:
        """Return the sums."""
        return ClusterSums(clusters=self.clusters, errors=self.n, sum_sq=self.sum_sq)


@dataclass(slots=True, kw_only=True)
class ArmTally:
    """Running sums of one arm."""

    attempts: int = 0
    failures: Clustered = field(default_factory=Clustered)
    misses: int = 0
    refused: Clustered = field(default_factory=Clustered)
    cached: int = 0
    prompt: int = 0
    latency_sum: float = 0.0
    first_ms: int | None = None
    last_ms: int | None = None
    metrics: dict[str, MetricTally] = field(default_factory=dict)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    finishes: dict[str, int] = field(default_factory=dict)
    finished: int = 0
    endings: Bursts = field(default_factory=Bursts)
    models: dict[str, list[int]] = field(default_factory=dict)
    gave_up: Clustered = field(default_factory=Clustered)
    settled: tuple[int, int] = (0, 0)

    def finish(self, started_ms: int, reason: str) -> None:
        """Count an answer by how it ended."""
        self.finished += 1
        is_kept = reason in self.finishes or len(self.finishes) < _FINISHES_KEPT
        self.endings.add(started_ms, [f"finish_{reason}"] if is_kept else ())
        if is_kept:
            self.finishes[reason] = self.finishes.get(reason, 0) + 1

    @property
    def timed(self) -> int:
        """Return the attempts whose latency was counted."""
        return self.metrics["latency"].n if "latency" in self.metrics else 0


class Tally:
    """Counts of one cell since one cursor.

    Args:
        streaming: a whole answer's time is not evidence; slo_latency_ms: unless the cursor's thresholds hold one.
        refusals: attempts tell whether they were refused.
        settle_ms: how long (ms, at least 0) a request may run before it fails; above 0, those that began earlier are counted apart.
    """

    def __init__(
        self, cell: CellId, cursor: Cursor, *, streaming: bool, slo_latency_ms: float | None, refusals: bool = False, settle_ms: float = 0.0
    ) -> None:
        self._cell, self._refusals, self._settle_ms = cell, refusals, settle_ms
        self._cursor = cursor
        self._streaming = streaming
        thresholds = cursor.thresholds
        self._slo = thresholds.slo_latency_ms if thresholds is not None and thresholds.slo_latency_ms is not None else slo_latency_ms
        self._since_ms = milliseconds(cursor.since)
        self._frozen: dict[str, Quantiles] = {}
        self._ladders: dict[str, list[tuple[str, tuple[tuple[float, ...], ...]]]] = {}
        for metric in LADDER_METRICS:
            own = thresholds.quantiles(metric) if thresholds is not None and not (streaming and metric == "latency") else None
            if thresholds is not None and own is not None and not own.edges_only:
                self._frozen[metric] = own
                self._ladders[metric] = [
                    (ladder_key(scale, metric), tuple(tuple(q * scale for q in row) for row in own.rows))
                    for scale in sorted({1.0, *thresholds.scales})
                ]
        self._bounds = {m: self._longest_bound(m) for m in TIMES}
        self._wait_ms = max(self._bounds.values())
        self._young: list[tuple[int, ArmTally, str, float, int]] = []
        self._unsettled: list[tuple[int, Arm, bool]] = []
        self._arms: dict[Arm, ArmTally] = {arm: ArmTally() for arm in ARMS}
        for arm in self._arms.values():
            arm.metrics = {m: MetricTally() for m in LADDER_METRICS}
            for metric, ladders in self._ladders.items():
                arm.metrics[metric].rungs = {key: [0] * (len(LADDER) + 1) for key, _ in ladders}
        self._outcomes: deque[str] = deque(maxlen=OUTCOMES)
        self._baseline: deque[str] = deque(maxlen=BASELINE_OUTCOMES)
        self._missed: dict[Arm, int] = dict.fromkeys(ARMS, 0)
        self._recent: deque[tuple[int, int, Arm, bool]] = deque()
        self._faults: dict[str, int] = {}
        self.skipped: dict[str, int] = {}
        self._cuts = self._cuts_told = 0

    def skip(self, why: str) -> None:
        """Count a line of this cell that is no evidence."""
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def cut(self) -> None:
        """Note that a part of the source was lost: a gap that the next evidence tells; counting goes on."""
        self._cuts += 1

    def add(self, a: Attempt) -> None:
        """Count one attempt; one that started before the cursor is left out."""
        if a.started_ms < self._since_ms:
            return
        arm = self._arms[a.arm]
        arm.attempts += 1
        if self._settle_ms:
            heappush(self._unsettled, (a.started_ms, a.arm, a.failed))
        arm.first_ms = a.started_ms if arm.first_ms is None else min(arm.first_ms, a.started_ms)
        arm.last_ms = a.ended_ms if arm.last_ms is None else max(arm.last_ms, a.ended_ms)
        self._recent.append((a.started_ms, a.ended_ms, a.arm, a.failed))
        while self._recent[0][1] < a.ended_ms - _RECENT_KEPT_MS:  # never the one just added, however long it took
            self._recent.popleft()
        (self._outcomes if a.arm == "canary" else self._baseline).append("x" if a.failed else ".")
        self._missed = {other: 0 if other == a.arm else n + 1 for other, n in self._missed.items()}
        if a.refused:
            arm.refused.add(a.started_ms // 1_000)
        if a.failed:
            arm.failures.add(a.started_ms // 1_000)
            elapsed = float(a.ended_ms - a.started_ms)
            for metric in TIMES:
                if metric in self._ladders and elapsed > self._bounds[metric] and not (metric == "ttft" and a.ttft_ms is not None):
                    self._young.append((a.started_ms, arm, metric, elapsed, a.prompt_tokens))
        else:
            for metric in LADDER_METRICS:
                value = a.measured(metric)
                if value is not None and not (self._streaming and metric == "latency"):
                    self._young.append((a.started_ms, arm, metric, value, a.prompt_tokens))
        self._show(arm, a)

    def give_up(self, g: GaveUp) -> None:
        """Count a request whose client went away: no attempt of its arm, but arms are compared by how often that happens."""
        if g.started_ms >= self._since_ms:
            self._arms[g.arm].gave_up.add(g.ended_ms // 1_000)

    def _show(self, arm: ArmTally, a: Attempt) -> None:
        """Add to what is shown, to adapter models, finish reasons and hard faults."""
        if a.model:
            self._by_model(arm, a)
        if a.prompt_tokens >= 0 and a.cached_tokens >= 0:
            self._young.append((a.started_ms, arm, _CACHED, float(a.cached_tokens), a.prompt_tokens))
        if a.fault and a.arm == "canary":
            self._faults[a.fault] = self._faults.get(a.fault, 0) + 1
        if a.failed:
            return
        if a.finish:
            self._young.append((a.started_ms, arm, _FINISH + a.finish, 0.0, 0))
        speed = 1_000 / a.token_ms if a.token_ms else None
        length = float(a.output_tokens) if a.output_tokens >= 0 else None
        for name, value in zip(SHOWN, (length, speed, a.ttft_ms, a.token_ms, a.nll), strict=True):
            if value is not None:
                total, n = arm.sums.get(name, (0.0, 0))
                arm.sums[name] = (total + value, n + 1)

    def _by_model(self, arm: ArmTally, a: Attempt) -> None:
        """Count a request of an adapter model: attempts and errors at once, those that were timed and those that were slow as any time."""
        if a.model not in arm.models and len(arm.models) >= _MODELS_KEPT:
            return
        row = arm.models.setdefault(a.model, [0, 0, 0, 0])
        row[0] += 1
        row[1] += a.failed
        value = a.measured("latency" if "latency" in self._frozen else "ttft")
        if value is not None:
            self._young.append((a.started_ms, arm, _MODEL + a.model, value, a.prompt_tokens))

    def _longest_bound(self, metric: str) -> float:
        """Return the longest time (ms) that a request is held against by a metric, at most 10 minutes; 0 where none is."""
        return min(max((e for _, rows in self._ladders.get(metric, ()) for row in rows for e in row), default=0.0), MOST_WAIT_MS)

    def _ripen(self, at_ms: float) -> None:
        """Count the times, and the errors that a PASS may rest on, of requests that began long enough ago."""
        while self._unsettled and self._unsettled[0][0] + self._settle_ms <= at_ms:
            _, name, is_failed = heappop(self._unsettled)
            n, k = self._arms[name].settled
            self._arms[name].settled = (n + 1, k + is_failed)
        young = []
        for entry in self._young:
            if entry[0] + self._wait_ms <= at_ms:
                self._time(*entry)
            else:
                young.append(entry)
        self._young = young

    def _time(self, started_ms: int, arm: ArmTally, metric: str, value: float, prompt_tokens: int) -> None:
        if metric == _CACHED:  # with the times that they made shorter, and not before them
            arm.prompt += prompt_tokens
            arm.cached += int(value)
            return
        if metric.startswith(_MODEL):
            frozen = self._frozen.get("latency") or self._frozen.get("ttft")
            if frozen is not None:
                row = arm.models[metric.removeprefix(_MODEL)]
                row[2] += 1
                row[3] += value > frozen.rows[bisect_right(frozen.class_edges, prompt_tokens)][_SLOW_RUNG]
            return
        if metric.startswith(_FINISH):
            arm.finish(started_ms, metric.removeprefix(_FINISH))
            return
        counted = arm.metrics[metric]
        counted.n += 1
        slow: tuple[str, ...] = ()
        if metric in self._frozen:
            class_ = bisect_right(self._frozen[metric].class_edges, prompt_tokens)
            for key, rows in self._ladders[metric]:
                over = bisect_left(rows[class_], value)
                counted.rungs[key][over] += 1
                slow = slow or _RUNG_NAMES[metric][:over]  # the first one is the baseline's own
        if metric == "latency":
            arm.latency_sum += value
            arm.latencies.append(value)
            if self._slo is not None and value > self._slo:
                arm.misses += 1
                slow = (*slow, SLO_MISSES)
        counted.bursts.add(started_ms, slow)

    def evidence(self, at: Instant) -> Evidence:
        """Return what has been counted, as seen at `at`."""
        self._ripen(milliseconds(at))
        floor = milliseconds(at) - RECENT_S * 1_000
        recent = [r for r in self._recent if r[0] >= floor]
        canary_recent = sum(1 for r in recent if r[2] == "canary")
        baseline = [r for r in self._recent if r[1] >= floor and r[2] == "baseline"]  # that ended lately: a time-out began long ago
        ends = [arm.last_ms for arm in self._arms.values() if arm.last_ms is not None]
        first = self._arms["canary"].first_ms
        has_gap, self._cuts_told = self._cuts > self._cuts_told, self._cuts
        bursts = self._bursts()
        return Evidence(
            cell=self._cell,
            at=at,
            arms={arm: self._counts(tally, bursts[arm]) for arm, tally in self._arms.items()},
            state={arm: "reset" if has_gap else self._state(tally, at) for arm, tally in self._arms.items()},
            cursor=self._cursor,
            served_bp=round(FULL_BP * canary_recent / len(recent)) if recent else None,
            first_canary_at=instant(first) if first is not None else None,
            last_at=instant(max(ends)) if ends else None,
            canary_outcomes="".join(self._outcomes),
            baseline_outcomes="".join(self._baseline),
            missed=dict(self._missed),
            baseline_recent=len(baseline),
            baseline_recent_errors=sum(1 for r in baseline if r[3]),
            detail=self._detail(),
            faults=tuple(sorted(self._faults)),
            cuts=self._cuts,
        )

    def _state(self, arm: ArmTally, at: Instant) -> SignalState:
        total = sum(a.attempts for a in self._arms.values())
        if self.skipped.get("mislabelled", 0) > MISLABELLED_SHARE * max(total, 1):
            return "mislabelled"
        if arm.attempts == 0 or arm.last_ms is None:
            return "empty"
        now = milliseconds(at)
        gap = max(0.0, arm.last_ms - self._since_ms) / arm.attempts
        return "stale" if now - arm.last_ms > max(STALE_S * 1_000, STALE_GAPS * gap) else "ok"

    def _bursts(self) -> dict[Arm, dict[str, ClusterSums]]:
        """Return the events that come in bursts: each rung's slow requests, SLO misses and the ways in which answers end."""
        found = [together({arm: tally.endings for arm, tally in self._arms.items()})]
        for metric in LADDER_METRICS:
            names = _RUNG_NAMES[metric] if metric in self._ladders else ()
            names += (SLO_MISSES,) if metric == "latency" and self._slo is not None else ()
            if names:
                found.append(together({arm: tally.metrics[metric].bursts for arm, tally in self._arms.items()}, names))
        return {arm: {name: sums for each in found for name, sums in each[arm].items()} for arm in ARMS}

    def _counts(self, arm: ArmTally, clusters: dict[str, ClusterSums]) -> Counts:
        counts = replace(_counts(arm), clusters_of=clusters)
        if self._settle_ms:
            counts = replace(counts, shares={**counts.shares, SETTLED: arm.settled})
        if not self._refusals:
            return counts
        shares = {**counts.shares, REFUSALS: (arm.attempts, arm.refused.n)}
        return replace(counts, shares=shares, clusters_of={**clusters, REFUSALS: arm.refused.sums()})

    def _detail(self) -> str:
        told = {**self.skipped, "aborted": sum(arm.gave_up.n for arm in self._arms.values())}
        parts = [f"{count} {why}" for why, count in sorted(told.items()) if why != "other" and count]
        if self._cuts:
            parts.append("the log was cut or removed" + (f" {self._cuts} times" if self._cuts > 1 else ""))
        return ", ".join(parts)


def _counts(arm: ArmTally) -> Counts:
    ladders: dict[str, tuple[int, ...]] = {}
    for metric, counted in arm.metrics.items():
        if not counted.n and metric != "latency":
            continue  # another source may measure it
        for key, histogram in counted.rungs.items():
            slower, above = [], 0
            for count in reversed(histogram[1:]):
                above += count
                slower.append(above)
            ladders[key] = tuple(reversed(slower))
    return Counts(
        attempts=arm.attempts,
        errors=arm.failures.n,
        misses=arm.misses,
        timed=arm.timed,
        ladders=ladders,
        clusters=arm.failures.sums(),
        gave_up=arm.gave_up.sums(),
        cached_tokens=arm.cached,
        prompt_tokens=arm.prompt,
        mean_latency_ms=arm.latency_sum / arm.timed if arm.timed else 0.0,
        quantiles_ms=quantiles(sorted(arm.latencies)),
        timed_of={m: t.n for m, t in arm.metrics.items() if t.n and m != "latency"},
        shares={**_finish_shares(arm), **_model_shares(arm)},
        means={name: total / n for name, (total, n) in arm.sums.items()},
    )


def _finish_shares(arm: ArmTally) -> dict[str, tuple[int, int]]:
    """Return how answers ended, and how many did; nothing where that is not known, since another source may tell it."""
    if not arm.finished:
        return {}
    return {FINISHED: (arm.finished, arm.finished), **{f"finish_{r}": (arm.finished, k) for r, k in sorted(arm.finishes.items())}}


def _model_shares(arm: ArmTally) -> dict[str, tuple[int, int]]:
    """Return errors and slow requests by adapter model; names that differ in signs alone count together."""
    out: dict[str, tuple[int, int]] = {}
    for model, (attempts, errors, timed, slow) in sorted(arm.models.items()):
        for name, n, k in zip(model_guardrails(model), (attempts, timed), (errors, slow), strict=True):
            before = out.get(name, (0, 0))
            out[name] = (before[0] + n, before[1] + k)
    return out


def milliseconds(at: Instant) -> float:
    """Return epoch milliseconds."""
    return (at - _EPOCH).total_seconds() * 1_000


def instant(epoch_ms: float) -> Instant:
    """Return the instant of epoch milliseconds."""
    return datetime.fromtimestamp(epoch_ms / 1_000, UTC)
