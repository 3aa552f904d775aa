"""Simulator: what goes wrong in one seed, and when. Faults end by themselves; a regression stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from fleetctl.domain.evidence import ARMS, Arm
from fleetctl.domain.fleet import FreezeWindow
from fleetctl.domain.ids import CellId, HostId, PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import OrderKind
from tests.fakes.router import Target
from tests.sim.parts import JumpedClock
from tests.sim.stores import Kept
from tests.sim.traffic import Behaviour, CountedTraffic
from tests.sim.world import SOURCE, TARGET, Controller, World

STATES = ("nan", "down", "mislabelled", "same_series", "reset", "stale", "empty")
BEGINS_AT = 30.0
"""When the first rollout begins where nothing else is made before; what is planned counts from there."""
HOMEWARD: tuple[OrderKind, ...] = ("abort", "fallback", "rollback")
ORDERS = ("pause", "resume", "abort", "rollback", "fallback", "promote", "advance", "retry")


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens at a time, in words, with its effect."""

    at: float
    text: str
    act: Callable[[], None]


class Faults:
    """The history of one seed: drawn once, played by time.

    Args:
        until: seconds from the beginning in which faults begin; all but regressions have ended two hours after it.
        steps: seconds from the beginning at which steps change if nothing is in their way: most faults come around one of them.
    """

    def __init__(self, world: World, until: float, how_many: int, steps: Sequence[float]) -> None:
        self.world, self.random = world, world.random
        self._until, self._steps = until, steps
        self.regressed: dict[CellId, tuple[float, str]] = {}
        self.died: set[CellId] = set()
        self.ordered: list[tuple[float, CellId, str]] = []
        self.plan: list[Happening] = []
        kinds = [self._router, self._store, self._evidence, self._state, self._replicas, self._kill, self._stop, self._freeze, self._order]
        kinds += [self._cornered]
        weights = [2, 2, 2, 3, 4, 4, 4, 1, 4, 1]
        for _ in range(how_many):
            self.random.choices(kinds, weights)[0](self._moment())
        for c in world.cells:
            if self.random.random() < 0.4:
                self._regression(c, self._moment())
        self.plan.sort(key=lambda h: h.at)

    def add_others(self, seed: int) -> None:
        """Let others write weights, and clouds tell of machines that go and of capacity that ends, in a third of the seeds each."""
        self.random = Random(f"others {seed}")
        for of in (self._foreign, self._leaving, self._ending):
            if self.random.random() < 0.33:
                of(self._moment())
        self.random = self.world.random
        self.plan.sort(key=lambda h: h.at)

    def _foreign(self, at: float) -> None:
        c, bp = self._cell(), self.random.choice([0, 300, 2_000, 7_000, 10_000])
        self._add(at, f"others write {bp} bp of {c}", lambda: self.world.write_as_others(c, bp))

    def _leaving(self, at: float) -> None:
        """A machine of the target is taken away after a notice, and another comes in its place."""
        notice_s, away_s = self.random.choice([30.0, 120.0, 900.0]), self._span()

        def away(share: float) -> None:
            for c in self.world.cells:
                self.world.set_ready(TARGET, c, share)

        self._add(at, "a machine of the target is to go", lambda: self._tell(TARGET, "spot", "critical", notice_s))
        self._add(at + notice_s, "it is gone", lambda: away(0.75))
        self._add(at + notice_s + away_s, "the notice is taken back", lambda: self.world.tell(TARGET, ()))
        self._add(at + notice_s + away_s, "another is there", lambda: away(1.0))

    def _ending(self, at: float) -> None:
        pool, left_s = self.random.choice([SOURCE, TARGET]), self.random.choice([7_200.0, 100_000.0])
        self._add(at, f"{pool} ends in {left_s:.0f} s", lambda: self._tell(pool, "block_end", "warning", left_s))

    def _tell(self, pool: PoolId, kind: str, severity: str, left_s: float) -> None:
        now = self.world.clock.now()
        told = Signal(
            subject=HostId("h-1"),
            kind=kind,
            severity=severity,  # type: ignore[arg-type]
            seen_at=now,
            deadline=now + timedelta(seconds=left_s),
            pool=pool,
        )
        self.world.tell(pool, (told,))

    def add_clock_jumps(self, how_many: int) -> None:
        """Let a controller's clock jump by up to an hour, forward or back, and come right again."""
        for _ in range(how_many):
            at, ahead = self._moment(), timedelta(seconds=self.random.choice([-3_600, -200, -30, 30, 200, 3_600]))
            k = self.random.choice(self.world.controllers)

            def begin(k: Controller = k, ahead: timedelta = ahead) -> None:
                self.world.stir()
                k.clock = JumpedClock(self.world.clock, ahead)

            self._add(at, f"the clock of {k.name} jumps by {ahead.total_seconds():.0f} s", begin)
            self._add(at + self._span(), f"the clock of {k.name} is right", lambda k=k: setattr(k, "clock", None))  # type: ignore[misc]
        self.plan.sort(key=lambda h: h.at)

    def play(self) -> None:
        """Play everything, with the world going on in between."""
        began = self.world.t - BEGINS_AT
        for h in self.plan:
            self.world.run_until(h.at + began)
            h.act()

    def _add(self, at: float, text: str, act: Callable[[], None]) -> None:
        self.plan.append(Happening(at, text, act))

    def _set(self, part: Target | Kept | CountedTraffic, is_down: bool) -> None:
        self.world.stir()
        part.down = is_down

    def _cell(self) -> CellId:
        return self.random.choice(self.world.cells)

    def _moment(self) -> float:
        """Return when something begins: around a step, or at any time."""
        if self.random.random() < 0.75:
            return max(0.0, self.random.choice(self._steps) + self.random.uniform(-30, 240))
        return self.random.uniform(0, self._until)

    def _span(self) -> float:
        return self.random.choice([3.0, 12.0, 40.0, 40.0, 110.0, 110.0, 250.0, 250.0, 7_200.0])

    def _router(self, at: float) -> None:
        def down(is_: bool) -> Callable[[], None]:
            return lambda: self._set(self.world.target, is_)

        self._add(at, "router down", down(True))
        self._add(at + self._span(), "router up", down(False))

    def _store(self, at: float) -> None:
        def down(is_: bool) -> Callable[[], None]:
            return lambda: self._set(self.world.store, is_)

        self._add(at, "store down", down(True))
        if self.random.random() < 0.3:
            c = self._cell()
            self._add(at + 1, f"{c} taken home without the store", lambda: self._home(c))
        end = at + self._span()
        self._add(end, "store up", down(False))
        self._add(end + self.random.uniform(0, 30), "reconciled", self._reconcile)

    def _home(self, c: CellId) -> None:
        if self.world.store.down and not self.world.target.down:
            self.world.go_home_without_store(c)

    def _reconcile(self) -> None:
        if not self.world.store.down:
            self.world.reconcile()

    def _evidence(self, at: float) -> None:
        def down(is_: bool) -> Callable[[], None]:
            return lambda: self._set(self.world.traffic, is_)

        self._add(at, "evidence down", down(True))
        self._add(at + self._span(), "evidence up", down(False))

    def _state(self, at: float) -> None:
        c, state = self._cell(), self.random.choice(STATES)
        arms: tuple[Arm, ...] = self.random.choice([ARMS, ("canary",), ("baseline",)])

        def begin() -> None:
            self.world.stir(c)
            self.world.traffic.forced.update({(c, a): state for a in arms})  # type: ignore[misc]

        def end() -> None:
            self.world.stir(c)
            for a in arms:
                self.world.traffic.forced.pop((c, a), None)

        self._add(at, f"{c} {'/'.join(arms)} is {state}", begin)
        self._add(at + self._span(), f"{c} {'/'.join(arms)} ok", end)

    def _replicas(self, at: float) -> None:
        c, pool, share = self._cell(), self.random.choice([SOURCE, TARGET]), self.random.choice([0.0, 0.5, 0.75])

        def begin() -> None:
            if pool == TARGET and not share:
                self.died.add(c)
            self.world.set_ready(pool, c, share)

        self._add(at, f"{c}: {share:.0%} of {pool} answers", begin)
        self._add(at + self._span(), f"{c}: all of {pool} answers", lambda: self.world.set_ready(pool, c, 1.0))

    def _cornered(self, at: float) -> None:
        """The source is gone, and its cell is ordered home."""
        c, kind = self._cell(), self.random.choice(HOMEWARD)
        self._add(at, f"{c}: nobody answers on {SOURCE}", lambda: self.world.set_ready(SOURCE, c, 0.0))
        self._add(at + 25, f"order {kind} {c}", lambda: None if self.world.store.down else self.world.order(c, kind))
        self._add(at + 25 + self.random.uniform(20, 90), f"{c}: all of {SOURCE} answers", lambda: self.world.set_ready(SOURCE, c, 1.0))

    def _trap(self, stops_for: float) -> None:
        self.world.stir()
        k: Controller = self.random.choice(self.world.controllers)
        k.stops_for, k.after = stops_for, self.random.random() < 0.5
        k.trap_on = self.random.choice(["", "set", "set", "record", "fence"])
        k.trap = self.random.randint(1, 3) if k.trap_on == "set" else self.random.randint(1, 12)

    def _kill(self, at: float) -> None:
        self._add(at, "a controller is killed in a call", lambda: self._trap(0.0))

    def _stop(self, at: float) -> None:
        seconds = self.random.uniform(16, 60)  # longer than the lease
        self._add(at, f"a controller is stopped in a call for {seconds:.0f} s", lambda: self._trap(seconds))

    def _freeze(self, at: float) -> None:
        def begin() -> None:
            now = self.world.clock.now()
            self.world.freeze = (FreezeWindow(name="w", start=now, end=now + timedelta(seconds=self._span())),)

        self._add(at, "freeze window", begin)

    def _order(self, at: float) -> None:
        c, kind = self._cell(), self.random.choice(ORDERS)

        def give() -> None:
            if not self.world.store.down:
                self.ordered.append((self.world.t, c, kind))
                self.world.order(c, kind)  # type: ignore[arg-type]

        self._add(at, f"order {kind} {c}", give)
        if kind == "pause":
            self._add(at + 200, f"order resume {c}", lambda: None if self.world.store.down else self.world.order(c, "resume"))

    def _regression(self, c: CellId, at: float) -> None:
        worse, text = self.random.choice(
            [(Behaviour(slower=2.0), "twice as slow"), (Behaviour(failing=0.08), "8 % errors"), (Behaviour(failing=0.5), "half fails")]
        )

        def begin() -> None:
            self.world.stir(c, unseen=True)
            self.world.traffic.behaviour[c, "canary"] = worse
            self.regressed[c] = (self.world.t, text)

        self._add(at, f"{c}: target {text}", begin)
