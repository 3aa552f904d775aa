"""Judge, pure layer: how much clustered errors (retries of one failure) overstate what was seen. Never a verdict, never I/O.

The design effect is the variance-to-mean ratio of errors per second of start, at least 1. Within windows of at least 5 s the
squares that chance alone gives are taken off, so that a steady high error rate keeps the ratio at 1; windows and both arms are
pooled, drawn towards 1 as if by four errors more, and one standard error (sqrt(2 / seconds)) is granted to chance, which would
else slow every verdict a little. Log-likelihoods of errors are divided by it.

Source: evidence.md 4 (without it 14 to 40 % false rollbacks at a mean cluster of 2 to 5, with it at most 0.5 %).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from fleetctl.analysis.memory import ClusterMemory, ClusterWindow
from fleetctl.domain.evidence import ARMS, Arm, ClusterSums

WINDOW_S = 5.0
_PRIOR = 4.0
_LEAST_WINDOW_S = 2.0


def note_clusters(memory: ClusterMemory, sums: Mapping[Arm, ClusterSums], elapsed_s: float) -> None:
    """Take in the cumulative sums of both arms `elapsed_s` seconds after the step's cursor."""
    for arm in ARMS:
        window = memory.windows.setdefault(arm, ClusterWindow())
        window.errors, window.squares = sums[arm].errors, sums[arm].sum_sq
    memory.now = max(memory.now, elapsed_s)
    if memory.now - memory.opened >= WINDOW_S:
        _close(memory)


def new_step(memory: ClusterMemory) -> None:
    """Close the open window; sums count from 0 again."""
    _close(memory)
    memory.windows = {}
    memory.opened = memory.now = 0.0


def after_a_gap(memory: ClusterMemory, sums: Mapping[Arm, ClusterSums]) -> None:
    """Close the open window and count on from these sums, which are lower than those before."""
    _close(memory)
    for arm in ARMS:
        window = memory.windows.setdefault(arm, ClusterWindow())
        window.errors = window.errors_then = sums[arm].errors
        window.squares = window.squares_then = sums[arm].sum_sq


def design_effect(memory: ClusterMemory) -> float:
    """Return what log-likelihoods of errors are divided by, at least 1."""
    spread, errors, seconds = _open_part(memory)
    found = (memory.spread + spread + _PRIOR) / (memory.errors + errors + _PRIOR)
    return max(1.0, found - sqrt(2 / max(2.0, memory.seconds + seconds)))


def _open_part(memory: ClusterMemory) -> tuple[float, float, float]:
    seconds = memory.now - memory.opened
    spread = total = 0.0
    for window in memory.windows.values():
        errors, squares = window.errors - window.errors_then, window.squares - window.squares_then
        total += errors
        if seconds >= _LEAST_WINDOW_S:
            spread += max(0.0, squares - errors * errors / seconds) * seconds / (seconds - 1)
        else:
            spread += squares
    return spread, total, seconds * len(memory.windows)


def _close(memory: ClusterMemory) -> None:
    spread, errors, seconds = _open_part(memory)
    memory.spread += spread
    memory.errors += errors
    memory.seconds += seconds
    memory.opened = memory.now
    for window in memory.windows.values():
        window.errors_then, window.squares_then = window.errors, window.squares


def is_clustered(guardrail: str) -> bool:
    """Tell whether a guardrail counts errors, which come in clusters; an adapter model's are among those that the effect is taken from."""
    return guardrail == "errors" or guardrail.startswith("model_errors_")
