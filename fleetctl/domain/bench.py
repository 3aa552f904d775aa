"""Bench, domain layer: requests of a trace, how each ended, and a point of a curve. Never I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a trace: seconds after its start, tokens in and out."""

    at_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How one request ended.

    Args:
        sent_s: when it was due, after the start; ttft_ms: from then to the first token, None where the answer was not streamed.
        whole_ms: from then to its end.
        output_tokens: as the engine counts them, 0 where it failed; error: "" where it did not.
    """

    sent_s: float
    ttft_ms: float | None
    whole_ms: float
    output_tokens: int
    error: str = ""

    @property
    def tpot_ms(self) -> float | None:
        """Time per token after the first; None where it was not streamed, or has one token."""
        if self.ttft_ms is None or self.output_tokens < 2:
            return None
        return (self.whole_ms - self.ttft_ms) / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a point must keep, ms at the 95th percentile; None: nothing was promised.

    Args:
        whole_ms: a whole request; ttft_ms: to its first token; tpot_ms: each token after it.
    """

    whole_ms: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What an endpoint did at one rate.

    Args:
        tokens_per_s: output tokens per second, low and high: of fifths of the time; seconds: first sent to last answered.
        ttft_p95_ms, tpot_p95_ms: to the first token, and per token after it; None where answers were not streamed.
        meets_slo: p95 within the SLO and errors within 1 %; a point that does not is shown, never kept.
        missed: what it does not keep, "" where it keeps all.
    """

    requests_per_s: float
    tokens_per_s: float
    low: float
    high: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    ttft_p95_ms: float | None
    tpot_p95_ms: float | None
    answered: int
    failed: int
    seconds: float
    missed: str

    @property
    def meets_slo(self) -> bool:
        """Tell whether it may be kept."""
        return not self.missed


FIFTHS = 5
TOLERATED = 0.01
"""Share of failed requests that a point may have; the default of a workload's error_ratio."""


def point_of(done: Sequence[Answered], promise: Promise) -> Point:
    """Return the point that these answers make; `done` has at least one."""
    good = [a for a in done if not a.error]
    begin = min(a.sent_s for a in done)
    end = max(a.sent_s + a.whole_ms / 1000 for a in done)
    seconds = max(end - begin, 1e-9)
    tokens = sum(a.output_tokens for a in good)
    parts = [0.0] * FIFTHS
    for a in good:
        at = a.sent_s + a.whole_ms / 1000 - begin
        parts[min(FIFTHS - 1, int(at / seconds * FIFTHS))] += a.output_tokens
    rates = [p / (seconds / FIFTHS) for p in parts]
    whole = sorted(a.whole_ms for a in good)
    p95 = quantile(whole, 0.95)
    failed = len(done) - len(good)
    ttft, tpot = _p95([a.ttft_ms for a in good]), _p95([a.tpot_ms for a in good])
    kept = ((promise.whole_ms, p95, "p95"), (promise.ttft_ms, ttft, "TTFT"), (promise.tpot_ms, tpot, "TPOT"))
    return Point(
        requests_per_s=round((len(done) - 1) / max(max(a.sent_s for a in done) - begin, 1e-9), 4) if len(done) > 1 else 0.0,
        tokens_per_s=round(tokens / seconds, 3),
        low=round(min(rates), 3),
        high=round(max(rates), 3),
        p50_ms=round(quantile(whole, 0.5), 2),
        p95_ms=round(p95, 2),
        p99_ms=round(quantile(whole, 0.99), 2),
        ttft_p95_ms=ttft,
        tpot_p95_ms=tpot,
        answered=len(good),
        failed=failed,
        seconds=round(seconds, 3),
        missed=_missed(done, len(good), kept),
    )


def _p95(values: Sequence[float | None]) -> float | None:
    known = sorted(v for v in values if v is not None)
    return round(quantile(known, 0.95), 2) if known else None


def _missed(done: Sequence[Answered], good: int, kept: Sequence[tuple[float | None, float | None, str]]) -> str:
    if not good or len(done) - good > TOLERATED * len(done):
        ((kind, _), *_) = Counter(a.error for a in done if a.error).most_common(1)
        return f"errors ({kind})"
    for most, value, name in kept:
        if most is not None and (value is None or value > most):
            return name if value is not None else f"{name}: not streamed"
    return ""


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of sorted values, 0 where there are none."""
    return values[max(0, ceil(share * len(values)) - 1)] if values else 0.0


def at_rate(trace: Sequence[Asked], requests_per_s: float, count: int) -> tuple[Asked, ...]:
    """Return `count` requests of a trace (from its beginning again where it is shorter), its times stretched to a mean rate."""
    span = trace[-1].at_s - trace[0].at_s
    mean = (len(trace) - 1) / span if span > 0 else 0.0
    out = []
    for i in range(count):
        turn, at = divmod(i, len(trace))
        own = (trace[at].at_s - trace[0].at_s + turn * (span + (1 / mean if mean else 0.0))) * mean if mean else float(i)
        out.append(Asked(at_s=own / requests_per_s, input_tokens=trace[at].input_tokens, output_tokens=trace[at].output_tokens))
    return tuple(out)
