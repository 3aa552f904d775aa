"""Simulator: customers of several cells as counts per arm, drawn with numpy; what each arm really does is set by the world."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import exp, log

import numpy as np
import numpy.typing as npt

from fleetctl.domain.evidence import ARMS, LADDER, Arm, ClusterSums, Counts, Cursor, Evidence, Series, SignalState, Thresholds, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.errors import EvidenceUnavailable

Vector = npt.NDArray[np.int64]
LOG_SD = 0.25
BASE_MS = 50.0
SCALES = (1.0, 1.1, 1.25, 1.5, 2.0)
Z = (0.0, 0.6745, 1.2816, 1.6449, 2.3263)
"""Standard normal quantiles of `LADDER`."""
FROZEN = Thresholds(
    class_edges=(),
    latency_ms=(tuple(BASE_MS * exp(LOG_SD * z) for z in Z),),
    scales=SCALES,
    baseline_n=3000,
    baseline_error_ratio=0.002,
    log_sd=LOG_SD,
)
BOUNDS = np.array(sorted({s * q for s in SCALES for q in FROZEN.latency_ms[0]}))
PLACE = {(s, i): int(np.searchsorted(BOUNDS, s * q)) for s in SCALES for i, q in enumerate(FROZEN.latency_ms[0])}


@dataclass(slots=True)
class Behaviour:
    """What an arm does to a request: times as slow, share that fails, share that is ten times as slow."""

    slower: float = 1.0
    failing: float = 0.002
    tail: float = 0.0


@dataclass(slots=True)
class ArmLog:
    """Totals of one arm after each stretch of time, so that any two can be subtracted."""

    ends: list[datetime] = field(default_factory=list)
    totals: list[Vector] = field(default_factory=list)  # attempts, errors, seconds with errors, their squares, slower than each bound
    outcomes: list[str] = field(default_factory=list)
    last: datetime | None = None


class CountedTraffic:
    """EvidenceSource over simulated customers; `down` makes it unavailable, `forced` overrides an arm's state."""

    def __init__(self, cells: tuple[CellId, ...], now: datetime, rng: np.random.Generator, per_s: float) -> None:
        self.rng, self.per_s, self.at = rng, per_s, now
        self.behaviour: dict[tuple[CellId, Arm], Behaviour] = {(c, a): Behaviour() for c in cells for a in ARMS}
        self.forced: dict[tuple[CellId, Arm], SignalState] = {}
        self.down = False
        zero = np.zeros(4 + len(BOUNDS) + 1, dtype=np.int64)
        self._logs = {(c, a): ArmLog(ends=[now], totals=[zero], outcomes=[""]) for c in cells for a in ARMS}

    def serve(self, c: CellId, target_bp: int, seconds: float) -> None:
        """Let customers of a cell send requests for so long, split as the router does."""
        self._serve(c, "canary", self.per_s * seconds * target_bp / 10_000, seconds)
        self._serve(c, "baseline", self.per_s * seconds * (1 - target_bp / 10_000), seconds)

    def _serve(self, c: CellId, arm: Arm, mean: float, seconds: float) -> None:
        log_, does = self._logs[c, arm], self.behaviour[c, arm]
        end = self.at + timedelta(seconds=seconds)
        n = int(self.rng.poisson(mean)) if mean > 0 else 0
        if n == 0:
            return
        errors = int(self.rng.binomial(n, does.failing))
        new = np.zeros_like(log_.totals[-1])
        per_second = (
            self.rng.multinomial(errors, [1 / max(1, round(seconds))] * max(1, round(seconds))) if errors else np.zeros(1, dtype=int)
        )
        new[:4] = n, errors, int((per_second > 0).sum()), int((per_second**2).sum())
        if n > errors:
            slow = BASE_MS * does.slower * self.rng.lognormal(0.0, LOG_SD, n - errors)
            if does.tail:
                slow[self.rng.random(len(slow)) < does.tail] *= 10
            new[4:] = np.bincount(np.searchsorted(BOUNDS, slow), minlength=len(BOUNDS) + 1)
        log_.ends.append(end)
        log_.totals.append(log_.totals[-1] + new)
        marks = np.full(n, ".")
        marks[self.rng.choice(n, errors, replace=False)] = "x"
        log_.outcomes.append("".join(marks[-400:]))
        log_.last = end

    def mark(self, c: CellId) -> Cursor:
        self._require()
        return Cursor(position="", since=self.at)

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        self._require()
        return FROZEN

    def read(self, c: CellId, since: Cursor) -> Evidence:
        self._require()
        arms: dict[Arm, Counts] = {a: self._counts(c, a, since.since) for a in ARMS}
        recent = self._recent(c)
        canary = self._logs[c, "canary"]
        first = bisect_left(canary.ends, since.since + timedelta(microseconds=1))
        served = self._served_bp(c)
        return Evidence(
            cell=c,
            at=self.at,
            arms=arms,
            state={a: self._state(c, a, since.since) for a in ARMS},
            cursor=since,
            served_bp=served,
            last_at=self.at,
            canary_outcomes="".join(canary.outcomes[first:][-200:])[-2000:],
            baseline_outcomes="".join(self._logs[c, "baseline"].outcomes[-20:])[-100:],
            missed={a: self._missed(c, a, since.since) for a in ARMS},
            source_at=self.at,
            baseline_recent=int(recent[0]),
            baseline_recent_errors=int(recent[1]),
        )

    def describe(self, c: CellId) -> tuple[Series, ...]:
        return tuple(Series(arm=a, name="attempts", present=True) for a in ARMS)

    def _since(self, c: CellId, arm: Arm, since: datetime) -> Vector:
        log_ = self._logs[c, arm]
        return log_.totals[-1] - log_.totals[max(0, bisect_left(log_.ends, since + timedelta(microseconds=1)) - 1)]

    def _counts(self, c: CellId, arm: Arm, since: datetime) -> Counts:
        got = self._since(c, arm, since)
        slower = got[4:][::-1].cumsum()[::-1]
        ladders = {ladder_key(s): tuple(int(slower[PLACE[s, i] + 1]) for i in range(len(LADDER))) for s in SCALES}
        n, errors, seconds, squares = (int(v) for v in got[:4])
        return Counts(
            attempts=n,
            errors=errors,
            timed=n - errors,
            ladders=ladders,
            clusters=ClusterSums(clusters=seconds, errors=errors, sum_sq=squares),
        )

    def _recent(self, c: CellId) -> Vector:
        return self._since(c, "baseline", self.at - timedelta(seconds=10))

    def _missed(self, c: CellId, arm: Arm, since: datetime) -> int:
        other: Arm = "baseline" if arm == "canary" else "canary"
        return int(self._since(c, other, max(since, self._logs[c, arm].last or since))[0])

    def _served_bp(self, c: CellId) -> int | None:
        n = {a: int(self._since(c, a, self.at - timedelta(seconds=10))[0]) for a in ARMS}
        total = sum(n.values())
        return round(10_000 * n["canary"] / total) if total else None

    def _state(self, c: CellId, arm: Arm, since: datetime) -> SignalState:
        if (c, arm) in self.forced:
            return self.forced[c, arm]
        last = self._logs[c, arm].last
        if last is None or last <= since:
            return "empty"
        return "stale" if self.at - last > timedelta(seconds=10) else "ok"

    def _require(self) -> None:
        if self.down:
            raise EvidenceUnavailable("evidence.down", "the simulated source of evidence is down", hint="Run: fleetctl doctor")


assert all(abs(log(q / BASE_MS) / LOG_SD - z) < 1e-9 for q, z in zip(FROZEN.latency_ms[0], Z, strict=True))
