"""Coming home, use-case layer: rehearse a runbook where things may be broken, and keep what it took. Never breaks anything elsewhere.

Detect, decide, zero and verified are seconds from the fault on. The judge may go home before the runbook does; both are timed alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleetctl.domain.event import Event
from fleetctl.domain.home import WayHome
from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import Bound, Spread, Timing, spreads
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError, RunbookFailed
from fleetctl.ports.runbook import Breakable, Rehearsals
from fleetctl.ports.state import Records
from fleetctl.usecases.runbook import LookPorts, RunPorts, walk

POLL_S = 0.1
SEEN = ("verdict.fail", "rollout.rolled_back", "rollout.lost_evidence")
"""Kinds of event by which the judge shows that it has noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPorts:
    """All that a rehearsal touches; events yields those of the cell, oldest first."""

    place: Breakable
    look: LookPorts
    run: RunPorts
    events: Callable[[], tuple[Event, ...]]
    rehearsals: Rehearsals
    records: Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What a rehearsal measured, and the spread over all of this runbook and cell."""

    timing: Timing
    spread: tuple[Spread, ...]


def refuse(bound: Bound, way: WayHome | FleetctlError, ports: DrillPorts) -> WayHome:
    """Return the way home of a cell that may be broken on purpose.

    Raises:
        RunbookFailed: runbook.not_a_lab, runbook.no_fault, runbook.no_traffic; or whatever the way home is refused for.
    """
    why = ports.place.refuses(bound.cell)
    if why:
        raise RunbookFailed("runbook.not_a_lab", f"{bound.cell} is not broken on purpose: {why}.", hint="Run: fleetctl lab up")
    if bound.runbook.fault is None:
        raise RunbookFailed("runbook.no_fault", f"the lab cannot make the fault of {bound.runbook.id}.", hint="Run: fleetctl runbook list")
    if isinstance(way, FleetctlError):
        raise way
    if ports.look.home.router(way).read(bound.cell).target_bp == 0:
        text = f"{bound.cell} has no traffic on its target, so there is nothing to bring home."
        raise RunbookFailed("runbook.no_traffic", text, hint=f"First bring some there: fleetctl migrate {bound.cell} --phase canary")
    return way


def rehearse(bound: Bound, way: WayHome | FleetctlError, ports: DrillPorts, *, goal_s: float, watch_s: float) -> Rehearsed:
    """Break the target, wait for the judge, go home by the runbook, mend the target, and keep the times.

    Args:
        goal_s: from fault to zero at most, for a green rehearsal; watch_s: how long the judge has before the runbook is taken anyway.

    Raises:
        RunbookFailed: as `refuse` and `walk`; the target is mended all the same.
    """
    way = refuse(bound, way, ports)
    fault = bound.runbook.fault
    if fault is None:
        raise RunbookFailed("runbook.no_fault", f"the lab cannot make the fault of {bound.runbook.id}.")
    seen = max((e.seq for e in ports.events()), default=0)
    clock = ports.run.clock
    began = clock.now()
    numbers = "".join(f" {k} {v:g}" for k, v in fault.numbers.items())
    try:
        ports.place.inject(bound.cell, fault)
        judged, zero = _watch(bound, way, ports, seen, clock.now() + timedelta(seconds=watch_s))
        ordered = clock.now()
        why = _walked(bound, ports)
        verified = None if why else clock.now()
    finally:
        ports.place.mend(bound.cell)
    zero = zero or _home_at(ports, seen, verified)
    decided = judged if judged is not None and judged < ordered else ordered
    by = "judge" if decided is judged else "runbook"
    timing = _timing(bound, ports, began, (judged, decided, zero, verified), f"{fault.kind}{numbers}", by, why, goal_s)
    ports.rehearsals.add(timing)
    _keep(bound, ports, timing, decided, zero)
    return Rehearsed(
        timing=timing, spread=spreads([t for t in ports.rehearsals.all() if (t.cell, t.runbook) == (timing.cell, timing.runbook)])
    )


def _watch(bound: Bound, way: WayHome, ports: DrillPorts, seen: int, until: Instant) -> tuple[datetime | None, datetime | None]:
    """Wait for the judge; return when it noticed and when the router showed 0, None for what did not happen in time."""
    clock, router = ports.run.clock, ports.look.home.router(way)
    while clock.now() < until:
        noticed = next((e.at for e in ports.events() if e.seq > seen and e.kind in SEEN), None)
        zero = clock.now() if router.read(bound.cell).target_bp == 0 else None
        if noticed is not None and zero is not None:
            return noticed, zero
        clock.wait(clock.now() + timedelta(seconds=POLL_S), lambda: False)
    return next((e.at for e in ports.events() if e.seq > seen and e.kind in SEEN), None), None


def _walked(bound: Bound, ports: DrillPorts) -> str:
    try:
        walk(bound, ports.run, again=True)
    except RunbookFailed as e:
        return f"{e.message} [{e.code}]"
    return ""


def _home_at(ports: DrillPorts, seen: int, verified: datetime | None) -> datetime | None:
    """Return when the runbook's order had brought the cell to 0: the event of it where the store has one, else when it was verified."""
    returned = [e.at for e in ports.events() if e.seq > seen and e.kind in ("fallback.returned", "rollout.fell_back")]
    return returned[0] if returned else verified


def _timing(
    bound: Bound,
    ports: DrillPorts,
    began: datetime,
    at: tuple[datetime | None, datetime, datetime | None, datetime | None],
    fault: str,
    by: str,
    why: str,
    goal_s: float,
) -> Timing:
    detect, decide, zero, verified = (None if x is None else round((x - began).total_seconds(), 3) for x in at)
    faults = [why] if why else []
    if detect is None:
        faults.append("nobody noticed the fault; the runbook was taken all the same")
    if zero is None or zero > goal_s:
        faults.append("not home" if zero is None else f"home after {zero:.1f} s, over the goal")
    return Timing(
        at=ports.run.clock.now(),
        actor=ports.run.actor,
        cell=bound.cell,
        runbook=bound.runbook.id,
        fault=fault,
        detect_s=detect,
        decide_s=decide,
        zero_s=zero,
        verified_s=verified,
        by=by,
        is_ok=not faults,
        detail="; ".join(faults),
    )


def _keep(bound: Bound, ports: DrillPorts, timing: Timing, decided: datetime, zero: datetime | None) -> None:
    """Keep it as the rehearsal that the release gate reads."""
    took = 0.0 if zero is None else max(0.0, (zero - decided) / timedelta(milliseconds=1))
    drill = Drill(at=timing.at, actor=timing.actor, ms_to_zero=took, ok=timing.is_ok, detail=timing.detail, cell=bound.cell)
    ports.records.put(f"{bound.cell}", drill)
