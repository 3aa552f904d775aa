"""Plan and migrate, pure layer: copies from the approved plan what deciding about one cell needs. Never I/O."""

from __future__ import annotations

from datetime import timedelta

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import Plan
from fleetctl.domain.rollout import RolloutSpec
from fleetctl.errors import UsageError
from fleetctl.planning.evidence_need import phases_for, probed_of, with_probes
from fleetctl.planning.lanes import lane_of, other_lane

TIMES_PLANNED, LEAST_DEADLINE = 3.0, timedelta(hours=1)
"""A step that takes over three times what the whole way to soak was planned for (p90) is INCONCLUSIVE. Source: evidence.md 2."""


def spec_for(plan: Plan, fleet: Fleet, cell: CellId) -> RolloutSpec:
    """Return the rollout of one cell that this plan moves.

    Raises:
        UsageError: plan.cell_not_moved: the plan leaves that cell where it is, or does not know it.
    """
    outcome = next((o for o in plan.outcomes if o.cell == cell), None)
    if outcome is None or outcome.kind != "move" or outcome.target is None:
        why = outcome.reason.text if outcome is not None else "it is not in the plan."
        raise UsageError("plan.cell_not_moved", f"Plan {plan.id} does not move {cell}: {why}", hint=f"Run: fleetctl show {plan.id}")
    declared = fleet.cell(cell)
    workload = fleet.workload(declared.workload)
    policy = fleet.policy
    lane = lane_of(declared.lane, outcome.lane)
    probed = probed_of(declared, fleet.evidence)
    beside = probed if probed is not None and declared.evidence[0] != probed.source else None
    return RolloutSpec(
        source=outcome.source,
        target=outcome.target,
        phases=with_probes(phases_for(policy, workload, lane), beside),
        warm_up=policy.warm_up,
        cap_bp=policy.cap_bp,
        lane=lane,
        group=outcome.lane.group if outcome.lane is not None and lane.kind == "pooled" else (),
        other_lane=other_lane(outcome.lane),
        weight_lease=policy.weight_lease,
        lost_evidence_home=policy.lost_evidence_home,
        step_deadline=_deadline(policy.step_deadline, outcome.hours),
        shadow=workload.shadow,
        checks=workload.checks,
        on_source_loss=declared.on_source_loss,
        part="" if (c := declared.cohort) is None else f"{c.key} {' '.join(c.values)} of {c.of}",
    )


def _deadline(most: timedelta, planned_hours: float | None) -> timedelta:
    """Return how long after its bake time a step may stay before a person must look."""
    if planned_hours is None:
        return most
    return min(most, max(LEAST_DEADLINE, TIMES_PLANNED * timedelta(hours=planned_hours)))
