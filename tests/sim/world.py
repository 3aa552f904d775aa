"""Simulator: days of migration of a few cells in a made-up world that breaks; the real tick, judge and rules, clock and network made up.

One seed is one history. Controllers tick as the resident ticker and `migrate` do: one at a time by the cell's lease, killed or stopped
in the middle of any call. The router keeps weights, tokens and leases, and its guard takes home what nobody renews.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np

from fleetctl.analysis.judge import fresh
from fleetctl.domain.fleet import FreezeWindow
from fleetctl.domain.ids import CellId, PlanId, PoolId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order, OrderKind, Rollout, RolloutSpec
from fleetctl.domain.split import Applied, Readiness, Split, Stale
from fleetctl.errors import FleetctlError, StoreUnavailable
from fleetctl.usecases.holds import KeptHolds
from fleetctl.usecases.tick import TickPorts, TickSettings, tick
from fleetctl.usecases.unexpected import UNEXPECTED
from tests.fakes.clock import FakeClock
from tests.fakes.hands import FakeHands
from tests.fakes.router import FakeRouter, Target
from tests.fakes.shadow import GivenShadow
from tests.fakes.small import KeptNotices
from tests.fakes.store import MemoryStore
from tests.sim.traffic import CountedTraffic

SOURCE, TARGET = PoolId("nvidia"), PoolId("mi300x")
PERSON = Actor(kind="person", name="ada")
TTL = timedelta(seconds=15)
LONGEST_STEP = 10.0
LEAST, PINNED = 1, 4
"""The source's autoscaler keeps at least one machine; four are there when a migration begins."""


class Killed(BaseException):
    """The controller's process is gone: nothing after the call it was in is run."""


@dataclass(slots=True)
class Controller:
    """One process that ticks.

    Args:
        trap: calls of ports until it is killed or stopped, None where it is let be; trap_on: only calls of this name count ("" for any).
        stops_for: seconds; 0 kills it.
        after: the call is still carried out before it is killed.
        back_at: when a killed one is started again.
        hold_trap: calls about pinned minimums until it is killed in one, None where it is let be; swept_at: when it looked for such last.
    """

    name: str
    router: FakeRouter
    trap: int | None = None
    trap_on: str = ""
    stops_for: float = 0.0
    after: bool = False
    back_at: float = 0.0
    hold_trap: int | None = None
    holds: Any = None
    swept_at: float = 0.0
    is_stopped: bool = False
    was_stopped: bool = False


class Watched:
    """A port of one controller, through which every call may be its last."""

    def __init__(self, of: Any, on_call: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._of, self._on_call = of, on_call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            return found
        return lambda *a, **k: self._on_call(name, lambda: found(*a, **k))


class Prober:
    """Answers what the world says of each pool."""

    def __init__(self, share: dict[tuple[PoolId, CellId], float]) -> None:
        self.share = share

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=round(self.share.get((pool, c), 1.0) * 4), total=4, age_s=0.0)


@dataclass(frozen=True, slots=True)
class Written:
    """One weight that the router took, and how the world was then."""

    at: float
    cell: CellId
    was_bp: int
    split: Split
    by: str
    token_before: int
    world: dict[str, Any] = field(default_factory=dict)


class WatchedTarget(Target):
    """The router's own state; every write goes by the monitor."""

    def __init__(self, cells: tuple[CellId, ...], on_write: Callable[[Split, Split], None]) -> None:
        super().__init__(cells)
        standing = dict(self.splits)

        class Splits(dict[CellId, Split]):
            def __setitem__(self, c: CellId, s: Split) -> None:
                before = self.get(c)
                super().__setitem__(c, s)
                if before is not None and before.target_bp != s.target_bp:
                    on_write(before, s)

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


class World:
    """Cells, router, store, evidence and controllers of one seed.

    Args:
        cells: how many move side by side; of: their phases; fenced: False takes the router's token check away.
    """

    def __init__(self, seed: int, of: RolloutSpec, cells: int = 3, *, fenced: bool = True, per_s: float = 60.0) -> None:
        self.random, self.spec = Random(seed), of
        self.cells = tuple(CellId(f"cell-{n}") for n in range(cells))
        self.clock = FakeClock()
        self.began = self.clock.now()
        self.store = MemoryStore(self.clock.now, copies=False)
        self.written: list[Written] = []
        self.target = WatchedTarget(self.cells, self._wrote)
        self.traffic = CountedTraffic(self.cells, self.clock.now(), np.random.default_rng(seed), per_s)
        self.ready: dict[tuple[PoolId, CellId], float] = {}
        self.prober = Prober(self.ready)
        self.shadow, self.notices = GivenShadow(), KeptNotices()
        self.hands = FakeHands(of={"asg": SOURCE}, minimum={"asg": LEAST}, size=PINNED)
        self.hold_random = Random(seed)
        self.kills_holds = False
        self.freeze: tuple[FreezeWindow, ...] = ()
        self._kind = FakeRouter if fenced else UnfencedRouter
        self.controllers = [Controller("a", self._router()), Controller("b", self._router())]
        self.by = ""
        self.at_work: Controller | None = None
        self.able_s: dict[CellId, float] = dict.fromkeys(self.cells, 0.0)
        self.marks: set[CellId] = set()
        self.orders: list[tuple[float, CellId, OrderKind]] = []
        self.on_step: list[Callable[[], None]] = []

    def _router(self) -> FakeRouter:
        """Return a new writer of the one router."""
        return self._kind(dict.fromkeys(self.cells, SOURCE), target=self.target)

    # time ---------------------------------------------------------------------------------------------------------------

    @property
    def t(self) -> float:
        """Seconds since the beginning."""
        return (self.clock.now() - self.began).total_seconds()

    def pass_time(self, seconds: float) -> None:
        """Let customers send requests and leases run out for so long; nobody ticks."""
        while seconds > 1e-5:
            step = min(seconds, LONGEST_STEP)
            for c in self.cells:
                if not self.target.down:
                    self.traffic.serve(c, self.target.splits[c].target_bp, step)
            self.clock.advance(timedelta(seconds=step))
            self.traffic.at = self.clock.now()
            self._guard()
            self._count_able(step)
            seconds -= step

    def _guard(self) -> None:
        """The router's guard: a weight whose lease has lapsed goes home where the source is proven."""
        if self.target.down:
            return
        for c, s in list(self.target.splits.items()):
            if s.target_bp and s.lease_until <= self.clock.now() and self.ready.get((SOURCE, c), 1.0) > 0:
                self.by = "guard"
                self.target.splits[c] = replace(s, target_bp=0)

    def _count_able(self, seconds: float) -> None:
        alive = any(self._is_alive(k) for k in self.controllers)
        for c in self.cells:
            if alive and not self.target.down and not self.store.down and self.ready.get((SOURCE, c), 1.0) >= 1.0:
                self.able_s[c] += seconds

    # controllers --------------------------------------------------------------------------------------------------------

    def _is_alive(self, k: Controller) -> bool:
        return not k.is_stopped and k.back_at <= self.t

    def _on_call(self, k: Controller, name: str, call: Callable[[], Any]) -> Any:
        if k.trap is None or k.trap_on not in ("", name):
            return call()
        k.trap -= 1
        if k.trap > 0:
            return call()
        k.trap = None
        if k.stops_for:
            self._stop(k)
            return call()
        if k.after:
            call()
        raise Killed

    def _stop(self, k: Controller) -> None:
        """SIGSTOP in the middle of a call, the world goes on, SIGCONT."""
        k.is_stopped, k.was_stopped = True, True
        self.run_until(self.t + k.stops_for)
        k.is_stopped = False
        self.at_work = k

    def _ports(self, k: Controller) -> TickPorts:
        def watched(of: Any) -> Any:
            return Watched(of, lambda name, call: self._on_call(k, name, call))

        router, traffic, prober = watched(k.router), watched(self.traffic), watched(self.prober)
        store = watched(self.store)
        return TickPorts(
            store=store,
            clock=self.clock,
            notifier=self.notices,
            holds=self._holds(k),
            router=lambda _: router,
            evidence=lambda _: traffic,
            shadow=lambda _: self.shadow,
            prober=lambda _: prober,
        )

    def _holds(self, k: Controller) -> KeptHolds:
        """Return what this life of a controller knows of the source's minimum; a killed one forgets."""
        if k.holds is None:
            k.hold_trap = self.hold_random.randint(1, 14) if self.kills_holds and self.hold_random.random() < 0.8 else None

            def watched(of: Any) -> Any:
                return Watched(of, lambda name, call: self._on_hold_call(k, call))

            k.holds = KeptHolds(watched(self.hands), watched(self.store), self.clock, k.name)
        kept: KeptHolds = k.holds
        return kept

    def _on_hold_call(self, k: Controller, call: Callable[[], Any]) -> Any:
        if k.hold_trap is None:
            return call()
        k.hold_trap -= 1
        if k.hold_trap > 0:
            return call()
        k.hold_trap = None
        if self.hold_random.random() < 0.5:
            call()
        raise Killed

    def _kill(self, k: Controller) -> None:
        k.router, k.holds, k.back_at = self._router(), None, self.t + self.random.uniform(1, 40)

    def _sweep(self, k: Controller) -> None:
        """Look every ten seconds for minimums that nobody needs any more, as a ticker does."""
        if self.t - k.swept_at >= 10:
            k.swept_at = self.t
            self._holds(k).sweep()

    def tick(self, k: Controller) -> None:
        """Let one controller tick every cell that is due."""
        try:
            self._sweep(k)
            due = self.store.due(100)
        except StoreUnavailable:
            return
        except Killed:
            self._kill(k)
            return
        for c in due:
            self.at_work, k.was_stopped = k, False
            try:
                done = tick(c, self._ports(k), TickSettings(holder=k.name, ttl=TTL, freeze=self.freeze))
                told = done.rollout.arms.told if done.rollout is not None else ()
                assert not any(UNEXPECTED in text for text in (*told, done.rollout.hold_reason if done.rollout else "")), done.why
            except StoreUnavailable:
                return
            except Killed:
                self._kill(k)
                return
            finally:
                self.at_work = None

    def run_until(self, t: float) -> None:
        """Let time pass and controllers tick, until so many seconds from the beginning."""
        while t - self.t > 1e-4:
            for k in self.controllers:
                if self._is_alive(k):
                    self.by = k.name
                    self.tick(k)
            for check in self.on_step:
                check()
            self.pass_time(min(self._next_look(), t - self.t))

    def _next_look(self) -> float:
        looks = [(at - self.clock.now()).total_seconds() for c, at in self.store._look_at.items() if self._moves(c)]
        return min(max(0.25, min(looks, default=5.0)), 60.0)

    def _moves(self, c: CellId) -> bool:
        return not self.store._rollouts[c][-1].ended or bool(self.store._orders.get(c))

    # what people do -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start every cell's rollout."""
        self.pass_time(30)
        for c in self.cells:
            self.store.start(Rollout(cell=c, plan=PlanId("p0123456789a"), spec=self.spec, judge=fresh(), until="complete"), ())

    def order(self, c: CellId, kind: OrderKind) -> None:
        """A person gives an order, if the store can take it."""
        r = None if self.store.down else self.store.load(c)
        if r is None:
            return
        if kind == "retry":
            if r.ended and r.ended != "complete":
                again = replace(r, judge=fresh(), ended="", attempt=r.attempt + 1, step=0, weight_bp=0, orders=())
                self.store.start(Rollout(cell=c, plan=r.plan, spec=self.spec, judge=fresh(), until="complete", attempt=again.attempt), ())
            return
        self.store.order(c, Order(kind=kind, actor=PERSON, at=self.clock.now()))
        self.orders.append((self.t, c, kind))

    def go_home_without_store(self, c: CellId) -> None:
        """What `fleetctl fallback` does while the store is gone: fence far ahead, weight 0."""
        try:
            floor = self.target.splits[c].token
            self.by = "fallback"
            router = self._router()
            token = Token(floor + 1000)
            router.fence(c, token)
            router.set(Split(cell=c, target_bp=0, cap_bp=10_000, token=token, lease_until=self.clock.now()))
            self.marks.add(c)
        except FleetctlError:
            return

    def reconcile(self) -> None:
        """What `fleetctl fallback --reconcile` does: the store takes over the router's tokens."""
        for c in self.cells:
            r, shown = self.store.load(c), self.target.splits[c]
            if c in self.marks and r is not None and r.ended in ("", "complete"):
                self.store.raise_token(c, shown.token)
                self.store.order(c, Order(kind="fallback", actor=PERSON, at=self.clock.now()))
            elif r is not None and not r.ended and r.hold_reason == "stale":
                self.store.raise_token(c, shown.token)
                kind: OrderKind = "fallback" if shown.target_bp == 0 else "resume"
                self.store.order(c, Order(kind=kind, actor=PERSON, at=self.clock.now()))
        self.marks.clear()

    # what is seen -------------------------------------------------------------------------------------------------------

    def _wrote(self, before: Split, after: Split) -> None:
        k = self.at_work
        seen = {
            "frozen": any(w.start <= self.clock.now() < w.end for w in self.freeze),
            "source": self.ready.get((SOURCE, after.cell), 1.0),
            "target": self.ready.get((TARGET, after.cell), 1.0),
            "blind": self.traffic.down,
            "forced": [s for (c, _), s in self.traffic.forced.items() if c == after.cell],
            "resumed": k is not None and k.was_stopped,
        }
        self.written.append(Written(self.t, after.cell, before.target_bp, after, self.by, before.token, seen))
