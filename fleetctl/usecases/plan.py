"""Plan, use-case layer: load fleet, catalogue and capacity, make the plan, save it. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fleetctl.analysis.breaker import failures_to_trip
from fleetctl.analysis.power import planned_fail, planned_requests
from fleetctl.assess.memory import memory_fit
from fleetctl.catalog.loader import load_catalog
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet, Policy
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Plan
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.workload import Existing
from fleetctl.errors import FleetctlError
from fleetctl.planning.home_time import too_slow
from fleetctl.planning.make_plan import Worked, work_out
from fleetctl.planning.options import DEFAULT, PlanOptions
from fleetctl.ports.capacity import Capacity
from fleetctl.ports.state import Clock, Records, Store
from fleetctl.rollout.looks import look_every
from fleetctl.usecases.assess import current
from fleetctl.usecases.budget import BudgetGate
from fleetctl.usecases.calibrate import measured_baselines
from fleetctl.usecases.home_time import home_times
from fleetctl.usecases.proof import Proof, claim, note_author
from fleetctl.usecases.ready_time import ready_times


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPorts:
    """All that planning touches.

    Args:
        shown: what the router of a cell sends to its target, basis points; None: the record of a completed move is enough.
        catalog: by the price book that counts here; None: the shipped one.
        proof: signs as the plan's author where the policy asks for signatures; budget: asked before a schedule starts cells.
    """

    store: Store
    records: Records
    clock: Clock
    capacity: Capacity
    actor: Actor
    shown: Callable[[CellId], int] | None = None
    catalog: Catalog | None = None
    proof: Proof | None = None
    budget: BudgetGate | None = None


MOST_QUESTIONS = 4
"""Drafts at most: each asks for what it needs, and a "no" makes the next one."""


def plan(fleet: Fleet, ports: PlanPorts, *, save: bool = True, options: PlanOptions = DEFAULT) -> Plan:
    """Make a plan of the fleet as it is now, and save it.

    Args:
        save: False only returns it.
    """
    made = work(fleet, ports, options).plan
    if save:
        ports.records.put(made.id, made)
        event = Event(
            at=made.made_at,
            kind="plan.made",
            actor=ports.actor,
            text=f"plan {made.id} of serial {made.serial}",
            data={"digest": digest(made)},
        )
        ports.store.append((event,))
        claim(made.id, digest(made), fleet, ports.records, ports.proof, ports.actor)
        note_author(made.id, digest(made), fleet, ports.records, ports.actor, made.made_at)
    return made


def work(fleet: Fleet, ports: PlanPorts, options: PlanOptions = DEFAULT, catalog: Catalog | None = None) -> Worked:
    """Make a plan of the fleet as it is now, with what it was made from; nothing is saved.

    Capacity is asked for what a draft needs; where it is not to be had, the plan is made without it. Cells on their way keep their target.

    Args:
        catalog: another price book than the shipped one.
    """
    now = ports.clock.now()
    assessments = tuple(current(w, ports.records, ports.clock) for w in fleet.workloads)
    options = replace(
        options,
        migrating=migrating(fleet, ports.store),
        arrived=arrived(fleet, ports.store, ports.shown),
        ready=ready_times(ports.records, [p.id for p in fleet.pools]),
        home=home_times(ports.records, fleet),
    )
    verdicts: dict[tuple[str, str], CapacityVerdict] = {}
    marked, measured = digest(fleet), measured_baselines(ports.records, fleet)

    def draft() -> Worked:
        return work_out(
            fleet,
            catalog or ports.catalog or load_catalog(),
            assessments,
            tuple(verdicts.values()),
            now,
            fleet_digest=marked,
            fit_of=memory_fit,
            baselines=measured,
            requests_for=planned_requests,
            fails_for=planned_fail,
            fault_time=FaultTimes(fleet.policy),
            options=options,
        )

    made = draft()
    for _ in range(MOST_QUESTIONS):
        if not ask(made.plan, fleet, ports.capacity, verdicts):
            break
        made = draft()
    if slow := too_slow(fleet, made.plan.outcomes, options.home):
        raise FleetctlError(
            "plan.home_within",
            "a router cannot bring its cells home as fast as the policy promises.",
            hint="Raise policy.home_within, or let these cells stay",
            details=slow,
        )
    return made


def ask(made: Plan, fleet: Fleet, capacity: Capacity, verdicts: dict[tuple[str, str], CapacityVerdict]) -> bool:
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


class FaultTimes:
    """Seconds from the moment every request on the target fails to the order to go home, at the slowest step: planned, not measured.

    The breaker needs some failing requests (by the baseline's error ratio), which arrive at the step's share; then the next look.
    """

    def __init__(self, policy: Policy) -> None:
        self._steps = [(s.weight_bp / 10_000, look_every(s).total_seconds()) for s in policy.steps if s.phase in _WATCHED and s.weight_bp]
        self._known: dict[tuple[float, float], float | None] = {}

    def __call__(self, requests_per_s: float, error_ratio: float) -> float | None:
        """Return the time for a cell with this traffic; None where no request comes."""
        key = (requests_per_s, error_ratio)
        if key not in self._known:
            self._known[key] = self._fresh(*key)
        return self._known[key]

    def _fresh(self, requests_per_s: float, error_ratio: float) -> float | None:
        if requests_per_s <= 0 or not self._steps:
            return None
        failures = failures_to_trip(error_ratio)
        return round(max(failures / (requests_per_s * share) + look for share, look in self._steps), 3)


_WATCHED = frozenset({"canary", "ramp", "full", "soak"})


def arrived(fleet: Fleet, store: Store, shown: Callable[[CellId], int] | None = None) -> dict[CellId, PoolId]:
    """Return the cells that an earlier plan brought to their target for good, and where; the router must still show it.

    A router that cannot be asked counts as agreeing: `fleetctl migrate` asks it again.
    """
    cells, pools = {c.id: c for c in fleet.cells}, {p.id for p in fleet.pools}
    found: dict[CellId, PoolId] = {}
    for name in store.cells():
        cell = cells.get(name)
        rollout = store.load(name) if cell is not None else None
        if cell is None or rollout is None or rollout.ended != "complete" or rollout.spec.target not in pools:
            continue
        pinned = cell.target.pool if isinstance(cell.target, Existing) else cell.target
        if cell.source != rollout.spec.source or pinned not in (None, rollout.spec.target):
            continue
        if shown is None or _shows(name, shown):
            found[name] = rollout.spec.target
    return found


def _shows(cell: CellId, shown: Callable[[CellId], int]) -> bool:
    try:
        return shown(cell) > 0
    except FleetctlError:
        return True


def migrating(fleet: Fleet, store: Store) -> dict[CellId, PoolId]:
    """Return the cells with a rollout that has not ended and is not going home, and their targets."""
    known, pools = {c.id for c in fleet.cells}, {p.id for p in fleet.pools}
    found = {}
    for cell in store.cells():
        rollout = store.load(cell) if cell in known else None
        if rollout is not None and not rollout.ended and rollout.direction == "forward" and rollout.spec.target in pools:
            found[cell] = rollout.spec.target
    return found
