"""Judge, pure layer: the baseline's quantiles, frozen from recorded attempts by class of prompt length. Never a file, never a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, log, sqrt

from fleetctl.analysis.caches import CONFOUNDED_SCALE
from fleetctl.domain.evidence import LADDER, Quantiles, Thresholds
from fleetctl.domain.records import Attempt

FREEZE_MOST = 3_000
"""Newest baseline requests that thresholds are frozen from."""
MOST_CLASSES = 4
LEAST_PER_CLASS = 200
LEAST_SLOWER = 5
"""Baseline requests that must be slower than a frozen rung. The p99 of 60 requests is their largest: one slow start, and hardly a
request is ever slower again, so that no PASS of that rung comes within any planned time. A lower rung errs towards more evidence."""
_LEAST_VALUE = {"nll": 1e-4}


def frozen(
    baseline: Sequence[Attempt],
    metrics: Iterable[str],
    scales: Iterable[float],
    least: int,
    *,
    slo_latency_ms: float | None = None,
    per_class: int = LEAST_PER_CLASS,
) -> Thresholds | None:
    """Return the quantiles of these metrics; None where fewer than `least` attempts, or half as many measured ones, are there.

    Args:
        baseline: attempts of the baseline, at most 3,000.
        metrics: ladder metrics that this source measures; () for a source of errors alone.
        scales: factors at which ladders will be counted; per_class: least requests of a class of prompt length.
    """
    wanted = tuple(metrics)
    if len(baseline) < max(1, least):
        return None
    found: dict[str, Quantiles] = {}
    for metric in wanted:
        measured = [(a.prompt_tokens, value) for a in baseline if (value := a.measured(metric)) is not None]
        if len(measured) < max(1, least // 2):
            return None
        found[metric] = _quantiles(measured, _LEAST_VALUE.get(metric, 0.5), per_class)
    latency = found.pop("latency", None)
    return Thresholds(
        class_edges=latency.class_edges if latency else (),
        latency_ms=latency.rows if latency else (),
        scales=tuple(sorted({1.0, CONFOUNDED_SCALE, *scales})) if wanted else (),
        baseline_n=len(baseline),
        baseline_error_ratio=sum(a.failed for a in baseline) / len(baseline),
        log_sd=latency.log_sd if latency else 0.0,
        slo_latency_ms=slo_latency_ms,
        others=tuple(sorted(found.items())),
    )


def _quantiles(measured: list[tuple[int, float]], least_value: float, per_class: int) -> Quantiles:
    edges = class_edges([tokens for tokens, _ in measured], per_class)
    rows: list[list[float]] = [[] for _ in range(len(edges) + 1)]
    for tokens, value in measured:
        rows[sum(tokens >= edge for edge in edges)].append(value)
    ordered = [sorted(row) for row in rows]
    return Quantiles(
        class_edges=edges,
        rows=tuple(quantiles(row, LEAST_SLOWER) for row in ordered),
        n=len(measured),
        log_sd=_log_sd(ordered, least_value),
    )


def quantiles(ordered: list[float], slower: int = 0) -> tuple[float, ...]:
    """Return the rungs of the ladder of an ascending list: the smallest value that at least that share does not exceed; () of nothing.

    Args:
        slower: values that must be above each rung in the list's order; a rung that leaves fewer is lowered.
    """
    if not ordered:
        return ()
    n = len(ordered)
    return tuple(ordered[max(0, min(ceil(rung * n), n - slower) - 1)] for rung in LADDER)


def class_edges(prompt_tokens: list[int], per_class: int = LEAST_PER_CLASS) -> tuple[int, ...]:
    """Return the upper bounds of up to four prompt-length classes with at least `per_class` requests each; () where one class is all."""
    n = len(prompt_tokens)
    wanted = min(MOST_CLASSES, n // per_class)
    ordered = sorted(prompt_tokens)
    edges: list[int] = []
    below = 0
    for i in range(1, wanted):
        edge = ordered[i * n // wanted]
        under = sum(t < edge for t in ordered)
        if under - below >= per_class and n - under >= per_class and edge > 0:
            edges.append(edge)
            below = under
    return tuple(edges)


def _log_sd(rows: list[list[float]], least_value: float) -> float:
    """Return the standard deviation of the log within classes; 0 of fewer than two requests."""
    total, squares = 0, 0.0
    for row in rows:
        logs = [log(max(v, least_value)) for v in row]
        mean = sum(logs) / len(logs)
        squares += sum((v - mean) ** 2 for v in logs)
        total += len(logs)
    return sqrt(squares / (total - 1)) if total > 1 else 0.0
