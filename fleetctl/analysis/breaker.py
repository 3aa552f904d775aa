"""Judge, pure layer: the hard-failure breaker, one arm, looked at per request. Never compares arms over time, never I/O.

Null: the canary's error rate is at most max(1 %, 3 x baseline). Log-likelihood ratios against it are mixed over higher rates; after
every 20 requests a part of the capital that was kept back starts afresh, so that a failure that begins late is found nearly as soon
as an early one. The shares of the restarts, 1 / (2.11 (j + 1) ln(j + 1)^2), sum to less than 1, so the whole is one e-process: false
trips at most 0.1 % a rollout. A trip is a FAIL only where the baseline, over the same stretch of time, does not fail alike.

Source: evidence.md 1 (alpha 0.001, 20 % errors within 100 requests).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp, lgamma, log, log1p

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.memory import BreakerMemory, Stretch
from fleetctl.domain.evidence import Evidence

BREAKER_BOUND = 1000.0
"""1 / alpha with alpha 0.001."""
LEAST_NULL = 0.01
BASELINE_FACTOR = 3.0
RESTART_EVERY = 20
_RATES = (0.08, 0.2, 0.45, 0.9)
ALIKE = 0.001
"""A split of errors between the arms that is less probable than this where both fail alike is the canary's fault. It is asked at every
look of a long incident: at 5 % half of the hours in which both arms fail alike would end as the canary's fault."""
_SHARED = "the baseline is failing too"
_SURE = 5.0
"""Errors of the baseline in a stretch from which it is known to fail too: one or two are there by themselves."""
LONE = 100.0
"""Canary requests to one of the baseline from which there is no baseline to speak of. Source: design section 8 (P4)."""
_LEAST_BASELINE = 100
_MOST_RUN = 20.0
"""Evidence that a stretch can pile up: after a long outage some tens of good requests end it."""
_LONGEST = 4_000.0
"""Canary requests of a stretch from which its older half counts half."""
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


def blame(memory: BreakerMemory, e: Evidence) -> str:
    """Say why a trip is not (or not yet) the canary's fault, "" where it is.

    Both arms are compared over one stretch of time: from where the canary began to fail to the last look at which it did. The baseline
    fails too where its error rate there is above what the breaker tolerates and at least a third of the canary's; having been seen to by
    five errors, it does until the stretch is over (what goes on on the canary alone is for the guardrail of errors). Else the canary is to
    blame once arms that fail alike would split the errors so unevenly in at most 0.1 % of cases (hypergeometric), or where the baseline
    has had less than one request to a hundred of the canary's, so that nobody can be compared with: the source is proven before anybody
    goes home to it.
    """
    s = _stretch(memory)
    if memory.is_shared:
        return _SHARED
    if s.n0 > 0 and s.k0 / s.n0 > null_rate(e) and s.k0 / s.n0 >= s.k1 / max(s.n1, 1.0) / 3:
        memory.is_shared = s.k0 >= _SURE
        return _SHARED
    if s.n1 >= LONE * (s.n0 + 1) or _alike(round(s.n1), round(s.k1), round(s.n0), round(s.k0)) <= ALIKE:
        return ""
    return f"{s.n0:.0f} baseline requests at the same time are too few to tell whose failure it is"


def is_over(memory: BreakerMemory) -> bool:
    """Tell whether the canary has come out of the stretch in which the breaker tripped."""
    return 0 <= memory.trip < len(memory.stretches) and _stretch(memory).run <= 0.0


def _stretch(memory: BreakerMemory) -> Stretch:
    """Return the stretch in which it tripped, an empty one where that is not known (older releases kept none)."""
    return memory.stretches[memory.trip] if 0 <= memory.trip < len(memory.stretches) else Stretch()


def _alike(n1: int, k1: int, n0: int, k0: int) -> float:
    """Return the probability of at least k1 of all k1 + k0 errors among n1 of n1 + n0 requests that fail alike (Fisher's exact test)."""
    n, k = n1 + n0, k1 + k0
    whole = _log_comb(n, k)
    return sum(exp(_log_comb(n1, i) + _log_comb(n0, k - i) - whole) for i in range(k1, min(n1, k) + 1) if k - i <= n0)


def _log_comb(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def start_afresh(memory: BreakerMemory) -> None:
    """Forget a trip that was not the canary's fault: only the newest restart's capital is kept."""
    memory.capital = [_log_share((max(memory.total, 1) - 1) // RESTART_EVERY + 1)] * len(_RATES)
    memory.peak, memory.tripped, memory.trip, memory.is_shared = 0.0, False, -1, False


def _log_share(restart: int) -> float:
    return -log(_SUM * (restart + 1) * log(restart + 1) ** 2)


def has_gone_back(memory: BreakerMemory, e: Evidence) -> bool:
    """Tell whether attempts, or errors of the baseline, are fewer than what was taken in."""
    base = e.arms["baseline"]
    return e.arms["canary"].attempts < memory.seen or base.attempts < memory.baseline[0] or base.errors < memory.baseline[1]


def note_outcomes(memory: BreakerMemory, e: Evidence) -> None:
    """Take in the canary outcomes that are new since the last look, one by one, until it trips.

    `canary_outcomes` may be only the newest part: the new ones are its last (attempts - seen).
    """
    fresh = max(0, min(e.arms["canary"].attempts - memory.seen, len(e.canary_outcomes)))
    memory.seen = max(memory.seen, e.arms["canary"].attempts)
    null = null_rate(e)
    failed = [log(_rate(r, null) / null) for r in _RATES]
    good = [log1p(-_rate(r, null)) - log1p(-null) for r in _RATES]
    new = e.canary_outcomes[len(e.canary_outcomes) - fresh :]
    _note_stretches(memory, e, new, failed, good)
    memory.capital = _walk(memory, new, failed, good)
    if memory.tripped and memory.trip < 0:
        memory.trip = max(range(len(memory.capital)), key=memory.capital.__getitem__)


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


def _note_stretches(memory: BreakerMemory, e: Evidence, new: str, failed: Sequence[float], good: Sequence[float]) -> None:
    """Follow the canary's newest stretch of failing per alternative (a CUSUM), and what the baseline did in it."""
    base, before = e.arms["baseline"], memory.baseline
    grown = [max(0, base.attempts - before[0]), max(0, base.errors - before[1])]
    memory.baseline = [base.attempts, base.errors]
    if not new and not grown[0]:
        return  # the same look again
    memory.stretches = memory.stretches or [Stretch() for _ in _RATES]
    parts = [len(part) for part in new.split("x")]  # good ones before, between and after the errors
    for s, bad, fine in zip(memory.stretches, failed, good, strict=True):
        if s.run <= 0.0:
            s.n1 = s.k1 = s.n0 = s.k0 = 0.0
            s.more = [0.0, 0.0, 0.0]
        s.run = max(0.0, s.run + fine * parts[0])
        for part in parts[1:]:
            s.run = max(0.0, min(_MOST_RUN, s.run + bad) + fine * part)
        s.more = [s.more[0] + len(new), s.more[1] + grown[0], s.more[2] + grown[1]]
        if len(parts) > 1:
            s.n1, s.k1, s.n0, s.k0 = s.n1 + s.more[0], s.k1 + len(parts) - 1, s.n0 + s.more[1], s.k0 + s.more[2]
            s.more = [0.0, 0.0, 0.0]
        if s.n1 > _LONGEST:
            s.n1, s.k1, s.n0, s.k0 = s.n1 / 2, s.k1 / 2, s.n0 / 2, s.k0 / 2


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
