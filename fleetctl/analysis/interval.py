"""Judge, pure layer: intervals shown beside a verdict. Never decides anything, never I/O.

They are 95 % intervals of one look, for a person to read; what decides is the e-process, which is valid over all looks.
"""

from __future__ import annotations

from math import exp, log, sqrt

from fleetctl.domain.evidence import Counts, Thresholds

_Z = 1.959964


def wilson(events: int, attempts: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share; attempts above 0."""
    rate = events / attempts
    centre = rate + _Z * _Z / (2 * attempts)
    half = _Z * sqrt(rate * (1 - rate) / attempts + _Z * _Z / (4 * attempts * attempts))
    scale = 1 + _Z * _Z / attempts
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def difference(k0: int, n0: int, k1: int, n1: int) -> tuple[float, float] | None:
    """Return the 95 % interval of the canary's share minus the baseline's, None where an arm is empty.

    Source: Newcombe, Statistics in Medicine 17 (1998), method 10.
    """
    if n0 <= 0 or n1 <= 0:
        return None
    low0, high0 = wilson(k0, n0)
    low1, high1 = wilson(k1, n1)
    rate0, rate1 = k0 / n0, k1 / n1
    gap = rate1 - rate0
    low = gap - sqrt((rate1 - low1) ** 2 + (high0 - rate0) ** 2)
    high = gap + sqrt((high1 - rate1) ** 2 + (rate0 - low0) ** 2)
    return low, high


def latency_ratio(base: Counts, canary: Counts, thresholds: Thresholds | None) -> tuple[float, float] | None:
    """Return the 95 % interval of the canary's median latency over the baseline's, None where it cannot be had.

    The median of n lognormal values has a standard error of 1.2533 log-sd / sqrt(n).
    """
    if thresholds is None or thresholds.log_sd <= 0 or not base.quantiles_ms or not canary.quantiles_ms:
        return None
    if min(base.timed, canary.timed) == 0 or min(base.quantiles_ms[0], canary.quantiles_ms[0]) <= 0:
        return None
    centre = log(canary.quantiles_ms[0] / base.quantiles_ms[0])
    half = _Z * 1.2533 * thresholds.log_sd * sqrt(1 / base.timed + 1 / canary.timed)
    return exp(centre - half), exp(centre + half)
