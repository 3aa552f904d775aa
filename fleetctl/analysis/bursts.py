"""Judge, pure layer: how much an arm's events come in bursts, from when requests began. Never a verdict, never I/O.

A pause of an engine slows all requests in flight, so slow requests are no independent draws. Requests and events are counted in blocks of
20 s of start; each block's events are held against those of the block before, which a rate that moves slowly, or once, hardly raises. What
is above chance counts one and a half times, since a pause that lies in two blocks shows half as much; one standard error is granted to
chance. Until three blocks are there all that was seen may be one pause, and counts as one event. `clusters` divides by what comes out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import sqrt

from fleetctl.domain.evidence import ClusterSums

BLOCK_MS = 20_000
LEAST_BLOCKS = 3
SPLIT = 1.5
"""What a pause shows less where it does not fall into one block: one of 10 s three quarters on average, one of 20 s half."""
_EXACT = 1_000
"""Squares are kept in whole thousandths, so that their sum is the same in whatever order requests came."""


@dataclass(slots=True)
class _Block:
    n: int = 0
    events: dict[str, int] = field(default_factory=dict)
    squares: dict[str, int] = field(default_factory=dict)


class Bursts:
    """Requests of one arm and their events by name, by block of start."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._order: list[int] = []
        self._changed: set[int] = set()
        self._n = 0
        self._events: dict[str, int] = {}
        self._squares: dict[str, int] = {}

    def add(self, started_ms: int, events: Iterable[str]) -> None:
        """Count one request and which events it is."""
        at = started_ms // BLOCK_MS
        block = self._blocks.get(at)
        if block is None:
            block = self._blocks[at] = _Block()
            insort(self._order, at)
        block.n += 1
        self._n += 1
        for name in events:
            block.events[name] = block.events.get(name, 0) + 1
            self._events[name] = self._events.get(name, 0) + 1
        self._changed.add(at)

    def sums(self, names: Iterable[str] = ()) -> dict[str, ClusterSums]:
        """Return the events by name with their spread above chance, those that never happened too where they are named."""
        for at in sorted(self._changed):
            place = bisect_left(self._order, at)
            for i in (place, place + 1):
                if 0 < i < len(self._order):
                    self._hold_against(self._blocks[self._order[i - 1]], self._blocks[self._order[i]])
        self._changed.clear()
        out = {}
        for name in sorted({*self._events, *names}):
            k, squares = self._events.get(name, 0), self._squares.get(name, 0) / _EXACT
            out[name] = ClusterSums(errors=k, spread=spread_of(self._n, k, squares, len(self._order)) if k else 0.0)
        return out

    def _hold_against(self, before: _Block, now: _Block) -> None:
        ratio = now.n / before.n
        for name in {*before.events, *now.events}:
            apart = now.events.get(name, 0) - before.events.get(name, 0) * ratio
            value = round(_EXACT * apart * apart / (1 + ratio))
            self._squares[name] = self._squares.get(name, 0) + value - now.squares.get(name, 0)
            now.squares[name] = value


def spread_of(n: int, k: int, squares: float, blocks: int) -> float:
    """Return an arm's spread: `k` where events are as independent as chance has it, k x k where all may be one.

    Args:
        n, k: requests and events; squares: of the differences from block to block, whose mean by chance is that of the events' variance.
    """
    if blocks < LEAST_BLOCKS:
        return float(k * k)
    rest = max(1 - k / n, 1 / n)
    granted = SPLIT * sqrt((1.5 + 0.5 * blocks / max(k, 1)) / blocks)
    return max(0.0, SPLIT * squares / rest - (SPLIT - 1 + granted) * k)
