"""Plan, pure layer: what ties a cell to its source that could have moved: commitments, the spread of others, no wait. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from fleetctl.planning.assemble import Asked
from fleetctl.planning.commitments import scoped, units_of
from fleetctl.planning.cover import covered
from fleetctl.planning.given import Inputs
from fleetctl.planning.outcomes import Bound, counted_vms
from fleetctl.planning.placement import SPREAD
from fleetctl.planning.polish import pools_held
from fleetctl.planning.program import TINY, held, saved
from fleetctl.planning.rooms import Rooms, rooms_of
from fleetctl.planning.stages import Stage, Staged


class Ties:
    """Answers for the cells of one plan; sums per pool are made once."""

    def __init__(self, given: Inputs, asked: Sequence[Asked], found: Staged) -> None:
        first, last = found.stages[0], found.stages[-1]
        self._given, self._last, self._rooms = given, last, found.rooms
        self._first = rooms_of(first.program, first.answer.pool, first.answer.peak.astype(float), found.rooms.names)
        self._waits = len(found.stages) > 1
        went = np.flatnonzero(last.answer.pool != first.program.start).tolist()
        self._after = {name for w in went for name in asked[w].workload.after}
        self._paid = _paid_vms(last)
        self._held = pools_held(last.program, last.answer.pool)
        self._load = held(last.program, last.answer.pool)
        wide = last.program.spread >= SPREAD
        self._wide = np.bincount(last.answer.pool[wide], minlength=last.program.pools)
        self._until = cache(self._paid_until)

    def of(self, w: int, a: Asked) -> tuple[Bound, Rooms]:
        """Return what ties the cell of row `w`, and the room that it saw: that of the first stage where it may wait for no release."""
        p, source = self._last.program, a.source
        vms, site = float(self._last.answer.vms[source]), self._given.sites[source]
        others = int(self._wide[source]) - (int(p.spread[w]) >= SPREAD)
        rest = float(self._load[source] - p.load[w, source])
        no_wait = ""
        if self._waits and site.pool.ends:
            no_wait = f" The capacity of {site.pool.id} ends on {site.pool.ends}: capacity that ends waits for no release."
        elif self._waits and a.workload.id in self._after:
            no_wait = " Others that wait for it (`after`) have moved: it waits for no release."
        is_paid = self._paid[source] > 0 and vms <= self._paid[source] + TINY
        bound = Bound(
            paid_until=self._until(source) if is_paid else "",
            some_paid=self._some_paid(source),
            some_until=self._own_until(source) if p.paid[source] > 0 else "",
            is_spread=vms == SPREAD and others > 0 and rest <= float(p.size[source]) + TINY,
            no_wait=no_wait,
            any_cost=self._given.options.allow_dearer,
            alone=partial(self._alone, w),
        )
        return bound, self._first if no_wait else self._rooms

    def _alone(self, w: int, pool: int) -> tuple[int, int, float]:
        """Return the VMs of its source that go and of a pool that come if one more cell moved there, and USD per hour more in all."""
        p, source, wide = self._last.program, int(self._last.answer.pool[w]), int(self._last.program.spread[w] > 1)
        vms = self._last.answer.vms.astype(np.float64)
        then = vms.copy()
        then[source] = self._held[source].left(float(p.load[w, source]), wide)
        then[pool] = self._held[pool].entered(float(p.load[w, pool]), wide)
        more = float(p.price @ (then - vms) + p.move[w, pool] - p.move[w, source]) - saved(p, then) + saved(p, vms)
        return round(float(vms[source] - then[source])), round(float(then[pool] - vms[pool])), more

    def _some_paid(self, source: int) -> str:
        """Return in words how many VMs of a pool commitments of its own pay for, "" where none."""
        n = round(float(self._last.program.paid[source]))
        if not n:
            return ""
        named = f"{counted_vms(n)} of {self._given.sites[source].pool.id} {'is' if n == 1 else 'are'}"
        return f" {named} paid for until {self._own_until(source)} (commitment), used or not."

    def _own_until(self, source: int) -> str:
        """Return the last day of the commitments of this pool alone."""
        pool, today = self._given.sites[source].pool.id, self._given.now.date().isoformat()
        return max((c.until for c in self._given.fleet.commitments if c.scope is None and c.pool == pool and c.until >= today), default="")

    def _paid_until(self, source: int) -> str:
        """Return the last day of the commitments that count for a pool today."""
        given = self._given
        by_scope = scoped(given.fleet, given.now)
        units, _ = units_of(by_scope, given.sites, given.catalog)
        return max(
            [self._own_until(source), *(c.until for c, row in zip(by_scope, units, strict=True) if row[source] > 0)],
            default="",
        )


def _paid_vms(last: Stage) -> list[float]:
    """Return the VMs per pool that commitments pay for in the end."""
    p, vms = last.program, last.answer.vms.tolist()
    paid = [float(n) for n in p.paid]
    if not len(p.funds):
        return paid
    left = [max(0.0, float(n) - k) for n, k in zip(vms, paid, strict=True)]
    more = covered(p.units.tolist(), p.funds.tolist(), p.price.tolist(), left)
    return [n + m for n, m in zip(paid, more, strict=True)]
