"""Simulator: what stands between a controller and the world: ports that may be its last call, a router whose every write is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Signal
from fleetctl.domain.split import Applied, Readiness, Split, Stale
from fleetctl.domain.units import Instant
from fleetctl.ports.state import Held, Lease, Lost
from tests.fakes.clock import FakeClock
from tests.fakes.router import FakeRouter, Target


class JumpedClock:
    """A controller's clock that is wrong; the store's and the router's are not."""

    def __init__(self, of: FakeClock, ahead: timedelta) -> None:
        self._of, self._ahead = of, ahead

    def now(self) -> Instant:
        return self._of.now() + self._ahead

    def wait(self, until: Instant, wake: Callable[[], bool]) -> None:
        self._of.wait(until - self._ahead, wake)


class Watched:
    """A port of one controller, through which every call may be its last."""

    def __init__(self, of: Any, on_call: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._of, self._on_call = of, on_call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            return found

        def call(*a: Any, **k: Any) -> Any:
            return self._on_call(name, partial(found, *a, **k))

        return call


@dataclass(frozen=True, slots=True)
class Leased:
    """A cell's lease as its holder sees it: until when nobody else may write."""

    holder: str
    token: Token
    until: Instant


class Writers:
    """Who writes each cell's record: what the store gave and took, seen from outside.

    Args:
        say: told of two writers at once, in words.
    """

    def __init__(self, now: Callable[[], Instant], say: Callable[[str], None]) -> None:
        self._now, self._say = now, say
        self._held: dict[str, Leased] = {}
        self._newest: dict[str, Token] = {}

    def got(self, scope: str, holder: str, lease: Lease) -> None:
        """Note a lease that was given."""
        other = self._held.get(scope)
        if other is not None and other.until > self._now():
            self._say(f"{scope} was given to {holder} (token {lease.token}) though {other.holder} holds it (token {other.token})")
        if lease.token <= self._newest.get(scope, Token(0)):
            self._say(f"{scope} was given out again with token {lease.token}")
        self._held[scope] = Leased(holder, lease.token, lease.until)
        self._newest[scope] = lease.token

    def wrote(self, lease: Lease) -> None:
        """Note a record that was taken; it ends its lease."""
        newest = self._newest.get(lease.scope, lease.token)
        if lease.token < newest:
            self._say(f"{lease.scope} took the record of token {lease.token} after {newest} was given")
        self.freed(lease.scope, lease.token)

    def freed(self, scope: str, token: Token | None = None) -> None:
        """Note that a lease has ended; any, where no token is named."""
        held = self._held.get(scope)
        if held is not None and token in (None, held.token):
            del self._held[scope]


class WatchedStore(Watched):
    """The store of one controller, whose leases and records are noted."""

    def __init__(self, of: Any, on_call: Callable[[str, Callable[[], Any]], Any], writers: Writers) -> None:
        super().__init__(of, on_call)
        self._writers = writers

    def acquire(self, scope: str, holder: str, ttl: timedelta) -> Lease | Held:
        got: Lease | Held = self._on_call("acquire", lambda: self._noted(scope, holder, self._of.acquire(scope, holder, ttl)))
        return got

    def _noted(self, scope: str, holder: str, got: Lease | Held) -> Lease | Held:
        if isinstance(got, Lease):
            self._writers.got(scope, holder, got)
        return got

    def record(self, lease: Lease, *rest: Any) -> Lost | None:
        def write() -> Lost | None:
            lost: Lost | None = self._of.record(lease, *rest)
            if lost is None:
                self._writers.wrote(lease)
            return lost

        done: Lost | None = self._on_call("record", write)
        return done

    def release(self, lease: Lease) -> None:
        self._on_call("release", lambda: self._ended(lambda: self._of.release(lease), lease.scope, lease.token))

    def raise_token(self, scope: str, at_least: Token) -> None:
        self._on_call("raise_token", lambda: self._ended(lambda: self._of.raise_token(scope, at_least), scope))

    def _ended(self, call: Callable[[], None], scope: str, token: Token | None = None) -> None:
        call()
        self._writers.freed(scope, token)


class Prober:
    """Answers what the world says of each pool."""

    def __init__(self, share: dict[tuple[PoolId, CellId], float]) -> None:
        self.share = share

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=round(self.share.get((pool, c), 1.0) * 4), total=4, age_s=0.0)


@dataclass(frozen=True, slots=True)
class Paged:
    """One page that a tick sent.

    Args:
        held: what each cell was held for on record before that tick; resumed: by a controller that had been stopped in it.
    """

    at: float
    cell: CellId
    cause: str
    text: str
    held: dict[CellId, str]
    resumed: bool


class Told:
    """Notices of pools, by pool; a pool of which none was ever told is not watched."""

    def __init__(self, given: Mapping[PoolId, Sequence[Signal]]) -> None:
        self._given = given

    def watches(self, pool: PoolId) -> bool:
        return pool in self._given

    def read(self, pool: PoolId) -> tuple[Signal, ...]:
        return tuple(self._given.get(pool, ()))


class WatchedTarget(Target):
    """The router's own state; every write goes by the monitor, before and after."""

    def __init__(self, cells: tuple[CellId, ...], before: Callable[[CellId], None], on_write: Callable[[Split, Split], None]) -> None:
        super().__init__(cells)
        standing = dict(self.splits)

        class Splits(dict[CellId, Split]):
            def __setitem__(self, c: CellId, s: Split) -> None:
                was = self[c]
                if was.target_bp == s.target_bp:
                    super().__setitem__(c, s)
                    return
                before(c)
                super().__setitem__(c, s)
                on_write(was, s)

        self.splits = Splits(standing)


class UnfencedRouter(FakeRouter):
    """The same router with fencing switched off: it takes whatever anybody writes. Only to prove that the checks can fail."""

    def fence(self, c: CellId, token: Token) -> Split | Stale:
        standing = self.read(c)
        self.target.splits[c] = replace(standing, token=max(token, standing.token))
        return self.target.splits[c]

    def set(self, s: Split) -> Applied | Stale:
        self.read(s.cell)
        self.target.splits[s.cell] = s
        return Applied(split=s)
