"""Simulator: what stands between a controller and the world: ports that may be its last call, a router whose every write is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Readiness, Split, Stale
from fleetctl.domain.units import Instant
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


class Prober:
    """Answers what the world says of each pool."""

    def __init__(self, share: dict[tuple[PoolId, CellId], float]) -> None:
        self.share = share

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=round(self.share.get((pool, c), 1.0) * 4), total=4, age_s=0.0)


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
