"""Bench baselines: how other canary judges decide, written from their documented behaviour, on the same simulated traffic.

- kayenta_like: one number a minute and arm (p99, or error ratio); at each minute from the tenth on (60 looks at
  most, over two hours at most), the 98 % interval of the location
  shift (Hodges and Lehmann; Mann and Whitney); worse where its lower limit is above a quarter of the estimated shift. Empty minutes are
  dropped, and no data is no failure.
- flagger_like: each minute against a fixed limit (p99 at most 1.2 x the baseline's known one; success at least 99 %); an empty minute is a
  failed check; failed checks only add up; the fifth rolls back.
- argo_like: each minute canary over baseline in the last five minutes (p99 at most 1.1 x, error ratio at most 2 x); the fourth failure
  rolls back; an undefined ratio of no errors on both sides is a success, of no requests a failure.
- mann_whitney_peeked: one-sided at 1 % over all requests so far, each minute (latency; errors by the same test on 0 and 1).
- z_test_peeked: one-sided at 1 % on two shares, each minute: requests above the frozen p99, or errors.

Each tool returns the minute in which it rolls back, from 1, or 0 for never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from tests.bench.canary.traffic import FROZEN_N, Setting

_Z1 = NormalDist().inv_cdf(0.99)
_BINS = 512
_WIDTH = 16.0
"""Latencies for the rank test are counted in bins of log(latency) / log-sd over this width: ties of 0.03 sd, counted as ties."""
_LOOKS, _WINDOW = 60, 120
"""Looks and minutes of the growing window of the interval test, at most: longer runs are looked at less often."""


@dataclass(frozen=True, kw_only=True)
class Minutes:
    """One run as the tools see it, per minute: requests, errors and p99 (nan where none) per arm; bins of latency; over the frozen p99."""

    n: Any
    errors: Any
    p99: Any
    window_p99: Any
    bins: Any
    over: Any
    true_p99: float


def minutes(s: Setting, rng: np.random.Generator, factor: Callable[[int], tuple[Any, Any]] | None, *, latency: bool) -> Minutes:
    """Draw one run; `factor(minute)` multiplies both arms' latencies."""
    length = round(s.minutes)
    n = np.stack([rng.poisson(s.per_min * share, length) for share in (1 - s.share, s.share)])
    errors = np.stack([_errors(rng, n[a], rate, s.cluster) for a, rate in enumerate((s.errors0, s.errors1))])
    empty = np.full((2, length), np.nan)
    if not latency:
        return Minutes(n=n, errors=errors, p99=empty, window_p99=empty, bins=None, over=errors, true_p99=1.0)
    true_p99 = float(np.exp(s.log_sd * NormalDist().inv_cdf(0.99)))
    frozen = float(np.quantile(rng.lognormal(0.0, s.log_sd, FROZEN_N), 0.99))
    p99, window, bins, over = empty.copy(), empty.copy(), [], []
    for arm in range(2):
        at = np.repeat(np.arange(length), n[arm])
        logs = rng.normal(0.0, s.log_sd, len(at))
        if arm == 1:
            logs += np.log(s.factor)
            if s.tail:
                logs[rng.random(len(at)) < s.tail] += np.log(s.tail_factor)
        if factor is not None:
            moved = np.log([factor(m)[arm] for m in range(length)])
            logs += moved[at]
        p99[arm], window[arm] = _p99s(np.exp(logs), at, n[arm])
        place = np.clip(((logs / s.log_sd + _WIDTH / 2) / _WIDTH * _BINS).astype(int), 0, _BINS - 1)
        bins.append(np.bincount(at * _BINS + place, minlength=length * _BINS).reshape(length, _BINS))
        over.append(np.bincount(at, weights=logs > np.log(frozen), minlength=length))
    return Minutes(n=n, errors=errors, p99=p99, window_p99=window, bins=np.stack(bins), over=np.stack(over), true_p99=true_p99)


def _errors(rng: np.random.Generator, n: Any, rate: float, cluster: float) -> Any:
    if cluster <= 1.0:
        return rng.binomial(n, rate)
    groups = rng.binomial(n, rate / cluster)
    more = np.where(groups > 0, rng.negative_binomial(np.maximum(groups, 1), 1 / cluster), 0)
    return np.minimum(groups + more, n)


def _p99s(values: Any, at: Any, n: Any) -> tuple[Any, Any]:
    """Return the p99 (interpolated) of each minute and of each window of five minutes."""
    starts = np.concatenate([[0], np.cumsum(n)])
    one, five = np.full(len(n), np.nan), np.full(len(n), np.nan)
    for m in range(len(n)):
        for out, first in ((one, m), (five, max(0, m - 4))):
            part = values[starts[first] : starts[m + 1]]
            if len(part):
                k = 0.99 * (len(part) - 1)
                low, high = int(k), ceil(k)
                ordered = np.partition(part, [low, high])
                out[m] = ordered[low] + (k - low) * (ordered[high] - ordered[low])
    return one, five


def kayenta_like(m: Minutes, *, latency: bool) -> int:
    """Return the minute of rollback."""
    with np.errstate(divide="ignore", invalid="ignore"):
        series = m.p99 if latency else m.errors / m.n
    length = series.shape[1]
    for now in range(10, length + 1, max(1, length // _LOOKS)):
        base, canary = (row[np.isfinite(row)] for row in series[:, max(0, now - _WINDOW) : now])
        if len(base) < 2 or len(canary) < 2 or (np.ptp(base) == 0 and np.ptp(canary) == 0):
            continue
        shifts = np.sort((canary[:, None] - base[None, :]).ravel())
        pairs = len(shifts)
        rank = pairs / 2 - _Z1 * sqrt(pairs * (len(base) + len(canary) + 1) / 12)
        low, middle = shifts[max(0, int(rank))], shifts[pairs // 2]
        if low > 0.25 * middle and low > 0 and canary.mean() > base.mean():
            return now
    return 0


def flagger_like(m: Minutes, *, latency: bool) -> int:
    """Return the minute of rollback."""
    if latency:
        return _nth(~(m.p99[1] <= 1.2 * m.true_p99), 5)
    return _nth((m.n[1] == 0) | (m.errors[1] > 0.01 * m.n[1]), 5)


def argo_like(m: Minutes, *, latency: bool) -> int:
    """Return the minute of rollback."""
    if latency:
        failed = ~(m.window_p99[1] <= 1.1 * m.window_p99[0])
    else:
        n, k = (np.stack([np.convolve(row, np.ones(5))[: row.shape[0]] for row in rows]) for rows in (m.n, m.errors))
        failed = (n[0] == 0) | (n[1] == 0) | (k[1] * n[0] > 2 * k[0] * n[1])
    return _nth(failed, 4)


def mann_whitney_peeked(m: Minutes, *, latency: bool) -> int:
    """Return the minute of rollback."""
    if not latency:
        return z_test_peeked(m, latency=False)
    seen = np.cumsum(m.bins, axis=1, dtype=np.float64)
    n0, n1 = (seen[a].sum(axis=1) for a in range(2))
    below = np.cumsum(seen[0], axis=1) - seen[0]
    u = (seen[1] * (below + seen[0] / 2)).sum(axis=1)
    n, ties = n0 + n1, seen.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = n0 * n1 / 12 * (n + 1 - ((ties**3 - ties).sum(axis=1)) / (n * (n - 1)))
        z = (u - n0 * n1 / 2) / np.sqrt(variance)
    return _nth(z > _Z1, 1)


def z_test_peeked(m: Minutes, *, latency: bool) -> int:
    """Return the minute of rollback."""
    n, k = np.cumsum(m.n, axis=1), np.cumsum(m.over if latency else m.errors, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = k.sum(axis=0) / n.sum(axis=0)
        z = (k[1] / n[1] - k[0] / n[0]) / np.sqrt(pooled * (1 - pooled) * (1 / n[0] + 1 / n[1]))
    return _nth(z > _Z1, 1)


def _nth(failed: Any, times: int) -> int:
    where = np.flatnonzero(np.cumsum(failed) >= times)
    return int(where[0]) + 1 if len(where) else 0


TOOLS: dict[str, Callable[..., int]] = {
    "kayenta_like": kayenta_like,
    "flagger_like": flagger_like,
    "argo_like": argo_like,
    "mann_whitney_peeked": mann_whitney_peeked,
    "z_test_peeked": z_test_peeked,
}


def run_tools(
    s: Setting, runs: int, seed: int, *, latency: bool, factors: Iterator[Callable[[int], tuple[Any, Any]]] | None = None
) -> dict[str, Any]:
    """Return per tool and run the canary requests at the rollback, infinite where there was none."""
    rng, out = np.random.default_rng(seed), {name: np.full(runs, np.inf) for name in TOOLS}
    for run in range(runs):
        m = minutes(s, rng, next(factors) if factors is not None else None, latency=latency)
        canary = np.cumsum(m.n[1])
        for name, tool in TOOLS.items():
            at = tool(m, latency=latency)
            if at:
                out[name][run] = canary[at - 1]
    return out
