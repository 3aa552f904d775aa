"""Traffic, fake: a Router whole in memory, with fencing, the weight's lease and counted requests. Never a socket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from fleetctl.domain.evidence import Cursor
from fleetctl.domain.ids import CellId, PoolId, Token, is_id
from fleetctl.domain.split import Applied, Drained, RouterCapabilities, Served, Split, Stale
from fleetctl.domain.units import Instant
from fleetctl.errors import TrafficNotApplied

EPOCH = datetime.fromtimestamp(0, UTC)


class Target:
    """What the router itself holds; several FakeRouters (writers) may share one."""

    def __init__(self, cells: Iterable[CellId]) -> None:
        self.splits = {c: Split(cell=c, target_bp=0, cap_bp=0, token=Token(0), lease_until=EPOCH) for c in cells}
        self.requests: list[tuple[CellId, str, Instant]] = []
        self.open_streams: dict[tuple[CellId, str], int] = defaultdict(int)
        self.applied: list[Split] = []
        self.down = False


class FakeRouter:
    """One writer of a `Target`.

    Args:
        sources: source pool per cell; these are the cells it routes.
        target: share it to race writers; a new one otherwise.
    """

    def __init__(self, sources: Mapping[CellId, PoolId], *, target: Target | None = None) -> None:
        self.target = target or Target(sources)
        self._sources = dict(sources)
        self._fenced: dict[CellId, Token] = {}
        self.hide_sets = False
        """Answer sets without taking them, as a router that does not show what was set."""
        self.report = ""
        """Put into Applied.reported."""
        self.tells: Literal["itself", "gateway", "counts"] = "itself"
        self.keeps = False
        self.unseen = ""
        """Put into what is read, as by a gateway that is late."""
        self.is_counted = True
        self.minutes: Callable[[], Instant] | None = None
        """A clock where it counts as CloudWatch does: in whole minutes that began at or after the cursor, told a minute after their end."""

    def capabilities(self) -> RouterCapabilities:
        """Tell what this router can do."""
        self._up()
        late = 300.0 if self.minutes is not None else 60.0
        can = RouterCapabilities(switch_ms=0.0, streaming=True, mirror=True, fence="target", weight_lease="router", served_s=late)
        return replace(can, tells=self.tells, keeps=self.keeps)

    def read(self, c: CellId) -> Split:
        """Return what stands."""
        self._up()
        if not is_id(c) or c not in self.target.splits:
            raise TrafficNotApplied("traffic.unknown_cell", f"the fake router does not route cell {c!r}.")
        return replace(self.target.splits[c], unseen=self.unseen) if self.unseen else self.target.splits[c]

    def fence(self, c: CellId, token: Token) -> Split | Stale:
        """Raise the floor."""
        standing = self.read(c)
        if token <= standing.token and not (token == standing.token and self._fenced.get(c) == token):
            return Stale(cell=c, seen=standing.token)
        self._fenced[c] = token
        self.target.splits[c] = replace(standing, token=token, unseen="")
        return self.read(c)

    def set(self, s: Split) -> Applied | Stale:
        """Set split, cap and lease at the floor."""
        standing = self.read(s.cell)
        if s.token != standing.token:
            return Stale(cell=s.cell, seen=standing.token)
        if self.hide_sets:
            raise TrafficNotApplied("traffic.not_shown", f"the fake router shows {standing.target_bp} bp after {s.target_bp} were set.")
        self.target.splits[s.cell] = s
        self.target.applied.append(s)
        return Applied(split=replace(s, unseen=self.unseen), reported=self.report or self.unseen)

    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Count open streams of that side."""
        standing = self.read(c)
        if token != standing.token:
            return Stale(cell=c, seen=standing.token)
        side = "b" if self._sources[c] == pool else "c"
        return Drained(open_streams=self.target.open_streams[c, side])

    def served(self, c: CellId, since: Cursor) -> Served:
        """Count recorded requests."""
        self.read(c)
        if not self.is_counted:
            raise TrafficNotApplied("traffic.not_shown", "the fake router counts nobody.")
        counted = [(server, at) for cell, server, at in self.target.requests if cell == c and at >= since.since]
        if self.minutes is not None:
            told = self.minutes() - timedelta(minutes=2)
            counted = [(n, at) for n, at in counted if since.since <= at.replace(second=0, microsecond=0) <= told]
        canary = [at for server, at in counted if server.startswith("c")]
        return Served(
            baseline=sum(server.startswith("b") for server, _ in counted), canary=len(canary), last_canary_start=max(canary, default=None)
        )

    def record(self, c: CellId, server: str, at: Instant, n: int = 1) -> None:
        """Count `n` requests as answered by `server` ("b1", "c1")."""
        self.target.requests += [(c, server, at)] * n

    def lapse(self, now: Instant) -> tuple[CellId, ...]:
        """Act as the guard: take home every cell whose lease has lapsed; return them."""
        lapsed = [s for s in self.target.splits.values() if s.target_bp and s.lease_until <= now]
        for s in lapsed:
            self.target.splits[s.cell] = replace(s, target_bp=0, token=Token(s.token + 1))
        return tuple(s.cell for s in lapsed)

    def _up(self) -> None:
        if self.target.down:
            raise TrafficNotApplied("traffic.router_down", "the fake router does not answer.", hint="Run: fleetctl doctor")
