"""Coming home, use-case layer: what is known of a cell now, a runbook made for it, and stepping through it. Never imports an adapter.

Looking needs no store: what cannot be read is said to be not known. Each step is journalled before and after, so that a run that was
killed goes on at the step that did not finish.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from fleetctl.domain.event import Event
from fleetctl.domain.home import Wanted, WayHome
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.runbook import LIST_PLACE, Bound, JournalLine, LiveName, LiveValue, Runbook, Step, StepState, filled
from fleetctl.domain.split import Readiness, Split, stays_bp
from fleetctl.domain.units import FULL_BP
from fleetctl.errors import EXIT_PENDING, FleetctlError, RunbookFailed
from fleetctl.ports.runbook import Commands, Ended, Journal
from fleetctl.ports.state import Clock
from fleetctl.usecases.home import HomePorts
from fleetctl.usecases.home_choice import choose, readable

END = "end"
"""Name of the journal's line that closes a run; no step may have it."""

MOST_SHOWN = 2_000
Answer = Literal["run", "skip", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPorts:
    """All that looking at a cell touches; migration says where its migration is, "" where there is none."""

    home: HomePorts
    migration: Callable[[CellId], str]


def find_cell(name: str, ports: LookPorts) -> WayHome | FleetctlError:
    """Return the way home of a cell, or of a workload that has one cell; or why it is refused.

    Raises:
        UnsafeFallback: fallback.unknown, fallback.none; RunbookFailed: runbook.many_cells.
    """
    good, refused = readable(ports.home.ways)
    for failure in refused:
        if failure.cell == name:
            return failure.error
    exact = tuple(w for w in good if w.cell == name)
    found = exact or choose(good, Wanted(names=(name,))).ways
    if len(found) > 1:
        names = ", ".join(w.cell for w in found)
        raise RunbookFailed("runbook.many_cells", f"{name} has {len(found)} cells: {names}.", hint="Name one of them")
    return found[0]


def look(cell: CellId, way: WayHome | FleetctlError, ports: LookPorts) -> Mapping[LiveName, LiveValue]:
    """Return every live value of a cell; changes nothing, and each that cannot be read is not known."""
    live: dict[LiveName, LiveValue] = {}

    def put(name: LiveName, text: str, is_good: bool | None) -> None:
        live[name] = LiveValue(name=name, text=text, is_good=is_good)

    if isinstance(way, FleetctlError):
        put("way_home", f"refused: {way.message} [{way.code}]", False)
        for name in ("router", "weight", "source", "region_cells"):
            put(name, "not known: the way home cannot be read", None)
    else:
        put("way_home", f"holds; to {way.source} in {way.region}, made {way.made_at:%Y-%m-%d %H:%M}Z", True)
        _look_at_traffic(way, ports, put)
        put("region_cells", ", ".join(_region_cells(way, ports)), True)
    try:
        at = ports.migration(cell)
        put("store", "answers", True)
        put("migration", at or "none", True)
    except FleetctlError as e:
        put("store", f"does not answer: {e.message}", False)
        put("migration", "not known: the store does not answer", None)
    return live


def _look_at_traffic(way: WayHome, ports: LookPorts, put: Callable[[LiveName, str, bool | None], None]) -> None:
    shown = None
    try:
        shown = ports.home.router(way).read(way.cell)
        put("router", f"{way.router.name} answers", True)
        put("weight", f"{shown.target_bp / 100:g} % on the target, {shown.cap_bp / 100:g} % at most", True)
    except FleetctlError as e:
        put("router", f"{way.router.name} cannot be read: {e.message}", False)
        put("weight", "not known: the router does not answer", None)
    try:
        ready = ports.home.prober(way).ready(way.source, way.cell)
        text = f"{ready.ready} of {ready.total} replicas of {way.source} answer a real completion"
        put("source", text + _room(shown, ready), ready.ready > 0)
    except FleetctlError as e:
        put("source", f"not known: {e.message}", None)


def _room(shown: Split | None, ready: Readiness) -> str:
    """Say how much more of a cell can go home to a source of which not every replica answers; "" where nothing keeps it from all."""
    if shown is None or not 0 < ready.ready < ready.total:
        return ""
    more_bp = shown.target_bp - stays_bp(FULL_BP, ready.ready / ready.total)
    return f"; {more_bp / 100:g} % more can go home" if more_bp > 0 else "; no more can go home now"


def _region_cells(way: WayHome, ports: LookPorts) -> tuple[CellId, ...]:
    """Return the cells of a way's region, and those that may be: a file that cannot be read says no region, and is told of by name."""
    good, bad = readable(ports.home.ways)
    return (*(w.cell for w in good if w.region == way.region), *(f.cell for f in bad))


def bind(book: Runbook, cell: CellId, way: WayHome | FleetctlError, live: Mapping[LiveName, LiveValue], ports: LookPorts) -> Bound:
    """Return a runbook with every name of the cell filled in; one without a readable way home keeps the names that it cannot fill."""
    names = {"cell": str(cell)}
    region: tuple[str, ...] = (str(cell),)
    if not isinstance(way, FleetctlError):
        names |= {"workload": way.workload, "source": way.source, "region": way.region}
        region = _region_cells(way, ports)

    def text(given: str) -> str:
        return filled(given, names)

    def step(s: Step) -> Step:
        words = tuple(w for word in s.command for w in (region if word == LIST_PLACE else (text(word),)))
        pattern = filled(s.expect.pattern, {k: re.escape(v) for k, v in names.items()})
        return replace(
            s,
            command=words,
            expect=replace(s.expect, pattern=pattern),
            text=text(s.text),
            undo=text(s.undo),
            by_hand=text(s.by_hand),
            shows=text(s.shows),
            danger=text(s.danger),
        )

    made = replace(
        book,
        trigger=tuple(map(text, book.trigger)),
        alert=text(book.alert),
        impact=text(book.impact),
        needs=tuple(replace(n, otherwise=text(n.otherwise)) for n in book.needs),
        decisions=tuple(replace(c, when=text(c.when), do=text(c.do)) for c in book.decisions),
        steps=tuple(map(step, book.steps)),
        verification=tuple(map(step, book.verification)),
        comms=text(book.comms),
        escalation=tuple(replace(c, when=text(c.when), whom=text(c.whom)) for c in book.escalation),
        after=tuple(map(text, book.after)),
        limits=text(book.limits),
    )
    return Bound(runbook=made, cell=cell, live=live)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPorts:
    """All that stepping through touches.

    Args:
        ask: whether to run a step, whose second argument is a note ("" or that it was begun before); tell: hears every end of a step.
        note: keeps an event where the store answers.
        warn: hears that a run goes on or begins anew and, once, that no journal can be written.
    """

    commands: Commands
    journal: Journal
    clock: Clock
    actor: Actor
    ask: Callable[[Step, str], Answer]
    tell: Callable[[Step, Ended | None, str], None]
    note: Callable[[Event], None]
    warn: Callable[[str], None] = lambda text: None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended: the lines that it wrote; resumed tells that it went on with an earlier one."""

    run: str
    lines: tuple[JournalLine, ...]
    resumed: bool


def check_needs(bound: Bound) -> None:
    """Hold every precondition against what is known now.

    Raises:
        RunbookFailed: runbook.precondition, with every one that does not hold as a detail.
    """
    failing = [(n, bound.live[n.live]) for n in bound.runbook.needs if bound.live[n.live].is_good is not True]
    if failing:
        details = tuple(f"{n.live}: {value.text}. {n.otherwise}" for n, value in failing)
        names = ", ".join(n.live for n, _ in failing)
        text = f"the preconditions of {bound.runbook.id} do not hold for {bound.cell}: {names}; nothing was run."
        raise RunbookFailed("runbook.precondition", text, hint=failing[0][0].otherwise, details=details)


def walk(bound: Bound, ports: RunPorts, *, again: bool = False) -> RunEnd:
    """Step through a runbook, resuming a run that did not end unless `again`; a journal that cannot be written is told of and stops nobody.

    Raises:
        RunbookFailed: runbook.precondition, runbook.changed, runbook.unexpected, runbook.stopped, runbook.journal.
        LeaseHeld: lease.runbook.
    """
    check_needs(bound)
    with ports.journal.alone():
        before = () if again else _open_run(ports.journal.lines())
        if before and before[0].digest != bound.digest:
            text = f"the run of {before[0].at:%Y-%m-%d %H:%M}Z had other steps than {bound.runbook.id} has for {bound.cell} now."
            raise RunbookFailed("runbook.changed", text, hint="Add: --again, to begin anew")
        if before:
            before = _stands(bound, before, ports.warn)
        name = before[0].run if before else f"{ports.clock.now():%Y%m%dT%H%M%S.%f}"
        return _Walk(bound, ports, name, before).go()


def _open_run(lines: Sequence[JournalLine]) -> tuple[JournalLine, ...]:
    """Return the lines of the last run, () where it has ended."""
    if not lines or lines[-1].step == END:
        return ()
    return tuple(line for line in lines if line.run == lines[-1].run)


def _goes_home(step: Step) -> bool:
    return step.command[1:2] == ("fallback",) and not {"--dry-run", "--reconcile"} & set(step.command)


def _stands(bound: Bound, before: tuple[JournalLine, ...], tell: Callable[[str], None]) -> tuple[JournalLine, ...]:
    """Return what counts of a run that did not end, and say so: nothing where it took the cell home and customers are out again."""
    over = {line.step: line.state for line in before if line.state in ("done", "skipped")}
    went_home = any(over.get(s.id) == "done" and _goes_home(s) for s in bound.runbook.all_steps)
    weight = bound.live["weight"]
    if went_home and weight.is_good and not weight.text.startswith("0 % "):
        tell(f"The run of {before[0].at:%Y-%m-%d %H:%M}Z took {bound.cell} home, and {weight.text} now: it begins anew.")
        return ()
    if over:
        tell(f"It goes on with the run of {before[0].at:%Y-%m-%d %H:%M}Z, over before: {', '.join(over)}. To begin anew, add: --again")
    return before


class _Walk:
    def __init__(self, bound: Bound, ports: RunPorts, run: str, before: Sequence[JournalLine]) -> None:
        self._bound, self._ports, self._run, self._before = bound, ports, run, before
        self._lines: list[JournalLine] = []
        self._is_unkept = False

    def go(self) -> RunEnd:
        book = self._bound.runbook
        last = {line.step: line for line in self._before}
        for step in book.all_steps:
            earlier = last.get(step.id)
            if earlier is not None and earlier.state in ("done", "skipped"):
                continue
            note = ""
            if earlier is not None:
                word = "was begun" if earlier.state == "begun" else "failed"
                note = f"it {word} at {earlier.at:%Y-%m-%d %H:%M:%S}Z and did not finish"
            self._one(step, note, repeats=step in book.verification)
        self._write(END, "done")
        self._event("runbook.done", f"{book.id} of {self._bound.cell} was stepped through to its end")
        return RunEnd(run=self._run, lines=tuple(self._lines), resumed=bool(self._before))

    def _one(self, step: Step, note: str, *, repeats: bool) -> None:
        answer = self._ports.ask(step, note)
        if answer == "stop":
            self._event("runbook.stopped", f"{self._bound.runbook.id} of {self._bound.cell} was stopped before {step.id}")
            command = f"fleetctl runbook run {self._bound.cell} {self._bound.runbook.id}"
            raise RunbookFailed("runbook.stopped", f"stopped before step {step.id}; nothing of it was run.", hint=f"To go on: {command}")
        if answer == "skip":
            self._write(step.id, "skipped")
            self._ports.tell(step, None, "skipped")
            return
        self._write(step.id, "begun")
        if not step.command:
            self._write(step.id, "done", detail="by hand")
            self._ports.tell(step, None, "done by hand")
            return
        ended, why = self._held(step, repeats=repeats)
        late = ended.seconds > step.budget_s
        self._write(step.id, "failed" if why else "done", ended, why)
        self._ports.tell(step, ended, why or (f"as expected, but over its {step.budget_s:g} s" if late else "as expected"))
        if why:
            self._event("runbook.failed", f"{self._bound.runbook.id} of {self._bound.cell}: {step.id}: {why}")
            raise RunbookFailed(
                "runbook.unexpected",
                f"step {step.id} of {self._bound.runbook.id}: {why}.",
                hint=f"{_before_again(step, ended, self._bound.cell)} run the same command again; it goes on at this step (--again: anew)",
                details=tuple(ended.output[-MOST_SHOWN:].splitlines()[-12:]),
            )

    def _held(self, step: Step, *, repeats: bool) -> tuple[Ended, str]:
        """Run a step's command; one that verifies is repeated until it holds or its time is over."""
        began = self._ports.clock.now()
        until = began + timedelta(seconds=step.budget_s)
        while True:
            ended = self._ports.commands.run(step.command[1:], limit_s=max(60.0, 3 * step.budget_s))
            why = unexpected(step, ended)
            now = self._ports.clock.now()
            if not why or not repeats or now >= until:
                return replace(ended, seconds=(now - began).total_seconds()) if repeats else ended, why
            self._ports.clock.wait(now + timedelta(seconds=0.5), lambda: False)

    def _write(self, step: str, state: StepState, ended: Ended | None = None, detail: str = "") -> None:
        line = JournalLine(
            run=self._run,
            digest=self._bound.digest,
            at=self._ports.clock.now(),
            actor=self._ports.actor,
            step=step,
            state=state,
            exit_code=None if ended is None else ended.exit_code,
            seconds=0.0 if ended is None else round(ended.seconds, 3),
            detail=detail,
        )
        try:
            self._ports.journal.append(line)
        except RunbookFailed as e:  # a full disk keeps nobody from home
            if not self._is_unkept:
                self._ports.warn(f"{e.message} The run goes on; one that is interrupted begins anew.")
            self._is_unkept = True
        self._lines.append(line)

    def _event(self, kind: str, text: str) -> None:
        data = {"runbook": self._bound.runbook.id, "run": self._run}
        self._ports.note(Event(at=self._ports.clock.now(), kind=kind, actor=self._ports.actor, text=text, cell=self._bound.cell, data=data))


def _before_again(step: Step, ended: Ended, cell: CellId) -> str:
    """Say what comes before the same command again; going home is never taken back because it did not go all the way."""
    if step.command[1:2] == ("fallback",):
        part = ended.exit_code == EXIT_PENDING
        return f"For a home in part: fleetctl runbook run {cell} partial-fallback. Else" if part else "Mend it, then"
    return "Mend it, then" if step.undo.startswith("Nothing") else f"To take it back: {step.undo.rstrip('.')}. Then"


def unexpected(step: Step, ended: Ended) -> str:
    """Say what of a command's end is not as its step expects; "" where all is."""
    if ended.exit_code is None:
        return f"it did not end within {ended.seconds:.0f} s and was stopped"
    if ended.exit_code not in step.expect.exits:
        return f"it ended with {ended.exit_code}, not {' or '.join(map(str, step.expect.exits))}"
    if step.expect.pattern and re.search(step.expect.pattern, ended.output) is None:
        return f"its output is not what is expected ({step.shows or step.expect.pattern})"
    return ""
