"""Rebalance, pure layer: which cells may not move now, and why. Never I/O.

A cell keeps its place for the dwell time after its last move, for good where evidence sent it home, and where its class, its lane or a
pin says so. All else is left to the plan, whose objective holds the moves' own cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Reason
from fleetctl.domain.rebalance import Limits, RebalanceRun, StandingApproval
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A cell's last move: its rollout, and when that last did anything."""

    rollout: Rollout
    at: Instant


def holds(fleet: Fleet, past: Mapping[CellId, Past], limits: Limits, now: Instant) -> dict[CellId, Reason]:
    """Return the cells that this run leaves where they are; cells on their way are not among them.

    Args:
        past: of cells that have or had a rollout.
    """
    classes = {w.id: w.klass for w in fleet.workloads}
    found = {}
    for c in fleet.cells:
        last = past.get(c.id)
        if last is not None and not last.rollout.ended and last.rollout.direction == "forward":
            continue
        reason = _held(last, limits, now)
        if reason is None and classes[c.workload] not in limits.classes:
            reason = Reason(code="rebalance.class", text=f"Class {classes[c.workload]} may not move by schedule.")
        if reason is None and c.target is not None:
            reason = Reason(code="rebalance.pinned", text="Its target is pinned in the fleet file: an ordinary plan moves it.")
        if reason is not None:
            found[c.id] = reason
    return found


def _held(last: Past | None, limits: Limits, now: Instant) -> Reason | None:
    if last is None:
        return None
    r = last.rollout
    if not r.ended:
        return Reason(code="rebalance.going_home", text="It is on its way home.")
    if r.ended in ("rolled_back", "lost_evidence"):
        text = f"Evidence sent it home ({r.hold_reason or r.ended}); only a person tries again."
        return Reason(code="rebalance.failed", text=text)
    until = last.at + limits.dwell
    if until > now:
        return Reason(code="rebalance.dwell", text=f"It moved {_days(now - last.at)} ago and stays for {_days(limits.dwell)}.")
    return None


def _days(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{max(0.0, hours):.0f} h"


def left(limits: Limits, runs: Iterable[RebalanceRun], total_gpus: int, now: Instant) -> tuple[int, float]:
    """Return how many cells, and how many GPUs, may still move in the window that ends now.

    Args:
        runs: earlier ones; total_gpus: of the whole fleet's cells.
    """
    moves, gpus = 0, 0
    for run in runs:
        if run.at > now - limits.window:
            began = set(run.begun)
            moves += len(began)
            gpus += sum(s.gpus for s in run.shifts if s.cell in began)
    return max(0, limits.moves - moves), max(0.0, limits.share * total_gpus - gpus)


def within(limits: Limits, approval: StandingApproval) -> Limits:
    """Return the narrower of both: nothing moves that the envelope does not allow.

    A longer window of the envelope is the stricter one, so it counts.
    """
    return Limits(
        window=max(limits.window, approval.window),
        moves=min(limits.moves, approval.moves),
        share=min(limits.share, approval.share),
        dwell=limits.dwell,
        payback=limits.payback,
        min_saving_usd=limits.min_saving_usd,
        classes=tuple(c for c in limits.classes if c in approval.classes),
    )


def refused(approval: StandingApproval, fleet: Fleet, now: Instant) -> str:
    """Return why a standing approval does not hold, "" where it does."""
    if approval.lineage != fleet.lineage:
        return "it was given for another fleet"
    if approval.withdrawn:
        return "it was withdrawn"
    if now.date().isoformat() > approval.until:
        return f"it ended on {approval.until}"
    people = {actor.name for actor, _ in approval.signed}
    if len(people) < max(1, fleet.policy.approvals):
        return f"{len(people)} of {max(1, fleet.policy.approvals)} people signed it"
    return ""
