"""Migrate, use-case layer: one tick of one cell, the same for `migrate`, the resident ticker and a simulator. Never imports an adapter.

acquire -> fence -> load -> observe -> judge -> decide -> effects -> record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Literal, assert_never

from fleetctl.analysis.judge import judge, start_step
from fleetctl.analysis.looks import seen_of
from fleetctl.analysis.pooled import pooled
from fleetctl.analysis.shadow import shadow_verdict
from fleetctl.domain.checks import CheckSeen
from fleetctl.domain.event import Event
from fleetctl.domain.evidence import Cursor, Evidence, LookRow, Pair, Seen, Verdict
from fleetctl.domain.fleet import FreezeWindow
from fleetctl.domain.holds import Said
from fleetctl.domain.identity import ArmsIdentity
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.rollout import (
    Decision,
    Drain,
    Freeze,
    Hold,
    HomeSeen,
    Notify,
    Observation,
    Rollout,
    RunChecks,
    SetSplit,
    StartShadow,
    StopShadow,
    Unhold,
    Warm,
)
from fleetctl.domain.split import Served, Split, Stale
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError, LeaseHeld, StoreUnavailable, TrafficNotApplied
from fleetctl.ports.state import Clock, Held, Lease, Notifier, Store
from fleetctl.ports.traffic import Checks, EvidenceSource, Holds, IdentitySource, Notices, Prober, Router, Shadow
from fleetctl.rollout.deadlines import is_news, with_deadlines
from fleetctl.rollout.decide import PROVIDER, STALE, decide
from fleetctl.rollout.lift import is_lifted
from fleetctl.rollout.looks import FINISHED
from fleetctl.rollout.lost import is_looked_for, needs_proof
from fleetctl.rollout.notices import LOOK, TARGET, leaving
from fleetctl.rollout.others import after_failed
from fleetctl.rollout.proven import counted_from
from fleetctl.rollout.router_faults import ALL_FAIL, BOTH_FAIL
from fleetctl.usecases.after_guard import went_on_from_guard
from fleetctl.usecases.holds import give_back, held_again, hold, theirs
from fleetctl.usecases.looking import mark_of, read_of, with_thresholds
from fleetctl.usecases.no_notices import NoNotices
from fleetctl.usecases.pooling import members, with_stop
from fleetctl.usecases.tick_events import event_of, events_of, reported
from fleetctl.usecases.unexpected import UNEXPECTED, Odd, as_error

FOR_GOOD = timedelta(days=36_500)
"""Lease of a weight whose migration is complete: nobody needs to tick it any more."""

RESTING = FINISHED
"""How often a finished cell is looked at: its weight and its source's minimum may still be written by others."""

WITHOUT_EVIDENCE = ("evidence.lost", PROVIDER)
"""Hold reasons of a cell that has no evidence."""

COUNTING = ("preflight", "shadow", "complete")
"""Phases in which nothing or everything is on the target, so that the router's own counts are the evidence."""

PERSONS_WORD = ("abort", "fallback", "rollback", "promote", "lift")
"""Orders that are obeyed whatever the arms serve, at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickPorts:
    """All that a tick touches; router, prober, evidence and identity are per cell; timed: told what a set to 0 took, milliseconds."""

    store: Store
    clock: Clock
    notifier: Notifier
    holds: Holds
    router: Callable[[CellId], Router]
    evidence: Callable[[CellId], EvidenceSource]
    shadow: Callable[[CellId], Shadow]
    prober: Callable[[CellId], Prober]
    identity: Callable[[CellId], IdentitySource] | None = None
    notices: Notices = field(default_factory=NoNotices)
    checks: Checks | None = None
    timed: Callable[[CellId, float], None] = lambda c, took_ms: None


@dataclass(frozen=True, slots=True, kw_only=True)
class TickSettings:
    """What a tick needs to know besides.

    Args:
        ttl: of the cell's lease; longer than any one tick, short enough to survive a killed holder.
        minimum: replicas to hold per source pool.
    """

    holder: str
    ttl: timedelta = timedelta(seconds=15)
    freeze: tuple[FreezeWindow, ...] = ()
    minimum: Mapping[PoolId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickResult:
    """What one tick came to; `why` is the sentence a person reads."""

    cell: CellId
    kind: Literal["ticked", "held", "stale", "idle", "failed"]
    why: str
    rollout: Rollout | None = None
    look: LookRow | None = None
    look_again: timedelta = timedelta(seconds=1)


def tick(c: CellId, ports: TickPorts, settings: TickSettings) -> TickResult:
    """Take one cell one decision further.

    Raises:
        StoreUnavailable: nothing was done; traffic stays as it is (P9).
    """
    lease = ports.store.acquire(c, settings.holder, settings.ttl)
    if isinstance(lease, Held):
        return TickResult(cell=c, kind="held", why=f"{lease.holder} is at it")
    r = ports.store.load(c)
    if r is None:
        ports.store.release(lease)
        return TickResult(cell=c, kind="idle", why="nothing to do", look_again=RESTING)
    try:
        if r.ended and not r.orders and not _is_told(r, ports) and not _is_foreign(r, ports):
            return _idle(r, lease, ports)
        split = ports.router(c).fence(c, lease.token)
        if isinstance(split, Stale):
            if went_on_from_guard(r, lease, split, ports.router(c), ports.store, ports.clock.now()):
                return TickResult(cell=c, kind="held", why="the router's guard wrote last; going on from there", rollout=r)
            return _found_stale(r, lease, split, ports)
        return _observe_and_act(r, lease, split, ports, settings)
    except StoreUnavailable:
        raise
    except LeaseHeld as e:  # another cell of the pool is being held: again at the next tick, nothing is recorded
        ports.store.release(lease)
        return TickResult(cell=c, kind="held", why=e.message, rollout=r)
    except FleetctlError as e:
        return _cannot_act(r, lease, e, ports)
    except Exception as e:
        return _cannot_act(r, lease, as_error(f"a tick of {c}", e), ports)


def _idle(r: Rollout, lease: Lease, ports: TickPorts) -> TickResult:
    again = LOOK if ports.notices.watches(r.spec.target) else RESTING
    if r.ended == "complete":
        ports.store.record(lease, r, r, (), again)
    else:
        ports.store.release(lease)
    return TickResult(cell=r.cell, kind="idle", why="nothing to do", rollout=r, look_again=again)


def _is_told(r: Rollout, ports: TickPorts) -> bool:
    """Tell whether a finished cell has to do with a notice on its target, or people with its end; nobody else is asked anything."""
    if r.ended != "complete":
        return False
    told = ports.notices.read(r.spec.target)
    return r.hold_reason == TARGET or leaving(told, r.spec.target) is not None or is_news(r, told, ports.clock.now())


def _is_foreign(r: Rollout, ports: TickPorts) -> bool:
    """Tell whether others wrote the weight of a finished cell, or the minimum of its way home, or did so before and nobody resumed it."""
    if r.ended != "complete":
        return False
    if r.foreign:
        return True
    try:
        is_ours = ports.router(r.cell).read(r.cell).target_bp == r.weight_bp
    except FleetctlError:
        return False  # who cannot be asked now has not been seen to write
    return not is_ours or bool(ports.holds.watch(r.spec.source, r.cell))


def _observe_and_act(r: Rollout, lease: Lease, split: Split, ports: TickPorts, settings: TickSettings) -> TickResult:
    now = ports.clock.now()
    before, odd = r, Odd()
    r, wrong = with_thresholds(r, ports.evidence, odd)
    seen = observe(r, split, ports, settings, now, odd)
    seen = replace(seen, wrong_series=wrong) if wrong else seen
    if seen.split.target_bp > 0 and not r.ended and needs_proof(r, seen.evidence, now):  # nobody but us sends any request now
        ports.prober(r.cell).ready(r.spec.source, r.cell)
        r = replace(r, proof_at=now)
    decision = decide(r, seen, now)
    again, events = timedelta(0), list[Event]()
    failed: FleetctlError | None
    try:
        decision, seen = _proven(r, seen, decision, ports, now)
        events += events_of(r, decision, seen, now)
        events += [event_of(r, now, UNEXPECTED, text, error=kind) for kind, text in odd.news(r)]
        decision = replace(decision, next=told) if (told := odd.told(decision.next)) is not decision.next else decision
        failed = _apply(r, decision, lease, ports, settings, events)
        if failed is None:
            again = odd.ask("a source of notices", partial(_look_again, decision, r, ports)) or decision.look_again
    except StoreUnavailable:
        raise
    except FleetctlError as e:
        failed = e
    except Exception as e:
        failed = as_error(f"a tick of {r.cell}", e)
    if failed is not None:
        return _undone(r, decision, seen, lease, failed, ports)
    look = _row(r, decision.next, seen, now, decision.why.text)
    lost = ports.store.record(lease, before, decision.next, events, again, look)
    if lost is not None:
        return TickResult(cell=r.cell, kind="stale", why="another writer took over; nothing was recorded", rollout=r)
    return TickResult(cell=r.cell, kind="ticked", why=decision.why.text, rollout=decision.next, look=look, look_again=again)


def _proven(r: Rollout, seen: Observation, decision: Decision, ports: TickPorts, now: Instant) -> tuple[Decision, Observation]:
    """Ask the sides that a change of weight needs, and decide with their answers."""
    split = seen.split
    if seen.source_ready is None and (_goes_home(decision, split) or _raises(decision, split)):
        proof = seen.evidence if _goes_home(decision, split) else None  # a raise must be able to come home: every replica is asked
        seen = replace(seen, source_ready=_source_ready(r, proof, ports))
        decision = decide(r, seen, now)
    if seen.target_ready is None and _raises(decision, split):  # what has gone since preflight gets no more customers
        seen = replace(seen, target_ready=ports.prober(r.cell).ready(r.spec.target, r.cell).share)
        decision = decide(r, seen, now)
    return held_again(r, with_stop(r, with_deadlines(decision, seen, now), seen.judge or r.judge), seen), seen


def _row(r: Rollout, after: Rollout, seen: Observation, now: Instant, why: str) -> LookRow:
    return LookRow(
        cell=r.cell,
        at=now,
        phase=after.phase,
        target_bp=after.weight_bp,
        served_bp=seen.evidence.customers.served_bp if seen.evidence else None,
        arms=seen.evidence.arms if seen.evidence else {},
        verdicts=seen.verdicts,
        why=why,
        query=seen.evidence.query if seen.evidence else "",
        seen=_kept(r, seen, now),
    )


def _undone(r: Rollout, d: Decision, seen: Observation, lease: Lease, e: FleetctlError, ports: TickPorts) -> TickResult:
    """Keep what was judged though it could not be carried out: a FAIL stands, and the next tick goes on going home."""
    stands = after_failed(replace(r, judge=seen.judge or r.judge), d, seen, e)
    goes_home = d.next.direction == "home" and r.direction == "forward" and not r.ended
    if goes_home:
        stands = replace(stands, latched=d.next.latched, direction="home", home_for=d.next.home_for, settled_at=None)
    if isinstance(e, LeaseHeld) and not goes_home:
        raise e
    now = ports.clock.now()
    said = replace(d, next=stands, effects=())
    events = tuple(events_of(replace(r, orders=()), said, seen, now))  # an order that is not carried out stays open, and untold
    look = None if seen.evidence is None else _row(r, stands, seen, now, e.message)
    return _park(stands, lease, ports, e.code, e.message, events, look)


def _look_again(decision: Decision, r: Rollout, ports: TickPorts) -> timedelta:
    """Look sooner where a pool may tell of its end: a notice is no use after it. Never sooner than the router may be looked at."""
    pools = {"": (r.spec.target, r.spec.source), "complete": (r.spec.target,)}.get(decision.next.ended, ())
    again = min(decision.look_again, LOOK) if any(ports.notices.watches(p) for p in pools) else decision.look_again
    return max(again, timedelta(seconds=ports.router(r.cell).capabilities().look_s))


def _goes_home(decision: Decision, split: Split) -> bool:
    lowers = any(isinstance(e, SetSplit) and e.target_bp < split.target_bp for e in decision.effects)  # also one step
    return (lowers or decision.next.direction == "home" or decision.why.code == TARGET) and split.target_bp > 0


def _raises(decision: Decision, split: Split) -> bool:
    return any(isinstance(e, SetSplit) and e.target_bp > split.target_bp for e in decision.effects)


def observe(r: Rollout, split: Split, ports: TickPorts, settings: TickSettings, now: Instant, odd: Odd) -> Observation:
    """Gather what one decision may look at; a source that fails becomes a missing value, never an exception."""
    phase = r.spec.phases[r.step]
    judged = r.judge
    verdicts: tuple[Verdict, ...] = ()
    pairs: tuple[Pair, ...] = ()
    evidence, calm, mark, source, target = None, None, None, None, None
    identity = odd.ask("who tells what the arms serve", lambda: _arms(r, ports))
    if is_lifted(r, split.target_bp):
        evidence = read_of(r, ports.evidence, odd)  # for people: no verdict is possible without a baseline
    elif r.settled_at is None:
        judged, mark = start_step(r.judge, anew=r.anew), mark_of(r, ports.evidence, odd)
    elif r.ended:
        pass  # an order after the end judges nothing: all that was logged since would be read, for longer than the lease lasts
    elif phase.weight_bp > 0 and is_looked_for(r, now):
        evidence = read_of(r, ports.evidence, odd)
        if evidence is not None and now >= r.settled_at:
            comparable = _comparable(identity)
            judged, verdicts = judge(r.judge, evidence, phase.guardrails if comparable else ())
            if r.spec.lane.kind == "pooled" and comparable:
                verdicts = pooled(verdicts, judged, evidence, tuple(members(r, ports.store)), phase.guardrails)
    elif phase.phase == "preflight":
        calm = read_of(r, ports.evidence, odd)
        source = ports.prober(r.cell).ready(r.spec.source, r.cell).share
        if source >= 1.0:  # one dead side is waited for at a time: other cells wait for this tick
            target = ports.prober(r.cell).ready(r.spec.target, r.cell).share
    elif phase.phase == "shadow" and r.spec.shadow is not None:
        pairs = ports.shadow(r.cell).pairs(r.cell, r.since)
        verdicts = (shadow_verdict(pairs, r.spec.shadow),)
    served = _served(r, ports, now)
    asked = {"": (r.spec.target, r.spec.source), "complete": (r.spec.target,)}.get(r.ended, ())
    signals = tuple(s for p in asked for s in odd.ask("a source of notices", partial(ports.notices.read, p)) or ())
    if r.hold_reason == TARGET and not r.ended and leaving(signals, r.spec.target) is None:
        target = ports.prober(r.cell).ready(r.spec.target, r.cell).share
    return Observation(
        split=split,
        signals=signals,
        evidence=evidence,
        verdicts=verdicts,
        judge=judged,
        source_ready=source,
        target_ready=target,
        window=open_window(settings.freeze, now),
        pairs=pairs,
        providers_lost=ports.store.holding(*WITHOUT_EVIDENCE) if r.lost_since is not None else 0,
        is_paged=r.lost_since is not None and ports.store.holding(PROVIDER) > 0,
        mark=mark,
        identity=identity,
        checks=odd.ask("the checks", lambda: _checks(r, identity, ports)) or (),
        served=served,
        told_within=_of_late(r, ports) if served is not None else timedelta(0),
        tells=ports.router(r.cell).capabilities().tells if r.phase in COUNTING and r.settled_at is not None and not r.ended else "itself",
        keeps=ports.router(r.cell).capabilities().keeps,
        calm=calm,
        both_failing=ports.store.holding(BOTH_FAIL, ALL_FAIL) if r.hold_reason in (BOTH_FAIL, ALL_FAIL) else 0,
        blind="; ".join(odd.said.values()),
        home=_home_seen(r, split, ports, now),
        is_all_paged=r.hold_reason in (BOTH_FAIL, ALL_FAIL) and ports.store.holding(ALL_FAIL) > 0,
        **({} if _leaves(r, verdicts) else odd.ask("an owner", lambda: theirs(r, split, ports.holds, now)) or {}),
    )


def _leaves(r: Rollout, verdicts: Sequence[Verdict]) -> bool:
    """Tell whether customers go home in this tick: then nobody waits for what an owner of a pool or a route has to say."""
    return any(v.kind == "FAIL" for v in verdicts) or any(o.kind in ("abort", "fallback", "rollback") for o in r.orders)


def _served(r: Rollout, ports: TickPorts, now: Instant) -> Served | None:
    """Count who answered of late, where nothing or everything is to be on the target; None where nobody can tell."""
    if r.ended or r.settled_at is None or r.phase not in COUNTING:
        return None
    try:
        return ports.router(r.cell).served(r.cell, Cursor(position="", since=max(r.settled_at, now - _of_late(r, ports))))
    except TrafficNotApplied:
        return None


def _home_seen(r: Rollout, split: Split, ports: TickPorts, now: Instant) -> HomeSeen | None:
    """Return what is known of customers of a cell that may be home; None where none of them was on the target by our word."""
    if split.target_bp or (r.left_at is None and not r.weight_bp) or (r.ended and not r.orders):
        return None
    seen = HomeSeen()
    try:
        can = ports.router(r.cell).capabilities()
        seen = HomeSeen(tells=can.tells, told_within=timedelta(seconds=can.served_s))
        since = counted_from(r.left_at or now, seen.told_within, now)
        return replace(seen, served=ports.router(r.cell).served(r.cell, Cursor(position="", since=since))) if since <= now else seen
    except TrafficNotApplied:
        return seen


def _of_late(r: Rollout, ports: TickPorts) -> timedelta:
    """Return how far back it is counted who answers: a log of hours is not read at every look, and some routers tell by the minute."""
    return timedelta(seconds=ports.router(r.cell).capabilities().served_s)


def _kept(r: Rollout, seen: Observation, now: Instant) -> Seen | None:
    if seen.evidence is None or is_lifted(r, seen.split.target_bp) or (r.settled_at is not None and now < r.settled_at):
        return None  # nothing was judged by it
    return seen_of(r.judge, seen.evidence, r.step, r.spec.phases[r.step].guardrails, compared=_comparable(seen.identity))


def _comparable(identity: ArmsIdentity | None) -> bool:
    """Tell whether the guardrails are judged: arms that serve different things get no verdict but the breaker's."""
    return identity is None or not identity.differs


def _checks(r: Rollout, identity: ArmsIdentity | None, ports: TickPorts) -> tuple[CheckSeen, ...]:
    """Return how the checks of both arms stand; nobody is asked where none is needed or the cell goes home."""
    if not r.spec.checks or ports.checks is None or r.ended or r.direction == "home":
        return ()
    return ports.checks.standing(r.cell, r.spec.checks, identity.hash() if identity is not None else r.identity)


def _arms(r: Rollout, ports: TickPorts) -> ArmsIdentity | None:
    """Return what both arms serve; None where nobody tells, the rollout has ended, or a person's word goes before."""
    if ports.identity is None or r.ended or r.direction == "home" or any(o.kind in PERSONS_WORD for o in r.orders):
        return None
    return ports.identity(r.cell).arms(r.cell)


def _source_ready(r: Rollout, evidence: Evidence | None, ports: TickPorts) -> float:
    """Take fresh good baseline answers as proof of the source; else ask it for real completions."""
    if evidence is not None and evidence.baseline_recent >= 3 and 2 * evidence.baseline_recent_errors < evidence.baseline_recent:
        return 1.0
    return ports.prober(r.cell).ready(r.spec.source, r.cell).share


def open_window(windows: Sequence[FreezeWindow], now: Instant) -> Freeze:
    """Return the freeze window that is open at `now`."""
    for w in windows:
        if w.start <= now < w.end:
            return Freeze(active=True, name=w.name, until=w.end)
    return Freeze()


def _apply(r: Rollout, d: Decision, lease: Lease, ports: TickPorts, settings: TickSettings, events: list[Event]) -> FleetctlError | None:
    """Carry out a decision's effects; the one that touches traffic first. Returns what the router refused."""
    now = ports.clock.now()
    for effect in sorted(d.effects, key=lambda e: not isinstance(e, SetSplit)):
        match effect:
            case SetSplit():
                until = now + (FOR_GOOD if d.next.phase == "complete" and d.next.direction == "forward" else r.spec.weight_lease)
                cap = max(r.spec.cap_bp, effect.target_bp)  # only what is being lowered can stand above the cap
                wanted = Split(cell=r.cell, target_bp=effect.target_bp, cap_bp=cap, token=lease.token, lease_until=until)
                done = ports.router(r.cell).set(wanted)
                if isinstance(done, Stale):
                    return TrafficNotApplied("traffic.stale", f"the router of {r.cell} has seen a newer writer (token {done.seen})")
                if effect.target_bp == 0:
                    ports.timed(r.cell, (ports.clock.now() - now) / timedelta(milliseconds=1))
                events += reported(r, now, done, ports.notifier)
            case Hold():
                _say(r, hold(r, effect.pool, settings.minimum.get(effect.pool, 0), lease.token, ports.holds), ports, events)
            case Unhold():
                _say(r, give_back(r, effect.pool, lease.token, ports.holds), ports, events)
            case Warm():
                ports.holds.warm(effect.pool)
            case StartShadow():
                ports.shadow(r.cell).start(r.cell, effect.sample_per_s, lease.token)
            case RunChecks():
                if ports.checks is not None:
                    ports.checks.start(r.cell, effect.checks)
            case StopShadow() | Drain():
                _after_care(r, effect, lease, ports, events)
            case Notify():
                ports.notifier.send(
                    event_of(r, now, f"notify.{effect.level}", effect.text, cause=effect.cause or d.why.code, ended=d.next.ended)
                )
            case _:
                assert_never(effect)
    return None


def _say(r: Rollout, said: Sequence[Said], ports: TickPorts, events: list[Event]) -> None:
    """Put on record what is known of other hands, and tell people once what is not."""
    events.extend(event_of(r, ports.clock.now(), s.kind, s.text) for s in said)
    gaps = [s.text for s in said if s.is_gap]
    if gaps:
        ports.notifier.send(event_of(r, ports.clock.now(), "notify.warning", f"{r.cell}: {'; '.join(gaps)}", cause="hands"))


def _after_care(r: Rollout, effect: StopShadow | Drain, lease: Lease, ports: TickPorts, events: list[Event]) -> None:
    """Do what only tidies up; a failure is reported and never keeps a cell from being home."""
    try:
        if isinstance(effect, Drain):
            ports.router(r.cell).drain(r.cell, effect.pool, lease.token)
        elif r.spec.shadow is not None:
            ports.shadow(r.cell).stop(r.cell)
    except StoreUnavailable:
        raise
    except FleetctlError as e:
        events.append(event_of(r, ports.clock.now(), "traffic.reported", e.message))


def _found_stale(r: Rollout, lease: Lease, split: Stale, ports: TickPorts) -> TickResult:
    """A newer writer was at the router (a return home without the store): hold, page once, touch nothing."""
    text = f"the router of {r.cell} has seen token {split.seen}, ours is {lease.token}. Run: fleetctl fallback --reconcile"
    return _park(r, lease, ports, STALE, text)


def _cannot_act(r: Rollout, lease: Lease, e: FleetctlError, ports: TickPorts) -> TickResult:
    """The router does not answer, or its key or the cell is gone: traffic stays as it is (P9); hold, page once, spare the other cells."""
    return _park(r, lease, ports, e.code, e.message)


def _park(
    r: Rollout, lease: Lease, ports: TickPorts, code: str, text: str, judged: Sequence[Event] = (), look: LookRow | None = None
) -> TickResult:
    """Hold and page once; `judged` and `look` are what this tick has seen all the same."""
    now = ports.clock.now()
    is_new = r.hold_reason not in (code, STALE)  # what a newer writer left is held until a person says so, whatever else fails since
    events = (*judged, event_of(r, now, "rollout.hold", text)) if is_new else tuple(judged)
    parked = replace(r, hold_reason=code) if is_new else r
    if look is None and is_new:
        look = LookRow(cell=r.cell, at=now, phase=r.phase, target_bp=r.weight_bp, served_bp=None, arms={}, verdicts=(), why=text)
    if ports.store.record(lease, replace(r, orders=()), parked, events, timedelta(seconds=1), look) is not None:
        text = f"{text}; another writer took over"
    elif is_new:
        ports.notifier.send(event_of(r, now, "notify.page", f"{r.cell}: {text}", cause=code))
    return TickResult(cell=r.cell, kind="stale" if code == STALE else "failed", why=text, rollout=parked)
