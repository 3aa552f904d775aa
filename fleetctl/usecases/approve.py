"""Approve, use-case layer: a person's yes to exactly one plan. Never imports an adapter."""

from __future__ import annotations

from fleetctl.domain.canonical import digest
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval, Plan
from fleetctl.errors import PlanStale
from fleetctl.ports.state import Clock, Records, Store
from fleetctl.usecases.migrate import require_current


def approvable(plan_id: str, fleet: Fleet, records: Records) -> Plan:
    """Return the plan that may be approved.

    Raises:
        PlanStale: plan.missing, plan.stale.
    """
    plan = records.get(Plan, plan_id)
    if plan is None:
        raise PlanStale("plan.missing", f"there is no plan {plan_id}.", hint="Run: fleetctl plan")
    require_current(plan, fleet)
    return plan


def approve(
    plan_id: str, fleet: Fleet, records: Records, store: Store, clock: Clock, actor: Actor, note: str
) -> tuple[Plan, Approval, int]:
    """Record a person's approval of a plan.

    Returns:
        The plan, the approval, and how many more people the policy asks for.

    Raises:
        PlanStale: plan.missing, plan.stale.
    """
    plan = approvable(plan_id, fleet, records)
    given = [a for a in records.all(Approval) if a.plan == plan.id]
    mine = next((a for a in given if a.actor.name == actor.name and a.plan_digest == digest(plan)), None)
    approval = mine or Approval(plan=plan.id, plan_digest=digest(plan), actor=actor, at=clock.now(), note=note)
    if mine is None:
        records.put(f"{plan.id}-{actor.name}", approval)
        event = Event(
            at=approval.at, kind="plan.approved", actor=actor, text=f"plan {plan.id} approved", data={"digest": approval.plan_digest}
        )
        store.append((event,))
    people = {a.actor.name for a in given} | {actor.name}
    return plan, approval, max(0, fleet.policy.approvals - len(people))
