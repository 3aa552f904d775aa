"""Evidence, fake: a scripted EvidenceSource whole in memory that counts by brute force. Never a file."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log, sqrt

from fleetctl.domain.evidence import (
    ARMS,
    LADDER,
    Arm,
    ClusterSums,
    Counts,
    Cursor,
    Evidence,
    Series,
    SignalState,
    Thresholds,
    ladder_key,
)
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import EvidenceUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One attempt that a test scripts; latency None: an error where `failed`, else not timed."""

    cell: CellId
    arm: Arm
    started: Instant
    latency_ms: float | None
    failed: bool = False
    prompt_tokens: int = -1
    cached_tokens: int = -1


class FakeEvidence:
    """Counts what `add` was given, in that order; `down` makes it unavailable, `forced` overrides an arm's state.

    `source_at` is when the source wrote last beside what is counted; None: nobody can tell.
    """

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._attempts: list[Served] = []
        self.down = False
        self.source_at: Instant | None = None
        self.forced: dict[tuple[CellId, Arm], SignalState] = {}

    def add(self, *attempts: Served) -> None:
        """Let attempts have happened."""
        self._attempts += attempts

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now, without thresholds."""
        self._require()
        return Cursor(position=str(len(self._attempts)), since=self._now())

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take one class of quantiles from the newest 3,000 baseline requests."""
        self._require()
        newest = [a for a in self._attempts if a.cell == c and a.arm == "baseline"][-3000:]
        timed = sorted(a.latency_ms for a in newest if a.latency_ms is not None and not a.failed)
        if len(newest) < max(1, least) or not timed:
            return None
        logs = [log(v) for v in timed]
        mean = sum(logs) / len(logs)
        return Thresholds(
            class_edges=(),
            latency_ms=(tuple(timed[ceil(r * len(timed)) - 1] for r in LADDER),),
            scales=tuple(sorted({1.0, 1.5, *scales})),
            baseline_n=len(newest),
            baseline_error_ratio=sum(a.failed for a in newest) / len(newest),
            log_sd=sqrt(sum((v - mean) ** 2 for v in logs) / max(1, len(logs) - 1)),
        )

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Count everything since the cursor afresh."""
        self._require()
        own = [a for a in self._attempts if a.cell == c and a.started >= since.since]
        at = self._now()
        recent = [a for a in own if (at - a.started).total_seconds() <= 10]
        canary, baseline = ([a for a in own if a.arm == arm] for arm in ("canary", "baseline"))
        last = {arm: max((i for i, a in enumerate(own) if a.arm == arm), default=-1) for arm in ARMS}
        return Evidence(
            cell=c,
            at=at,
            arms={arm: _counts([a for a in own if a.arm == arm], since.thresholds) for arm in ARMS},
            state={arm: self._state(c, arm, own, at) for arm in ARMS},
            cursor=since,
            served_bp=round(FULL_BP * sum(a.arm == "canary" for a in recent) / len(recent)) if recent else None,
            first_canary_at=min((a.started for a in canary), default=None),
            last_at=max((a.started for a in own), default=None),
            canary_outcomes="".join("x" if a.failed else "." for a in canary),
            baseline_outcomes="".join("x" if a.failed else "." for a in baseline[-100:]),
            missed={arm: sum(a.arm != arm for a in own[last[arm] + 1 :]) for arm in ARMS},
            source_at=self.source_at,
            baseline_recent=sum(a.arm == "baseline" for a in recent),
            baseline_recent_errors=sum(a.arm == "baseline" and a.failed for a in recent),
        )

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List attempts per arm."""
        self._require()
        counts = Counter(a.arm for a in self._attempts if a.cell == c)
        return tuple(Series(arm=arm, name="attempts", present=counts[arm] > 0, detail=str(counts[arm])) for arm in ARMS)

    def _state(self, c: CellId, arm: Arm, own: list[Served], at: Instant) -> SignalState:
        if (c, arm) in self.forced:
            return self.forced[c, arm]
        newest = max((a.started for a in own if a.arm == arm), default=None)
        if newest is None:
            return "empty"
        return "stale" if (at - newest).total_seconds() > 10 else "ok"

    def _require(self) -> None:
        if self.down:
            raise EvidenceUnavailable("evidence.down", "the fake source of evidence is down", hint="Run: fleetctl doctor")


def _counts(own: list[Served], frozen: Thresholds | None) -> Counts:
    timed = sorted(a.latency_ms for a in own if not a.failed and a.latency_ms is not None)
    rows = frozen.latency_ms[0] if frozen is not None and frozen.latency_ms else ()
    seconds = Counter(int(a.started.timestamp()) for a in own if a.failed)
    known = [a for a in own if a.prompt_tokens >= 0 and a.cached_tokens >= 0]
    slo = frozen.slo_latency_ms if frozen is not None else None
    return Counts(
        attempts=len(own),
        errors=sum(a.failed for a in own),
        misses=_above(timed, slo) if slo is not None else 0,
        timed=len(timed),
        ladders={ladder_key(s): tuple(_above(timed, q * s) for q in rows) for s in (frozen.scales if frozen else ()) if rows},
        clusters=ClusterSums(clusters=len(seconds), errors=sum(seconds.values()), sum_sq=sum(v * v for v in seconds.values())),
        cached_tokens=sum(a.cached_tokens for a in known),
        prompt_tokens=sum(a.prompt_tokens for a in known),
        mean_latency_ms=sum(timed) / len(timed) if timed else 0.0,
        quantiles_ms=tuple(timed[ceil(r * len(timed)) - 1] for r in LADDER) if timed else (),
    )


def _above(ordered: list[float], limit: float) -> int:
    return len(ordered) - bisect_right(ordered, limit)
