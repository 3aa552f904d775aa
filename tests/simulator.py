"""A whole migration in memory: the real tick, judge and rules over fakes, with customers who send requests as time passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random

from fleetctl.analysis.judge import fresh
from fleetctl.domain.evidence import Arm
from fleetctl.domain.fleet import Phase
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import Rollout, RolloutSpec
from fleetctl.domain.split import Readiness
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.usecases.tick import TickPorts, TickResult, TickSettings, tick
from fleetctl.usecases.unexpected import UNEXPECTED
from tests.fakes.clock import FakeClock
from tests.fakes.evidence import FakeEvidence, Served
from tests.fakes.router import FakeRouter, Target
from tests.fakes.shadow import GivenShadow
from tests.fakes.small import KeptNotices, OwnedHolds
from tests.fakes.store import MemoryStore
from tests.rollouts import CELL, spec

SOURCE, TARGET = PoolId("nvidia-lab"), PoolId("mi300x-lab")


class Ready:
    """A prober that answers what the test wants of each pool."""

    def __init__(self) -> None:
        self.share = {SOURCE: 1.0, TARGET: 1.0}

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=round(self.share[pool] * 4), total=4, age_s=0.0)


class GivenSignals:
    """Notices that the test gives, by pool; None: nobody can tell of any."""

    def __init__(self) -> None:
        self.given: dict[PoolId, list[Signal]] | None = None

    def watches(self, pool: PoolId) -> bool:
        return self.given is not None

    def read(self, pool: PoolId) -> tuple[Signal, ...]:
        return tuple((self.given or {}).get(pool, ()))


class Simulation:
    """Cells under load, ticked as they become due.

    Args:
        cells: moved side by side; slower, failing: what the target does to a request (factor; share that fails).
        rate_per_s: requests per second and cell.
    """

    def __init__(
        self,
        cells: tuple[CellId, ...] = (CELL,),
        *,
        of: RolloutSpec | None = None,
        slower: float = 1.0,
        failing: float = 0.0,
        rate_per_s: float = 150.0,
        seed: int = 1,
    ) -> None:
        self.cells, self.slower, self.failing, self.rate_per_s = cells, slower, failing, rate_per_s
        self.source_failing = 0.0
        self.random = Random(seed)
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock.now)
        self.target = Target(cells)
        self.evidence = FakeEvidence(self.clock.now)
        self.ready, self.shadow, self.notices = Ready(), GivenShadow(), KeptNotices()
        self.signals = GivenSignals()
        self.holds = OwnedHolds({SOURCE: 1, TARGET: 0})
        self.results: list[TickResult] = []
        self.may_break, self._seen_odd = False, dict.fromkeys(cells, 0)
        self.spec = of or spec()
        self.router: Callable[[CellId], FakeRouter] = lambda _: self._writer
        self._writer = FakeRouter(dict.fromkeys(cells, SOURCE), target=self.target)
        self._due = dict.fromkeys(cells, self.clock.now())

    def ports(self) -> TickPorts:
        return TickPorts(
            store=self.store,
            clock=self.clock,
            notifier=self.notices,
            holds=self.holds,
            router=self.router,
            evidence=lambda _: self.evidence,
            shadow=lambda _: self.shadow,
            prober=lambda _: self.ready,
            notices=self.signals,
        )

    def begin(self, until: Phase = "complete") -> None:
        """Send a baseline's worth of requests, then start every cell's rollout."""
        for _ in range(25):
            self.serve(1.0)
        self.look_now()
        for c in self.cells:
            self.store.start(Rollout(cell=c, plan=PlanId("p1"), spec=self.spec, judge=fresh(), until=until), ())

    def look_now(self) -> None:
        """Make every cell due, as an order or a new rollout does in the store of record."""
        self._due = dict.fromkeys(self.cells, self.clock.now())

    def serve(self, seconds: float) -> None:
        """Let customers send requests for so long; each is served by the arm that the router's weight gives it."""
        for c in self.cells:
            for i in range(round(self.rate_per_s * seconds)):
                canary = self.random.random() * 10_000 < self.target.splits[c].target_bp
                arm: Arm = "canary" if canary else "baseline"
                at = self.clock.now() + timedelta(seconds=seconds * i / max(1, self.rate_per_s * seconds))
                latency = 52 * self.random.lognormvariate(0, 0.25) * (self.slower if canary else 1.0)
                failed = self.random.random() < (self.failing if canary else self.source_failing)
                self.evidence.add(Served(cell=c, arm=arm, started=at, latency_ms=None if failed else latency, failed=failed))
        self.clock.advance(timedelta(seconds=seconds))

    def tick_once(self, holder: str = "a", ports: TickPorts | None = None) -> list[TickResult]:
        """Tick every cell that is due now."""
        done = []
        for c in self.cells:
            if self._due[c] <= self.clock.now():
                result = tick(c, ports or self.ports(), TickSettings(holder=holder, ttl=timedelta(seconds=5)))
                self._due[c] = self.clock.now() + result.look_again
                done.append(result)
        self.results += done
        self._nothing_odd()
        return done

    def _nothing_odd(self) -> None:
        """A defect that a tick survives must not go by unseen in a test that did not ask for one."""
        odd = [e.text for c in self.cells for e in self.store.events(c, self._seen_odd.get(c, 0)) if e.kind == UNEXPECTED]
        odd += [r.why for r in self.results[-len(self.cells) :] if r.rollout is not None and r.rollout.hold_reason == UNEXPECTED]
        self._seen_odd = {c: len(tuple(self.store.events(c, 0))) for c in self.cells}
        assert self.may_break or not odd, odd

    def run(self, seconds: int, until: Callable[[], bool] = lambda: False) -> Simulation:
        """Let time pass in half seconds, with customers and ticks."""
        for _ in range(seconds * 2):
            if until():
                break
            self.serve(0.5)
            self.tick_once()
        return self

    def rollout(self, c: CellId = CELL) -> Rollout:
        r = self.store.load(c)
        assert r is not None
        return r

    def bp(self, c: CellId = CELL) -> int:
        return self.target.splits[c].target_bp

    def at(self, phase: Phase, seconds: int = 400) -> Simulation:
        """Run until the cell is settled in a phase."""
        self.run(seconds, lambda: self.rollout().phase == phase and self.rollout().settled_at is not None)
        assert self.rollout().phase == phase, self.rollout()
        return self


def quick(**changes: object) -> RolloutSpec:
    """Return the lab's steps with short bakes."""
    return replace(spec(bake_s=5.0), **changes)  # type: ignore[arg-type]


def tiny() -> RolloutSpec:
    """Return few steps with wide margins and short bakes, for tests that run many migrations."""
    wide = (
        GuardrailSpec(name=Guardrail("errors"), margin=0.05, fail_margin=0.0),
        GuardrailSpec(name=Guardrail("latency"), margin=1.0, fail_margin=0.1),
    )
    made = spec(bake_s=1.0)
    kept = (p for p in made.phases if p.phase != "canary")
    return replace(made, warm_up=timedelta(seconds=1), phases=tuple(replace(p, guardrails=wide) for p in kept))
