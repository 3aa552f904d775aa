"""Approve, use-case layer: whose yes counts. With signatures the key says who it was; without, the name is what the terminal said.

A second person is never the author. Who made a plan is proven by their signature of it; where it is not, one more person must sign,
since one of the signers may have made it. Coming home asks nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NoReturn

from fleetctl.domain.canonical import canonical, digest
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet, Policy
from fleetctl.domain.ids import PlanId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval, Plan
from fleetctl.domain.rebalance import StandingApproval
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError, PlanStale
from fleetctl.ports.people import Signatures
from fleetctl.ports.state import Clock, Records
from fleetctl.rebalance.hold import refused as standing_refused

HOLDS_FOR = timedelta(days=14)
"""How long a signed approval may be begun upon, where nothing else is said."""
NAMES_NOT_PROVEN = "Names are not proven: they are what each terminal said. To prove them: policy.require_signatures in the fleet file."


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What proves a name: the signatures of the project, and the time."""

    signatures: Signatures
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Whose yes to one thing counts.

    Args:
        people: names, each once; needed: how many must say yes; authors: whose yes does not count, proven where the policy asks for that.
        refused: "name: why" of each yes that does not count.
    """

    people: tuple[str, ...]
    needed: int
    authors: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """How many more must say yes."""
        return max(0, self.needed - len(self.people))


def statement(a: Approval) -> bytes:
    """Return the bytes that are signed: plan, digest, cells, serial, person, time and end of an approval, in the one encoding."""
    return canonical(replace(a, signature=""))


def given(about: str, mark: Sha256, policy: Policy, records: Records, proof: Proof | None, *, author: str = "") -> Given:
    """Return whose yes to a plan, a release or a standing approval counts.

    Args:
        about: its id; mark: its digest; author: whose yes never counts where names are not proven.
    """
    all_ = [a for a in records.all(Approval) if a.plan == about and a.plan_digest == mark]
    if not policy.require_signatures:
        made = {a.actor.name for a in all_ if a.role == "author"}
        named = sorted({a.actor.name for a in all_ if a.role == "approves"} - made - {author})
        return Given(people=tuple(named), needed=policy.approvals, authors=tuple(sorted(made)))
    authors, unproven = _proven([a for a in all_ if a.role == "author"], proof, ends=False)
    people, refused = _proven([a for a in all_ if a.role == "approves" and not a.standing], proof)
    own = tuple(f"{name}: made it, and is no second person" for name in sorted(people & authors))
    needed = max(1, policy.approvals) + (not authors)
    return Given(people=tuple(sorted(people - authors)), needed=needed, authors=tuple(sorted(authors)), refused=(*unproven, *refused, *own))


def _proven(all_: Iterable[Approval], proof: Proof | None, *, ends: bool = True) -> tuple[set[str], tuple[str, ...]]:
    """Return the names whose signature holds now, and why each other one does not."""
    found: set[str] = set()
    refused = []
    for a in all_:
        why = unproven(a, proof, None if proof is None else proof.clock.now(), ends=ends)
        if why:
            refused.append(f"{a.actor.name}: {why}")
        else:
            found.add(a.actor.name)
    return found, tuple(refused)


def unproven(a: Approval, proof: Proof | None, at: Instant | None, *, ends: bool = True) -> str:
    """Return why an approval's signature does not hold at a moment, "" where it does."""
    if proof is None or at is None:
        return "nothing here can check signatures"
    if not a.signature:
        return "it is not signed"
    if ends and a.until is not None and at >= a.until:
        return f"it ended on {a.until:%Y-%m-%d %H:%M} UTC"
    if ends and a.until is None:
        return "it says no end"
    return proof.signatures.refused(statement(a), a.signature, a.actor.name, at)


def of_plan(plan: Plan, fleet: Fleet, records: Records, proof: Proof | None) -> Given:
    """Return whose yes to a plan counts; a plan that a schedule made may stand under signed terms."""
    found = given(plan.id, digest(plan), fleet.policy, records, proof)
    if not fleet.policy.require_signatures:
        return found
    names = {a.standing for a in records.all(Approval) if a.plan == plan.id and a.plan_digest == digest(plan) and a.standing}
    refused = found.refused
    for name in sorted(names):
        why, people = _standing(name, plan, fleet, records, proof)
        if not why:
            return Given(people=people, needed=len(people))
        refused = (*refused, f"{name}: {why}")
    return replace(found, refused=refused)


def _standing(name: str, plan: Plan, fleet: Fleet, records: Records, proof: Proof | None) -> tuple[str, tuple[str, ...]]:
    """Return why a plan does not stand under a standing approval ("" where it does), and who signed that."""
    terms = records.get(StandingApproval, name)
    if terms is None or proof is None:
        return "there is no such standing approval", ()
    signed = of_standing(terms, fleet, records, proof)
    why = standing_refused(terms, fleet, proof.clock.now())
    moves = [o for o in plan.outcomes if o.kind == "move" and not o.arrived]
    if why or signed.missing:
        return why or f"{len(signed.people)} of {signed.needed} people signed it", ()
    if len(moves) > terms.moves:
        return f"{len(moves)} cells would move, {terms.moves} may", ()
    other = [o.cell for o in moves if fleet.workload(o.workload).klass not in terms.classes]
    return (f"{other[0]} is of no class that may move" if other else ""), signed.people


def of_standing(terms: StandingApproval, fleet: Fleet, records: Records, proof: Proof | None) -> Given:
    """Return whose signature of a standing approval counts: of those only who signed since it was last withdrawn."""
    found = given(terms.id, digest(bare(terms)), fleet.policy, records, proof)
    signed = {actor.name for actor, _ in terms.signed}
    return replace(found, people=tuple(name for name in found.people if name in signed))


def bare(terms: StandingApproval) -> StandingApproval:
    """Return the envelope alone, which is what a person signs."""
    return replace(terms, id="", signed=(), withdrawn=False)


def signed_by_me(a: Approval, proof: Proof | None) -> Approval:
    """Return an approval under the name of this person's key, signed.

    Raises:
        CredentialsMissing: approve.no_key, approve.unknown_key, approve.unsigned; PlanStale: approve.signature (the key may not sign now).
    """
    if proof is None:
        raise PlanStale("approve.signature", "nothing here can sign.", hint="Run: fleetctl doctor")
    name = proof.signatures.me()
    own = replace(a, actor=Actor(kind="person", name=name, via=a.actor.via))
    own = replace(own, signature=proof.signatures.sign(statement(own)))
    why = proof.signatures.refused(statement(own), own.signature, name, own.at)
    if why:
        raise PlanStale("approve.signature", f"{name}'s signature would not count: {why}.", hint="Run: fleetctl doctor")
    return own


def claim(about: PlanId, mark: Sha256, fleet: Fleet, records: Records, proof: Proof | None, actor: Actor) -> str:
    """Sign as the author of a plan or a release, where the policy asks for signatures.

    Returns:
        the author's name; "" where the key cannot say it, which costs one more signature.
    """
    if not fleet.policy.require_signatures or proof is None:
        return ""
    draft = Approval(plan=about, plan_digest=mark, actor=actor, at=proof.clock.now(), role="author", serial=fleet.serial)
    try:
        own = signed_by_me(draft, proof)
    except FleetctlError:
        return ""
    records.put(f"{about}-author-{own.actor.name}", own)
    return own.actor.name


def note_author(about: PlanId, mark: Sha256, fleet: Fleet, records: Records, actor: Actor, at: Instant) -> None:
    """Put on record who made a plan, where names are not proven: their own yes does not count. A schedule is nobody's second person."""
    if not fleet.policy.require_signatures and actor.kind == "person":
        made = Approval(plan=about, plan_digest=mark, actor=actor, at=at, role="author", serial=fleet.serial)
        records.put(f"{about}-author-{actor.name}", made)


def told(a: Approval, kind: str, text: str, **data: str) -> Event:
    """Return the event of an approval; with the digest of the signed record, so that one which is put in its place is found."""
    more = {"statement": digest(a), "signed": "ssh"} if a.signature else {}
    return Event(at=a.at, kind=kind, actor=a.actor, text=text, data={"digest": a.plan_digest, **data, **more})


def refuse_own(what: str, name: str, id_: str, *, alone: bool = False) -> NoReturn:
    """Refuse an author's own yes; alone: a policy of one person is offered. Raises PlanStale (approve.author)."""
    text = f"{name} made {what}; its second person is somebody else."
    hint = f"Somebody else: fleetctl approve {id_}" + (". Who works alone sets policy.approvals: 0 and plans again" if alone else "")
    raise PlanStale("approve.author", text, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturesCheck:
    """What checking every kept signature came to.

    Args:
        signed: that hold at the time they were made; unsigned: approvals by names that are not proven; faults: "approval: why".
    """

    signed: int = 0
    unsigned: int = 0
    faults: tuple[str, ...] = ()


def check_signatures(records: Records, events: Iterable[Event], proof: Proof) -> SignaturesCheck:
    """Check every approval as it was when it was given, and that the log tells of it."""
    said = {str(e.data["statement"]) for e in events if "statement" in e.data}
    signed = unsigned = 0
    faults = []
    for a in records.all(Approval):
        if not a.signature:
            unsigned += not a.standing and a.role == "approves"
            continue
        why = unproven(a, proof, a.at, ends=False)
        if not why and a.role == "approves" and digest(a) not in said:
            why = "the log tells of no such approval"
        signed += not why
        if why:
            faults.append(f"{a.plan} by {a.actor.name}: {why}")
    return SignaturesCheck(signed=signed, unsigned=unsigned, faults=tuple(faults))
