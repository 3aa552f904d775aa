"""Plan, pure layer: how many canary requests a guardrail's PASS and FAIL cost. Never looks at evidence, never I/O.

The log e-value is a random walk whose drift per canary request is KL* = kl(q1, p1) + ((1 - w) / w) kl(q0, p0): alternative (q0, q1)
against its nearest null (p0, p1), w the canary's share. Its first passage over ln(bound) (and what mixing costs) follows an inverse
Gaussian law, from which median and p90 are read.

Source: KL* is evidence.md 1; the tables of evidence.md 2 and simulations of the judge itself are the check (tests/unit/test_power.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, log, log1p, sqrt
from statistics import NormalDist

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.guardrails import FAIL_BOUND, PASS_BOUND
from fleetctl.domain.evidence import LADDER, LADDER_METRICS
from fleetctl.domain.workload import Guardrail, Requests

LEAST_CANARY = 100
"""No PASS on fewer canary requests. Source: evidence.md 2."""
NEVER: Requests = 10**12
"""Stands for a number of requests that no traffic will bring."""
_MIXING = log(1 / 0.7)
_FAIL_MIXING = log(4.0)
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The log e-value as a random walk: drift and variance per canary request, nat and nat squared."""

    drift: float
    variance: float


def share_walk(base_rate: float, margin: float, share: float) -> Walk:
    """Return the PASS walk of a share guardrail when both arms fail at `base_rate`.

    Args:
        base_rate: 0 to 1; margin: points / 100, above 0; share: of the canary, above 0 and below 1.
    """
    rate = ep.clip(base_rate)
    return _walk(rate, rate, *ep.nearest_null((1 - share) / share, 1.0, rate, rate, margin), share)


def rung_walk(rung: float, margin: float, log_sd: float, share: float) -> Walk:
    """Return the PASS walk of one rung of the latency ladder for equal lognormal arms."""
    slow, fast = 1 - rung, ep.clip(ep.slowed(1 - rung, -log1p(margin), log_sd))
    return _walk(slow, fast, *ep.nearest_null((1 - share) / share, 1.0, slow, fast, 0.0), share)


def _walk(q0: float, q1: float, p0: float, p1: float, share: float) -> Walk:
    other = (1 - share) / share
    drift = ep.kl(q1, p1) + other * ep.kl(q0, p0)
    variance = _variance(q1, p1) + other * _variance(q0, p0)
    return Walk(drift=drift, variance=variance)


def _variance(q: float, p: float) -> float:
    spread = log(q / p) - log1p(-q) + log1p(-p)
    return q * (1 - q) * spread * spread


def planned_requests(
    guardrail: Guardrail | str, margin: float, base_rate: float, log_sd: float, share: float, *, rungs: Sequence[float] = ()
) -> tuple[Requests, Requests]:
    """Return (median, p90) of the canary requests to a PASS if both arms are equal.

    Args:
        margin: as in GuardrailSpec (points / 100 for shares, a ratio for latency); base_rate: of a share guardrail's events, 0 to 1;
            log_sd: of latency, above 0; share: of the canary, above 0 and below 1. NEVER where no number of requests is enough.
        rungs: margins of the ladder's rungs where they differ, as in GuardrailSpec.
    """
    if not 0 < share < 1 or margin <= 0:
        return NEVER, NEVER
    if guardrail in LADDER_METRICS:
        if log_sd <= 0:
            return NEVER, NEVER
        walks = [rung_walk(rung, rungs[i] if rungs else margin, log_sd, share) for i, rung in enumerate(LADDER)]
    else:
        if base_rate + margin >= 1:
            return NEVER, NEVER
        walks = [share_walk(base_rate, margin, share)]
    level = log(PASS_BOUND) + _MIXING
    worst = [max(passage(w, level, part) for w in walks) for part in (0.5, 0.9)]
    median, p90 = (NEVER if n == inf else max(LEAST_CANARY, ceil(n)) for n in worst)
    return median, p90


def planned_fail(
    guardrail: Guardrail | str, effect: float, base_rate: float, log_sd: float, share: float, *, guardrails: int = 1, steps: int = 1
) -> tuple[Requests, Requests]:
    """Return (median, p90) of the canary requests to a FAIL.

    Args:
        effect: true regression beyond the FAIL margin, as a margin; guardrails, steps: that share the FAIL capital.
    """
    if not 0 < share < 1 or effect <= 0:
        return NEVER, NEVER
    other = (1 - share) / share
    rates = [(1 - r, ep.clip(ep.slowed(1 - r, log1p(effect), log_sd))) for r in LADDER] if guardrail in LADDER_METRICS else []
    if not rates:
        rates = [(ep.clip(base_rate), ep.clip(base_rate + effect))]
    walks = [_walk(q0, q1, *ep.nearest_null(other, 1.0, q0, q1, 0.0), share) for q0, q1 in rates]
    level = log(FAIL_BOUND * guardrails * steps * len(walks)) + _FAIL_MIXING
    best = [min(passage(w, level, part) for w in walks) for part in (0.5, 0.9)]
    median, p90 = (NEVER if n == inf else max(1, ceil(n)) for n in best)
    return median, p90


def passage(walk: Walk, level: float, part: float) -> float:
    """Return after how many steps `part` of the walks have reached `level` (inverse Gaussian law); infinite without drift."""
    if walk.drift <= 0:
        return inf
    mean = level / walk.drift
    if walk.variance <= 0:
        return mean
    shape = level * level / walk.variance
    low, high = 0.0, mean
    while _passed(high, mean, shape) < part:
        high *= 2
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _passed(middle, mean, shape) < part else (low, middle)
    return high


def _passed(n: float, mean: float, shape: float) -> float:
    root = sqrt(shape / n)
    mirrored = _NORMAL.cdf(-root * (n / mean + 1))
    return _NORMAL.cdf(root * (n / mean - 1)) + (exp(min(700.0, 2 * shape / mean + log(mirrored))) if mirrored > 0 else 0.0)
