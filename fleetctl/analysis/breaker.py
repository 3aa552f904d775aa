"""Judge, pure layer: the hard-failure breaker, one arm, looked at per request. Never compares arms over time, never I/O.

Null: the canary's error rate is at most max(1 %, 3 x baseline). Log-likelihood ratios against it are mixed over higher rates; after
every 20 requests a part of the capital that was kept back starts afresh, so that a failure that begins late is found nearly as soon
as an early one. The shares of the restarts, 1 / (2.11 (j + 1) ln(j + 1)^2), sum to less than 1, so the whole is one e-process: false
trips at most 0.1 % a rollout.

Source: evidence.md 1 (alpha 0.001, 20 % errors within 100 requests).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, log, log1p

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.memory import BreakerMemory
from fleetctl.domain.evidence import Evidence

BREAKER_BOUND = 1000.0
"""1 / alpha with alpha 0.001."""
LEAST_NULL = 0.01
BASELINE_FACTOR = 3.0
RESTART_EVERY = 20
_RATES = (0.08, 0.2, 0.45, 0.9)
_LEAST_BASELINE = 100
_NEWEST = 100
_EQUAL = [1 / len(_RATES)] * len(_RATES)
_SUM = 2.11
"""A little more than the sum of 1 / (n ln(n)^2) from n = 2, so that the shares of all restarts stay below 1."""


def null_rate(e: Evidence) -> float:
    """Return the canary error rate that the breaker tolerates: 3 x the baseline's frozen one (else its present one), at least 1 %."""
    baseline, rate = e.arms["baseline"], 0.0
    if e.cursor.thresholds is not None:
        rate = e.cursor.thresholds.baseline_error_ratio
    elif baseline.attempts >= _LEAST_BASELINE:
        rate = baseline.errors / baseline.attempts
    return min(0.9, max(LEAST_NULL, BASELINE_FACTOR * rate))


def baseline_failing(e: Evidence) -> bool:
    """Tell whether the baseline fails too, so that the canary is not to blame.

    Its newest requests fail more often than the breaker tolerates and at least a third as often as the canary's newest.
    """
    if e.baseline_recent <= 0:
        return False
    rate = e.baseline_recent_errors / e.baseline_recent
    newest = e.canary_outcomes[-_NEWEST:]
    canary = newest.count("x") / len(newest) if newest else 0.0
    return rate > null_rate(e) and rate >= canary / 3


def start_afresh(memory: BreakerMemory) -> None:
    """Forget a trip that was not the canary's fault: only the newest restart's capital is kept."""
    memory.capital = [_log_share((max(memory.total, 1) - 1) // RESTART_EVERY + 1)] * len(_RATES)
    memory.peak, memory.tripped = 0.0, False


def _log_share(restart: int) -> float:
    return -log(_SUM * (restart + 1) * log(restart + 1) ** 2)


def note_outcomes(memory: BreakerMemory, e: Evidence) -> None:
    """Take in the canary outcomes that are new since the last look, one by one, until it trips.

    `canary_outcomes` may be only the newest part: the new ones are its last (attempts - seen).
    """
    fresh = min(e.arms["canary"].attempts - memory.seen, len(e.canary_outcomes))
    memory.seen = max(memory.seen, e.arms["canary"].attempts)
    if fresh <= 0:
        return
    null = null_rate(e)
    failed = [log(_rate(r, null) / null) for r in _RATES]
    good = [log1p(-_rate(r, null)) - log1p(-null) for r in _RATES]
    memory.capital = _walk(memory, e.canary_outcomes[-fresh:], failed, good)


def _walk(memory: BreakerMemory, outcomes: str, failed: Sequence[float], good: Sequence[float]) -> list[float]:
    """Return the capital per alternative after these outcomes, added one by one; a thousand cells do this at every look, so it is flat."""
    bad0, bad1, bad2, bad3 = failed
    good0, good1, good2, good3 = good
    total, capital, bound = memory.total, memory.capital, log(BREAKER_BOUND)
    at = 0
    while at < len(outcomes):
        if total % RESTART_EVERY == 0:
            share = _log_share(total // RESTART_EVERY + 1)
            capital = [_log_add(c, share) for c in capital] if capital else [share] * len(_RATES)
        a, b, c, d = capital
        until = min(len(outcomes), at + RESTART_EVERY - total % RESTART_EVERY)
        for outcome in outcomes[at:until]:
            if outcome == "x":
                a, b, c, d = a + bad0, b + bad1, c + bad2, d + bad3
                memory.peak = max(memory.peak, ep.log_mean((a, b, c, d), _EQUAL))
                memory.tripped = memory.tripped or memory.peak >= bound
            else:
                a, b, c, d = a + good0, b + good1, c + good2, d + good3
        capital = [a, b, c, d]
        total, at = total + until - at, until
    memory.total = total
    return capital


def _rate(alternative: float, null: float) -> float:
    """An alternative that is not well above the null gives way to one that is."""
    return alternative if alternative > 1.5 * null else min(0.97, 2.0 * null)


def _log_add(a: float, b: float) -> float:
    top, low = (a, b) if a > b else (b, a)
    return top + log1p(exp(low - top))


_QUIET_BEFORE = 200
"""Good requests before the fault in `failures_to_trip`: a fault late in a step, so the slower case."""


@cache
def failures_to_trip(error_ratio: float) -> int:
    """Return after how many failing canary requests in a row the breaker trips.

    Args:
        error_ratio: of the baseline, 0 to 1.
    """
    null = min(0.9, max(LEAST_NULL, BASELINE_FACTOR * error_ratio))
    failed = [log(_rate(r, null) / null) for r in _RATES]
    good = [log1p(-_rate(r, null)) - log1p(-null) for r in _RATES]
    capital: list[float] = []
    total = 0
    while True:
        if total % RESTART_EVERY == 0:
            share = _log_share(total // RESTART_EVERY + 1)
            capital = [_log_add(c, share) for c in capital] if capital else [share] * len(_RATES)
        total += 1
        capital = [c + step for c, step in zip(capital, failed if total > _QUIET_BEFORE else good, strict=True)]
        if total > _QUIET_BEFORE and ep.log_mean(capital, _EQUAL) >= log(BREAKER_BOUND):
            return total - _QUIET_BEFORE
