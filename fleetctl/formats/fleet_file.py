"""Inventory, formats layer: `inventory/<name>/fleet.yaml` (or .jsonl) to a Fleet, or all its mistakes at once. Never asks anything else."""

from __future__ import annotations

import codecs
import types
import typing
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fleetctl.domain.fleet import Fleet
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_checks import Parts, check, did_you_mean
from fleetctl.formats.fleet_convert import to_fleet
from fleetctl.formats.fleet_schema import (
    CellShape,
    CommitmentShape,
    EvidenceShape,
    FleetShape,
    PathShape,
    PolicyShape,
    PoolShape,
    RouterShape,
    SourceShape,
    StepShape,
    WorkloadShape,
)
from fleetctl.formats.fleet_schema import json_schema as json_schema
from fleetctl.formats.lines_source import SUFFIX, read_lines
from fleetctl.formats.presets import DEFAULT_PRESET, expand_steps
from fleetctl.formats.yaml_source import Document, Mistake, Path, read_yaml

M = TypeVar("M", bound=BaseModel)
_SECTIONS = ("pools", "workloads", "cells", "routers", "sources", "evidence")


def read_fleet(path: FilePath, *, serial: int = 1, shown_as: str = "") -> Fleet:
    """Read a fleet file: YAML, or JSON Lines where its name ends in .jsonl.

    Args:
        serial: number of this state of the fleet, kept in the store, at least 1.
        shown_as: how messages name the file; empty: as given.
    Raises:
        ConfigInvalid: config.missing, config.unreadable, or config.invalid with every mistake as `file:line: text`.
    """
    shown = shown_as or str(path)
    try:
        text = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except FileNotFoundError:
        raise ConfigInvalid("config.missing", f"the fleet file {shown} does not exist.", hint="Run: fleetctl init") from None
    except UnicodeDecodeError as e:
        raise ConfigInvalid(
            "config.unreadable", f"the fleet file {shown} is not UTF-8 (byte {e.start}).", hint="Save it as UTF-8."
        ) from None
    except OSError as e:
        raise ConfigInvalid(
            "config.unreadable", f"the fleet file {shown} cannot be read: {e.strerror}.", hint="Run: fleetctl doctor"
        ) from None
    if path.suffix == SUFFIX:
        return _parsed(read_lines(text.splitlines()), shown, serial)
    return parse_fleet(text, file=shown, serial=serial)


def parse_fleet(text: str, *, file: str, serial: int = 1) -> Fleet:
    """Parse the text of a fleet file.

    Args:
        file: its name in messages; serial: as in `read_fleet`.
    Raises:
        ConfigInvalid: config.invalid with every mistake as `file:line: text`.
    """
    return _parsed(read_yaml(text), file, serial)


def _parsed(document: Document, file: str, serial: int) -> Fleet:
    mistakes = list(document.mistakes)
    shape: FleetShape | None = None
    if isinstance(document.value, dict):
        shape = _shape(document, mistakes)
    elif not mistakes:
        mistakes.append(Mistake(line=1, text="a fleet file is a mapping that begins with name, lineage, pools, workloads and cells"))
    if mistakes or shape is None:
        found = sorted(set(mistakes))
        count = f"{len(found)} mistake" + ("s" if len(found) != 1 else "")
        raise ConfigInvalid(
            "config.invalid",
            f"the fleet file {file} has {count}.",
            hint="Mend the file, then run: fleetctl inventory",
            details=tuple(f"{file}:{m.line}: {m.text}" for m in found),
        )
    return to_fleet(shape, serial)


def _shape(document: Document, mistakes: list[Mistake]) -> FleetShape | None:
    shape: FleetShape | None = None
    try:
        shape = FleetShape.model_validate(document.value)
    except ValidationError as e:
        mistakes += [_mistake(error, document) for error in e.errors(include_url=False)]
    for path, text in check(_parts(document.value, shape)):
        mistakes.append(Mistake(line=document.line(path), text=f"{_dotted(path)}: {text}"))
    return shape


def _parts(value: Mapping[str, Any], shape: FleetShape | None) -> Parts:
    sections = {name: _mapping(value.get(name)) for name in _SECTIONS}
    names = {name: frozenset(str(key) for key in section) for name, section in sections.items()}
    return Parts(
        pools=_each(PoolShape, sections["pools"]),
        workloads=_each(WorkloadShape, sections["workloads"]),
        cells=_each(CellShape, sections["cells"]),
        routers=_each(RouterShape, sections["routers"]),
        sources=_each(SourceShape, sections["sources"]),
        evidence=_each(EvidenceShape, sections["evidence"]),
        commitments=_listed(CommitmentShape, value.get("commitments")),
        paths=_listed(PathShape, value.get("paths")),
        policy=shape.policy if shape else _salvaged(PolicyShape, _mapping(value.get("policy"))),
        steps=_steps(value, shape),
        names=names,
        settings={key: text for key, text in _mapping(value.get("settings")).items() if isinstance(text, str)},
    )


def _steps(value: Mapping[str, Any], shape: FleetShape | None) -> dict[int, StepShape]:
    if shape is not None and shape.policy.steps is not None:
        return dict(enumerate(shape.policy.steps))
    try:
        items = expand_steps(_mapping(value.get("policy")).get("steps", DEFAULT_PRESET))
    except ValueError:
        return {}
    return _listed(StepShape, items, needs=frozenset({"phase", "weight"}))


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _each(model: type[M], items: Mapping[str, Any]) -> dict[str, M]:
    good = {name: _salvaged(model, item) for name, item in items.items()}
    return {name: item for name, item in good.items() if item is not None}


def _listed(model: type[M], items: object, needs: frozenset[str] = frozenset()) -> dict[int, M]:
    good = {i: _salvaged(model, item, needs) for i, item in enumerate(items if isinstance(items, list) else ())}
    return {i: item for i, item in good.items() if item is not None}


def _salvaged(model: type[M], item: Any, needs: frozenset[str] = frozenset()) -> M | None:
    """Read what can be read of a part, so that its other mistakes are found too: keys that are wrong in themselves are left out."""
    try:
        return model.model_validate(item)
    except ValidationError as e:
        wrong = {str(error["loc"][0]) for error in e.errors(include_url=False) if error["loc"]}
    if not isinstance(item, dict) or not wrong or wrong & needs:
        return None
    try:
        return model.model_validate({key: value for key, value in item.items() if key not in wrong})
    except ValidationError:
        return None


def _mistake(error: ErrorDetails, document: Document) -> Mistake:
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    kind = error["type"]
    if kind == "extra_forbidden":
        known = _keys_of(FleetShape, path[:-1])
        return Mistake(line=document.line(path), text=_at(path[:-1], f"unknown key {path[-1]!r}{did_you_mean(str(path[-1]), known)}"))
    if kind == "missing":
        return Mistake(line=document.line(path[:-1]), text=_at(path[:-1], f"{path[-1]} is missing"))
    return Mistake(line=document.line(path), text=_at(path, _text(error)))


def _at(path: Path, text: str) -> str:
    return f"{_dotted(path)}: {text}" if path else text


def _dotted(path: Path) -> str:
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def _text(error: ErrorDetails) -> str:
    kind, got, context = error["type"], _short(error.get("input")), error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        allowed = str(context["expected"]).replace(" or ", ", ").split(", ")
        near = get_close_matches(repr(error.get("input")), allowed, n=1, cutoff=0.6)
        return f"must be {context['expected']}, not {got}" + (f" (did you mean {near[0]}?)" if near else "")
    bound = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}.get(kind)
    if bound:
        word = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}[bound]
        return f"must be {word} {context[bound]:g}, not {got}"
    what = {
        "string_type": "text",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "finite_number": "a finite number",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "a mapping",
        "model_type": "a mapping",
    }.get(kind)
    return f"must be {what}, not {got}" if what else f"{error['msg'].lower()} (got {got})"


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _keys_of(model: type[BaseModel], path: Path) -> tuple[str, ...]:
    at: Any = model
    for part in path:
        at = _step_into(at, part)
    shape = next(_models(at), None)
    return tuple(f.alias or name for name, f in shape.model_fields.items()) if shape else ()


def _step_into(hint: Any, part: str | int) -> Any:
    shape = next(_models(hint), None)
    if shape is not None and not _is_container(hint):
        field = next((f for name, f in shape.model_fields.items() if (f.alias or name) == part), None)
        return field.annotation if field else None
    for inner in _unwrapped(hint):
        origin, args = typing.get_origin(inner), typing.get_args(inner)
        if origin is dict:
            return args[1]
        if origin is list:
            return args[0]
    return None


def _unwrapped(hint: Any) -> Iterator[Any]:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        yield from _unwrapped(typing.get_args(hint)[0])
    elif origin in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _unwrapped(member)
    else:
        yield hint


def _is_container(hint: Any) -> bool:
    return any(typing.get_origin(inner) in (dict, list) for inner in _unwrapped(hint))


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    for inner in _unwrapped(hint):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield inner
