"""Migrate, use-case layer: bring a wave of an approved plan up to and through a phase. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from fleetctl.analysis.judge import fresh
from fleetctl.domain.canonical import digest
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet, Phase
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval, Plan, Wave
from fleetctl.domain.rollout import Order, Rollout
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import REFUSALS
from fleetctl.errors import FleetctlError, PlanStale, RowUnreadable, StillPending, TrafficNotApplied
from fleetctl.planning.make_plan import plan_id as plan_id_of
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.ports.state import Clock, Held, Lease, Lost, Records, Store
from fleetctl.rollout.checks import FAILED, OPEN
from fleetctl.rollout.decide import PHASE_ORDER
from fleetctl.rollout.proven import NOT_PROVEN
from fleetctl.usecases.proof import Proof, of_plan
from fleetctl.usecases.tick import TickPorts, TickResult, TickSettings, tick
from fleetctl.usecases.tick_events import JUDGE
from fleetctl.usecases.unexpected import UNEXPECTED, Odd

TICKER = "ticker"
"""Scope of the lease that says who ticks: the resident ticker, or a `migrate` in the foreground."""

TICKER_TTL = timedelta(seconds=6)
"""Outlasts one slow tick: a probe waits 5 s for a replica, a router 5 s for an answer; the lease is renewed between slow ticks."""

SLOW = timedelta(seconds=1)
"""A tick that took longer waited for something: its cell comes last, and no two such ticks are made in a row while others are due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellState:
    """Where a cell stands as `migrate` reports it."""

    cell: CellId
    phase: str
    weight_bp: int
    ended: str
    step_done: bool
    hold_reason: str


def approved_plan(records: Records, fleet: Fleet, plan_id: str | None, proof: Proof | None = None) -> Plan:
    """Return the plan to run: the named one or the newest; refuse a stale, changed or unapproved one.

    Args:
        proof: checks signatures; without it nobody's yes counts where the policy asks for signatures.

    Raises:
        PlanStale: plan.missing, plan.stale, plan.changed or plan.unapproved.
    """
    plan = records.get(Plan, plan_id) if plan_id else records.newest(Plan)
    if plan is None:
        raise PlanStale("plan.missing", f"there is no plan{' ' + plan_id if plan_id else ''}.", hint="Run: fleetctl plan")
    require_current(plan, fleet)
    require_unchanged(plan)
    given = [a for a in records.all(Approval) if a.plan == plan.id]
    if any(a.plan_digest != digest(plan) for a in given):
        raise PlanStale("plan.changed", f"plan {plan.id} is not the one that was approved.", hint="Run: fleetctl plan")
    counted = of_plan(plan, fleet, records, proof)
    if counted.missing:
        hint = f"Run: fleetctl approve {plan.id}"
        text = f"plan {plan.id} has {len(counted.people)} of {counted.needed} approvals."
        raise PlanStale("plan.unapproved", text, hint=hint, details=counted.refused)
    return plan


def require_current(plan: Plan, fleet: Fleet) -> None:
    """Refuse a plan whose fleet has moved on.

    Raises:
        PlanStale: plan.stale.
    """
    if plan.lineage != fleet.lineage or plan.fleet != digest(fleet):
        raise PlanStale(
            "plan.stale",
            f"plan {plan.id} was made for serial {plan.serial} of {fleet.name}, which has changed since.",
            hint="Run: fleetctl plan",
        )


def require_unchanged(plan: Plan) -> None:
    """Refuse a plan whose content gives another id than it has.

    Raises:
        PlanStale: plan.changed.
    """
    if plan.id != plan_id_of(plan):
        raise PlanStale("plan.changed", f"plan {plan.id} is not what was planned: its content gives another id.", hint="Run: fleetctl plan")


def passed(r: Rollout | None) -> bool:
    """Tell whether a cell no longer holds up its wave: in soak, beyond, or ended."""
    return r is not None and (bool(r.ended) or PHASE_ORDER.index(r.phase) >= PHASE_ORDER.index("soak"))


def current_wave(plan: Plan, store: Store, there: frozenset[CellId] = frozenset()) -> Wave | None:
    """Return the lowest wave not yet in soak; None where every wave is."""
    for wave in sorted(plan.waves, key=lambda w: w.index):
        if not all(c in there or passed(_of_plan(store.load(c), plan)) for c in wave.cells):
            return wave
    return None


def _of_plan(r: Rollout | None, plan: Plan) -> Rollout | None:
    return r if r is not None and r.plan == plan.id else None


def arrived(plan: Plan, store: Store, shown: Callable[[CellId], int]) -> frozenset[CellId]:
    """Return the cells that an earlier plan brought to this plan's target: a new plan must not send them back to begin again.

    Args:
        shown: what the router of a cell routes to its target, basis points; asked only for those.
    """
    there = set()
    for o in plan.outcomes:
        r = store.load(o.cell) if o.kind == "move" else None
        if r is not None and r.ended == "complete" and r.plan != plan.id and r.spec.target == o.target and shown(o.cell) > 0:
            there.add(o.cell)
    return frozenset(there)


def chosen_cells(plan: Plan, store: Store, names: Sequence[str], there: frozenset[CellId] = frozenset()) -> tuple[CellId, ...]:
    """Return the cells to move: the named ones, else those of the current wave, else those still in soak; none that is `there`.

    A cell that an older plan brought to this target is left where it is. Waves of a later stage are never begun by the plan that foresees
    them: what they wait for is released first, and the plan made then places them anew.

    Raises:
        FleetctlError: migrate.unknown, a name that this plan does not move; StillPending: pending.release, all else is done or in soak;
            pending.failed_wave, half or more of an earlier wave came home.
    """
    later = {c for w in plan.waves if w.stage > 1 for c in w.cells}
    moving = [c for w in sorted(plan.waves, key=lambda w: w.index) for c in w.cells]
    workload = {o.cell: o.workload for o in plan.outcomes}
    if names:
        unknown = [n for n in names if n not in moving and n not in {workload[c] for c in moving}]
        if unknown:
            raise FleetctlError("migrate.unknown", f"plan {plan.id} moves no {', '.join(unknown)}.", hint="Run: fleetctl show")
        chosen = tuple(c for c in moving if (c in names or workload[c] in names) and c not in there)
        if later.intersection(chosen):
            raise _waits(plan, sorted(later.intersection(chosen))[0])
        return chosen
    wave = current_wave(plan, store, there)
    if wave is not None and wave.stage == 1:
        _refuse_after_failures(plan, wave, store)
        return tuple(c for c in wave.cells if c not in there)
    open_ = [c for c in moving if (r := _of_plan(store.load(c), plan)) is not None and not r.ended]
    if not open_ and wave is not None:
        raise _waits(plan, wave.cells[0])
    return tuple(open_)


def _refuse_after_failures(plan: Plan, wave: Wave, store: Store) -> None:
    """Begin no wave after one of which half or more came home because of what was measured: the next would go the same way.

    Raises:
        StillPending: pending.failed_wave.
    """
    for before in (w for w in plan.waves if w.index < wave.index):
        found = {c: r for c in before.cells if (r := _of_plan(store.load(c), plan)) is not None}
        home = [c for c, r in found.items() if r.ended in FAILED_HOME]
        if home and 2 * len(home) >= len(before.cells):
            text = f"{len(home)} of {len(before.cells)} cells of wave {before.index} came home ({', '.join(home[:3])})"
            hint = f"Mend it, then: fleetctl retry {home[0]}. To go on without them, name cells: fleetctl migrate {wave.cells[0]}"
            raise StillPending("pending.failed_wave", f"{text}; wave {wave.index} is not begun.", hint=hint)


FAILED_HOME = ("rolled_back", "lost_evidence")
"""Ends that say something about the target."""


def _waits(plan: Plan, cell: CellId) -> StillPending:
    """Return why a cell of a later stage is not begun yet."""
    wave = next(w for w in plan.waves if cell in w.cells)
    after = next((d.after for d in plan.calendar.waves if d.index == wave.index), ()) if plan.calendar is not None else ()
    pools = f" of {', '.join(after[:3])}{' and others' if len(after) > 3 else ''}" if after else ""
    text = f"{cell} is in stage {wave.stage} of plan {plan.id}: there is room for it once capacity{pools} is given back."
    return StillPending("pending.release", text, hint="When that is released and the fleet file says so, run: fleetctl plan")


def begin(plan: Plan, fleet: Fleet, cells: Sequence[CellId], until: Phase, store: Store, clock: Clock, actor: Actor) -> None:
    """Start or go on with each cell's rollout; running the same command again changes nothing.

    Raises:
        StillPending: rollout.ended, a cell that went home under this plan and waits for `fleetctl retry`.
        PlanStale: rollout.other_plan, a cell that moves under another plan. Either way no cell was started.
    """
    now = clock.now()
    known = [(c, store.load(c)) for c in cells]
    for c, r in known:
        if r is not None and r.plan == plan.id and r.ended not in ("", "complete"):
            raise StillPending("rollout.ended", f"{c} went home ({r.ended}: {r.hold_reason}).", hint=f"Run: fleetctl retry {c}")
        if r is not None and r.plan != plan.id and not r.ended:
            raise PlanStale("rollout.other_plan", f"{c} is moving under plan {r.plan}.", hint=f"Run: fleetctl abort {c}")
    for c, r in known:
        if r is None or r.plan != plan.id:
            start(plan, fleet, c, until, store, now, actor)
        elif not r.ended and PHASE_ORDER.index(until) > PHASE_ORDER.index(r.until):
            store.order(c, Order(kind="advance", actor=actor, at=now, until=until))


def start(plan: Plan, fleet: Fleet, c: CellId, until: Phase, store: Store, now: Instant, actor: Actor, *, attempt: int = 1) -> None:
    """Make a new rollout of a cell the current one."""
    spec = spec_for(plan, fleet, c)
    judged = {g.name for phase in spec.phases for g in phase.guardrails if g.judged}
    if "errors" in judged and "log" in fleet.cell(c).evidence:
        judged.add(REFUSALS)  # where the source tells them they are judged beside errors
    rollout = Rollout(cell=c, plan=plan.id, spec=spec, judge=fresh(guardrails=len(judged)), until=until, attempt=attempt)
    text = f"{c} starts under plan {plan.id}" + (f", attempt {attempt}" if attempt > 1 else "")
    event = Event(at=now, kind="rollout.start", actor=actor, text=text, cell=c, data={"plan": plan.id, "attempt": attempt})
    store.start(rollout, (event,))


def retry(plan: Plan, fleet: Fleet, cells: Sequence[CellId], store: Store, clock: Clock, actor: Actor) -> None:
    """Start cells again that went home, on the same plan; all of them or none.

    Raises:
        FleetctlError: rollout.not_ended.
    """
    for c, attempt in [(c, retryable(c, store)) for c in cells]:
        start(plan, fleet, c, "preflight", store, clock.now(), actor, attempt=attempt)


def retryable(c: CellId, store: Store) -> int:
    """Return the number of a cell's next attempt.

    Raises:
        FleetctlError: rollout.not_ended.
    """
    r = store.load(c)
    if r is None or not r.ended or r.ended == "complete":
        raise FleetctlError("rollout.not_ended", f"{c} has not gone home; there is nothing to retry.", hint="Run: fleetctl status")
    return r.attempt + 1


ANCHOR = timedelta(minutes=10)
"""How often the heads of the cells' chains are written into the fleet's, beside each rollout's end."""
SWEEP = timedelta(seconds=10)
"""How often it is looked whether a minimum is still pinned that no cell needs any more."""

Goal = Literal["phase", "soak", "complete"]


def reached(r: Rollout | None, until: Phase, goal: Goal) -> bool:
    """Tell whether a cell is as far as the command was asked to bring it."""
    if r is None:
        return False
    if r.ended or is_lowered(r, until):
        return True
    at = PHASE_ORDER.index(r.phase)
    if goal == "phase":
        return at > PHASE_ORDER.index(until) or (r.phase == until and r.step_done and r.settled_at is not None)
    if goal == "soak":
        return at >= PHASE_ORDER.index("soak") and r.settled_at is not None
    return False


def is_lowered(r: Rollout, until: Phase) -> bool:
    """Tell whether a person's rollback has since set a nearer end than the command asked for."""
    nearer = PHASE_ORDER.index(r.until) < PHASE_ORDER.index(until)
    return nearer and not r.ended and not any(o.kind == "advance" for o in r.orders)


STUCK = ("traffic.", "config.", "credentials.", "tick.", "home.source_not_ready", "stale")
"""How the reasons begin that keep any order from being obeyed."""


def is_stuck(r: Rollout | None) -> bool:
    """Tell whether no order can be obeyed now: the router or the source does not answer, or a newer writer was there."""
    return r is not None and not r.ended and r.hold_reason.startswith(STUCK)


HELD_BY_CHECKS = (FAILED, OPEN)


def needs_person(r: Rollout | None) -> bool:
    """Tell whether only a person can help now."""
    return r is not None and not r.ended and r.hold_reason in ("step.inconclusive", NOT_PROVEN, *HELD_BY_CHECKS)


@dataclass(slots=True)
class Driver:
    """Whoever holds the ticker's lease ticks; everybody else watches the store.

    Args:
        ports, settings: for the ticks; on_tick: told of every tick made here.
        slow: cells whose last tick was slow; swept_at: when pinned minimums were looked at last, odd: what nobody foresaw then.
        unreadable: cells whose row cannot be read, of which people were told.
        anchored_at: when the fleet's chain vouched last for what cells' chains had come to.
    """

    ports: TickPorts
    settings: TickSettings
    on_tick: Callable[[TickResult], None]
    lease: Lease | None = None
    slow: set[CellId] = field(default_factory=set)
    swept_at: Instant | None = None
    odd: frozenset[str] = frozenset()
    unreadable: frozenset[CellId] = frozenset()
    anchored_at: Instant | None = None

    def is_ticking(self) -> bool:
        """Take or renew the ticker's lease; False while a resident ticker has it."""
        store = self.ports.store
        if self.lease is not None:
            renewed = store.renew(self.lease, TICKER_TTL)
            self.lease = None if isinstance(renewed, Lost) else renewed
        if self.lease is None:
            got = store.acquire(TICKER, self.settings.holder, TICKER_TTL)
            self.lease = None if isinstance(got, Held) else got
        return self.lease is not None

    def step(self, limit: int = 1_000) -> int:
        """Tick due cells once each, those known to be slow last, up to and with the first that is slow; returns how many were ticked."""
        clock = self.ports.clock
        self._sweep(clock.now())
        self._anchor(clock.now())
        due = sorted(self.ports.store.due(limit), key=lambda c: c in self.slow)
        for ticked, c in enumerate(due, start=1):
            began = clock.now()
            done = self._tick(c)
            self.on_tick(done)
            if done.kind != "idle" and done.rollout is not None and done.rollout.ended:  # the fleet's chain vouches for it
                self.ports.store.anchor_heads(clock.now(), JUDGE)
            if clock.now() - began > SLOW:
                self.slow.add(c)
                return ticked
            self.slow.discard(c)
        return len(due)

    def _tick(self, c: CellId) -> TickResult:
        """Tick a cell; a row that cannot be read is that cell's matter: people are told once, and the others go on."""
        try:
            done = tick(c, self.ports, self.settings)
        except RowUnreadable as e:
            if c not in self.unreadable:
                self.unreadable |= {c}
                text = f"{c} is not looked after: {e.message} To go home: fleetctl fallback {c}"
                event = Event(
                    at=self.ports.clock.now(), kind="rollout.unreadable", actor=JUDGE, text=text, data={"cause": e.code, "cell": c}
                )
                self.ports.store.append((event,))
                self.ports.notifier.send(replace(event, kind="notify.page", cell=c))
            return TickResult(cell=c, kind="failed", why=e.message)
        self.unreadable -= {c}
        return done

    def _sweep(self, now: Instant) -> None:
        """Give back minimums that no cell needs any more though nobody gave them back, and put that on record."""
        if self.swept_at is not None and now - self.swept_at < SWEEP:
            return
        self.swept_at = now
        odd = Odd()
        for c, said in odd.ask("an owner", self.ports.holds.sweep) or ():
            self.ports.store.append((Event(at=now, kind=said.kind, actor=JUDGE, text=said.text, cell=c),))
        new = {kind: text for kind, text in odd.said.items() if kind not in self.odd}  # every cell's tick goes on
        self.odd = frozenset(odd.said)
        for kind, text in new.items():
            event = Event(at=now, kind=UNEXPECTED, actor=JUDGE, text=text, data={"error": kind})
            self.ports.store.append((event,))
            self.ports.notifier.send(replace(event, kind="notify.page"))

    def _anchor(self, now: Instant) -> None:
        """Have the fleet's chain vouch for the cells' every ten minutes too, so that a cut end shows while a rollout goes on for days."""
        if self.anchored_at is not None and now - self.anchored_at < ANCHOR:
            return
        if self.anchored_at is not None:
            self.ports.store.anchor_heads(now, JUDGE)
        self.anchored_at = now

    def stop(self) -> None:
        """Give the ticker's lease back."""
        if self.lease is not None:
            self.ports.store.release(self.lease)
            self.lease = None


def follow(
    driver: Driver,
    cells: Sequence[CellId],
    done: Callable[[Rollout | None], bool],
    watch: Callable[[Sequence[Rollout | None]], None],
    stop: Callable[[], bool],
) -> tuple[Rollout | None, ...]:
    """Tick or watch until every cell is done, needs a person, or `stop` says so.

    Returns:
        The rollouts of `cells` as last seen.
    """
    store, clock = driver.ports.store, driver.ports.clock
    while True:
        if driver.is_ticking():
            driver.step()
        rollouts = tuple(store.load(c) for c in cells)
        watch(rollouts)
        if stop() or all(done(r) or needs_person(r) for r in rollouts):
            return rollouts
        clock.wait(clock.now() + timedelta(milliseconds=200), stop)


STUCK_FOR = timedelta(seconds=5)
"""How long an order waits for a router that does not answer before the command says so; the order stands."""


def follow_order(driver: Driver, cells: Sequence[CellId], done: Callable[[Rollout | None], bool]) -> tuple[Rollout | None, ...]:
    """Tick or watch until every cell has obeyed.

    Raises:
        TrafficNotApplied: traffic.order_waits, where the router does not answer or has seen a newer writer; the orders stand.
    """
    clock = driver.ports.clock
    since: dict[CellId, Instant] = {}

    def is_over(r: Rollout | None) -> bool:
        if r is None or done(r):
            return True
        if not is_stuck(r):
            since.pop(r.cell, None)
            return False
        return clock.now() - since.setdefault(r.cell, clock.now()) >= STUCK_FOR

    rollouts = follow(driver, cells, is_over, lambda _: None, lambda: False)
    stuck = [r for r in rollouts if r is not None and not done(r) and is_stuck(r)]
    if stuck:
        names = ", ".join(r.cell for r in stuck)
        stale = any(r.hold_reason == "stale" for r in stuck)
        raise TrafficNotApplied(
            "traffic.order_waits",
            f"the order for {names} stands and is obeyed once the router can be set ({stuck[0].hold_reason}).",
            hint="Run: fleetctl fallback --reconcile" if stale else f"Look: fleetctl doctor. To go home at once: fleetctl fallback {names}",
        )
    return rollouts


def take_home(driver: Driver, cells: Sequence[CellId], actor: Actor, why: str) -> tuple[Rollout | None, ...]:
    """Abort cells that have not ended and tick until they have; what Ctrl-C does where nobody else ticks.

    Raises:
        TrafficNotApplied: traffic.order_waits.
    """
    store, clock = driver.ports.store, driver.ports.clock
    for c in cells:
        r = store.load(c)
        if r is not None and not r.ended:
            store.order(c, Order(kind="abort", actor=actor, at=clock.now(), note=why))
    return follow_order(driver, cells, lambda r: r is None or bool(r.ended))
