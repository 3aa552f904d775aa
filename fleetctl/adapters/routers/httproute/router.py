"""Traffic, adapter layer: the Router over an HTTPRoute of the Gateway API. Never decides a weight.

Weights are those of the rule's two backends; cap, token and lease stand in an annotation. The API server refuses a write over an object
that has changed since it was read, so the token is compared at the target. What the gateway makes of it is another matter: its status
must have seen our generation, and who answered is counted elsewhere (a counter in Prometheus), never believed.
"""

from __future__ import annotations

import random
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.httproute.status import Word, word_of
from fleetctl.adapters.routers.httproute.wire import Conflict, Routes
from fleetctl.adapters.routers.marks import LONGEST_ANSWER_S, Floors, Mark, read_mark, still_open
from fleetctl.adapters.routers.odd import understood
from fleetctl.adapters.routers.open_writes import READ_BACK_S, TAKE_BACK_S
from fleetctl.adapters.routers.route import Backends
from fleetctl.adapters.routers.splits import as_split, checked_cell, epoch_ms, natural, rounded
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Drained, RouterCapabilities, Served, Split, Stale
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import TrafficNotApplied

MARK = "fleetctl-split/mark"
PAUSE_S = 0.1
"""Longest pause after the first write that was refused since another one came before it (a gateway's controller writes the status of the
same object), twice that after the next, and so on to a second: two writers at one pace would meet each time."""
SEEN_S = 2.0
"""How long the gateway may take to say that it has seen our generation before that is reported."""
COUNTED_S = 300.0
"""Prometheus counts what lies between two scrapes, by default a minute apart: a minute back there is one. Source: its configuration."""
_PLACE = re.compile(r"([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})(?:#(\d{1,2}))?\Z")
Counter = Callable[[CellId, Instant], Served]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """A route as it stands: the whole object, the backends of both sides in it, the weight, the mark and its text, what others' backends
    weigh, and what it has lost."""

    whole: dict[str, Any]
    baseline: dict[str, Any]
    canary: dict[str, Any]
    bp: int
    mark: Mark
    text: str = ""
    others: int = 0
    odd: str = ""
    lost: str = ""

    @property
    def word(self) -> Word:
        """What the gateways say of it."""
        return word_of(self.whole)

    def weights(self, bp: int) -> tuple[int, int]:
        """Return the weights of target and source for a share; what others get is theirs, and stays."""
        ours = _weight(self.canary) + _weight(self.baseline)
        if not self.others:
            return (bp, FULL_BP - bp) if ours or bp != self.bp else (0, 0)
        canary = _weight(self.canary) if bp == self.bp else bp * (ours + self.others) // FULL_BP
        return canary, ours - canary


class HttpRouteRouter:
    """Splits cells through HTTPRoutes of one cluster.

    Args:
        connection: setting `route` ("namespace/name", "#2" for its third rule; `route.CELL` where several cells share the connection).
        routes: the cluster's HTTPRoutes; count: counts who answered, None where nobody can.
        backends: names of the two backends; without them those whose names end in -baseline and -canary.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        routes: Routes,
        count: Counter | None = None,
        now: Callable[[], Instant] = lambda: datetime.now(UTC),
        sources: Mapping[CellId, PoolId] | None = None,
        backends: Mapping[CellId, Backends] | None = None,
        seen_s: float = SEEN_S,
    ) -> None:
        self.name = connection.name
        self._settings = connection.settings
        self._routes = routes
        self._count = count
        self._now = now
        self._sources = dict(sources or {})
        self._backends = dict(backends or {})
        self._seen_s = seen_s
        self._took_ms: deque[float] = deque(maxlen=20)
        self._fencing: dict[CellId, Token] = {}
        self._floors = Floors()

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do; `switch_ms` is the slowest of the last 20 sets, until the gateway said that it had seen it."""
        return RouterCapabilities(
            switch_ms=max(self._took_ms, default=None),
            streaming=True,
            mirror=False,
            fence="target",
            served_s=COUNTED_S,
            tells="gateway",
        )

    @understood
    def read(self, c: CellId) -> Split:
        """Return what the route says by now; a foreign weight above the cap is shown with the cap raised to it.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        cell = checked_cell(c)
        return _shown(cell, self._standing(cell, Deadline()))

    @understood
    def fence(self, c: CellId, token: Token) -> Split | Stale:
        """Raise the floor to `token` and return what stands; Stale unless token > floor or this very fence was ours.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        cell, wanted = checked_cell(c), natural("token", token)
        mine = self._fencing.get(cell) == wanted

        def change(standing: _Standing) -> Mark | Stale | None:
            if wanted > standing.mark.token:
                return replace(standing.mark, token=wanted)
            return None if mine and wanted == standing.mark.token else Stale(cell=cell, seen=Token(standing.mark.token))

        self._fencing[cell] = token
        done = self._change(cell, change, None, Deadline())
        if isinstance(done, Stale):
            self._fencing.pop(cell, None)
            return done
        return _shown(cell, done)

    @understood
    def set(self, s: Split) -> Applied | Stale:
        """Set split, cap and lease where the token is the floor, then look whether the gateway has seen it.

        Nothing is raised where the gateway has not taken what stands, and a raise that it does not take is taken back in the same call.
        Lowering is never refused for what a gateway says: that is reported, and what is read says so too.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown, traffic.refused.
        """
        deadline = Deadline()
        cell = checked_cell(s.cell)
        standing = self._standing(cell, deadline)
        if s.target_bp <= standing.bp or standing.mark.token != s.token:
            return self._set(cell, s, standing, deadline)
        self._may_raise(cell, standing)
        try:
            return self._set(cell, s, standing, Deadline(max(0.0, deadline.left_s() - TAKE_BACK_S)))
        except TrafficNotApplied as e:
            stands = self._taken_back(cell, s, standing.bp, deadline)
            raise TrafficNotApplied(e.code, f"{e.message} {stands}", hint=e.hint) from e

    def _set(self, cell: CellId, s: Split, first: _Standing, deadline: Deadline) -> Applied | Stale:
        started, before_bp = time.monotonic(), first.bp

        def change(standing: _Standing) -> Mark | Stale | None:
            if standing.mark.token != s.token:
                return Stale(cell=cell, seen=Token(standing.mark.token))
            moved = s.target_bp != standing.bp
            return Mark(
                cap_bp=s.cap_bp,
                token=standing.mark.token,
                lease_ms=epoch_ms(s.lease_until),
                changed_ms=epoch_ms(self._now()) if moved else standing.mark.changed_ms,
            )

        done = self._change(cell, change, s.target_bp, deadline, first)
        if isinstance(done, Stale):
            return done
        word = self._until_seen(cell, done, min(self._seen_s, deadline.left_s() - READ_BACK_S), deadline)
        if word.refused and s.target_bp > before_bp:
            raise _odd(cell, word.refused)
        shown = self._standing(cell, deadline)
        if shown.mark.token > s.token:
            return Stale(cell=cell, seen=Token(shown.mark.token))
        if shown.bp != s.target_bp and not (shown.others and shown.bp < s.target_bp < before_bp):
            text = (
                f"router {self.name} shows {shown.bp} bp for cell {cell} after {s.target_bp} bp were set: somebody else writes there too."
            )
            raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl status")
        self._took_ms.append((time.monotonic() - started) * 1_000)
        late = f"{word.late} of router {self.name} has not said that it has seen the new weights" if word.late else ""
        return Applied(split=replace(rounded(replace(s, target_bp=shown.bp)), unseen=word.unseen), reported=word.refused or late)

    @understood
    def refusal(self, c: CellId) -> str:
        """Say why no weight of a cell would be raised as its route stands, "" where nothing speaks against it; asks, changes nothing.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        standing = self._standing(checked_cell(c), Deadline())
        return standing.odd or standing.lost or standing.word.unseen

    def _may_raise(self, cell: CellId, standing: _Standing) -> None:
        """Refuse a raise of what is no plain split, or what the gateway has not taken. Raises TrafficNotApplied."""
        if standing.odd or standing.lost:
            raise _odd(cell, standing.odd or standing.lost, "Run: fleetctl fallback CELL" if standing.lost else "Run: fleetctl doctor")
        if standing.word.unseen:
            text = f"the route of cell {cell} is raised no further: {standing.word.unseen}."
            raise TrafficNotApplied("traffic.refused", text, hint="Mend the route: kubectl describe httproute")

    def _taken_back(self, cell: CellId, s: Split, before_bp: int, deadline: Deadline) -> str:
        """Take a raise back that was not shown, and have a late one of ours refused; return what stands, in words."""

        def change(standing: _Standing) -> Mark | Stale | None:
            if standing.mark.token != s.token:
                return Stale(cell=cell, seen=Token(standing.mark.token))
            return replace(standing.mark, changed_ms=max(epoch_ms(self._now()), standing.mark.changed_ms + 1))

        try:
            standing = self._standing(cell, deadline)
            was = before_bp if standing.bp == s.target_bp else standing.bp
            done = self._change(cell, change, min(was, standing.bp), deadline, standing)
        except TrafficNotApplied as e:
            return f"It may stand: {e.message}"
        if isinstance(done, Stale):
            return "A newer writer is there."
        return f"{done.bp / 100:g} % stand again."

    @understood
    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Tell whether that side can still hold an open request: 1 until the longest answer has passed since it got its last one, else 0.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.unknown_pool where the cell's source pool is not known.
        """
        cell = checked_cell(c)
        standing = self._standing(cell, Deadline())
        if standing.mark.token != token:
            return Stale(cell=cell, seen=Token(standing.mark.token))
        if cell not in self._sources:
            raise TrafficNotApplied("traffic.unknown_pool", f"router {self.name} was not told the source pool of cell {cell}.")
        share = standing.bp if self._sources[cell] != pool else FULL_BP - standing.bp
        return still_open(standing.mark, share, self._now(), LONGEST_ANSWER_S)

    @understood
    def served(self, c: CellId, since: Cursor) -> Served:
        """Count requests since the cursor by who answered, as the counters say that the fleet file names.

        Raises:
            TrafficNotApplied: traffic.not_shown, where there are none or they cannot be read.
        """
        cell = checked_cell(c)
        if self._count is None:
            text = f"router {self.name} has no settings prometheus, served.baseline and served.canary, so nobody can count who answered."
            raise TrafficNotApplied("traffic.not_shown", text, hint="Add them to the fleet file.")
        count = self._count
        try:
            return within(Deadline(), lambda: count(cell, since.since), f"counters of {self.name}")
        except TimeoutError as late:
            raise TrafficNotApplied("traffic.not_shown", f"router {self.name}: who answered is not known: {late}.") from late

    def _place(self, cell: CellId) -> tuple[str, str, int]:
        text = self._settings.get(f"route.{cell}") or (self._settings.get("route", "") if cell in self._sources else "")
        found = _PLACE.match(text)
        if found is None:
            text = f"router {self.name} does not route cell {cell}: it has no setting route.{cell} such as namespace/name."
            raise TrafficNotApplied("traffic.unknown_cell", text, hint="Correct the fleet file.")
        return found[1], found[2], int(found[3] or 0)

    def _standing(self, cell: CellId, deadline: Deadline) -> _Standing:
        namespace, name, at = self._place(cell)
        whole = self._routes.read(namespace, name, deadline)
        rules = (whole.get("spec") or {}).get("rules") or []
        if at >= len(rules):
            raise _odd(cell, f"HTTPRoute {namespace}/{name} has {len(rules)} rules")
        backends = [b for b in rules[at].get("backendRefs") or [] if isinstance(b, dict)]
        names = self._backends.get(cell)
        baseline = _pick(cell, backends, names.baseline if names else "", "-baseline")
        canary = _pick(cell, backends, names.canary if names else "", "-canary")
        others = [b for b in backends if _weight(b) and b not in (baseline, canary)]
        odd = f"it routes to {str(others[0].get('name'))[:63]} too, which is neither side" if others else ""
        total = sum(_weight(b) for b in backends)
        foreign = sum(_weight(b) for b in others)
        odd = odd or ("" if total else "both weights are 0")
        bp = round(_weight(canary) * FULL_BP / total) if total else 0
        text = str(((whole.get("metadata") or {}).get("annotations") or {}).get(MARK, ""))
        mark = read_mark(text)
        has = frozenset({f"annotation {MARK}"} if mark.token else ())
        mark, lost = self._floors.look(cell, mark, has)
        found = _Standing(whole=whole, baseline=baseline, canary=canary, bp=bp, mark=mark, text=text)
        return replace(found, others=foreign, odd=odd, lost=lost)

    def _change(
        self,
        cell: CellId,
        change: Callable[[_Standing], Mark | Stale | None],
        bp: int | None,
        deadline: Deadline,
        first: _Standing | None = None,
    ) -> _Standing | Stale:
        """Read, decide, replace what was read; again, until the time is over, where somebody wrote in between."""
        namespace, name, _ = self._place(cell)
        standing, pause_s = first, PAUSE_S
        while True:
            standing = standing or self._standing(cell, deadline)
            wanted = change(standing)
            if isinstance(wanted, Stale):
                return wanted
            share = standing.bp if bp is None else bp
            if share > standing.bp:
                self._may_raise(cell, standing)
            weights = standing.weights(share)
            if wanted is None or (str(wanted) == standing.text and weights == (_weight(standing.canary), _weight(standing.baseline))):
                return standing
            if bp is not None:
                standing.canary["weight"], standing.baseline["weight"] = weights
            body = deepcopy(standing.whole)
            body["metadata"].setdefault("annotations", {})[MARK] = str(wanted)
            body.pop("status", None)
            try:
                self._routes.replace(namespace, name, body, deadline)
            except Conflict:
                if deadline.left_s() <= pause_s:
                    break
                time.sleep(random.uniform(0, pause_s))  # noqa: S311 - a pause is no secret
                standing, pause_s = None, min(1.0, 2 * pause_s)
                continue
            return replace(self._standing(cell, deadline), mark=wanted)
        text = f"router {self.name}: HTTPRoute {namespace}/{name} is written by somebody else all the time."
        raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl doctor")

    def _until_seen(self, cell: CellId, done: _Standing, limit_s: float, whole: Deadline) -> Word:
        """Wait until every gateway of the route has seen its generation; return what they say."""
        deadline, word = Deadline(limit_s), done.word
        while word.late and deadline.left_s() > 0:
            time.sleep(0.05)
            word = self._standing(cell, whole).word
        return word


def _weight(backend: Mapping[str, Any]) -> int:
    weight = backend.get("weight", 1)
    return weight if isinstance(weight, int) and weight >= 0 else 0


def _pick(cell: CellId, backends: list[dict[str, Any]], name: str, ending: str) -> dict[str, Any]:
    fits = [b for b in backends if (b.get("name") == name if name else str(b.get("name", "")).endswith(ending))]
    if len(fits) != 1:
        raise _odd(cell, f"{'no backend' if not fits else 'more than one backend'} {name or f'...{ending}'} is in its rule")
    return fits[0]


def _odd(cell: CellId, why: str, hint: str = "Run: fleetctl doctor") -> TrafficNotApplied:
    return TrafficNotApplied("traffic.not_shown", f"the route of cell {cell} cannot be used: {why}.", hint=hint)


def _shown(cell: CellId, standing: _Standing) -> Split:
    mark = standing.mark
    return as_split(cell, standing.bp, mark.cap_bp, mark.token, mark.lease_ms, standing.word.unseen)
