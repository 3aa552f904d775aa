"""Simulator: customers of several cells as counts per arm; what each arm really does is set by the world.

Counts are drawn for whole stretches of time, at the moments at which somebody counts or something changes: one Poisson number for failed
requests and one for each range of latency between two bounds that anybody asks for, which has the same law as request by request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from math import erf, exp, log, sqrt

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
BOUNDS = sorted({s * q for s in SCALES for q in FROZEN.latency_ms[0]})
ASKED = np.array([BOUNDS.index(s * q) + 1 for s in SCALES for q in FROZEN.latency_ms[0]])
KEYS = tuple(ladder_key(s) for s in SCALES)
RECENT = timedelta(seconds=10)
NEWEST = 200
"""Outcomes of the canary that are told one by one: the newest."""
AFTER = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What an arm does to a request: times as slow, share that fails, share that is ten times as slow."""

    slower: float = 1.0
    failing: float = 0.002
    tail: float = 0.0


FAILING = Behaviour(failing=1.0)


@cache
def shares(does: Behaviour) -> npt.NDArray[np.float64]:
    """Return the chance of a request to fail, and else to end between two bounds: shape (2 + bounds)."""

    def below(ms: float, times: float) -> float:
        return 0.5 * (1 + erf(log(ms / (BASE_MS * does.slower * times)) / (LOG_SD * sqrt(2))))

    under = [(1 - does.tail) * below(b, 1.0) + does.tail * below(b, 10.0) for b in BOUNDS]
    return np.array([does.failing, *np.diff([0.0, *under, 1.0]) * (1 - does.failing)])


@dataclass(slots=True)
class ArmLog:
    """Totals of one arm after each stretch of time, so that any two can be subtracted.

    Args:
        totals: attempts, errors, seconds with errors, their squares, requests slower than each bound (the first is 0).
    """

    ends: list[datetime]
    totals: list[Vector]
    outcomes: list[str] = field(default_factory=lambda: [""])
    last: datetime | None = None


class _Behaviours(dict[tuple[CellId, Arm], Behaviour]):
    """What was before a change is counted as it was."""

    def __init__(self, before: Callable[[CellId], None]) -> None:
        super().__init__()
        self._before = before

    def __setitem__(self, of: tuple[CellId, Arm], does: Behaviour) -> None:
        self._before(of[0])
        super().__setitem__(of, does)


class CountedTraffic:
    """EvidenceSource over simulated customers; `down` makes it unavailable, `forced` overrides an arm's state.

    Args:
        now: the world's clock; weight_bp: what the router shows of a cell, None while it serves nobody.
        dead: arms whose replicas are all away: every request to them fails.
    """

    def __init__(
        self,
        cells: tuple[CellId, ...],
        now: Callable[[], datetime],
        weight_bp: Callable[[CellId], int | None],
        rng: np.random.Generator,
        per_s: float,
    ) -> None:
        self.rng, self.per_s, self._now, self._weight_bp = rng, per_s, now, weight_bp
        self._upto = dict.fromkeys(cells, now())
        zero = np.zeros(5 + len(BOUNDS), dtype=np.int64)
        self._logs = {(c, a): ArmLog(ends=[now()], totals=[zero]) for c in cells for a in ARMS}
        self.behaviour = _Behaviours(self.settle)
        self.behaviour.update({(c, a): Behaviour() for c in cells for a in ARMS})
        self.dead: set[tuple[CellId, Arm]] = set()
        self.forced: dict[tuple[CellId, Arm], SignalState] = {}
        self.down = False

    def settle(self, c: CellId, cut: datetime | None = None) -> None:
        """Draw what customers of a cell have sent until now; `cut` is a moment that is asked for later. Before each change of the world."""
        now = self._now()
        began = self._upto[c]
        if now <= began:
            return
        bp = self._weight_bp(c)
        if bp is not None:
            cuts = sorted({t for t in (cut, now - RECENT) if t is not None and began < t < now})
            self._draw(c, [began, *cuts, now], self.share_of_target(c, bp))
        self._upto[c] = now

    def share_of_target(self, c: CellId, bp: int) -> float:
        """Return the share of customers whom the router sends to the target: its weight, also while the source is dead."""
        return bp / 10_000

    def sent(self, c: CellId) -> tuple[int, int]:
        """Return how many customers of a cell were sent to baseline and canary, as far as they are drawn; for checks, which draw none."""
        base, canary = (self._logs[c, a].totals[-1][0] for a in ARMS)
        return int(base), int(canary)

    def settle_all(self) -> None:
        """Draw what all customers have sent until now."""
        for c in self._upto:
            self.settle(c)

    def _draw(self, c: CellId, at: list[datetime], canary: float) -> None:
        """Draw both arms between each two moments."""
        does = {a: FAILING if (c, a) in self.dead else self.behaviour[c, a] for a in ARMS}
        split = {"canary": canary, "baseline": 1 - canary}
        seconds = [(b - a).total_seconds() for a, b in pairwise(at)]
        means = np.concatenate([self.per_s * s * split[a] * shares(does[a]) for s in seconds for a in ARMS])
        drawn = self.rng.poisson(means).reshape(len(seconds), len(ARMS), -1)
        rows = np.zeros((*drawn.shape[:2], 4 + drawn.shape[2] - 1), dtype=np.int64)
        rows[:, :, 4:] = drawn[:, :, :0:-1].cumsum(axis=2)[:, :, ::-1]
        rows[:, :, 1] = drawn[:, :, 0]
        rows[:, :, 0] = drawn[:, :, 0] + rows[:, :, 4]
        for row, end, s in zip(rows, at[1:], seconds, strict=True):
            for arm, counts in zip(ARMS, row, strict=True):
                self._log(c, arm, end, s, counts)

    def _log(self, c: CellId, arm: Arm, end: datetime, seconds: float, new: Vector) -> None:
        n, errors = new[:2].tolist()
        if n == 0:
            return
        log_ = self._logs[c, arm]
        if errors:
            of_second = np.bincount(self.rng.integers(0, max(1, round(seconds)), errors))
            new[2], new[3] = np.count_nonzero(of_second), of_second @ of_second
        log_.ends.append(end)
        log_.totals.append(log_.totals[-1] + new)
        log_.outcomes.append(self._outcomes(n, errors))
        log_.last = end

    def _outcomes(self, n: int, errors: int) -> str:
        """Return the newest outcomes of `n`, failures among them by chance."""
        told = min(n, NEWEST)
        failed = errors if told == n else int(self.rng.hypergeometric(errors, n - errors, told))
        if not failed:
            return "." * told
        marks = ["."] * told
        for i in self.rng.permutation(told)[:failed].tolist():
            marks[i] = "x"
        return "".join(marks)

    # EvidenceSource -----------------------------------------------------------------------------------------------------

    def mark(self, c: CellId) -> Cursor:
        self._require()
        self.settle(c)
        return Cursor(position="", since=self._now())

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        self._require()
        return FROZEN

    def read(self, c: CellId, since: Cursor) -> Evidence:
        self._require()
        self.settle(c, cut=since.since)
        now = self._now()
        recent = {a: self._since(c, a, now - RECENT) for a in ARMS}
        n = {a: int(recent[a][0]) for a in ARMS}
        return Evidence(
            cell=c,
            at=now,
            arms={a: self._counts(c, a, since.since) for a in ARMS},
            state={a: self._state(c, a, since.since) for a in ARMS},
            cursor=since,
            served_bp=round(10_000 * n["canary"] / sum(n.values())) if any(n.values()) else None,
            last_at=now,
            canary_outcomes=self._newest(c, since.since),
            baseline_outcomes="".join(self._logs[c, "baseline"].outcomes[-20:])[-100:],
            missed={a: self._missed(c, a, since.since) for a in ARMS},
            source_at=now,
            baseline_recent=n["baseline"],
            baseline_recent_errors=int(recent["baseline"][1]),
        )

    def describe(self, c: CellId) -> tuple[Series, ...]:
        return tuple(Series(arm=a, name="attempts", present=True) for a in ARMS)

    def attempts(self, c: CellId, arm: Arm, since: datetime) -> int:
        """Return the attempts of an arm since a moment; for checks, which see through every forced state."""
        self.settle(c)
        return int(self._since(c, arm, since)[0])

    def _since(self, c: CellId, arm: Arm, since: datetime) -> Vector:
        log_ = self._logs[c, arm]
        return log_.totals[-1] - log_.totals[max(0, bisect_left(log_.ends, since + AFTER) - 1)]

    def _newest(self, c: CellId, since: datetime) -> str:
        log_ = self._logs[c, "canary"]
        told = ""
        for end, outcomes in zip(reversed(log_.ends), reversed(log_.outcomes), strict=True):
            if end <= since or len(told) >= NEWEST:
                break
            told = outcomes + told
        return told[-NEWEST:]

    def _counts(self, c: CellId, arm: Arm, since: datetime) -> Counts:
        got = self._since(c, arm, since)
        slower = got[4 + ASKED].tolist()
        n, errors, seconds, squares = got[:4].tolist()
        rungs = len(LADDER)
        return Counts(
            attempts=n,
            errors=errors,
            timed=n - errors,
            ladders={key: tuple(slower[i * rungs : (i + 1) * rungs]) for i, key in enumerate(KEYS)},
            clusters=ClusterSums(clusters=seconds, errors=errors, sum_sq=squares),
        )

    def _missed(self, c: CellId, arm: Arm, since: datetime) -> int:
        other: Arm = "baseline" if arm == "canary" else "canary"
        return int(self._since(c, other, max(since, self._logs[c, arm].last or since))[0])

    def _state(self, c: CellId, arm: Arm, since: datetime) -> SignalState:
        if (c, arm) in self.forced:
            return self.forced[c, arm]
        last = self._logs[c, arm].last
        if last is None or last <= since:
            return "empty"
        return "stale" if self._now() - last > RECENT else "ok"

    def _require(self) -> None:
        if self.down:
            raise EvidenceUnavailable("evidence.down", "the simulated source of evidence is down", hint="Run: fleetctl doctor")


assert all(abs(log(q / BASE_MS) / LOG_SD - z) < 1e-9 for q, z in zip(FROZEN.latency_ms[0], Z, strict=True))
