"""Rebalance, use-case layer: standing approvals, and beginning what a run proposes under one. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fleetctl.domain.canonical import digest
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PlanId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval, Plan
from fleetctl.domain.rebalance import RebalanceRun, StandingApproval
from fleetctl.domain.rollout import Order
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import LeaseHeld, PlanStale
from fleetctl.ports.state import Held, Lease, Lost, Records, Store
from fleetctl.rebalance.hold import refused
from fleetctl.usecases.budget import ask_budget
from fleetctl.usecases.migrate import approved_plan, begin, chosen_cells
from fleetctl.usecases.plan import PlanPorts
from fleetctl.usecases.proof import Proof, bare, of_standing, signed_by_me, told
from fleetctl.usecases.rebalance import SCOPE, TTL, Proposal

TIMER = Actor(kind="schedule", name="rebalance", via="timer")
"""Who begins moves under a standing approval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a run began: the record of it, cells on the ordinary path, cells ordered home."""

    run: RebalanceRun
    cells: tuple[CellId, ...]
    home: tuple[CellId, ...]


def sign(
    terms: StandingApproval, fleet: Fleet, records: Records, store: Store, actor: Actor, now: Instant, proof: Proof | None = None
) -> tuple[StandingApproval, int]:
    """Put a person's name under a standing approval; the same terms signed again by somebody else are the same approval.

    Args:
        proof: signs with the person's key where the policy asks for signatures.

    Returns:
        the approval, and how many more people the policy asks for.

    Raises:
        CredentialsMissing: approve.*; PlanStale: approve.signature.
    """
    envelope = bare(terms)
    name = f"s{digest(envelope)[:11]}"
    own = None
    if fleet.policy.require_signatures:
        last = datetime.fromisoformat(terms.until).replace(tzinfo=UTC) + timedelta(days=1)
        draft = Approval(plan=PlanId(name), plan_digest=digest(envelope), actor=actor, at=now, serial=fleet.serial, until=last)
        own = signed_by_me(draft, proof)
        actor = own.actor
    known = records.get(StandingApproval, name)
    signed = known.signed if known is not None and not known.withdrawn else ()
    if actor.name not in {a.name for a, _ in signed}:
        signed = (*signed, (actor, now))
    made = replace(envelope, id=name, signed=signed)
    if own is not None:
        records.put(f"{name}-{actor.name}", own)
        store.append((told(own, "standing.approved", f"{actor.name} signed {name}", standing=name),))
    if made != known:
        records.put(name, made)
        text = f"{actor.name} signed {name}: {made.moves} cells in {made.window}, until {made.until}"
        store.append((Event(at=now, kind="standing.signed", actor=actor, text=text, data={"standing": name}),))
    more = of_standing(made, fleet, records, proof).missing
    return made, more if own is not None else max(0, fleet.policy.approvals - len({a.name for a, _ in signed}))


def withdraw(name: str, records: Records, store: Store, actor: Actor, now: Instant) -> StandingApproval:
    """Take a standing approval back; one person is enough.

    Raises:
        PlanStale: rebalance.no_standing, no such approval.
    """
    known = records.get(StandingApproval, name)
    if known is None:
        raise PlanStale("rebalance.no_standing", f"there is no standing approval {name}.", hint="Run: fleetctl rebalance --approve")
    gone = replace(known, withdrawn=True)
    records.put(name, gone)
    store.append((Event(at=now, kind="standing.withdrawn", actor=actor, text=f"{name} was withdrawn", data={"standing": name}),))
    return gone


def standing_approval(records: Records, fleet: Fleet, name: str, now: Instant, proof: Proof | None = None) -> StandingApproval:
    """Return the named standing approval, or the newest one that holds.

    Raises:
        PlanStale: rebalance.no_standing: none holds, with the reason.
    """
    found = [s for s in reversed(records.all(StandingApproval)) if name in ("", s.id)]
    why = ""
    for s in found:
        reason = refused(s, fleet, now)
        if not reason and fleet.policy.require_signatures:
            signed = of_standing(s, fleet, records, proof)
            reason = "; ".join((f"{len(signed.people)} of {signed.needed} people signed it with their keys", *signed.refused))
            reason = reason if signed.missing else ""
        if not reason:
            return s
        why = why or f"{s.id}: {reason}"
    text = f"no standing approval holds ({why})." if why else f"there is no standing approval{' ' + name if name else ''}."
    raise PlanStale("rebalance.no_standing", text, hint="Run: fleetctl rebalance --approve")


def take_lease(store: Store, holder: str, is_gone: Callable[[str], bool]) -> Lease:
    """Be the only run.

    Raises:
        LeaseHeld: rebalance.running.
    """
    got = store.acquire(SCOPE, holder, TTL)
    if isinstance(got, Held) and is_gone(got.holder):
        store.evict(got)
        got = store.acquire(SCOPE, holder, TTL)
    if isinstance(got, Held):
        text = f"{got.holder} is rebalancing, until {got.until:%H:%M:%S} UTC at most."
        raise LeaseHeld("rebalance.running", text, hint="Wait for it, then run the same command again")
    return got


def keep_lease(store: Store, lease: Lease) -> Lease:
    """Be still the only run, though making the pools took long; a lease that ran out is taken again where nobody had it meanwhile.

    Raises:
        LeaseHeld: rebalance.running.
    """
    renewed = store.renew(lease, TTL)
    if not isinstance(renewed, Lost):
        return renewed
    got = store.acquire(SCOPE, lease.holder, TTL)
    if isinstance(got, Lease) and got.token == lease.token + 1:  # each acquisition counts one: nobody was there in between
        return got
    if isinstance(got, Lease):
        store.release(got)
    text = "this run took longer than its lease, and another one began meanwhile; this one began nothing."
    raise LeaseHeld("rebalance.running", text, hint="Run the same command again")


def settle(records: Records, store: Store, now: Instant) -> tuple[RebalanceRun, ...]:
    """Correct the record of runs that died while they began their moves: what never began is not counted; what did goes on by itself.

    Returns:
        the corrected runs, () where none died.
    """
    mended = []
    for run in records.all(RebalanceRun):
        if not run.open:
            continue
        began = tuple(c for c in run.begun if _has_begun(c, run, store))
        mended.append(replace(run, begun=began, open=False))
        records.put(run.id, mended[-1])
        text = f"{run.id} died while it began; {len(began)} of {len(run.begun)} had begun"
        data: dict[str, Scalar] = {"run": run.id, "plan": run.plan, "begun": len(began), "standing": run.standing}
        store.append((Event(at=now, kind="rebalance.run", actor=TIMER, text=text, data=data),))
    return tuple(mended)


def _has_begun(cell: CellId, run: RebalanceRun, store: Store) -> bool:
    r = store.load(cell)
    if r is None:
        return False
    home = any(s.cell == cell and s.order == "home" for s in run.shifts)
    return r.ended != "complete" or any(o.kind == "fallback" for o in r.orders) if home else r.plan == run.plan


def save(proposal: Proposal, fleet: Fleet, ports: PlanPorts, approval: StandingApproval) -> Plan | None:
    """Save the plan of a run, approved by everybody who signed the standing approval; nothing where nothing is to move."""
    plan, now = proposal.plan, ports.clock.now()
    if plan is None:
        held = f", {len(proposal.run.held)} held back" if proposal.run.held else ""
        ports.store.append((Event(at=now, kind="rebalance.run", actor=TIMER, text=f"nothing to move{held}", data={"begun": 0}),))
        return None
    ports.records.put(plan.id, plan)
    data = {"digest": digest(plan), "standing": approval.id}
    events = [Event(at=now, kind="plan.made", actor=TIMER, text=f"plan {plan.id} of serial {plan.serial}, to rebalance", data=data)]
    for person, _ in approval.signed:
        note = f"under standing approval {approval.id}"
        actor = replace(TIMER, name=person.name)
        yes = Approval(plan=plan.id, plan_digest=digest(plan), actor=actor, at=now, note=note, standing=approval.id)
        ports.records.put(f"{plan.id}-{person.name}", yes)
        events.append(Event(at=now, kind="plan.approved", actor=actor, text=f"plan {plan.id} approved {note}", data=data))
    ports.store.append(events)
    return plan


def begin_run(proposal: Proposal, fleet: Fleet, ports: PlanPorts, approval: StandingApproval) -> Begun:
    """Begin the first wave of a saved run, and send home what returns; the record is written first, so that moves are never uncounted.

    Making the pools may have taken hours: all that the run rests on is looked at again.

    Args:
        fleet: as the fleet file is now.

    Raises:
        PlanStale: rebalance.no_standing: the approval was withdrawn or has ended; plan.stale: the fleet has changed.
        StillPending, PlanStale: as `fleetctl.usecases.migrate.begin`.
    """
    plan, store = proposal.plan, ports.store
    standing_approval(ports.records, fleet, approval.id, ports.clock.now(), ports.proof)
    cells = chosen_cells(approved_plan(ports.records, fleet, plan.id, ports.proof), store, ()) if plan is not None and plan.waves else ()
    home = tuple(c for c in proposal.home if (r := store.load(c)) is not None and r.ended == "complete")  # nobody has begun it anew since
    if plan is not None:
        ask_budget(plan.id, cells, store, ports.budget)
    run = replace(proposal.run, begun=(*cells, *home), standing=approval.id, open=True)
    ports.records.put(run.id, run)
    if plan is not None and cells:
        begin(plan, fleet, cells, "complete", store, ports.clock, TIMER)
    for c in home:
        store.order(c, Order(kind="fallback", actor=TIMER, at=ports.clock.now(), note=f"rebalance {run.id}"))
    run = replace(run, open=False)
    ports.records.put(run.id, run)
    text = f"{run.id}: {len(cells)} cells begin, {len(home)} go home, under {approval.id}"
    data: dict[str, Scalar] = {"run": run.id, "plan": run.plan, "begun": len(run.begun), "standing": approval.id}
    store.append((Event(at=ports.clock.now(), kind="rebalance.run", actor=TIMER, text=text, data=data),))
    return Begun(run=run, cells=tuple(cells), home=home)
