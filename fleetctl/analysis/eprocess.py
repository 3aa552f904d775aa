"""Judge, pure layer: e-values of blocks of two-arm Bernoulli counts, in log space. Never I/O, never a verdict.

A block is what happened on both arms between two looks: `n0` attempts with `k0` events on the baseline, `n1` with `k1` on the
canary. For an alternative (q0, q1) fixed BEFORE the block and a convex null, the likelihood ratio of (q0, q1) against its
projection on the null (weights n0 and n1) has expectation at most 1 under every point of the null, whatever the rate is in this
block. So products over blocks, and means of such products over alternatives, are valid under continuous looking, without knowing
the baseline's rate and with the share that was really served (n0 and n1 themselves).

Source: Turner, Ly, Grunwald, "Generic E-variables for exact sequential k-sample tests that allow for optional stopping", and
Turner, Grunwald, "Exact anytime-valid confidence intervals for contingency tables and beyond" (the convex null). For rare events
and an equal-rates null it becomes the conditional binomial e-process (Lindon, Malek, NeurIPS 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, log1p, sqrt
from statistics import NormalDist
from typing import NamedTuple

LEAST_RATE = 1e-6
"""Rates are kept this far from 0 and 1, so that no event has probability 0."""
_NORMAL = NormalDist()
_STEPS = 60


class Block(NamedTuple):
    """Increments of both arms between two looks: attempts n0, n1 and events k0, k1 among them."""

    n0: int
    k0: int
    n1: int
    k1: int


def clip(rate: float) -> float:
    """Return `rate` kept inside (0, 1)."""
    return LEAST_RATE if rate < LEAST_RATE else 1 - LEAST_RATE if rate > 1 - LEAST_RATE else rate


def kl(a: float, b: float) -> float:
    """Return the Kullback-Leibler divergence of Bernoulli(a) from Bernoulli(b), nat."""
    left = a * log(a / b) if a > 0 else 0.0
    right = (1 - a) * (log1p(-a) - log1p(-b)) if a < 1 else 0.0
    return left + right


def log_ratio(n: int, k: int, q: float, p: float) -> float:
    """Return the log-likelihood ratio of Bernoulli(q) to Bernoulli(p) for k events in n."""
    out = (n - k) * (log1p(-q) - log1p(-p))
    return out + k * log(q / p) if k else out


def nearest_null(n0: float, n1: float, q0: float, q1: float, shift: float) -> tuple[float, float]:
    """Return the point (p0, p1 = p0 + shift) that minimises n0 kl(q0, p0) + n1 kl(q1, p1).

    Args:
        n0, n1: weights, above 0; q0, q1: inside (0, 1); shift: margin in points / 100, 0 for equal rates.
    """
    if shift == 0.0:
        pooled = (n0 * q0 + n1 * q1) / (n0 + n1)
        return pooled, pooled
    floor, ceiling = max(1e-12, 1e-12 - shift), min(1.0, 1.0 - shift) - 1e-12
    low, high = sorted((min(max(q0, floor), ceiling), min(max(q1 - shift, floor), ceiling)))
    for _ in range(_STEPS):  # the derivative grows with p0: bisection
        middle = 0.5 * (low + high)
        other = middle + shift
        slope = n0 * (middle - q0) / (middle * (1 - middle)) + n1 * (other - q1) / (other * (1 - other))
        if slope > 0:
            high = middle
        else:
            low = middle
        if high - low <= 1e-15 + 1e-12 * high:
            break
    p0 = 0.5 * (low + high)
    return p0, p0 + shift


def log_e(block: Block, q0: float, q1: float, shift: float, *, worse: bool) -> float:
    """Return the log e-value of a block for the alternative (q0, q1).

    Args:
        worse: True tests the null "canary at most baseline + shift" (FAIL side), False the null "canary at least baseline +
            shift" (PASS side). An alternative that lies inside the null says nothing: 0.
    """
    if block.n0 <= 0 or block.n1 <= 0:
        return 0.0
    n0, k0, n1, k1 = block.n0, block.k0, block.n1, block.k1
    q0, q1 = clip(q0), clip(q1)
    if (q1 <= q0 + shift) if worse else (q1 >= q0 + shift):
        return 0.0
    p0, p1 = nearest_null(n0, n1, q0, q1, shift)
    return log_ratio(n0, k0, q0, p0) + log_ratio(n1, k1, q1, p1)


def log_es(block: Block, q0: float, alternatives: Sequence[float], *, worse: bool) -> list[float]:
    """Return `log_e` without a shift for several alternatives q1 at once; all rates inside (0, 1)."""
    n0, k0, n1, k1 = block.n0, block.k0, block.n1, block.k1
    if n0 <= 0 or n1 <= 0:
        return [0.0] * len(alternatives)
    total, of_baseline = n0 + n1, k0 * log(q0) + (n0 - k0) * log1p(-q0)
    out = []
    for q1 in alternatives:
        if (q1 <= q0) if worse else (q1 >= q0):
            out.append(0.0)
            continue
        pooled = (n0 * q0 + n1 * q1) / total
        of_null = (k0 + k1) * log(pooled) + (total - k0 - k1) * log1p(-pooled)
        out.append(of_baseline + k1 * log(q1) + (n1 - k1) * log1p(-q1) - of_null)
    return out


def log_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the log of the weighted sum of exp(values); weights above 0."""
    top = max(values)
    total = 0.0
    for v, w in zip(values, weights, strict=True):  # flat: this is called some hundred times a look
        total += w * exp(v - top)
    return top + log(total)


def by_odds(rate: float, odds_ratio: float) -> float:
    """Return the rate whose odds are `odds_ratio` times those of `rate`."""
    odds = rate / (1 - rate) * odds_ratio
    return odds / (1 + odds)


def slowed(rate: float, log_factor: float, log_sd: float) -> float:
    """Return the share above a threshold that `rate` of a lognormal exceeds, after latencies are multiplied by exp(log_factor)."""
    return 1 - _NORMAL.cdf(_NORMAL.inv_cdf(1 - clip(rate)) - log_factor / log_sd)


def between(a: float, b: float) -> float:
    """Return the rate half-way between two rates on the scale of log odds."""
    a, b = clip(a), clip(b)
    odds = sqrt(a / (1 - a) * (b / (1 - b)))
    return odds / (1 + odds)


def estimate(events: float, attempts: float, prior: float, weight: float) -> float:
    """Return the rate after `events` in `attempts`, drawn towards `prior` as if by `weight` attempts."""
    return (events + prior * weight) / (attempts + weight)
