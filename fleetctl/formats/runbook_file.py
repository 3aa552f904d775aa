"""Coming home, formats layer: a runbook's YAML file to a value, or all its mistakes at once. Never a cell's own values."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from fleetctl.domain.ids import is_id
from fleetctl.domain.runbook import (
    LIST_PLACE,
    PLACES,
    Call,
    Choice,
    Expect,
    Fault,
    LiveName,
    Precondition,
    Runbook,
    Severity,
    Step,
    places_in,
)
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_schema import Id, Shape
from fleetctl.formats.quantities import parse_duration
from fleetctl.formats.yaml_source import Document, read_yaml

ORDER = (
    "full-fallback",
    "partial-fallback",
    "one-region",
    "latency-regression",
    "errors",
    "quality-drift",
    "gpu-faults",
    "node-loss",
    "spot-eviction",
    "capacity-lost",
    "router-down",
    "metrics-down",
    "store-down",
    "bad-release",
    "key-expired",
)
"""Every runbook that is shipped, in the order in which people should think of them."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def _plain(text: str) -> str:
    if _CONTROL.search(text) or not text.strip() or len(text) > 1200:
        raise ValueError("must be text of 1 to 1,200 characters without control characters")
    unknown = [p for p in places_in(text) if p not in PLACES]
    if unknown:
        raise ValueError(f"knows no {{{unknown[0]}}}: use {', '.join(PLACES)}")
    return " ".join(text.split())


def _pattern(text: str) -> str:
    try:
        re.compile(text.replace("{", "").replace("}", ""))
    except re.error as e:
        raise ValueError(f"is no regular expression: {e}") from None
    return text


def _words(line: object) -> object:
    return tuple(line.split()) if isinstance(line, str) else line


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or words[0] != "fleetctl":
        raise ValueError("a command begins with fleetctl; what people do otherwise is by_hand")
    for word in words[1:]:
        if word != LIST_PLACE and (not re.fullmatch(r"[A-Za-z0-9{}_./:=-]+", word) or any(p not in PLACES for p in places_in(word))):
            raise ValueError(f"{word!r} is no plain word of a command")
    return words


Text = Annotated[str, AfterValidator(_plain)]
Seconds = Annotated[float, BeforeValidator(lambda v: parse_duration(v).total_seconds()), Field(gt=0, le=86_400)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words), AfterValidator(_command)]


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[Text, ...], BeforeValidator(_listed), Field(min_length=1, max_length=12)]


class StepShape(Shape):
    """One step."""

    id: Id
    text: Text
    budget: Seconds
    undo: Text
    command: Words | None = None
    by_hand: Text = ""
    exits: Annotated[tuple[int, ...], BeforeValidator(_listed), Field(min_length=1)] = (0,)
    pattern: Annotated[str, AfterValidator(_pattern)] = ""
    shows: Text
    danger: Text = ""
    choice: bool = False


class NeedShape(Shape):
    """A precondition."""

    live: LiveName
    otherwise: Text


class ChoiceShape(Shape):
    """A row of the decision table."""

    when: Text
    do: Text
    live: LiveName


class CallShape(Shape):
    """Whom to call."""

    when: Text
    whom: Text


class FaultShape(Shape):
    """What a rehearsal breaks."""

    kind: Literal["latency", "tail", "errors", "hang", "crash", "wrong_tokens", "router_gone", "store_gone", "evidence_gone", "source_gone"]
    numbers: dict[str, float] = Field(default_factory=dict)


class RunbookShape(Shape):
    """A whole file."""

    format_version: Literal[1]
    title: Text
    see: Annotated[Text, Field(max_length=38)]
    severity: Severity
    trigger: Texts
    alert: Text
    impact: Text
    needs: Annotated[tuple[NeedShape, ...], BeforeValidator(_listed)] = ()
    decisions: Annotated[tuple[ChoiceShape, ...], BeforeValidator(_listed), Field(min_length=2)]
    steps: Annotated[tuple[StepShape, ...], BeforeValidator(_listed), Field(min_length=1, max_length=20)]
    verification: Annotated[tuple[StepShape, ...], BeforeValidator(_listed), Field(min_length=1, max_length=20)]
    comms: Text
    escalation: Annotated[tuple[CallShape, ...], BeforeValidator(_listed), Field(min_length=1)]
    after: Texts
    limits: Text
    fault: FaultShape | None = None


@cache
def load_runbook(name: str) -> Runbook:
    """Return a shipped runbook.

    Raises:
        ConfigInvalid: runbook.unknown, runbook.broken.
    """
    if name not in ORDER:
        raise ConfigInvalid("runbook.unknown", f"there is no runbook {name[:70]!r}.", hint="Run: fleetctl runbook list")
    return parse_runbook(name, (files("fleetctl.formats") / "runbooks" / f"{name}.yaml").read_text("utf-8"))


def parse_runbook(name: str, text: str) -> Runbook:
    """Parse the text of a runbook's file.

    Raises:
        ConfigInvalid: runbook.broken, with every mistake as `file:line: text`.
    """
    document = read_yaml(text)
    mistakes = [f"{name}.yaml:{m.line}: {m.text}" for m in document.mistakes]
    shape: RunbookShape | None = None
    if not mistakes:
        try:
            shape = RunbookShape.model_validate(document.value)
        except ValidationError as e:
            mistakes = [f"{name}.yaml:{_line(document, x['loc'])}: {'.'.join(map(str, x['loc']))}: {x['msg']}" for x in e.errors()]
    if shape is not None:
        mistakes = [f"{name}.yaml:1: {m}" for m in _mistakes(name, shape)]
    if mistakes or shape is None:
        text = f"the runbook {name} has {len(mistakes)} mistakes."
        raise ConfigInvalid("runbook.broken", text, hint="Reinstall fleetctl.", details=tuple(mistakes))
    return _converted(name, shape)


def _line(document: Document, place: tuple[int | str, ...]) -> int:
    while place and place not in document.lines:
        place = place[:-1]
    return document.lines.get(place, 1)


def _mistakes(name: str, shape: RunbookShape) -> list[str]:
    steps = (*shape.steps, *shape.verification)
    found = [] if is_id(name) else [f"{name!r} is no name"]
    found += [f"step {s.id} needs either command or by_hand" for s in steps if (s.command is None) == (not s.by_hand)]
    found += [f"step {s.id} is done by hand, so no program can hold its output" for s in steps if s.by_hand and s.pattern]
    found += [f"step {s.id} has a command whose output nothing is held against (pattern)" for s in steps if s.command and not s.pattern]
    found += [f"step {s} stands twice" for s in sorted({s.id for s in steps if [x.id for x in steps].count(s.id) > 1})]
    found += [f"step {s.id} verifies, so it may not be dangerous or left out" for s in shape.verification if s.danger or s.choice]
    severe = ("--unproven", "--confirm", "--lift-cap", "--kill-streams", "release")
    found += [
        f"step {s.id} is severe and carries no danger" for s in steps if s.command and not s.danger and any(w in severe for w in s.command)
    ]
    return found


def _converted(name: str, shape: RunbookShape) -> Runbook:
    def steps(given: tuple[StepShape, ...]) -> tuple[Step, ...]:
        return tuple(
            Step(
                id=s.id,
                text=s.text,
                budget_s=s.budget,
                undo=s.undo,
                command=s.command or (),
                by_hand=s.by_hand,
                expect=Expect(exits=s.exits, pattern=s.pattern),
                shows=s.shows,
                danger=s.danger,
                choice=s.choice,
            )
            for s in given
        )

    return Runbook(
        id=name,
        title=shape.title,
        see=shape.see,
        severity=shape.severity,
        trigger=shape.trigger,
        alert=shape.alert,
        impact=shape.impact,
        needs=tuple(Precondition(live=n.live, otherwise=n.otherwise) for n in shape.needs),
        decisions=tuple(Choice(when=c.when, do=c.do, live=c.live) for c in shape.decisions),
        steps=steps(shape.steps),
        verification=steps(shape.verification),
        comms=shape.comms,
        escalation=tuple(Call(when=c.when, whom=c.whom) for c in shape.escalation),
        after=shape.after,
        limits=shape.limits,
        fault=None if shape.fault is None else Fault(kind=shape.fault.kind, numbers=shape.fault.numbers),
    )
