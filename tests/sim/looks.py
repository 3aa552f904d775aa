"""Simulator: when each cell is looked at. Days of a migration are waiting; in a calm stretch most of its looks are left out.

A look is left out only where the two looks before it changed nothing but counts (same step, same hold, same weight) and before the next
moment that a rule waits for: the end of a warm-up, of a bake time, of a freeze window, of a deadline.
The gap grows eightfold from look to look. Whatever happens in the world (`stir`) brings the next look of production; where that changes
anything, or what happened shows only in time, all looks are made again. What the looks left out would have done, which is to renew the
weight's lease, the world does in their place, once one of them was seen to do so. With `jumps` off every look is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleetctl.domain.fleet import FreezeWindow
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Rollout
from fleetctl.usecases.tick import TickResult

LONGEST = timedelta(hours=8)
"""Between two looks of a calm cell."""
NEVER = timedelta(days=36_500)
CALM_FROM = 2
"""Looks that change nothing, after which the next are left out."""
EVERY_SECOND = 20
"""Times that a cell which is not given out is asked for once a second: longer than a holder's lease of 15 s."""
JUST_AFTER = timedelta(milliseconds=1)


@dataclass(slots=True)
class Look:
    """A cell's next look, how many before it changed nothing, and whether those that are left out would renew the weight's lease."""

    at: datetime
    every: timedelta = timedelta(seconds=1)
    same: int = 0
    shape: tuple[object, ...] = ()
    renews: bool = False
    is_over: bool = False
    refused: int = 0

    def is_put_off(self, since: datetime) -> bool:
        """Tell whether looks are left out from a moment on that would renew the weight's lease."""
        return self.renews and self.at - since > self.every


class Looks:
    """The next look of each cell, known to the world alone: the store's own time of it is never later."""

    def __init__(self, cells: tuple[CellId, ...], now: datetime, *, jumps: bool) -> None:
        self.jumps = jumps
        self.of = {c: Look(at=now) for c in cells}

    def is_due(self, c: CellId, now: datetime) -> bool:
        return self.of[c].at <= now

    def next_at(self) -> datetime:
        """Return the moment of the next look of any cell."""
        return min(look.at for look in self.of.values())

    def ticked(
        self, c: CellId, result: TickResult, now: datetime, freeze: Iterable[FreezeWindow], *, renewed: bool, lapses: datetime
    ) -> None:
        """Set the next look after a tick.

        Args:
            renewed: it has just renewed the weight's lease; lapses: when that lapses, in the past where there is nobody on the target.
        """
        look, r = self.of[c], result.rollout
        look.refused = 0
        shape = _shape(result)
        same = shape == look.shape
        look.same = look.same + 1 if same else 0
        look.shape, look.every = shape, result.look_again
        look.renews = renewed or (same and look.renews)
        look.is_over = r is not None and r.ended not in ("", "complete")
        look.at = now + (NEVER if look.is_over else self._wait(look, r, now, freeze, lapses))

    def failed(self, c: CellId, now: datetime) -> None:
        """Set the next look after a tick that found no store: nothing was done, nothing is renewed."""
        look = self.of[c]
        look.same = look.same + 1 if look.shape == ("no store",) else 0
        look.shape, look.every, look.renews = ("no store",), timedelta(seconds=1), False
        look.at = now + self._wait(look, None, now, (), now)

    def later(self, c: CellId, now: datetime) -> None:
        """Come again soon: the store does not give the cell out, whose lease a killed holder has, or which has ended.

        A ticker asks several times a second; every second is often enough until such a lease has run out.
        """
        look = self.of[c]
        look.at = now + timedelta(seconds=min(2 ** max(0, look.refused - EVERY_SECOND), 86_400))
        look.refused += 1

    def stir(self, c: CellId, now: datetime, *, unseen: bool) -> None:
        """Look soon: something happens to this cell. What a look does not show at once (`unseen`) needs all looks of production."""
        look = self.of[c]
        look.refused = 0
        if not look.is_over:
            look.same, look.at = 0 if unseen else look.same, min(look.at, now + look.every)

    def at_once(self, c: CellId, now: datetime) -> None:
        """Look now: an order has come, or a rollout has begun."""
        look = self.of[c]
        look.same, look.refused, look.at, look.is_over = 0, 0, now, False

    def _wait(self, look: Look, r: Rollout | None, now: datetime, freeze: Iterable[FreezeWindow], lapses: datetime) -> timedelta:
        if not self.jumps or look.same < CALM_FROM:
            return look.every
        half = lapses - r.spec.weight_lease / 2 + JUST_AFTER if r is not None else now
        first = min((t + JUST_AFTER for t in _moments(r, freeze) if t > now), default=None)
        if not look.renews and now < half < now + LONGEST:  # none is left out before one was seen to renew
            return max(look.every, min(half, first or half) - now)
        wait = min(look.every * int(8 ** min(8, look.same - CALM_FROM + 1)), LONGEST)
        if first is None or first - now >= wait:
            return wait
        look.same = 0
        return max(look.every, first - now)


def _shape(result: TickResult) -> tuple[object, ...]:
    """Return all that a look may change beside counts and the weight's lease."""
    r = result.rollout
    if r is None:
        return (result.kind,)
    moved = (r.step, r.direction, r.ended, r.weight_bp, r.settled_at, r.step_done, r.until, r.attempt)
    return (result.kind, *moved, r.paused, r.promoted, r.hold_reason, r.lost_since, r.latched is None, r.foreign)


def _moments(r: Rollout | None, freeze: Iterable[FreezeWindow]) -> Iterable[datetime]:
    """Yield the moments that a rule waits for."""
    for w in freeze:
        yield from (w.start, w.end)
    if r is None or r.ended:
        return
    if r.settled_at is not None:
        yield from (r.settled_at, r.settled_at + r.spec.phases[r.step].bake)
    if r.deadline is not None:
        yield r.deadline
    if r.lost_since is not None:
        yield r.lost_since + r.spec.lost_evidence_home
