"""Simulator: what must hold in every history, whatever happened: promises P1 to P10 and P13, and that people are paged once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.split import stays_bp
from fleetctl.rollout.deadlines import ENDS
from fleetctl.rollout.decide import PROVIDER, PROVIDER_CELLS, STALE
from fleetctl.rollout.lost import QUIET_STATES
from tests.sim.faults import Faults
from tests.sim.parts import Paged
from tests.sim.world import LEAST, PINNED, World, Written

HOME_WITHIN_S = 30.0
"""From a FAIL, abort or fallback to weight 0, counting only time in which router, store, source and a controller were there."""
NOTICED_WITHIN_S = 300.0
"""A target that is twice as slow or fails 8 % is found in that time at half of 60 requests a second, holds and lost evidence included."""
HALF_BP = 5_000
ABLE_S = 200.0
"""A weight's lease is 180 s: whoever could tick for so long has renewed it."""
LOST_WITHIN_S = 210.0
"""From the loss of a cell's evidence to weight 0: 120 s by the rule, the rest for a holder that is stopped."""
LEAST_SENT = 1_000
SERVED_WITHIN = 0.01
"""By how much the share that is served may exceed the cap. Source: design section 8 (P5), reliability.md 4.2."""
STALE_PROOF_S = 15.0
"""Good answers of the last 10 s prove a source; one that is dead for longer is proven by nothing."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that did not hold, with what shows it."""

    promise: str
    text: str


class Stopped(BaseException):
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
        self.wrong: Callable[[], list[str]] = list
        self._seen = 0
        self._sent: dict[CellId, tuple[int, int]] = dict.fromkeys(world.cells, (0, 0))
        self._going_home: dict[CellId, float] = {}
        self._ended: dict[CellId, int] = {}
        self._ends: dict[tuple[CellId, str], int] = {}
        world.on_step.append(self.look)

    def look(self) -> None:
        """Check what was written since the last look, and where every cell is."""
        for w in self.world.written[self._seen :]:
            self._write(w)
        self._seen = len(self.world.written)
        for page in self.world.paged:
            self._page(page)
        self.world.paged.clear()
        for text in self.world.two_writers:
            self._say("P8", text)
        self.world.two_writers.clear()
        for c in self.world.cells:
            self._served(c)
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

    def _page(self, p: Paged) -> None:
        """Nobody is paged of what the record holds the cell for already; of a provider once; of an end twice at most."""
        if p.resumed:
            return  # what it read before it was stopped is old
        if ENDS in p.text:
            end = p.text.partition(", ")[2]
            self._ends[p.cell, end] = self._ends.get((p.cell, end), 0) + 1
            if self._ends[p.cell, end] > 2 * self.world.attempts(p.cell):
                self._say("once", f"{p.cell} is paged of one end {self._ends[p.cell, end]} times: {p.text}")
        elif p.held.get(p.cell) == p.cause:
            self._say("once", f"paged again of {p.cause}, for which {p.cell} is held already: {p.text}")
        elif p.cause == PROVIDER and PROVIDER in p.held.values():
            self._say("once", f"paged again of the provider, of which a cell is held already: {p.text}")

    def _write(self, w: Written) -> None:
        if w.by == "others":
            return
        what = f"{w.cell} {w.was_bp} -> {w.split.target_bp} bp by {w.by} (token {w.split.token})"
        if w.split.token < w.token_before and self.fenced:
            self._say("P2", f"a stale write was taken: {what} after token {w.token_before}")
        if w.split.target_bp > w.split.cap_bp or w.split.target_bp > self.world.spec.cap_bp:
            self._say("P5", f"above the cap: {what}")
        if w.split.target_bp > w.was_bp:
            self._raise(w, what)
        elif w.by in ("guard", "fallback") and w.split.target_bp < stays_bp(w.was_bp, w.world["source"]):
            self._say("P3", f"more were taken home than {w.world['source']:.0%} of the source can take: {what}")
        elif w.by == "guard":
            if w.world["able_s"] > ABLE_S:
                self._say(
                    "P9", f"the guard took {w.cell} home though a controller, store and router were there for {w.world['able_s']:.0f} s"
                )
        elif w.by != "fallback" and w.world["dead_s"] > STALE_PROOF_S and not w.world["resumed"]:
            self._say("P3", f"customers were sent to a source that is dead for {w.world['dead_s']:.0f} s: {what}")

    def _served(self, c: CellId) -> None:
        """Nobody above the cap is sent to the target, whatever the source does; a thousand customers tell it to a point or so."""
        now, then = self.world.traffic.sent(c), self._sent[c]
        base, canary = now[0] - then[0], now[1] - then[1]
        n, cap = base + canary, self.world.spec.cap_bp / 10_000
        if n < LEAST_SENT:
            return
        self._sent[c] = now
        if canary / n > cap + SERVED_WITHIN + 5 * sqrt(cap * (1 - cap) / n):
            self._say("P5", f"{canary} of {n} customers of {c} were sent to its target, whose cap is {cap:.0%}")

    def _raise(self, w: Written, what: str) -> None:
        r, phases = w.world["rollout"], self.world.spec.phases
        if w.world["frozen"] and not w.world["resumed"]:
            self._say("P10", f"raised in a freeze window: {what}")
        if w.world["guarded"]:
            self._say("P9", f"a holder that was stopped sent customers back whom the guard had taken home: {what}")
        if w.world["resumed"] or r is None:
            return  # what it had seen before it was stopped is old; that nobody followed it is what the token proves
        if r.direction == "home" or r.latched is not None:
            self._say("P3", f"raised on the way home: {what}")
        if w.split.target_bp > phases[min(r.step + 1, len(phases) - 1)].weight_bp:
            self._say("P10", f"a step was passed over: {what} from {r.phase}")
        if w.world["source"] < 1.0 or w.world["target"] < 1.0:
            self._say("P9", f"raised while a replica was away: {what}, source {w.world['source']}, target {w.world['target']}")
        if w.was_bp > 0 and (w.world["blind"] or w.world["forced"]) and not self._is_persons_word(w):
            self._say("P7", f"raised without evidence: {what}, {w.world['forced']}")
        is_back = w.split.target_bp <= phases[r.step].weight_bp  # what the guard took home of a step that was earned before
        if w.was_bp > 0 and not is_back and not self._is_promoted(w):
            self._earned(w, r, what)

    def _is_persons_word(self, w: Written) -> bool:
        """Tell whether a person promoted though an arm is quiet, which is no loss of evidence while hardly any request of it was due."""
        is_quiet = not w.world["blind"] and QUIET_STATES.issuperset(w.world["forced"])
        return is_quiet and self._is_promoted(w)

    def _is_promoted(self, w: Written) -> bool:
        """Tell whether a person promoted this cell at the weight that it had: a word for one step is none for the next."""
        before = self.world.written[: next(i for i, x in enumerate(self.world.written) if x is w)]
        since = max((x.at for x in before if x.cell == w.cell and x.split.target_bp != x.was_bp), default=0.0)
        return any(c == w.cell and kind == "promote" and at >= since for at, c, kind in self.world.orders)

    def _earned(self, w: Written, r: Rollout, what: str) -> None:
        """Nobody promoted this cell: its step has seen enough customers for long enough."""
        stood = w.at - (r.settled_at - self.world.began).total_seconds() if r.settled_at is not None else 0.0
        if stood < self.world.spec.phases[r.step].bake.total_seconds():
            self._say("P7", f"raised before its bake time is over: {what} after {stood:.0f} s of {r.phase}")
        if w.world["canary_n"] < r.spec.min_canary_requests:
            self._say("P7", f"raised on {w.world['canary_n']} canary requests: {what}")

    def _cell(self, c: CellId) -> None:
        r = self.world.rollout(c)
        if r is None:
            return
        shown = self.world.target.splits[c].target_bp
        if r.ended and r.ended != "complete":
            self._going_home.pop(c, None)
            if shown > 0:
                self._say("P1", f"{c} ended {r.ended} with {shown} bp on the target")
            return
        # a split that stays is complete once it is shown: its minimum is given back before that is on record
        if (
            not (self.world.spec.stays_split and r.phase == "complete")
            and r.ended in ("", *self._held_ends())
            and r.direction == "forward"
            and shown > 0
            and self.world.hands.minimum["asg"] < PINNED
        ):
            self._say("P6", f"{c} has {shown} bp on the target and the source's minimum is {self.world.hands.minimum['asg']}")
        if not r.ended and shown > 0 and len(self.world.cells) < PROVIDER_CELLS and self.world.lost_s[c] > LOST_WITHIN_S:
            self._say("P7", f"{c} has no evidence for {self.world.lost_s[c]:.0f} s and {shown} bp are on the target")
            self.world.lost_s[c] = 0.0
        if r.direction == "home" or r.latched is not None:
            since = self._going_home.setdefault(c, self.world.able_s[c])
            if shown > 0 and self._is_lapsed(c, r):
                self._say("P9", f"the lease of {shown} bp of {c}, which cannot go home yet, lapsed beside a controller that could renew it")
            if shown > 0 and self.world.able_s[c] - since > HOME_WITHIN_S:
                self._say("P3", f"{c} is going home since {self.world.able_s[c] - since:.0f} s of able time, {shown} bp are still there")
                self._going_home[c] = self.world.able_s[c]
        else:
            self._going_home.pop(c, None)

    def _is_lapsed(self, c: CellId, r: Rollout) -> bool:
        """Tell whether a weight's lease lapsed though a controller, store and router were there for long, whatever the source did."""
        lapsed = self.world.target.splits[c].lease_until <= self.world.clock.now()
        return lapsed and r.hold_reason != STALE and self.world.t - self.world.unmanned_at > ABLE_S

    def at_the_end(self, faults: Faults) -> None:
        """Check that every cell came to an end that its history explains, once all was well again for long."""
        for text in self.wrong():
            self._say("P1", f"the target's machines are not as asked for: {text}")
        for at, c in self.world.refused:
            self._say("P1", f"{c} is home and its retry at {at:.0f} s was refused")
        for c in self.world.cells:
            r = self.world.rollout(c)
            assert r is not None
            shown = self.world.target.splits[c].target_bp
            if not r.ended:
                self._say("P1", f"{c} is stuck: {r.phase} {shown} bp, held by {r.hold_reason!r}, until {r.until}, paused {r.paused}")
            elif r.ended == "complete" and shown != self.world.spec.cap_bp:
                self._say("P1", f"{c} is complete with {shown} bp on the target")
            elif r.ended == "complete" and c in faults.regressed and self._exposed_s(c, faults.regressed[c][0]) > NOTICED_WITHIN_S:
                self._say("P4", f"{c} is complete though its target was {faults.regressed[c][1]}")
            elif r.ended == "rolled_back" and c not in faults.regressed and c not in faults.died and r.latched is not None:
                self.false_rollbacks.append(f"{c} at {self.world.t:.0f} s: {r.latched.guardrail}")
        if not any(b.promise == "P1" for b in self.broken):
            self._minimum()
        self._chains()

    def _minimum(self) -> None:
        """The source's minimum is what it was, or held for a cell that is complete; raised once more than given back only then."""
        ends = [r.ended for c in self.world.cells if (r := self.world.rollout(c)) is not None]
        is_held = any(e in self._held_ends() for e in ends)
        least, wanted = self.world.hands.minimum["asg"], PINNED if is_held else LEAST
        if least != wanted:
            self._say("P6", f"the cells have ended ({', '.join(ends)}) and the source's minimum is {least}, not {wanted}")
        up = [w for w in self.world.hands.writes if w[2] == PINNED]
        if len(self.world.hands.writes) != 2 * len(up) - is_held:
            self._say("P6", f"the minimum was raised {len(up)} times in {len(self.world.hands.writes)} writes")

    def _held_ends(self) -> tuple[str, ...]:
        """Return the ends after which the source's minimum stays: where a cap leaves customers there, the scaler sees them itself."""
        return () if self.world.spec.stays_split else ("complete",)

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
