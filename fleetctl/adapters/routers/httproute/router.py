"""Traffic, adapter layer: the Router over an HTTPRoute of the Gateway API. Never decides a weight.

Weights are those of the rule's two backends; cap, token and lease stand in an annotation. The API server refuses a write over an object
that has changed since it was read, so the token is compared at the target. What the gateway makes of it is another matter: its status
must have seen our generation, and who answered is counted elsewhere (a counter in Prometheus), never believed.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.httproute.wire import Conflict, Routes
from fleetctl.adapters.routers.marks import LONGEST_ANSWER_S, Mark, read_mark, still_open
from fleetctl.adapters.routers.odd import understood
from fleetctl.adapters.routers.route import Backends
from fleetctl.adapters.routers.splits import as_split, checked_cell, epoch_ms, natural, rounded
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Drained, RouterCapabilities, Served, Split, Stale
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import TrafficNotApplied

MARK = "fleetctl-split/mark"
TRIES = 5
"""A gateway's controller writes the status of the same object, so a write of ours may be refused a few times for that alone."""
SEEN_S = 2.0
"""How long the gateway may take to say that it has seen our generation before that is reported."""
READ_BACK_S = 1.0
"""What is kept of a call's time to read back what was set."""
_PLACE = re.compile(r"([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})(?:#(\d{1,2}))?\Z")
Counter = Callable[[CellId, Instant], Served]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """A route as it stands: the whole object, the backends of both sides in it, the weight, the mark."""

    whole: dict[str, Any]
    baseline: dict[str, Any]
    canary: dict[str, Any]
    bp: int
    mark: Mark
    odd: str = ""


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

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do; `switch_ms` is the slowest of the last 20 sets, until the gateway said that it had seen it."""
        return RouterCapabilities(switch_ms=max(self._took_ms, default=None), streaming=True, mirror=False, fence="target")

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

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown (also where the gateway refuses the route).
        """
        started, deadline = time.monotonic(), Deadline()
        cell = checked_cell(s.cell)

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

        done = self._change(cell, change, s.target_bp, deadline)
        if isinstance(done, Stale):
            return done
        reported = self._until_seen(cell, done, min(self._seen_s, deadline.left_s() - READ_BACK_S), deadline)
        shown = self._standing(cell, deadline)
        if shown.mark.token > s.token:
            return Stale(cell=cell, seen=Token(shown.mark.token))
        if shown.bp != s.target_bp:
            text = (
                f"router {self.name} shows {shown.bp} bp for cell {cell} after {s.target_bp} bp were set: somebody else writes there too."
            )
            raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl status")
        self._took_ms.append((time.monotonic() - started) * 1_000)
        return Applied(split=rounded(s), reported=reported)

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
        odd = odd or ("" if total else "both weights are 0")
        bp = round(_weight(canary) * FULL_BP / total) if total else 0
        mark = read_mark(str(((whole.get("metadata") or {}).get("annotations") or {}).get(MARK, "")))
        return _Standing(whole=whole, baseline=baseline, canary=canary, bp=bp, mark=mark, odd=odd)

    def _change(
        self, cell: CellId, change: Callable[[_Standing], Mark | Stale | None], bp: int | None, deadline: Deadline
    ) -> _Standing | Stale:
        """Read, decide, replace what was read; again where somebody wrote in between."""
        namespace, name, _ = self._place(cell)
        for _attempt in range(TRIES):
            standing = self._standing(cell, deadline)
            wanted = change(standing)
            if isinstance(wanted, Stale):
                return wanted
            share = standing.bp if bp is None else bp
            if share > standing.bp and standing.odd:
                raise _odd(cell, standing.odd)
            if wanted is None or (wanted == standing.mark and share == standing.bp and _is_plain(standing)):
                return standing
            if bp is not None:
                standing.canary["weight"], standing.baseline["weight"] = share, FULL_BP - share
            body = deepcopy(standing.whole)
            body["metadata"].setdefault("annotations", {})[MARK] = str(wanted)
            body.pop("status", None)
            try:
                self._routes.replace(namespace, name, body, deadline)
            except Conflict:
                if deadline.left_s() <= 0:
                    break
                continue
            return replace(self._standing(cell, deadline), mark=wanted)
        text = f"router {self.name}: HTTPRoute {namespace}/{name} is written by somebody else all the time."
        raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl doctor")

    def _until_seen(self, cell: CellId, done: _Standing, limit_s: float, whole: Deadline) -> str:
        """Wait until every gateway of the route has seen its generation; return what is missing, "" where nothing is."""
        deadline, wanted = Deadline(limit_s), int((done.whole.get("metadata") or {}).get("generation") or 0)
        while True:
            late = _late_gateways(cell, self._standing(cell, whole).whole, wanted)
            if not late:
                return ""
            if deadline.left_s() <= 0:
                return f"{late} of router {self.name} has not said that it has seen the new weights"
            time.sleep(0.05)


def _is_plain(standing: _Standing) -> bool:
    """Tell whether the weights are written as ours are, out of 10,000."""
    return _weight(standing.baseline) + _weight(standing.canary) == FULL_BP


def _weight(backend: Mapping[str, Any]) -> int:
    weight = backend.get("weight", 1)
    return weight if isinstance(weight, int) and weight >= 0 else 0


def _pick(cell: CellId, backends: list[dict[str, Any]], name: str, ending: str) -> dict[str, Any]:
    fits = [b for b in backends if (b.get("name") == name if name else str(b.get("name", "")).endswith(ending))]
    if len(fits) != 1:
        raise _odd(cell, f"{'no backend' if not fits else 'more than one backend'} {name or f'...{ending}'} is in its rule")
    return fits[0]


def _late_gateways(cell: CellId, whole: Mapping[str, Any], wanted: int) -> str:
    """Return who has not seen the generation yet, "" where all have.

    Raises:
        TrafficNotApplied: traffic.not_shown, where a gateway refuses this generation.
    """
    parents = (whole.get("status") or {}).get("parents") or []
    if not parents:
        return "the gateway"
    for parent in parents:
        who = str((parent.get("parentRef") or {}).get("name", "the gateway"))[:63]
        for condition in parent.get("conditions") or []:
            if int(condition.get("observedGeneration") or 0) < wanted:
                return f"gateway {who}"
            if condition.get("type") in ("Accepted", "ResolvedRefs") and condition.get("status") != "True":
                why = " ".join(f"{condition.get('reason', '')} {condition.get('message', '')}".split())[:200]
                raise _odd(cell, f"gateway {who} refuses it: {why}")
    return ""


def _odd(cell: CellId, why: str) -> TrafficNotApplied:
    return TrafficNotApplied("traffic.not_shown", f"the route of cell {cell} cannot be used: {why}.", hint="Run: fleetctl doctor")


def _shown(cell: CellId, standing: _Standing) -> Split:
    return as_split(cell, standing.bp, standing.mark.cap_bp, standing.mark.token, standing.mark.lease_ms)
