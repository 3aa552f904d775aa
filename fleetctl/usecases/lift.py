"""Coming home, use-case layer: lift a cell's cap while its source is dead; two people besides whoever asked sign. Imports no adapter.

The order that comes of it is obeyed by the next tick, which looks itself that no replica of the source answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from fleetctl.domain.cap_lift import SIGNATURES, CapLift
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval
from fleetctl.domain.rollout import Order, Rollout
from fleetctl.domain.units import FULL_BP
from fleetctl.errors import FleetctlError, PlanStale
from fleetctl.ports.state import Clock, Records, Store
from fleetctl.ports.traffic import Prober
from fleetctl.rollout.lift import is_wanted
from fleetctl.usecases.proof import Given, Proof, claim, given, refuse_own, signed_by_me, told

ASKED_FOR = timedelta(minutes=15)
"""How long a wish may be signed: a source that was dead then says nothing of one an hour later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftPorts:
    """All that lifting a cap touches."""

    store: Store
    records: Records
    clock: Clock
    actor: Actor
    prober: Callable[[CellId], Prober]
    proof: Proof


def ask_lift(c: CellId, fleet: Fleet, ports: LiftPorts, reason: str) -> CapLift:
    """Put a wish on record, signed by whoever asks, so that two others can sign it; changes no traffic.

    Raises:
        PlanStale: lift.not_declared, lift.not_planned, lift.unsigned, lift.source_answers, lift.nothing, lift.failed.
    """
    r = _liftable(c, fleet, ports)
    now = ports.clock.now()
    wish = CapLift(cell=c, plan=r.plan, attempt=r.attempt, asked_by=ports.actor, at=now, until=now + ASKED_FOR, reason=reason)
    ports.records.put(wish.id, wish)
    author = claim(wish.id, wish.digest, fleet, ports.records, ports.proof, ports.actor)
    data = {"lift": wish.id, "digest": wish.digest, "author": author}
    text = reason or "no reason given"
    ports.store.append((Event(at=now, kind="lift.asked", actor=ports.actor, text=text, cell=c, data=data),))
    return wish


def sign_lift(id_: str, fleet: Fleet, ports: LiftPorts, note: str = "") -> tuple[CapLift, int]:
    """Sign one wish with this person's key; with the second signature that counts the order goes to the ticker.

    Returns:
        The wish, and how many more must sign.

    Raises:
        PlanStale: lift.missing, lift.expired, lift.changed, approve.author, and all of `ask_lift`; CredentialsMissing: approve.*.
    """
    wish = open_lift(id_, ports)
    r = _liftable(wish.cell, fleet, ports)
    if (r.plan, r.attempt) != (wish.plan, wish.attempt):
        raise PlanStale("lift.changed", f"{wish.cell} has begun anew since lift {id_} was asked for.", hint=_again(wish))
    now = ports.clock.now()
    draft = Approval(
        plan=wish.id,
        plan_digest=wish.digest,
        actor=ports.actor,
        at=now,
        note=note,
        serial=fleet.serial,
        cells=(wish.cell,),
        until=wish.until,
    )
    own = signed_by_me(draft, ports.proof)
    if own.actor.name in given_for(wish, fleet, ports).authors:
        refuse_own(f"lift {id_}", own.actor.name, id_)
    ports.records.put(f"{wish.id}-{own.actor.name}", own)
    ports.store.append((told(own, "lift.signed", f"{wish.cell}", lift=wish.id),))
    found = given_for(wish, fleet, ports)
    if not found.missing:
        for name in found.people:  # the rollout counts people by the name that their key proves
            person = replace(own.actor, name=name)
            ports.store.order(wish.cell, Order(kind="lift", actor=person, at=ports.clock.now(), note=f"lift {wish.id}, signed by {name}"))
    return wish, found.missing


def open_lift(id_: str, ports: LiftPorts) -> CapLift:
    """Return a wish that can be signed. Raises PlanStale (lift.missing, lift.expired)."""
    wish = ports.records.get(CapLift, id_)
    if wish is None or wish.id != id_:
        raise PlanStale("lift.missing", f"nobody asked for lift {id_[:70]!r}.", hint="Run: fleetctl promote CELL --lift-cap")
    if ports.clock.now() >= wish.until:
        raise PlanStale("lift.expired", f"lift {id_} could be signed until {wish.until:%Y-%m-%d %H:%M} UTC.", hint=_again(wish))
    return wish


def given_for(wish: CapLift, fleet: Fleet, ports: LiftPorts) -> Given:
    """Return whose signature of a wish counts, by the policy of two."""
    policy = replace(fleet.policy, approvals=SIGNATURES)
    return given(wish.id, wish.digest, policy, ports.records, ports.proof, author=wish.asked_by.name)


def became(r: Rollout) -> str:
    """Say what became of a signed wish, from the rollout that has obeyed its order."""
    if r.ended or r.direction == "home":
        return r.ended.replace("_", " ") or "going home: the cap stands"
    if is_wanted(r):
        return f"the cap is lifted, {r.hold_reason}" if r.weight_bp == FULL_BP else f"the cap is not lifted yet, {r.hold_reason}"
    if r.spec.on_source_loss != "lift_after_two_signatures":
        return f"the cap stands: its plan says {r.spec.on_source_loss}"
    return f"the cap stands, {r.hold_reason or 'refused'}: fleetctl audit list {r.cell} says why"


def _liftable(c: CellId, fleet: Fleet, ports: LiftPorts) -> Rollout:
    """Return the rollout of a cell whose cap may be lifted now."""
    if fleet.cell(c).on_source_loss != "lift_after_two_signatures":
        text = f"{c} declares on_source_loss: {fleet.cell(c).on_source_loss}, so its cap stands whatever happens to its source."
        raise PlanStale("lift.not_declared", text, hint="For the next time set lift_after_two_signatures in the fleet file")
    if not fleet.policy.require_signatures:
        text = "names are not proven here, and lifting a cap needs two people's signatures."
        raise PlanStale("lift.unsigned", text, hint="Set policy.require_signatures in the fleet file")
    r = ports.store.load(c)
    if r is None or r.ended or r.weight_bp == 0:
        raise PlanStale("lift.nothing", f"{c} has nobody on its target, so there is no cap to lift.", hint="Run: fleetctl status")
    if r.spec.on_source_loss != "lift_after_two_signatures":  # what was planned binds, whatever the fleet file says since
        text = f"{c} moves under plan {r.plan}, which says on_source_loss: {r.spec.on_source_loss}, so its cap stands."
        raise PlanStale("lift.not_planned", text, hint=f"To go home: fleetctl fallback {c}")
    if r.direction == "home":
        raise PlanStale("lift.failed", f"{c} is going home, and its target gets nobody more.", hint=f"Run: fleetctl runbook show {c}")
    try:
        answers = ports.prober(c).ready(r.spec.source, c).ready
    except FleetctlError:
        answers = 0
    if answers:
        text = f"{answers} replicas of {r.spec.source} answer real completions, so the source of {c} is not dead."
        raise PlanStale("lift.source_answers", text, hint=f"To go home: fleetctl fallback {c}")
    return r


def _again(wish: CapLift) -> str:
    return f"Ask again: fleetctl promote {wish.cell} --lift-cap"
