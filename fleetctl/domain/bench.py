"""Bench, domain layer: requests of a trace, how each ended, and a point of a curve. Never I/O."""

from __future__ import annotations

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
        sent_s: after the start; ttft_ms: to the first byte of the answer; whole_ms: to its end.
        output_tokens: as the engine counts them, 0 where it failed; error: "" where it did not.
    """

    sent_s: float
    ttft_ms: float
    whole_ms: float
    output_tokens: int
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What an endpoint did at one rate.

    Args:
        tokens_per_s: output tokens per second, low and high: of fifths of the time; seconds: first sent to last answered.
        meets_slo: p95 within the SLO and errors within 1 %; a point that does not is shown, never kept.
    """

    requests_per_s: float
    tokens_per_s: float
    low: float
    high: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    ttft_p95_ms: float
    answered: int
    failed: int
    seconds: float
    meets_slo: bool


FIFTHS = 5
TOLERATED = 0.01
"""Share of failed requests that a point may have; the default of a workload's error_ratio."""


def point_of(done: Sequence[Answered], slo_ms: float | None) -> Point:
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
    meets = bool(good) and failed <= TOLERATED * len(done) and (slo_ms is None or p95 <= slo_ms)
    return Point(
        requests_per_s=round(len(done) / max(max(a.sent_s for a in done) - begin, 1e-9), 4) if len(done) > 1 else 0.0,
        tokens_per_s=round(tokens / seconds, 3),
        low=round(min(rates), 3),
        high=round(max(rates), 3),
        p50_ms=round(quantile(whole, 0.5), 2),
        p95_ms=round(p95, 2),
        p99_ms=round(quantile(whole, 0.99), 2),
        ttft_p95_ms=round(quantile(sorted(a.ttft_ms for a in good), 0.95), 2),
        answered=len(good),
        failed=failed,
        seconds=round(seconds, 3),
        meets_slo=meets,
    )


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
