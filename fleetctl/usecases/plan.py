"""Plan, use-case layer: load fleet, catalogue and capacity, make the plan, save it. Never imports an adapter."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fleetctl.analysis.power import planned_fail, planned_requests
from fleetctl.assess.memory import memory_fit
from fleetctl.catalog.loader import load_catalog
from fleetctl.domain.canonical import digest
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Plan
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.planning.make_plan import make_plan
from fleetctl.planning.options import DEFAULT, PlanOptions
from fleetctl.ports.capacity import Capacity
from fleetctl.ports.state import Clock, Records, Store
from fleetctl.usecases.assess import current


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPorts:
    """All that planning touches."""

    store: Store
    records: Records
    clock: Clock
    capacity: Capacity
    actor: Actor


MOST_QUESTIONS = 4
"""Drafts at most: each asks for what it needs, and a "no" makes the next one."""


def plan(fleet: Fleet, ports: PlanPorts, *, save: bool = True, options: PlanOptions = DEFAULT) -> Plan:
    """Make a plan of the fleet as it is now, and save it.

    Capacity is asked for what a draft needs; where it is not to be had, the plan is made without it. Cells on their way keep their target.

    Args:
        save: False only returns it.
    """
    now = ports.clock.now()
    assessments = tuple(current(w, ports.records, ports.clock) for w in fleet.workloads)
    options = replace(options, migrating=migrating(fleet, ports.store))
    verdicts: dict[tuple[str, str], CapacityVerdict] = {}
    marked = digest(fleet)

    def draft() -> Plan:
        return make_plan(
            fleet,
            load_catalog(),
            assessments,
            tuple(verdicts.values()),
            now,
            fleet_digest=marked,
            fit_of=memory_fit,
            requests_for=planned_requests,
            fails_for=planned_fail,
            options=options,
        )

    made = draft()
    for _ in range(MOST_QUESTIONS):
        if not _ask(made, fleet, ports.capacity, verdicts):
            break
        made = draft()
    if save:
        ports.records.put(made.id, made)
        event = Event(
            at=now, kind="plan.made", actor=ports.actor, text=f"plan {made.id} of serial {made.serial}", data={"digest": digest(made)}
        )
        ports.store.append((event,))
    return made


def _ask(made: Plan, fleet: Fleet, capacity: Capacity, verdicts: dict[tuple[str, str], CapacityVerdict]) -> bool:
    """Ask for the VMs that a draft adds and that were not asked for yet; true where something was learnt."""
    counts = {p.id: p.count for p in fleet.pools}
    learnt = False
    for spec in made.pools:
        more = spec.count - counts[spec.pool]
        known = verdicts.get((spec.sku, spec.region))
        if more > 0 and (known is None or known.count < more):
            verdicts[spec.sku, spec.region] = capacity.verdict(spec.sku, spec.region, more, spec.priority)
            learnt = True
    return learnt


def migrating(fleet: Fleet, store: Store) -> dict[CellId, PoolId]:
    """Return the cells with a rollout that has not ended and is not going home, and their targets."""
    known, pools = {c.id for c in fleet.cells}, {p.id for p in fleet.pools}
    found = {}
    for cell in store.cells():
        rollout = store.load(cell) if cell in known else None
        if rollout is not None and not rollout.ended and rollout.direction == "forward" and rollout.spec.target in pools:
            found[cell] = rollout.spec.target
    return found
