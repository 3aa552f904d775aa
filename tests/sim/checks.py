"""Simulator: what must hold in every history, whatever happened (promises P1 to P3, P5 to P10 of the design)."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.domain.ids import CellId
from fleetctl.rollout.lost import BROKEN_STATES
from tests.sim.faults import Faults
from tests.sim.world import LEAST, PINNED, World, Written

HOME_WITHIN_S = 30.0
"""From a FAIL, abort or fallback to weight 0, counting only time in which router, store, source and a controller were there."""
NOTICED_WITHIN_S = 300.0
"""A target that is twice as slow or fails 8 % is found in that time at half of 60 requests a second, holds and lost evidence included."""
HALF_BP = 5_000


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that did not hold, with what shows it."""

    promise: str
    text: str


class Stopped(Exception):
    """A history that broke a promise is not lived to its end."""


class Checks:
    """Looks at every write as it happens and at every cell after each step; collects what broke.

    Args:
        wanted: the promise at whose first breach the history ends, "" to live it to its end.
    """

    def __init__(self, world: World, *, fenced: bool = True, wanted: str = "") -> None:
        self.world, self.fenced, self.wanted = world, fenced, wanted
        self.broken: list[Broken] = []
        self.false_rollbacks: list[str] = []
        self._seen = 0
        self._going_home: dict[CellId, float] = {}
        self._ended: dict[CellId, int] = {}
        world.on_step.append(self.look)

    def look(self) -> None:
        """Check what was written since the last look, and where every cell is."""
        for w in self.world.written[self._seen :]:
            self._write(w)
        self._seen = len(self.world.written)
        if self.world.store.down:
            return
        for c in self.world.cells:
            self._cell(c)

    def stale_accepted(self) -> int:
        """Return how many writes the router took from a writer that a newer one had followed."""
        return sum(w.split.token < w.token_before for w in self.world.written)

    def _say(self, promise: str, text: str) -> None:
        self.broken.append(Broken(promise, f"{text} at {self.world.t:.1f} s"))
        if promise == self.wanted:
            raise Stopped

    def _write(self, w: Written) -> None:
        what = f"{w.cell} {w.was_bp} -> {w.split.target_bp} bp by {w.by} (token {w.split.token})"
        if w.split.token < w.token_before and self.fenced:
            self._say("P2", f"a stale write was taken: {what} after token {w.token_before}")
        if w.split.target_bp > w.split.cap_bp or w.split.target_bp > self.world.spec.cap_bp:
            self._say("P5", f"above the cap: {what}")
        if w.split.target_bp <= w.was_bp:
            return
        if w.world["frozen"] and not w.world["resumed"]:
            self._say("P10", f"raised in a freeze window: {what}")
        if w.world["resumed"]:
            return  # what it had seen before it was stopped is old; that nobody followed it is what the token proves
        if w.world["source"] < 1.0 or w.world["target"] < 1.0:
            self._say("P9", f"raised while a replica was away: {what}, {w.world}")
        if w.was_bp > 0 and (w.world["blind"] or set(w.world["forced"]) & BROKEN_STATES):
            self._say("P7", f"raised without evidence: {what}, {w.world}")

    def _cell(self, c: CellId) -> None:
        r = self.world.store.load(c)
        if r is None:
            return
        shown = self.world.target.splits[c].target_bp
        if r.ended and r.ended != "complete":
            self._going_home.pop(c, None)
            if shown > 0:
                self._say("P1", f"{c} ended {r.ended} with {shown} bp on the target")
            return
        if r.ended in ("", "complete") and r.direction == "forward" and shown > 0 and self.world.hands.minimum["asg"] < PINNED:
            self._say("P6", f"{c} has {shown} bp on the target and the source's minimum is {self.world.hands.minimum['asg']}")
        if r.direction == "home" or r.latched is not None:
            since = self._going_home.setdefault(c, self.world.able_s[c])
            if shown > 0 and self.world.able_s[c] - since > HOME_WITHIN_S:
                self._say("P3", f"{c} is going home since {self.world.able_s[c] - since:.0f} s of able time, {shown} bp are still there")
                self._going_home[c] = self.world.able_s[c]
        else:
            self._going_home.pop(c, None)

    def at_the_end(self, faults: Faults) -> None:
        """Check that every cell came to an end that its history explains, once all was well again for long."""
        for c in self.world.cells:
            r = self.world.store.load(c)
            assert r is not None
            shown = self.world.target.splits[c].target_bp
            if not r.ended:
                self._say("P1", f"{c} is stuck: {r.phase} {shown} bp, held by {r.hold_reason!r}, until {r.until}, paused {r.paused}")
            elif r.ended == "complete" and shown != self.world.spec.cap_bp:
                self._say("P1", f"{c} is complete with {shown} bp on the target")
            elif r.ended == "complete" and c in faults.regressed and self._exposed_s(c, faults.regressed[c][0]) > NOTICED_WITHIN_S:
                self._say("P4", f"{c} is complete though its target was {faults.regressed[c][1]}")
            elif r.ended == "rolled_back" and c not in faults.regressed and r.latched is not None:
                self.false_rollbacks.append(f"{c} at {self.world.t:.0f} s: {r.latched.guardrail}")
        if not any(b.promise == "P1" for b in self.broken):
            self._minimum()
        self._chains()

    def _minimum(self) -> None:
        """The source's minimum is what it was, or held for a cell that is complete; raised once more than given back only then."""
        ends = [r.ended for c in self.world.cells if (r := self.world.store.load(c)) is not None]
        is_held = "complete" in ends
        least, wanted = self.world.hands.minimum["asg"], PINNED if is_held else LEAST
        if least != wanted:
            self._say("P6", f"the cells have ended ({', '.join(ends)}) and the source's minimum is {least}, not {wanted}")
        up = [w for w in self.world.hands.writes if w[2] == PINNED]
        if len(self.world.hands.writes) != 2 * len(up) - is_held:
            self._say("P6", f"the minimum was raised {len(up)} times in {len(self.world.hands.writes)} writes")

    def _exposed_s(self, c: CellId, since: float) -> float:
        """Return for how long half of the customers or more were on a target before the cell was complete."""
        total, from_, bp = 0.0, 0.0, 0
        for w in (w for w in self.world.written if w.cell == c):
            if bp >= HALF_BP:
                total += max(0.0, w.at - max(from_, since))
            from_, bp = w.at, w.split.target_bp
        return total

    def _chains(self) -> None:
        for cell, seq, why in self.world.store.verify():
            self._say("P13", f"chain of {cell} breaks at {seq}: {why}")
