"""Plan, use-case layer: load fleet, catalogue and capacity, make the plan, save it. Never imports an adapter."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.assess.memory import memory_fit
from fleetctl.catalog.loader import load_catalog
from fleetctl.domain.canonical import digest
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Plan
from fleetctl.planning.make_plan import make_plan
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


def plan(fleet: Fleet, ports: PlanPorts, *, save: bool = True) -> Plan:
    """Make a plan of the fleet as it is now, and save it.

    Args:
        save: False only returns it.
    """
    now = ports.clock.now()
    assessments = tuple(current(w, ports.records, ports.clock) for w in fleet.workloads)
    wanted = [p for p in fleet.pools if p.vendor == "amd" and p.count < p.limit]
    capacity = tuple(ports.capacity.verdict(p.sku, p.region, p.limit - p.count, p.priority) for p in wanted)
    made = make_plan(fleet, load_catalog(), assessments, capacity, now, fleet_digest=digest(fleet), fit_of=memory_fit)
    if save:
        ports.records.put(made.id, made)
        event = Event(
            at=now, kind="plan.made", actor=ports.actor, text=f"plan {made.id} of serial {made.serial}", data={"digest": digest(made)}
        )
        ports.store.append((event,))
    return made
