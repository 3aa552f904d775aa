"""Simulator: days of migration of a few cells in a made-up world that breaks; the real tick, judge and rules, clock and network made up.

One seed is one history; time jumps over calm stretches (tests/sim/looks.py). Controllers tick as the resident ticker and `migrate` do: one
at a time by the cell's lease, killed or stopped in the middle of any call. The router keeps weights, tokens and leases; beside it the real
guard takes home what nobody renews, and people use the real `fallback` and `--reconcile`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import numpy as np

from fleetctl.analysis.judge import fresh
from fleetctl.domain.evidence import Arm
from fleetctl.domain.fleet import FreezeWindow
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.people import Actor, Signal
from fleetctl.domain.rollout import Order, OrderKind, Rollout, RolloutSpec
from fleetctl.domain.split import Split
from fleetctl.errors import FleetctlError, StoreUnavailable, TrafficNotApplied
from fleetctl.rollout.lost import BROKEN_STATES
from fleetctl.usecases import migrate
from fleetctl.usecases.guard import guard
from fleetctl.usecases.holds import KeptHolds
from fleetctl.usecases.home import fallback
from fleetctl.usecases.home_choice import Failure
from fleetctl.usecases.home_reconcile import catch_up, reconcile
from fleetctl.usecases.tick import TickPorts, TickSettings, tick
from fleetctl.usecases.unexpected import UNEXPECTED
from tests.fakes.clock import FakeClock
from tests.fakes.hands import FakeHands
from tests.fakes.router import FakeRouter
from tests.fakes.shadow import GivenShadow
from tests.fakes.small import KeptNotices
from tests.fakes.store import MemoryStore
from tests.sim.homeward import homeward
from tests.sim.looks import Looks
from tests.sim.parts import JumpedClock, Paged, Prober, Told, UnfencedRouter, Watched, WatchedStore, WatchedTarget, Writers
from tests.sim.stores import Kept
from tests.sim.traffic import CountedTraffic

SOURCE, TARGET = PoolId("nvidia"), PoolId("mi300x")
PERSON = Actor(kind="person", name="ada")
TTL = timedelta(seconds=15)
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
        clock: its own, where that is wrong.
        hold_trap: calls about pinned minimums until it is killed in one, None where it is let be; swept_at: when it looked for such last.
    """

    name: str
    router: FakeRouter
    trap: int | None = None
    trap_on: str = ""
    stops_for: float = 0.0
    after: bool = False
    back_at: float = 0.0
    clock: JumpedClock | None = None
    hold_trap: int | None = None
    holds: Any = None
    swept_at: float = 0.0
    is_stopped: bool = False
    was_stopped: bool = False
    began_at: float = 0.0


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


class World:
    """Cells, router, store, evidence and controllers of one seed.

    Args:
        cells: how many move side by side; of: their phases; fenced: False takes the router's token check away.
        store: of record, by the world's clock, a new one in memory by default; jumps: leave out looks of calm stretches.
    """

    def __init__(
        self,
        seed: int,
        of: RolloutSpec,
        cells: int = 3,
        *,
        fenced: bool = True,
        per_s: float = 60.0,
        jumps: bool = False,
        clock: FakeClock | None = None,
        store: Kept | None = None,
    ) -> None:
        self.random, self.spec = Random(seed), of
        self.cells = tuple(CellId(f"cell-{n}") for n in range(cells))
        self.clock = clock or FakeClock()
        self.began = self.clock.now()
        self.store: Kept = store if store is not None else MemoryStore(self.clock.now, copies=False)
        self.looks = Looks(self.cells, self.began, jumps=jumps)
        self.written: list[Written] = []
        self.ticks = 0
        self.target = WatchedTarget(self.cells, self._before_write, self._wrote)
        self.traffic = CountedTraffic(self.cells, self.clock.now, self._weight_bp, np.random.default_rng(seed), per_s)
        self.ready: dict[tuple[PoolId, CellId], float] = {}
        self.prober = Prober(self.ready)
        self.shadow, self.notices = GivenShadow(), KeptNotices()
        self.signals: dict[PoolId, list[Signal]] = {}
        self.paged: list[Paged] = []
        self.hands = FakeHands(of={"asg": SOURCE}, minimum={"asg": LEAST}, size=PINNED)
        self.hold_random = Random(seed)
        self.kills_holds = False
        self.freeze: tuple[FreezeWindow, ...] = ()
        self._kind = FakeRouter if fenced else UnfencedRouter
        self.controllers = [Controller("a", self.new_router()), Controller("b", self.new_router())]
        self.by = ""
        self.at_work: Controller | None = None
        self.able_s: dict[CellId, float] = dict.fromkeys(self.cells, 0.0)
        self.unmanned_at = 0.0
        self.unable_at: dict[CellId, float] = dict.fromkeys(self.cells, 0.0)
        self.lost_s: dict[CellId, float] = dict.fromkeys(self.cells, 0.0)
        self.dead_since: dict[CellId, float] = {}
        self.two_writers: list[str] = []
        self.writers = Writers(self.clock.now, self.two_writers.append)
        self.homes = {c: homeward(c, self) for c in self.cells}
        self.guarded: dict[CellId, float] = {}
        self.refused: list[tuple[float, CellId]] = []
        self.orders: list[tuple[float, CellId, OrderKind]] = []
        self.on_step: list[Callable[[], None]] = []

    def new_router(self) -> FakeRouter:
        """Return a new writer of the one router."""
        return self._kind(dict.fromkeys(self.cells, SOURCE), target=self.target)

    # time ---------------------------------------------------------------------------------------------------------------

    @property
    def t(self) -> float:
        """Seconds since the beginning."""
        return (self.clock.now() - self.began).total_seconds()

    def pass_time(self, seconds: float) -> None:
        """Let customers send requests and leases run out for so long; nobody ticks."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while (now := self.clock.now()) < end:
            self._renew_left_out(end)
            lapses = (s.lease_until for s in self.target.splits.values() if s.target_bp and s.lease_until > now)
            until = min(end, min(lapses, default=end))
            alive = any(self._is_alive(k) for k in self.controllers)
            self.clock.advance(until - now)
            self._count_able((until - now).total_seconds(), alive=alive)  # who was there until now, before the guard acts on it
            self._guard()

    def _renew_left_out(self, end: datetime) -> None:
        """Renew weights' leases as the looks would that are left out until then."""
        if not self.looks.jumps or self.target.down or self.store.down or not any(self._is_alive(k) for k in self.controllers):
            return
        for c, s in self.target.splits.items():
            look = self.looks.of[c]
            least = end + self.spec.weight_lease / 2
            if s.target_bp and s.lease_until < least and look.is_put_off(self.clock.now()):
                self.target.splits[c] = replace(s, lease_until=least)

    def _guard(self) -> None:
        """Let the product's guard look at every cell whose lease has lapsed; at the others it would see a lease that runs."""
        if self.target.down:
            return
        for c, s in list(self.target.splits.items()):
            if s.target_bp and s.lease_until <= self.clock.now():
                self.by = "guard"
                (look,) = guard(self.homes[c])
                if look.kind in ("home", "part"):
                    self.guarded[c] = self.t
                    self.looks.stir(c, self.clock.now(), unseen=False)
                elif look.kind != "held":
                    raise AssertionError(look)

    def _count_able(self, seconds: float, *, alive: bool) -> None:
        if not alive or self.target.down or self.store.down:
            self.unmanned_at = self.t
        for c in self.cells:
            if alive and not self.target.down and not self.store.down and self.ready.get((SOURCE, c), 1.0) >= 1.0:
                self.able_s[c] += seconds
                self.lost_s[c] = self.lost_s[c] + seconds if self._is_lost(c) else 0.0
            else:
                self.unable_at[c] = self.t

    def _is_lost(self, c: CellId) -> bool:
        """Tell whether a cell has customers on the target and no evidence."""
        broken = any(cell == c and state in BROKEN_STATES for (cell, _), state in self.traffic.forced.items())
        return self.target.splits[c].target_bp > 0 and (self.traffic.down or broken)

    # what happens -------------------------------------------------------------------------------------------------------

    def stir(self, c: CellId | None = None, *, unseen: bool = False) -> None:
        """Something happens to one cell, or to all: what customers sent until now is counted, and the next look comes soon."""
        for cell in self.cells if c is None else (c,):
            self.traffic.settle(cell)
            self.looks.stir(cell, self.clock.now(), unseen=unseen)

    def set_ready(self, pool: PoolId, c: CellId, share: float) -> None:
        """Let a share of a pool's replicas answer; customers notice only where none does."""
        self.stir(c, unseen=True)
        self.ready[pool, c] = share
        if pool == SOURCE and share:
            self.dead_since.pop(c, None)
        elif pool == SOURCE:
            self.dead_since.setdefault(c, self.t)
        arm: Arm = "canary" if pool == TARGET else "baseline"
        (self.traffic.dead.discard if share else self.traffic.dead.add)((c, arm))

    def _weight_bp(self, c: CellId) -> int | None:
        return None if self.target.down else self.target.splits[c].target_bp

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
        self.at_work, self.by = k, k.name

    def _ports(self, k: Controller) -> TickPorts:
        def watched(of: Any) -> Any:
            return Watched(of, lambda name, call: self._on_call(k, name, call))

        router, traffic, prober = watched(k.router), watched(self.traffic), watched(self.prober)
        store = WatchedStore(self.store, lambda name, call: self._on_call(k, name, call), self.writers)
        return TickPorts(
            store=store,
            clock=k.clock or self.clock,
            notifier=self.notices,
            holds=self._holds(k),
            router=lambda _: router,
            evidence=lambda _: traffic,
            shadow=lambda _: self.shadow,
            prober=lambda _: prober,
            notices=Told(self.signals),
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
        k.router, k.holds, k.back_at = self.new_router(), None, self.t + self.random.uniform(1, 40)

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
            self._no_store()
            return
        except Killed:
            self._kill(k)
            return
        for c in due:
            if not self.looks.is_due(c, self.clock.now()):
                continue
            self.at_work, k.was_stopped, k.began_at = k, False, self.t
            self.ticks += 1
            held = self._held_for()
            told = len(self.notices.sent)
            try:
                before = self.target.splits[c]
                result = tick(c, self._ports(k), TickSettings(holder=k.name, ttl=TTL, freeze=self.freeze))
                after, now = self.target.splits[c], self.clock.now()
                renewed = after.target_bp == before.target_bp > 0 and after.lease_until > before.lease_until
                lapses = after.lease_until if after.target_bp else now
                self.looks.ticked(c, result, now, self.freeze, renewed=renewed, lapses=lapses)
                odd = result.rollout.arms.told if result.rollout is not None else ()
                assert not any(UNEXPECTED in text for text in (*odd, result.rollout.hold_reason if result.rollout else "")), result.why
            except StoreUnavailable:
                self._no_store()
                return
            except Killed:
                self._kill(k)
                self.stir(c)
                return
            finally:
                self.at_work = None
                pages = (e for e in self.notices.sent[told:] if e.kind == "notify.page" and e.cell == c)
                self.paged += [Paged(self.t, c, str(e.data.get("cause", "")), e.text, held, k.was_stopped) for e in pages]

    def _held_for(self) -> dict[CellId, str]:
        """Return what each cell is held for, as the store has it: nothing where a person has just said to go on, who is told anew."""
        rows = {c: r for c in self.cells if (r := self.rollout(c)) is not None}
        asked = self.store._orders if isinstance(self.store, MemoryStore) else {c: r.orders for c, r in rows.items()}
        return {c: "" if any(o.kind == "resume" for o in asked.get(c, ())) else r.hold_reason for c, r in rows.items()}

    def _no_store(self) -> None:
        for c in self.cells:
            if self.looks.is_due(c, self.clock.now()):
                self.looks.failed(c, self.clock.now())

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
        """Return the seconds until anybody can do anything."""
        now = self.clock.now()
        for c in self.cells:
            if self.looks.is_due(c, now):
                self.looks.later(c, now)
        alive = [k for k in self.controllers if self._is_alive(k)]
        back = [k.back_at - self.t for k in self.controllers if not k.is_stopped and k.back_at > self.t]
        look = (self.looks.next_at() - now).total_seconds() if alive else float("inf")
        return max(0.1, min([look, *back]))

    def rollout(self, c: CellId) -> Rollout | None:
        """Return what is on record, also while the store is out of reach."""
        if isinstance(self.store, MemoryStore):
            past = self.store._rollouts.get(c)
            return past[-1] if past else None
        return None if self.store.down else self.store.load(c)

    def attempts(self, c: CellId) -> int:
        """Return how often a cell's migration was begun."""
        r = self.rollout(c)
        return 1 if r is None else r.attempt

    # what people do -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start every cell's rollout."""
        self.pass_time(30)
        for c in self.cells:
            self.looks.at_once(c, self.clock.now())
            self.store.start(Rollout(cell=c, plan=PlanId("p0123456789a"), spec=self.spec, judge=fresh(), until="complete"), ())

    def order(self, c: CellId, kind: OrderKind) -> None:
        """A person gives an order, if the store can take it."""
        r = None if self.store.down else self.store.load(c)
        if r is None:
            return
        if kind == "retry":
            self._retry(c, r)
            return
        self._give(c, kind)
        self.orders.append((self.t, c, kind))

    def _retry(self, c: CellId, r: Rollout) -> None:
        """What `fleetctl retry` does: a new rollout where the last one went home."""
        try:
            attempt = migrate.retryable(c, self.store)
        except FleetctlError:
            if r.ended not in ("", "complete"):
                self.refused.append((self.t, c))
            return
        self.store.start(Rollout(cell=c, plan=r.plan, spec=self.spec, judge=fresh(), until="complete", attempt=attempt), ())
        self.looks.at_once(c, self.clock.now())

    def _give(self, c: CellId, kind: OrderKind) -> None:
        self.store.order(c, Order(kind=kind, actor=PERSON, at=self.clock.now()))
        self.looks.at_once(c, self.clock.now())

    def write_as_others(self, c: CellId, bp: int) -> None:
        """Somebody with rights at the router writes a cell's weight past fleetctl; its mark and lease stay as they are."""
        r, s = self.rollout(c), self.target.splits[c]
        if self.target.down or r is None or r.ended or r.direction == "home" or not s.target_bp:
            return
        self.stir(c, unseen=True)
        self.by = "others"
        self.target.splits[c] = replace(s, target_bp=min(bp, self.spec.cap_bp))

    def tell(self, pool: PoolId, told: Sequence[Signal]) -> None:
        """A source of notices tells this of a pool from now on."""
        self.stir(unseen=True)
        self.signals[pool] = list(told)

    def go_home_without_store(self, c: CellId) -> None:
        """`fleetctl fallback` while the store is gone."""
        self.by = "fallback"
        (done,) = fallback(self.homes[c].ways.read_all(), self.homes[c], PERSON)
        assert not isinstance(done, Failure) or done.error.code in ("fallback.unproven", "traffic.router_down"), done

    def reconcile(self) -> None:
        """`fleetctl fallback --reconcile`: the store is told of what was done without it, and takes over the router's tokens."""
        for c in self.cells:
            ports = self.homes[c]
            done = reconcile(ports).cells
            with suppress(TrafficNotApplied):  # the router is down: the same command again, later
                done += catch_up(ports.ways.read_all(), ports, PERSON)
            if done:
                self.looks.at_once(c, self.clock.now())

    # what is seen -------------------------------------------------------------------------------------------------------

    def _judged(self, c: CellId) -> int:
        """Return the canary requests since this step's evidence began."""
        r = self.rollout(c)
        return 0 if r is None or r.since is None else self.traffic.attempts(c, "canary", r.since.since)

    def _before_write(self, c: CellId) -> None:
        self.traffic.settle(c)

    def _wrote(self, before: Split, after: Split) -> None:
        k = self.at_work
        seen = {
            "frozen": any(w.start <= self.clock.now() < w.end for w in self.freeze),
            "source": self.ready.get((SOURCE, after.cell), 1.0),
            "target": self.ready.get((TARGET, after.cell), 1.0),
            "blind": self.traffic.down,
            "forced": [s for (c, _), s in self.traffic.forced.items() if c == after.cell],
            "resumed": k is not None and k.was_stopped,
            "able_s": self.t - self.unable_at[after.cell],
            "dead_s": self.t - self.dead_since.get(after.cell, self.t),
            "guarded": k is not None and self.guarded.get(after.cell, -1.0) > k.began_at,
            "canary_n": self._judged(after.cell),
            "rollout": self.rollout(after.cell),
        }
        self.written.append(Written(self.t, after.cell, before.target_bp, after, self.by, before.token, seen))
