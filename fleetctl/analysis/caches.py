"""Judge, pure layer: how far the arms' caches differ now, by which each block of latency is told to be fair or confounded. Never a verdict.

A block's own gap would be chance alone where blocks are small, and the step's whole gap would tell of caches that were cold long ago. So
cached and prompt tokens are summed with weights that fall as requests come in. They are known before the block's times are looked at, and
times of a block that is left out are never used later.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

from fleetctl.analysis.memory import Memory
from fleetctl.domain.evidence import ARMS, Arm, Evidence

CACHE_GAP = 0.05
"""Difference of cached prompt-token shares over which latency is confounded."""
CONFOUNDED_SCALE = 1.5
"""Latency worse than this fails even where the caches differ."""
WINDOW = 400
"""Requests (of the arm that has fewer) after which what was seen weighs 1/e: the shares of equal arms then differ by chance by
some 2 points, and a cache that turns cold at once is known after some 40 requests."""


def note(memory: Memory, e: Evidence, requests: int) -> None:
    """Take in a block's tokens, once both arms tell new ones; where counts went back or belong to another source, go on from them.

    Args:
        requests: attempts in the block of the arm that has fewer, at least 0.
    """
    rows = {arm: memory.caches.setdefault(arm, [0, 0, 0, 0]) for arm in ARMS}
    new = {arm: (e.arms[arm].prompt_tokens - row[0], e.arms[arm].cached_tokens - row[1]) for arm, row in rows.items()}
    is_broken = any(prompt < 0 or not 0 <= cached <= prompt for prompt, cached in new.values())
    if not is_broken and min(prompt for prompt, _ in new.values()) <= 0:
        return
    keep = exp(-requests / WINDOW)
    for arm, row in rows.items():
        prompt, cached = (0, 0) if is_broken else new[arm]
        row[:] = [e.arms[arm].prompt_tokens, e.arms[arm].cached_tokens, row[2] * keep + prompt, row[3] * keep + cached]


def go_on_from(memory: Memory, e: Evidence) -> None:
    """Go on from what the source tells now."""
    for arm, row in memory.caches.items():
        counts = e.arms["canary" if arm == "canary" else "baseline"]
        row[:2] = [counts.prompt_tokens, counts.cached_tokens]


def shares(memory: Memory) -> Mapping[Arm, float] | None:
    """Return which share of its prompt tokens each arm has in its cache now, 0 to 1; None where that cannot be told."""
    rows = {arm: memory.caches.get(arm, (0, 0, 0, 0)) for arm in ARMS}
    if min(row[2] for row in rows.values()) <= 0:
        return None
    return {arm: row[3] / row[2] for arm, row in rows.items()}


def gap(both: Mapping[Arm, float] | None) -> float | None:
    """Return the difference of the arms' cached shares of prompt tokens, None where it cannot be told."""
    return None if both is None else abs(both["baseline"] - both["canary"])


def is_confounded(memory: Memory) -> bool:
    """Tell whether the arms' caches differ so much now that slowness may be theirs."""
    now = gap(shares(memory))
    return now is not None and now > CACHE_GAP


def text(memory: Memory) -> str:
    """Say how far the arms' caches differ now."""
    both = shares(memory) or {"baseline": 0.0, "canary": 0.0}
    points = 100 * abs(both["baseline"] - both["canary"])
    return (
        f"confounded: cached prompt tokens differ by {points:.0f} points (source {both['baseline']:.0%}, target {both['canary']:.0%}),"
        f" so only x{CONFOUNDED_SCALE} can fail"
    )
