"""Migrate, pure layer: one decision about one cell. Never I/O, clock, randomness; at most one traffic effect per decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.people import Reason, Signal
from fleetctl.domain.rollout import (
    Decision,
    Drain,
    Effect,
    Hold,
    Notify,
    Observation,
    Order,
    Rollout,
    RunChecks,
    SetSplit,
    StopShadow,
    Unhold,
)
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.rollout import lift
from fleetctl.rollout.arms import note_arms, noted
from fleetctl.rollout.checks import unmet
from fleetctl.rollout.gates import Gate, failure, gate, lowest_bp, promoted
from fleetctl.rollout.looks import FINISHED, FINISHED_LEASE, MOVING, SETTLING, look_after
from fleetctl.rollout.lost import BLIND, lost_evidence
from fleetctl.rollout.notices import SOURCE, TARGET, leaving, notice_text, percent_text
from fleetctl.rollout.others import FOREIGN, GUARDED, Against, against, guard_text, resumed
from fleetctl.rollout.proven import NOT_PROVEN, still_out
from fleetctl.rollout.router_faults import ALL_FAIL, BOTH_FAIL, ROUTER, home_cause, home_kind, router_fault
from fleetctl.rollout.steps import begun, enter, from_first, is_above

PROVIDER_CELLS = 3
"""Cells without evidence from which the provider itself is held at fault. Source: design section 7."""

PROVIDER = "evidence.provider"
"""Hold reason of cells whose common source of evidence is at fault; the first of them pages."""
STALE = "stale"
"""Hold reason of a cell whose router has seen a newer writer; latched until a person reconciles or resumes."""
DIFFERS = "identity.differs"
"""Hold reason of a cell whose arms do not serve the same."""
UNSURE = "identity.unsure"
"""Hold reason of a cell of whose arms one has just said something else than before; it is asked again."""
MOST_TOLD = 8
PHASE_ORDER = ("preflight", "shadow", "canary", "ramp", "full", "soak", "complete", "release")


def decide(r: Rollout, seen: Observation, now: Instant) -> Decision:
    """Decide what happens next to a cell.

    Priority: nothing after an end; orders; a FAIL and going home; a newer writer; a notice that the target ends; what others wrote;
    the step's weight; lost evidence; a notice that the source does; the step's gate, then pause, `until` and freeze.

    Args:
        r: the current rollout with its unobeyed orders.
        seen: what was observed in this tick.
        now: time of the observation.

    Returns:
        The next rollout (its orders emptied), effects with at most one SetSplit, the reason, and when to look again.
    """
    decision = _decided(r, seen, now)
    text, mark = guard_text(r, seen, now), f"guard {seen.split.lease_until:%Y%m%dT%H%M%S}"
    if not text or r.hold_reason == STALE or mark in r.arms.told:
        return decision
    told = replace(decision.next.arms, told=(*decision.next.arms.told, mark)[-MOST_TOLD:])
    page = Notify(level="page", text=f"{r.cell}: {text}", cause=GUARDED)
    return replace(decision, next=replace(decision.next, arms=told), effects=(*decision.effects, page))


def _decided(r: Rollout, seen: Observation, now: Instant) -> Decision:
    if r.ended == "complete" and any(o.kind in ("abort", "rollback", "fallback") for o in r.orders):
        r = replace(r, ended="", direction="home", home_for="fallback", orders=())
    if r.ended:
        return _after_end(r, seen, now)
    had_begun = r.settled_at is not None  # else what was gathered of other arms is forgotten by now
    r = _obey(r, now)
    if seen.judge is not None:
        r = replace(r, judge=seen.judge, anew=r.anew and had_begun)
    failed = failure(seen.verdicts)
    if failed is not None and r.direction == "forward":
        r = replace(r, latched=failed, direction="home", hold_reason="")
    if r.direction == "home":
        return _go_home(r, seen, now)
    if r.hold_reason == STALE:
        why = Reason(code=STALE, text="a newer writer was at the router. Run: fleetctl fallback --reconcile")
        return _held(r, seen, why, now, page=False)
    if lift.is_wanted(r):
        return _lifted(r, seen, now)
    ending = leaving(seen.signals, r.spec.target)
    if ending is not None:
        return _leave_target(r, seen, ending, now)
    if r.hold_reason == TARGET:
        return _return_to_target(r, seen, now)
    theirs = against(r, seen, now)
    r = theirs.next
    if theirs.text:
        return _against(r, seen, theirs, now)
    r = note_arms(r, seen.identity)
    if (changed := _identity(r, seen, now)) is not None:
        return changed
    r = noted(r, seen.identity.hash()) if seen.identity is not None and r.arms.sure else r
    if not _is_settled(r, seen):
        return _settle(r, seen, now)
    if (troubled := _trouble(r, seen, now)) is not None:
        return troubled
    ending = leaving(seen.signals, r.spec.source)
    if ending is not None:
        why = Reason(code=SOURCE, text=f"source: {notice_text(ending, now)}; nobody more is sent away from it")
        return _held(replace(r, lost_since=None), seen, why, now, page=True)
    return _at_step(r if r.lost_since is None else replace(r, lost_since=None), seen, now)


def _against(r: Rollout, seen: Observation, theirs: Against, now: Instant) -> Decision:
    """Hold, page once, and set back what may be; customers whose evidence is lost still go home in time."""
    if theirs.set_bp is None and not r.ended and (lost := lost_evidence(r, seen, now)):
        return _without_evidence(r, seen, lost, now)
    held = _told(replace(r, lost_since=None), seen, Reason(code=FOREIGN, text=theirs.text), now, mark=FOREIGN, page=True)
    more: tuple[Effect, ...] = (Hold(pool=r.spec.source),) if theirs.pins_again else ()
    if theirs.set_bp is None:
        return replace(held, effects=held.effects + more)
    return replace(held, effects=(SetSplit(target_bp=theirs.set_bp), *held.effects, *more))


def _lifted(r: Rollout, seen: Observation, now: Instant) -> Decision:
    """Send everybody to the target after two people's word, where the source answers nothing and the target does; then keep it so."""
    if seen.split.target_bp == FULL_BP:
        why = lift.stands(r, seen, now)
        kept = replace(r, weight_bp=FULL_BP, settled_at=None, hold_reason=r.hold_reason if r.hold_reason in lift.LIFTED else lift.LOST)
        return _held(kept, seen, why, now, page=why.code != lift.LOST)
    if refused := lift.refusal(seen):
        return _held(replace(r, lifted_by=()), seen, Reason(code=lift.REFUSED, text=refused), now, page=False)
    return lift.raised(r, seen)


def _identity(r: Rollout, seen: Observation, now: Instant) -> Decision | None:
    """Freeze the weight while the arms do not serve the same; a change of either begins this step's evidence anew. None: nothing to do."""
    if seen.split.target_bp > r.spec.phases[r.step].weight_bp and (r.settled_at is None or is_above(r)):
        return None  # a step lower is never frozen: a person or a rule has ordered it
    if not r.arms.sure:
        text = "an arm answers differently from one time to the next what it serves: asking again, weight frozen"
        return _frozen(r, seen, Reason(code=UNSURE, text=text), now, mark=UNSURE, page=False)
    found = seen.identity
    if found is None:
        return None
    mark = found.hash()
    changed = r.identity not in ("", mark)
    r = noted(r, mark)
    if changed:
        r = replace(r, settled_at=None, step_done=False, promoted=False)
    if found.differs:
        text = f"the arms do not serve the same ({'; '.join(found.differs[:3])}): no verdict, weight frozen"
        why = Reason(code=DIFFERS, text=text)
        return _told(r, seen, why, now, mark=mark, page=True) if changed else _frozen(r, seen, why, now, mark=mark, page=True)
    if changed:
        text = f"{r.phase}: an arm serves something else than before; weight frozen, evidence begins anew"
        return _told(r, seen, Reason(code="identity.changed", text=text), now, mark=mark, page=False)
    return None


def _frozen(r: Rollout, seen: Observation, why: Reason, now: Instant, *, mark: str, page: bool) -> Decision:
    """Hold with the breaker armed, and go home without evidence as any cell does."""
    if r.settled_at is None and _shows(r, seen) and seen.mark is not None:  # the breaker needs a place to begin
        armed = _settle(r, seen, now)
        return replace(armed, next=replace(armed.next, hold_reason=r.hold_reason))
    if r.settled_at is None and _shows(r, seen) and seen.mark is None and seen.split.target_bp > 0:
        return _without_evidence(r, seen, BLIND, now)  # customers are there and nobody could even arm the breaker
    if lost := lost_evidence(r, seen, now):
        return _without_evidence(r, seen, lost, now)
    return _told(replace(r, lost_since=None), seen, why, now, mark=mark, page=page)


def _told(r: Rollout, seen: Observation, why: Reason, now: Instant, *, mark: str, page: bool) -> Decision:
    """Hold, and tell people of each matter once: an arm that goes to and fro is no new one each time."""
    held = _held(r, seen, why, now, page=page)
    if mark in r.arms.told:
        return replace(held, effects=tuple(e for e in held.effects if not isinstance(e, Notify)))
    told = replace(r.arms, told=(*r.arms.told, mark)[-MOST_TOLD:])
    return replace(held, next=replace(held.next, arms=told))


def _obey(r: Rollout, now: Instant) -> Rollout:
    for order in r.orders:
        r = _obey_one(replace(r, orders=()), order, now)
    return replace(r, orders=()) if r.orders else r


def _obey_one(r: Rollout, order: Order, now: Instant) -> Rollout:
    match order.kind:
        case "abort" | "fallback":
            return replace(r, direction="home", home_for=order.kind)
        case "lift":
            return lift.signed(r, order.actor)
        case "rollback" if lift.is_wanted(r):  # a step lower would be a return to a source that nobody has proven
            return replace(r, direction="home", home_for="abort")
        case "rollback":
            lower = [i for i in range(r.step) if 0 < r.spec.phases[i].weight_bp < r.weight_bp]
            if not lower:
                return replace(r, direction="home", home_for="abort")
            return enter(replace(resumed(r), step_done=False, paused=r.paused, until=r.spec.phases[lower[-1]].phase), lower[-1], now)
        case "pause":
            return replace(r, paused=True)
        case "resume":
            if r.hold_reason == STALE:
                return replace(r, hold_reason="")  # a pause stands: reconciling thaws nothing
            if r.foreign or r.hold_reason == FOREIGN:
                return resumed(r)
            return replace(r, paused=False)
        case "promote":
            if r.hold_reason == NOT_PROVEN:  # a person has seen that customers left
                return replace(r, left_at=None, weight_bp=0)
            done = r.step_done or r.phase != "soak"
            return replace(r, step_done=done, paused=False, promoted=True) if r.direction == "forward" else r
        case "advance":
            until = order.until or "complete"
            further = PHASE_ORDER.index(until) > PHASE_ORDER.index(r.until)
            return replace(r, until=until if further else r.until)
        case "retry":
            return r


def _go_home(r: Rollout, seen: Observation, now: Instant) -> Decision:
    """Lower to zero as far as ready source capacity allows, keep the lease of what stays; end once customers are shown to have left."""
    kind, cause = home_kind(r), home_cause(r)
    floor_bp = lowest_bp(seen)
    left_at = r.left_at or (now if r.weight_bp > 0 else None)
    r = replace(r, weight_bp=floor_bp, settled_at=None, left_at=left_at if seen.split.target_bp == 0 else None)
    if seen.split.target_bp == 0:
        if (waits := still_out(r, seen, now)) is not None:
            return waits
        effects: tuple[Effect, ...] = (
            StopShadow(),
            Drain(pool=r.spec.target),
            Unhold(pool=r.spec.source),
            Notify(level="page" if kind in ("rolled_back", "lost_evidence") else "info", text=f"{r.cell} is home: {cause}"),
        )
        done = replace(r, ended=kind, weight_bp=0, hold_reason=cause)
        return Decision(next=done, effects=effects, why=Reason(code=f"home.{kind}", text=f"home: {cause}"), look_again=timedelta(hours=1))
    if floor_bp == seen.split.target_bp:
        text = f"cannot go home: {seen.source_ready or 0:.0%} of the source answers real completions ({cause})"
        why = Reason(code="home.source_not_ready", text=text)
        page = () if r.hold_reason == why.code else (Notify(level="page", text=f"{r.cell} {text}"),)
        return Decision(next=replace(r, hold_reason=why.code), effects=_renewal(r, seen, now) + page, why=why, look_again=MOVING)
    why = Reason(code=f"home.{kind}", text=f"going home: {cause}")
    r = replace(r, left_at=None if floor_bp else now)
    return Decision(next=r, effects=(SetSplit(target_bp=floor_bp),), why=why, look_again=SETTLING)


def _leave_target(r: Rollout, seen: Observation, ending: Signal, now: Instant) -> Decision:
    """Take customers off a target that loses machines, before it does; as far as ready source capacity allows. Nothing has failed."""
    why = Reason(code=TARGET, text=f"target: {notice_text(ending, now)}")
    notice = () if r.hold_reason == TARGET else (Notify(level="page", text=f"{r.cell}: {why.text}; {percent_text(seen.split.target_bp)}"),)
    return _off_target(r, seen, why, notice, now)


def _off_target(r: Rollout, seen: Observation, why: Reason, notice: tuple[Effect, ...], now: Instant) -> Decision:
    """Lower as far as the source can take it, and stand at the first step with customers: whatever overwrites the hold resumes there."""
    floor_bp = lowest_bp(seen)
    r = replace(from_first(r, now), weight_bp=floor_bp, settled_at=None, lost_since=None)
    held = replace(r, step_done=False, promoted=False, hold_reason=TARGET)
    if floor_bp < seen.split.target_bp:
        return Decision(next=held, effects=(SetSplit(target_bp=floor_bp), *notice), why=why, look_again=SETTLING)
    drain: tuple[Effect, ...] = (Drain(pool=r.spec.target),) if notice else ()
    return Decision(next=held, effects=(*_renewal(held, seen, now), *drain, *notice), why=why, look_again=MOVING)


def _after_end(r: Rollout, seen: Observation, now: Instant) -> Decision:
    """Do nothing; but where a finished cell's target loses machines, begin again if a source still stands, else say so once."""
    is_resumed = any(o.kind == "resume" for o in r.orders)
    if r.ended == "complete" and r.foreign and is_resumed:
        return _reopened(r)
    r = replace(r, orders=(), hold_reason="" if is_resumed and r.hold_reason == STALE else r.hold_reason)
    ending = leaving(seen.signals, r.spec.target) if r.ended == "complete" else None
    if ending is None and r.ended == "complete" and (theirs := against(r, seen, now)).text:
        return replace(_against(theirs.next, seen, theirs, now), look_again=FINISHED)
    if ending is None:
        rested = replace(r, hold_reason="") if r.hold_reason == TARGET else r
        return Decision(next=rested, effects=(), why=Reason(code="ended", text=f"ended: {r.ended}"), look_again=FINISHED)
    opened = _leave_target(replace(r, ended="", hold_reason="", orders=()), seen, ending, now)
    if opened.next.weight_bp < seen.split.target_bp:
        return opened
    why = Reason(code=TARGET, text=f"target: {notice_text(ending, now)}; nobody can go home: the source does not answer")
    page = () if r.hold_reason == TARGET or seen.split.target_bp == 0 else (Notify(level="page", text=f"{r.cell}: {why.text}"),)
    return Decision(next=replace(r, hold_reason=TARGET), effects=page, why=why, look_again=timedelta(hours=1))


def _reopened(r: Rollout) -> Decision:
    """Begin the last step of a finished cell anew after a person's word: what others lowered is raised as any weight is, on proof."""
    why = Reason(code="resumed", text=f"{r.phase}: beginning the last step anew, after {r.foreign}")
    again = replace(resumed(r), ended="", step_done=False, promoted=False, orders=())
    return Decision(next=again, effects=(), why=why, look_again=SETTLING)


def _return_to_target(r: Rollout, seen: Observation, now: Instant) -> Decision:
    """Begin again at the first step with customers once every replica of the target answers: its machines may be new ones."""
    if seen.target_ready is None or seen.target_ready < 1.0:
        ready = "is being asked" if seen.target_ready is None else f"answers on {seen.target_ready:.0%} of its replicas"
        return _off_target(r, seen, Reason(code=TARGET, text=f"target {ready}; not sending anybody there"), (), now)
    if r.paused:
        return _off_target(r, seen, Reason(code=TARGET, text="target is whole again; paused"), (), now)
    again = replace(from_first(r, now), settled_at=None, hold_reason="")
    why = Reason(code="notice.over", text=f"target is whole again; beginning again at {again.phase}")
    held = Hold(pool=r.spec.source)  # a split that stays has given its minimum back
    return Decision(next=again, effects=(held,), why=why, look_again=SETTLING)


def _trouble(r: Rollout, seen: Observation, now: Instant) -> Decision | None:
    """Hold or go home where evidence is lost, the router does not do what it was told or a step lower waits for its source."""
    lost = lost_evidence(r, seen, now)
    if lost:
        return _without_evidence(r, seen, lost, now)
    fault = router_fault(r, seen, now)
    if fault is not None and fault.goes_home:
        return _go_home(replace(r, direction="home", home_for=f"{ROUTER}: {fault.text}"), seen, now)
    if fault is not None:
        since = (r.lost_since or now) if fault.code in (BOTH_FAIL, ALL_FAIL) else None
        return _held(replace(r, lost_since=since), seen, Reason(code=fault.code, text=fault.text), now, page=fault.pages)
    return _held(replace(r, lost_since=None), seen, _short(r, seen), now, page=True) if is_above(r) else None


def _without_evidence(r: Rollout, seen: Observation, lost: str, now: Instant) -> Decision:
    since = r.lost_since or (r.since.since if r.since is not None and r.since.since > now else now)
    r = replace(r, lost_since=since)
    waited = now - since
    if seen.providers_lost >= PROVIDER_CELLS:
        why = Reason(code=PROVIDER, text=f"{seen.providers_lost} cells have no evidence: the provider is at fault, holding ({lost})")
        held = _held(r, seen, why, now, page=True)
        if not seen.is_paged:
            return held
        return replace(held, effects=tuple(e for e in held.effects if not isinstance(e, Notify)))  # one page for all cells
    if waited >= r.spec.lost_evidence_home:
        return _go_home(replace(r, direction="home", home_for="lost_evidence"), seen, now)
    left = (r.spec.lost_evidence_home - waited).total_seconds()
    return _held(r, seen, Reason(code="evidence.lost", text=f"holding, {lost}; home in {left:.0f} s"), now, page=False)


def _held(r: Rollout, seen: Observation, why: Reason, now: Instant, *, page: bool) -> Decision:
    is_new = r.hold_reason != why.code
    notice = (Notify(level="page" if page else "warning", text=f"{r.cell}: {why.text}"),) if is_new else ()
    return Decision(next=replace(r, hold_reason=why.code), effects=_renewal(r, seen, now) + notice, why=why, look_again=MOVING)


def _is_settled(r: Rollout, seen: Observation) -> bool:
    """Tell whether the step's weight is shown; or more, while the source can take no more of it."""
    may_go_lower = is_above(r) and max(r.spec.phases[r.step].weight_bp, lowest_bp(seen)) < seen.split.target_bp
    return r.settled_at is not None and _shows(r, seen) and not may_go_lower


def _shows(r: Rollout, seen: Observation) -> bool:
    return seen.split.target_bp == r.weight_bp


def _renewal(r: Rollout, seen: Observation, now: Instant) -> tuple[Effect, ...]:
    """Renew the weight's lease at half its life; only what the router already shows is renewed."""
    shown = seen.split.target_bp
    if shown == 0 or shown > r.weight_bp or seen.split.lease_until - now > r.spec.weight_lease / 2:
        return ()
    return (SetSplit(target_bp=shown),)


def _settle(r: Rollout, seen: Observation, now: Instant) -> Decision:
    """Bring the router to this step's weight; evidence counts from when it shows it."""
    if guard_text(r, seen, now):  # nobody watched the target meanwhile: customers come back to it a few at a time
        r = from_first(r, now)
    phase = r.spec.phases[r.step]
    r = replace(r, weight_bp=phase.weight_bp, lost_since=r.lost_since if seen.split.target_bp else None)
    if not _shows(r, seen):
        if phase.weight_bp > seen.split.target_bp and (held := _may_not_raise(r, seen, now)):
            return held
        to_bp = max(phase.weight_bp, lowest_bp(seen)) if phase.weight_bp < seen.split.target_bp else phase.weight_bp
        r = replace(r, settled_at=None, weight_bp=to_bp)
        if to_bp == seen.split.target_bp:  # judged as it stands: whoever stays there is no less at risk than before
            stands = r if seen.mark is None else begun(r, seen.mark, now)
            return _without_evidence(r, seen, BLIND, now) if seen.mark is None else _held(stands, seen, _short(r, seen), now, page=True)
        why = Reason(code="step.set", text=f"{phase.phase}: setting {to_bp / 100:g} %")
        return Decision(next=r, effects=(SetSplit(target_bp=to_bp),), why=why, look_again=SETTLING)
    if seen.mark is None:
        return _blind(r, seen, now)
    first = phase.weight_bp > 0 and not any(p.weight_bp > 0 for p in r.spec.phases[: r.step])
    begins = now + (r.spec.warm_up if first else timedelta(0))
    deadline = (r.first_settled_at or begins) + phase.bake + r.spec.step_deadline
    first_settled = r.first_settled_at or begins
    settled = replace(begun(r, seen.mark, begins), first_settled_at=first_settled, deadline=deadline, hold_reason="")
    effects: tuple[Effect, ...] = (Hold(pool=r.spec.source),) if phase.phase == "preflight" else ()
    text = f"{phase.phase}: router shows {phase.weight_bp / 100:g} %"
    return Decision(next=settled, effects=effects, why=Reason(code="step.shown", text=text), look_again=SETTLING)


def _short(r: Rollout, seen: Observation) -> Reason:
    text = f"cannot go back to {r.phase}: {seen.source_ready or 0:.0%} of the source answers completions"
    return Reason(code="source.not_ready", text=text)


def _may_not_raise(r: Rollout, seen: Observation, now: Instant) -> Decision | None:
    """Hold a weight that the router lost (a guard, a crash between set and record): a raise needs evidence to be there to judge it."""
    if lost := lost_evidence(r, seen, now):
        return _without_evidence(r, seen, lost, now)
    if seen.window.active:
        return _held(r, seen, Reason(code="freeze", text=f"freeze window {seen.window.name}"), now, page=False)
    if held := _not_ready(r, seen, now):
        return held
    ending = leaving(seen.signals, r.spec.source)
    if ending is not None:
        return _held(r, seen, Reason(code=SOURCE, text=f"source: {notice_text(ending, now)}; not raising"), now, page=True)
    if held := _unchecked(r, seen, now, is_entered=True):
        return held
    if seen.mark is not None:
        return None
    if r.settled_at is not None:
        why = Reason(code="step.lost", text=f"{r.phase}: the router shows {seen.split.target_bp / 100:g} %, not {r.weight_bp / 100:g} %")
        return Decision(next=replace(r, settled_at=None), effects=(), why=why, look_again=SETTLING)
    return _blind(r, seen, now)


def _blind(r: Rollout, seen: Observation, now: Instant) -> Decision:
    """Begin no step that nobody could judge: its evidence needs a place to begin, never the place where the step before began."""
    if seen.split.target_bp > 0:
        return _without_evidence(r, seen, BLIND, now)
    return _held(r, seen, Reason(code="evidence.lost", text=f"{BLIND}; not raising"), now, page=False)


def _not_ready(r: Rollout, seen: Observation, now: Instant) -> Decision | None:
    """Hold a raise while a replica of either side is known not to answer real completions."""
    if seen.source_ready is not None and seen.source_ready < 1.0:
        text = f"source answers on {seen.source_ready:.0%} of its replicas; not raising above what can come home"
        return _held(r, seen, Reason(code="source.not_ready", text=text), now, page=True)
    if seen.target_ready is not None and seen.target_ready < 1.0:
        text = f"target answers on {seen.target_ready:.0%} of its replicas; not raising"
        return _held(r, seen, Reason(code="target.not_ready", text=text), now, page=True)
    return None


def _unchecked(r: Rollout, seen: Observation, now: Instant, *, is_entered: bool = False) -> Decision | None:
    """Hold a raise while a check of both arms does not stand, and begin those that are due."""
    found = unmet(r, seen, is_entered=is_entered)
    if found is None:
        return None
    run: tuple[Effect, ...] = (RunChecks(checks=found.run),) if found.run else ()
    if found.is_waiting:
        return Decision(next=replace(r, hold_reason=""), effects=_renewal(r, seen, now) + run, why=found.why, look_again=MOVING)
    held = _held(r, seen, found.why, now, page=True)
    return replace(held, effects=held.effects + run)


def _at_step(r: Rollout, seen: Observation, now: Instant) -> Decision:
    verdict = promoted(r, now) if r.promoted else gate(r, seen, now)
    renewal = _renewal(r, seen, now)
    effects = renewal + verdict.effects
    phase = r.phase
    look = look_after(r, seen)
    if not verdict.open:
        if r.deadline is not None and now > r.deadline:
            other = f"; {r.spec.other_lane}" if r.spec.other_lane and phase not in ("preflight", "shadow") else ""
            why = Reason(code="step.inconclusive", text=f"{phase}: INCONCLUSIVE, {verdict.why}{other}")
            told = _told(r, seen, why, now, mark=f"{r.step} {r.deadline:%Y%m%dT%H%M%S}", page=False)
            return replace(told, look_again=look)  # it may wait for a person for weeks: looks go on as at any step
        waits = replace(r, hold_reason="") if r.hold_reason else r
        return Decision(next=waits, effects=effects, why=Reason(code="step.wait", text=f"{phase}: {verdict.why}"), look_again=look)
    if r.step + 1 >= len(r.spec.phases):
        done = replace(r, ended="complete", step_done=True)
        text = f"all of {r.cell}{f' ({r.spec.part})' if r.spec.part else ''} is on {r.spec.target}"
        back: tuple[Effect, ...] = (Unhold(pool=r.spec.source),) if r.spec.stays_split else ()  # else only `release` ends the way home
        news = text if r.spec.stays_split else f"{text}; {r.spec.source} is held as the way home until: fleetctl release {r.spec.source}"
        shown = seen.split.target_bp
        for_good = () if renewal or seen.split.lease_until - now > FINISHED_LEASE else (SetSplit(target_bp=shown),)  # nobody renews it now
        ends: tuple[Effect, ...] = (*for_good, *effects, StopShadow(), *back, Notify(level="info", text=news))
        return Decision(next=done, effects=ends, why=Reason(code="complete", text=text), look_again=FINISHED)
    onward = _advance(r, seen, now, verdict, renewal)
    has_copies = phase == "shadow" and r.spec.shadow is not None  # they have told what they had to tell, whether it goes on at once or not
    return replace(onward, effects=(*onward.effects, StopShadow())) if has_copies else onward


def _advance(r: Rollout, seen: Observation, now: Instant, verdict: Gate, renewal: tuple[Effect, ...]) -> Decision:
    following = r.spec.phases[r.step + 1]
    passed = replace(r, step_done=True)
    if r.paused:
        why = Reason(code="paused", text=f"{r.phase}: paused; {verdict.why}")
        return Decision(next=passed, effects=renewal, why=why, look_again=look_after(r, seen))
    if PHASE_ORDER.index(following.phase) > PHASE_ORDER.index(r.until):
        why = Reason(code="step.done", text=f"{r.phase}: done ({verdict.why}); going no further than asked")
        return Decision(next=passed, effects=renewal, why=why, look_again=look_after(r, seen))
    if seen.window.active:
        frozen = _held(passed, seen, Reason(code="freeze", text=f"freeze window {seen.window.name}"), now, page=False)
        return replace(frozen, look_again=look_after(r, seen))
    raised = min(following.weight_bp, r.spec.cap_bp)
    if raised > seen.split.target_bp and (held := _not_ready(passed, seen, now) or _unchecked(passed, seen, now)):
        return held
    entered = replace(enter(r, r.step + 1, now), shown=(*r.shown, r.step) if _was_shown(r) else r.shown)
    effects: tuple[Effect, ...] = (SetSplit(target_bp=raised),) if raised != seen.split.target_bp else ()
    why = Reason(code="step.advance", text=f"{r.phase} done ({verdict.why}); next {following.phase} at {raised / 100:g} %")
    return Decision(next=entered, effects=effects, why=why, look_again=SETTLING)


def _was_shown(r: Rollout) -> bool:
    """Tell whether this step ends on a PASS of evidence, not on a person's word or a signature."""
    return not r.promoted and r.spec.lane.kind != "accepted" and r.spec.phases[r.step].weight_bp > 0
