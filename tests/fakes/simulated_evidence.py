"""Seeded traffic for tests of the judge: looks at two arms as Evidence, made with numpy; lognormal latencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from fleetctl.domain.evidence import LADDER, Arm, ClusterSums, Counts, Cursor, Evidence, Thresholds, ladder_key
from fleetctl.domain.ids import CellId

START = datetime(2026, 1, 1, tzinfo=UTC)
CELL = CellId("chat")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the two arms really do.

    Args:
        per_s: requests a second on both arms; share: of the canary; errors0, errors1: failing share of each arm.
        factor: canary latency over the baseline's; tail: share of canary requests that are `tail_factor` slower.
        look_s: seconds between looks, whole; cluster: mean number of errors that come together (geometric).
    """

    per_s: float = 40.0
    share: float = 0.5
    errors0: float = 0.005
    errors1: float = 0.005
    log_sd: float = 0.6
    factor: float = 1.0
    tail: float = 0.0
    tail_factor: float = 3.0
    look_s: int = 1
    looks: int = 60
    cluster: float = 1.0
    scales: tuple[float, ...] = (1.0, 1.1, 1.25, 1.5)
    frozen_n: int = 3000


def frozen(s: Setting, rng: np.random.Generator) -> Thresholds:
    """Freeze thresholds from a sample of the baseline, as a source would."""
    sample = rng.lognormal(0.0, s.log_sd, s.frozen_n)
    return Thresholds(
        class_edges=(),
        latency_ms=(tuple(float(q) for q in np.quantile(sample, LADDER)),),
        scales=s.scales,
        baseline_n=s.frozen_n,
        baseline_error_ratio=float(rng.binomial(s.frozen_n, s.errors0) / s.frozen_n),
        log_sd=s.log_sd,
    )


def _errors(rng: np.random.Generator, attempts: Any, rate: float, cluster: float) -> Any:
    if cluster <= 1.0:
        return rng.binomial(attempts, rate)
    groups = rng.binomial(attempts, rate / cluster)
    extra = np.where(groups > 0, rng.negative_binomial(np.maximum(groups, 1), 1 / cluster), 0)
    return np.minimum(groups + extra, attempts)


def _arm(s: Setting, rng: np.random.Generator, t: Thresholds, arm: Arm) -> list[Counts]:
    share = s.share if arm == "canary" else 1 - s.share
    seconds = s.look_s * s.looks
    attempts = rng.poisson(s.per_s * share, seconds)
    errors = _errors(rng, attempts, s.errors1 if arm == "canary" else s.errors0, s.cluster)
    timed = attempts - errors
    latency = rng.lognormal(0.0, s.log_sd, int(timed.sum()))
    if arm == "canary":
        latency = latency * s.factor
        if s.tail:
            latency = np.where(rng.random(latency.size) < s.tail, latency * s.tail_factor, latency)
    ends = np.cumsum(timed)[s.look_s - 1 :: s.look_s]
    ladders: dict[float, Any] = {}
    for scale in s.scales:
        rows = []
        for q in t.latency_ms[0]:
            slower = np.concatenate(([0], np.cumsum(latency > scale * q)))
            rows.append(slower[ends])
        ladders[scale] = np.stack(rows, axis=1)
    at = slice(s.look_s - 1, None, s.look_s)
    n, k = np.cumsum(attempts)[at], np.cumsum(errors)[at]
    squares, clusters = np.cumsum(errors**2)[at], np.cumsum(errors > 0)[at]
    return [
        Counts(
            attempts=int(n[i]),
            errors=int(k[i]),
            timed=int(ends[i]),
            ladders={ladder_key(scale): tuple(int(v) for v in rows[i]) for scale, rows in ladders.items()},
            clusters=ClusterSums(clusters=int(clusters[i]), errors=int(k[i]), sum_sq=int(squares[i])),
        )
        for i in range(s.looks)
    ]


def looks(s: Setting, seed: int, since: datetime = START) -> Iterator[Evidence]:
    """Yield every look of one run."""
    rng = np.random.default_rng(seed)
    t = frozen(s, rng)
    cursor = Cursor(position=f"{seed}:0", since=since, thresholds=t)
    arms: dict[Arm, list[Counts]] = {"baseline": _arm(s, rng, t, "baseline"), "canary": _arm(s, rng, t, "canary")}
    for i in range(s.looks):
        yield Evidence(
            cell=CELL,
            at=since + timedelta(seconds=s.look_s * (i + 1)),
            arms={arm: counts[i] for arm, counts in arms.items()},
            state={"baseline": "ok", "canary": "ok"},
            cursor=cursor,
        )
