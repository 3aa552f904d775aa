"""Approve, use-case layer: a person's yes to exactly one plan. Never imports an adapter."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.domain.canonical import digest
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval, Plan
from fleetctl.errors import PlanStale
from fleetctl.ports.state import Clock, Records, Store
from fleetctl.usecases.migrate import require_current, require_unchanged
from fleetctl.usecases.proof import HOLDS_FOR, Proof, of_plan, refuse_own, signed_by_me, told, unproven


def approvable(plan_id: str, fleet: Fleet, records: Records) -> Plan:
    """Return the plan that may be approved.

    Raises:
        PlanStale: plan.missing, plan.stale, plan.changed.
    """
    plan = records.get(Plan, plan_id)
    if plan is None:
        raise PlanStale("plan.missing", f"there is no plan {plan_id}.", hint="Run: fleetctl plan")
    require_current(plan, fleet)
    require_unchanged(plan)
    return plan


def approve(
    plan_id: str,
    fleet: Fleet,
    records: Records,
    store: Store,
    clock: Clock,
    actor: Actor,
    note: str,
    proof: Proof | None = None,
    holds_for: timedelta = HOLDS_FOR,
) -> tuple[Plan, Approval, int]:
    """Record a person's approval of a plan; by their key where the policy asks for signatures.

    Args:
        proof: signs and checks; holds_for: how long a signed approval may be begun upon.

    Returns:
        The plan, the approval, and how many more people the policy asks for.

    Raises:
        PlanStale: plan.missing, plan.stale, plan.changed, approve.author, approve.signature; CredentialsMissing: approve.*.
    """
    plan = approvable(plan_id, fleet, records)
    mark, now = digest(plan), clock.now()
    approval = Approval(plan=plan.id, plan_digest=mark, actor=actor, at=now, note=note)
    if fleet.policy.require_signatures:
        cells = tuple(sorted(c for w in plan.waves for c in w.cells))
        approval = signed_by_me(replace(approval, cells=cells, serial=fleet.serial, until=now + holds_for), proof)
    is_signed = fleet.policy.require_signatures
    if (is_signed or fleet.policy.approvals) and approval.actor.name in of_plan(plan, fleet, records, proof).authors:
        refuse_own(f"plan {plan.id}", approval.actor.name, plan.id, alone=not is_signed)
    kept = records.get(Approval, f"{plan.id}-{approval.actor.name}")
    if kept is not None and kept.plan_digest == mark and (not approval.signature or not unproven(kept, proof, now)):
        approval = kept
    else:
        records.put(f"{plan.id}-{approval.actor.name}", approval)
        store.append((told(approval, "plan.approved", f"plan {plan.id} approved"),))
    return plan, approval, of_plan(plan, fleet, records, proof).missing
