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

from fleetctl.analysis.memory import ClusterMemory, ClusterWindow, Memory
from fleetctl.domain.evidence import ARMS, Arm, ClusterSums, Evidence

WINDOW_S = 5.0
_PRIOR = 4.0
_LEAST_WINDOW_S = 2.0
SURE = 1.5
TELLS_S = 60.0
"""Seconds of a step before which nobody can tell a pause from what lasts (`bursts.LEAST_BLOCKS`): a FAIL waits so long, a PASS does not."""


def note(memory: Memory, e: Evidence) -> None:
    """Take in the cumulative sums of both arms at a look."""
    elapsed_s = max(0.0, (e.at - e.cursor.since).total_seconds())
    note_clusters(memory.clusters, {arm: e.arms[arm].clusters for arm in ARMS}, elapsed_s)
    for name, sums in _others(e).items():
        note_clusters(memory.clusters_of.setdefault(name, ClusterMemory()), sums, elapsed_s)


def note_clusters(memory: ClusterMemory, sums: Mapping[Arm, ClusterSums], elapsed_s: float) -> None:
    """Take in the cumulative sums of both arms `elapsed_s` seconds after the step's cursor."""
    for arm in ARMS:
        window, now = memory.windows.get(arm) or memory.windows.setdefault(arm, ClusterWindow()), sums[arm]
        if now.spread is None:
            window.errors, window.squares = now.errors, now.sum_sq
            continue
        if now.errors < window.errors_then:
            window.errors_then, window.squares_then = 0, 0.0  # another process, which began to count by itself
        memory.spread += now.spread - window.squares_then
        memory.errors += now.errors - window.errors_then
        window.errors = window.errors_then = now.errors
        window.squares = window.squares_then = now.spread
    memory.now = max(memory.now, elapsed_s)
    if memory.now - memory.opened >= WINDOW_S:
        _close(memory)


def new_step(memory: ClusterMemory, *, in_bursts: bool = False) -> None:
    """Close the open window; sums count from 0 again. A step that was too short to tell of bursts has told nothing of them."""
    _close(memory)
    if in_bursts and memory.now < TELLS_S:
        for window in memory.windows.values():
            memory.spread, memory.errors = memory.spread - window.squares, memory.errors - window.errors
    memory.windows = {}
    memory.opened = memory.now = 0.0


def go_on_from(memory: Memory, e: Evidence) -> None:
    """Close the open windows and count on from sums that are lower than those before."""
    counts = e.customers.arms
    rows = [(memory.clusters, {arm: e.arms[arm].clusters for arm in ARMS}), (memory.quits, {arm: counts[arm].gave_up for arm in ARMS})]
    rows += [(memory.clusters_of.setdefault(name, ClusterMemory()), sums) for name, sums in _others(e).items()]
    for own, sums in rows:
        _close(own)
        for arm in ARMS:
            window, now = own.windows.setdefault(arm, ClusterWindow()), sums[arm]
            window.errors = window.errors_then = now.errors
            window.squares = window.squares_then = now.sum_sq if now.spread is None else now.spread


def _others(e: Evidence) -> dict[str, dict[Arm, ClusterSums]]:
    """Return the sums of other shares that both arms tell, by name."""
    base, canary = e.arms["baseline"].clusters_of, e.arms["canary"].clusters_of
    return {name: {"baseline": base[name], "canary": canary[name]} for name in base if name in canary}


def is_in_bursts(e: Evidence, guardrail: str) -> bool:
    """Tell whether a share's events are told with the spread of bursts, as those of slow requests are."""
    return any(sums.spread is not None for c in e.arms.values() if (sums := c.clusters_of.get(guardrail)) is not None)


def comes_in_bursts(name: str) -> bool:
    """Tell whether a share's events come in bursts: a rung's slow requests, SLO misses, ways in which answers end."""
    return "/" in name or name == "slo_misses" or name.startswith("finish_")


def effect_on(memory: Memory, guardrail: str) -> float:
    """Return what the log-likelihoods of a guardrail are divided by: 1 where its events do not come in clusters."""
    own = memory.clusters_of.get(guardrail)
    if own is not None:
        return design_effect(own)
    return design_effect(memory.clusters) if is_clustered(guardrail) else 1.0


def effect_on_pass(memory: Memory, guardrail: str) -> float:
    """Return the same for a PASS: of a ladder's rung only what is beyond doubt, since what chance leaves of it would delay every PASS."""
    effect, own = effect_on(memory, guardrail), memory.clusters_of.get(guardrail)
    is_too_early = own is not None and own.now < TELLS_S and comes_in_bursts(guardrail)
    return 1.0 if is_too_early or ("/" in guardrail and effect <= SURE) else effect


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
