"""Judge, pure layer: how much events come in bursts, from when requests began. Never a verdict, never I/O.

A pause of an engine slows all requests in flight, so slow requests are no independent draws. Requests and events are counted in blocks of
10 s of start; each two blocks' events are held against those of the two before, which a rate that moves slowly, or once, hardly raises.
What is above chance counts two and a half times, since pauses are few and lie in two blocks, and one standard error is granted to chance;
the newest difference counts four times, since a pause that has just begun shows in it alone. Until seven blocks are there all that was
seen may be one pause, and counts as one event. Each arm's own effect counts as much as its events decide: with the other's share.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt

from fleetctl.domain.evidence import ARMS, Arm, ClusterSums

BLOCK_MS = 10_000
SPAN = 4
"""Blocks that a difference is made of: two and the two before."""
LEAST_BLOCKS = 7
ABOVE_CHANCE, NEWEST = 2.5, 3.0
"""Found by simulation (`make bench-canary ARGS='--rows stalls'`): alike arms that pause; evidence.md says what is left."""
PRIOR = 4.0
_EXACT = 1_000
"""Squares are kept in whole thousandths, so that their sum is the same in whatever order requests came."""


@dataclass(slots=True)
class _Block:
    """Requests and events of a block, and the differences that end with it: requests held, squares by event."""

    n: int = 0
    events: dict[str, int] = field(default_factory=dict)
    held: int = 0
    squares: dict[str, int] = field(default_factory=dict)


class Bursts:
    """Requests of one arm and their events by name, by block of start."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._order: list[int] = []
        self._changed: set[int] = set()
        self._last = -SPAN
        self._held = 0
        self._squares: dict[str, int] = {}
        self.n = 0
        self.events: dict[str, int] = {}

    def add(self, started_ms: int, events: Iterable[str]) -> None:
        """Count one request and which events it is."""
        at = started_ms // BLOCK_MS
        block = self._block(at)
        block.n += 1
        self.n += 1
        for name in events:
            block.events[name] = block.events.get(name, 0) + 1
            self.events[name] = self.events.get(name, 0) + 1
        self._changed.add(at)

    def effect(self, name: str) -> float:
        """Return the design effect of an event as this arm alone shows it; below 1 where it is less than chance has it."""
        self._settle()
        k, blocks = self.events.get(name, 0), self._order[-1] - self._order[0] + 1 if self._order else 0
        if blocks < LEAST_BLOCKS:
            return max(1.0, float(k))
        newest = self._blocks[self._order[-1]]
        squares = (self._squares.get(name, 0) + NEWEST * newest.squares.get(name, 0)) / _EXACT
        rate = min(max(k, 0.5), self.n - 0.5) / self.n
        return effect_of(squares, (self._held + NEWEST * newest.held) * rate * (1 - rate), k, blocks)

    def _block(self, at: int) -> _Block:
        if at not in self._blocks:
            self._blocks[at] = _Block()
            insort(self._order, at)
        return self._blocks[at]

    def _settle(self) -> None:
        """Make anew the differences that what has come since changes: each block is part of four."""
        if not self._changed:
            return
        first, last = self._order[0] + SPAN - 1, self._order[-1]
        self._changed.add(self._last)  # what ends in the gap after it was not there yet
        self._last = last
        for at in sorted({n for c in self._changed for n in range(c, c + SPAN) if first <= n <= last}):
            self._hold(at)
        self._changed.clear()

    def _hold(self, at: int) -> None:
        found = [self._blocks.get(at - i) or _Block() for i in range(SPAN)]
        now, before = found[:2], found[2:]
        n, n0 = sum(b.n for b in now), sum(b.n for b in before)
        own = self._block(at)
        held, squares = (n, {}) if n and n0 else (0, {})
        for name in {name for b in found for name in b.events} if held else ():
            apart = sum(b.events.get(name, 0) for b in now) - sum(b.events.get(name, 0) for b in before) * n / n0
            squares[name] = round(_EXACT * apart * apart / (1 + n / n0))
        for name in {*squares, *own.squares}:
            self._squares[name] = self._squares.get(name, 0) + squares.get(name, 0) - own.squares.get(name, 0)
        self._held += held - own.held
        own.held, own.squares = held, squares


def effect_of(squares: float, chance: float, k: float, blocks: int) -> float:
    """Return an arm's design effect.

    Args:
        squares: of the differences, `chance`: what they are without bursts; k: events; blocks: that they were counted in.
    """
    if chance <= 0:
        return 1.0
    return 1 + ABOVE_CHANCE * ((squares / chance - 1) * k / (k + PRIOR) - sqrt((3 + blocks / max(chance, 1.0)) / blocks))


def together(arms: Mapping[Arm, Bursts], names: Iterable[str] = ()) -> dict[Arm, dict[str, ClusterSums]]:
    """Return each arm's events by name with the spread of both, those that never happened too where they are named."""
    out: dict[Arm, dict[str, ClusterSums]] = {arm: {} for arm in ARMS}
    base, canary = (arms[arm] for arm in ARMS)
    total = base.n + canary.n
    for name in sorted({*base.events, *canary.events, *names}) if total else ():
        effect = max(0.0, (base.effect(name) * canary.n + canary.effect(name) * base.n) / total)
        for arm in ARMS:
            k = arms[arm].events.get(name, 0)
            out[arm][name] = ClusterSums(errors=k, spread=k * effect)
    return out
