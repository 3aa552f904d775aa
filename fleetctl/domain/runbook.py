"""Coming home, domain layer: a runbook as a value, what is known of its cell, and what a rehearsal measured. Never I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from fleetctl.domain.canonical import digest
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Instant

LiveName = Literal["way_home", "router", "weight", "source", "store", "migration", "region_cells"]
LIVE_NAMES: tuple[LiveName, ...] = ("way_home", "router", "weight", "source", "store", "migration", "region_cells")
Severity = Literal["SEV 1", "SEV 2", "SEV 3"]
StepState = Literal["begun", "done", "skipped", "failed"]

PLACES = ("cell", "workload", "source", "region")
"""Names that a text or a command may hold in braces."""

LIST_PLACE = "{region_cells}"
"""A word of a command that stands for one word per cell of the cell's region."""

_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What a step's command must end with and print.

    Args:
        exits: exit codes that are as expected; pattern: a regular expression found in its output, "" where any output will do.
    """

    exits: tuple[int, ...] = (0,)
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: a command of fleetctl, or something that a person does by hand.

    Args:
        command: words, the first is "fleetctl"; () where `by_hand` says what to do.
        budget_s: seconds it should take at most; undo: how to take it back; danger: what it may break, "" where nothing.
        choice: only where its text says so; it is asked for, and never run by itself.
    """

    id: str
    text: str
    budget_s: float
    undo: str
    command: tuple[str, ...] = ()
    by_hand: str = ""
    expect: Expect = field(default_factory=Expect)
    shows: str = ""
    danger: str = ""
    choice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Precondition:
    """A live value that must be good before a runbook is run, and what to do where it is not."""

    live: LiveName
    otherwise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A row of the decision table: when this is so (told by a live value), do that."""

    when: str
    do: str
    live: LiveName


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Whom to call, and when."""

    when: str
    whom: str


SEEN_BY_LOOKING: Mapping[str, LiveName] = {"router_gone": "router", "store_gone": "store", "source_gone": "source"}
"""Faults that show in what is known of a cell, and where."""

MENDED = frozenset({*SEEN_BY_LOOKING, "evidence_gone"})
"""Faults whose runbook mends what is broken; going home is no part of it, and the weight must only not rise."""

SEEN_BY_PEOPLE = frozenset({"wrong_tokens"})
"""Faults that only people notice; a rehearsal takes the runbook at once and times no detection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a rehearsal breaks, and its numbers: the target's servers, or the source's, the router, the store, the evidence."""

    kind: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """What to do when one thing goes wrong.

    Args:
        see: what a person sees first, at most 38 characters; alert: what says it by itself, such as a kind of event.
        limits: what it does not cover.
        fault: what a rehearsal injects, None where the lab cannot make it.
    """

    id: str
    title: str
    see: str
    severity: Severity
    trigger: tuple[str, ...]
    alert: str
    impact: str
    needs: tuple[Precondition, ...]
    decisions: tuple[Choice, ...]
    steps: tuple[Step, ...]
    verification: tuple[Step, ...]
    comms: str
    escalation: tuple[Call, ...]
    after: tuple[str, ...]
    limits: str
    fault: Fault | None = None
    format_version: int = 1

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """Return the steps, then those that verify."""
        return (*self.steps, *self.verification)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveValue:
    """What is known of a cell now; is_good is None where it is not known."""

    name: LiveName
    text: str
    is_good: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A runbook made for one cell.

    Args:
        steps: of the runbook and its verification, every name filled in; live: by name.
    """

    runbook: Runbook
    cell: CellId
    live: Mapping[LiveName, LiveValue]

    @property
    def digest(self) -> str:
        """Return the hash of what would be run, so that a run is never resumed with other steps."""
        return digest([(s.id, list(s.command), s.by_hand) for s in self.runbook.all_steps])


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One line of a run's journal.

    Args:
        run: name of the run; digest: of its steps; exit_code, seconds: of a command that has ended.
    """

    run: str
    digest: str
    at: Instant
    actor: Actor
    step: str
    state: StepState
    exit_code: int | None = None
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one rehearsal measured; seconds from the fault on, None where it did not come to that.

    Args:
        detect_s: until the judge or the router's weight showed it; decide_s: until somebody went home.
        zero_s: until the router showed 0 %, None for a fault that is mended in place; verified_s: until the runbook's verification held.
        by: who decided: "judge" or "runbook"; is_ok: detected, home and verified within the target.
    """

    at: Instant
    actor: Actor
    cell: CellId
    runbook: str
    fault: str
    detect_s: float | None
    decide_s: float | None
    zero_s: float | None
    verified_s: float | None
    by: str
    is_ok: bool
    detail: str = ""

    @property
    def rto_s(self) -> float | None:
        """Return the time from fault to verified, seconds."""
        return self.verified_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How long a part took over all rehearsals: median and maximum, seconds."""

    part: str
    runs: int
    median_s: float
    max_s: float


def spreads(timings: Sequence[Timing]) -> tuple[Spread, ...]:
    """Return the median and the maximum of every part that was measured."""
    found = []
    for part in ("detect_s", "decide_s", "zero_s", "verified_s"):
        values = [v for t in timings if (v := getattr(t, part)) is not None]
        if values:
            found.append(Spread(part=part.removesuffix("_s"), runs=len(values), median_s=median(values), max_s=max(values)))
    return tuple(found)


READS = (("audit", "list"), ("audit", "verify"), ("doctor",), ("inventory", "show"), ("runbook", "show"), ("status",), ("version",))
READING = frozenset({"--dry-run", "--check", "--paper"})
ORDERS = frozenset({"fallback", "pause", "resume", "rollback", "abort"})
"""Commands that touch the cells that they name, and no others."""


def touched(step: Step) -> tuple[str, ...] | None:
    """Return the cells and workloads that a step's command names and may change, () for none; None where it may change any."""
    words = step.command[1:]
    if not words or any(words[: len(r)] == r for r in READS) or READING & {*words}:
        return ()
    rest = list(words[1:])
    if "--reason" in rest:
        del rest[(at := rest.index("--reason")) : at + 2]
    names = tuple(w for w in rest if w != "--unproven")
    return names if words[0] in ORDERS and names and not any(w.startswith("-") for w in names) else None


def places_in(text: str) -> tuple[str, ...]:
    """Return the names in braces of a text."""
    return tuple(_PLACE.findall(text))


def filled(text: str, names: Mapping[str, str]) -> str:
    """Return a text with every known name in braces replaced; others stay as they are."""
    return _PLACE.sub(lambda m: names.get(m[1], m[0]), text)


BOOKS = (
    ("evidence.", "metrics-down"),
    ("home.lost_evidence", "metrics-down"),
    ("home.source_not_ready", "partial-fallback"),
    ("guard.held", "partial-fallback"),
    ("guard.", "router-down"),
    ("router.", "router-down"),
    ("traffic.", "router-down"),
    ("notice.target", "spot-eviction"),
    ("notice.", "capacity-lost"),
    ("source.", "capacity-lost"),
    ("lifted.", "capacity-lost"),
    ("target.", "node-loss"),
    ("credentials.", "key-expired"),
    ("stale", "store-down"),
    ("tick.", "bad-release"),
)
"""Which runbook is for a notice, by how its cause begins; the first that fits. Of a FAIL the guardrail decides, else full-fallback."""

BY_GUARDRAIL = (
    ("hard fault", "gpu-faults"),
    ("quality", "quality-drift"),
    ("latency", "latency-regression"),
    ("ttft", "latency-regression"),
)
"""Which runbook is for a cell that went home on a FAIL, by what the notice says failed; errors and breaker are the rest."""


def runbook_for(cause: str, text: str) -> str:
    """Return the name of the runbook for a notice.

    Args:
        cause: of the notice, such as "traffic.router_down"; text: what it says.
    """
    if cause == "home.rolled_back":
        return next((book for word, book in BY_GUARDRAIL if word in text), "errors")
    return next((book for begin, book in BOOKS if cause.startswith(begin)), "full-fallback")
