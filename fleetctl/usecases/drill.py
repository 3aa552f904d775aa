"""Coming home, use-case layer: rehearse a runbook where things may be broken, and keep what it took. Never breaks anything elsewhere.

Detect, decide, zero and verified are seconds from the fault on. The judge may go home before the runbook does; both are timed alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fleetctl.domain.event import Event
from fleetctl.domain.home import Wanted, WayHome
from fleetctl.domain.ids import CellId
from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import MENDED, SEEN_BY_LOOKING, SEEN_BY_PEOPLE, Bound, LiveName, Spread, Step, Timing, spreads, touched
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError, RunbookFailed
from fleetctl.ports.runbook import Breakable, Rehearsals
from fleetctl.usecases.home_choice import Choice, choose, readable
from fleetctl.usecases.runbook import Answer, LookPorts, RunPorts, walk

POLL_S = 0.1
SEEN = ("verdict.fail", "rollout.rolled_back", "rollout.lost_evidence")
"""Kinds of event by which the judge shows that it has noticed."""
HELD = (*SEEN, "rollout.hold")
"""Kinds by which it shows so where going home is not the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPorts:
    """All that a rehearsal touches.

    Args:
        events: those of the cell, oldest first; () while the store does not answer. keep: keeps what the release gate reads.
    """

    place: Breakable
    look: LookPorts
    run: RunPorts
    events: Callable[[], tuple[Event, ...]]
    rehearsals: Rehearsals
    keep: Callable[[Drill], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What a rehearsal measured, and the spread over all of this runbook and cell."""

    timing: Timing
    spread: tuple[Spread, ...]


def refuse(bound: Bound, way: WayHome | FleetctlError, ports: DrillPorts) -> WayHome:
    """Return the way home of a cell that may be broken on purpose.

    Raises:
        RunbookFailed: runbook.not_a_lab, runbook.not_alone, runbook.no_fault, runbook.no_traffic; or whatever the way home is refused for.
    """
    why = ports.place.refuses(bound.cell)
    if why:
        raise RunbookFailed("runbook.not_a_lab", f"{bound.cell} is not broken on purpose: {why}.", hint="Run: fleetctl lab up")
    if bound.runbook.fault is None:
        raise RunbookFailed("runbook.no_fault", f"the lab cannot make the fault of {bound.runbook.id}.", hint="Run: fleetctl runbook list")
    if isinstance(way, FleetctlError):
        raise way
    _only_breakable(bound, ports)
    if ports.look.home.router(way).read(bound.cell).target_bp == 0:
        text = f"{bound.cell} has no traffic on its target, so there is nothing to bring home."
        raise RunbookFailed("runbook.no_traffic", text, hint=f"First bring some there: fleetctl migrate {bound.cell} --phase canary")
    return way


def _only_breakable(bound: Bound, ports: DrillPorts) -> None:
    """Refuse a runbook of which a step would change a cell that may not be broken: customers of others are no rehearsal."""
    good, bad = readable(ports.look.home.ways)
    for step in bound.runbook.all_steps:
        names = touched(step)
        if names == ():
            continue
        chosen = Choice(ways=good, refused=bad) if names is None else choose(good, Wanted(names=names), bad)
        cells = [w.part_of[0] if w.part_of else w.cell for w in chosen.ways] + [f.cell for f in chosen.refused]
        others = sorted({c for c in cells if ports.place.refuses(CellId(c))})
        if others:
            text = (
                f"step {step.id} of {bound.runbook.id} changes {', '.join(others[:3])} as well, and {others[0]} is not broken on purpose."
            )
            hint = f"Rehearse one that touches this cell alone: fleetctl runbook drill {bound.cell} errors"
            raise RunbookFailed("runbook.not_alone", text, hint=hint)


def rehearse(bound: Bound, way: WayHome | FleetctlError, ports: DrillPorts, *, goal_s: float, watch_s: float) -> Rehearsed:
    """Break what the runbook is for, wait until it is noticed, step through the runbook, mend it, and keep the times.

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
    before_bp = ports.look.home.router(way).read(bound.cell).target_bp
    began = clock.now()
    numbers = "".join(f" {k} {v:g}" for k, v in fault.numbers.items())
    try:
        ports.place.inject(bound.cell, fault)
        judged, zero = _noticed(bound, way, ports, fault.kind, seen, clock.now() + timedelta(seconds=watch_s))
        ordered = clock.now()
        why = _walked(bound, ports, mends=fault.kind in MENDED)
        verified = None if why else clock.now()
    finally:
        ports.place.mend(bound.cell)
    if fault.kind in MENDED:
        zero, why = None, why or _raised(bound, way, ports, before_bp)
    else:
        zero = zero or _home_at(ports, seen, verified)
    decided = judged if judged is not None and judged < ordered else ordered
    by = "judge" if decided is judged else "runbook"
    timing = _timing(bound, ports, began, (judged, decided, zero, verified), f"{fault.kind}{numbers}", by, _faults(fault.kind, judged, why))
    timing = timing if fault.kind in MENDED else _in_time(timing, goal_s)
    ports.rehearsals.add(timing)
    if fault.kind not in MENDED:  # what is mended in place proves nothing of the way home
        _keep(bound, ports, timing, decided, zero)
    alike = [t for t in ports.rehearsals.all() if (t.cell, t.runbook) == (timing.cell, timing.runbook)]
    return Rehearsed(timing=timing, spread=spreads(alike))


def _noticed(
    bound: Bound, way: WayHome, ports: DrillPorts, kind: str, seen: int, until: Instant
) -> tuple[datetime | None, datetime | None]:
    """Wait until the fault is noticed: by the judge, or by a look at the cell; what only people notice is not waited for."""
    if kind in SEEN_BY_PEOPLE:
        return None, None
    if kind not in MENDED:
        return _watch(bound, way, ports, seen, until)
    clock, name = ports.run.clock, SEEN_BY_LOOKING.get(kind)
    while clock.now() < until:
        noticed = next((e.at for e in ports.events() if e.seq > seen and e.kind in HELD), None)
        if noticed is not None or (name is not None and _shows_bad(bound, ports, name)):
            return noticed or clock.now(), None
        clock.wait(clock.now() + timedelta(seconds=POLL_S), lambda: False)
    return None, None


def _shows_bad(bound: Bound, ports: DrillPorts, name: LiveName) -> bool:
    """Tell whether what a person looks at, in a process of its own, says that something is wrong."""
    said = ports.run.commands.run(("runbook", "show", bound.cell, bound.runbook.id, "-o", "json"), 60.0).output
    line = next((x for x in said.splitlines() if x.startswith("{")), "{}")
    return any(v["name"] == name and v["is_good"] is False for v in json.loads(line).get("live", ()))


def _raised(bound: Bound, way: WayHome, ports: DrillPorts, before_bp: int) -> str:
    now_bp = ports.look.home.router(way).read(bound.cell).target_bp
    return f"the weight rose from {before_bp / 100:g} to {now_bp / 100:g} %" if now_bp > before_bp else ""


def _faults(kind: str, judged: datetime | None, why: str) -> list[str]:
    faults = [why] if why else []
    if judged is None and kind not in SEEN_BY_PEOPLE:
        faults.append("nobody noticed the fault; the runbook was taken all the same")
    return faults


def _in_time(timing: Timing, goal_s: float) -> Timing:
    """Return a rehearsal of going home, green only where it came home within its goal."""
    if timing.zero_s is not None and timing.zero_s <= goal_s:
        return timing
    late = "not home" if timing.zero_s is None else f"home after {timing.zero_s:.1f} s, over the goal"
    return replace(timing, is_ok=False, detail="; ".join(filter(None, (timing.detail, late))))


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


def _walked(bound: Bound, ports: DrillPorts, *, mends: bool) -> str:
    """Step through the runbook; what it has a person mend by hand is mended then, where the fault is one of those."""

    def ask(step: Step, note: str) -> Answer:
        if step.command:
            return ports.run.ask(step, note)
        ports.place.mend(bound.cell)
        return "run"

    try:
        _only_breakable(bound, ports)  # a plan made meanwhile may have brought other cells
        walk(bound, replace(ports.run, ask=ask) if mends else ports.run, again=True)
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
    faults: list[str],
) -> Timing:
    detect, decide, zero, verified = (None if x is None else round((x - began).total_seconds(), 3) for x in at)
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
    ports.keep(drill)
