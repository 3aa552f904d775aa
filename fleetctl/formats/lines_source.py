"""Inventory, formats layer: a fleet file as JSON Lines, for fleets too large for YAML: what it says, with the line of every place.

The first line holds the fleet itself (name, lineage, policy, ...); every other line one of its parts, by the key that names it:
{"pool": NAME, ...}, {"workload": NAME, ...}, {"cell": NAME, "workload": NAME, ...}, {"router": NAME, ...} or {"source": NAME, ...}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fleetctl.formats.yaml_source import Document, Mistake, Path

SUFFIX = ".jsonl"
MOST_LINE = 1024 * 1024
MOST_LINES = 3_000_000
SECTIONS = {"cell": "cells", "pool": "pools", "workload": "workloads", "router": "routers", "source": "sources"}
"""Key that names a part, and its section; the first one that a line has counts (a cell names its workload too)."""


def read_lines(lines: Iterable[str]) -> Document:
    """Read a fleet of JSON Lines; every line that cannot be used is a mistake."""
    value: dict[str, Any] = {}
    found: dict[Path, int] = {(): 1}
    mistakes: list[Mistake] = []
    for number, text in enumerate(lines, start=1):
        if number > MOST_LINES:
            mistakes.append(Mistake(line=number, text=f"there are more than {MOST_LINES:,} lines"))
            break
        if not text.strip():
            continue
        row, fault = _row(text)
        if row is None:
            mistakes.append(Mistake(line=number, text=fault))
        elif not value:
            value = {**row, **{section: {} for section in SECTIONS.values() if section not in row}}
            found.update({(key,): number for key in value})
        else:
            _part(row, number, value, found, mistakes)
    return Document(value=value or None, lines=found, mistakes=tuple(mistakes))


def _part(row: dict[str, Any], number: int, value: dict[str, Any], found: dict[Path, int], mistakes: list[Mistake]) -> None:
    key = next((k for k in SECTIONS if k in row), None)
    if key is None:
        mistakes.append(Mistake(line=number, text=f"names no {', '.join(SECTIONS)}"))
        return
    name, section = row.pop(key), SECTIONS[key]
    if not isinstance(name, str):
        mistakes.append(Mistake(line=number, text=f"the {key}'s name must be text"))
    elif not isinstance(value[section], dict):
        mistakes.append(Mistake(line=number, text=f"{section} stands in the first line already"))
    elif name in value[section]:
        mistakes.append(Mistake(line=number, text=f"{key} {name!r} stands twice"))
    else:
        value[section][name] = row
        found[(section, name)] = number


def _row(text: str) -> tuple[dict[str, Any] | None, str]:
    if len(text) > MOST_LINE:
        return None, f"is longer than {MOST_LINE:,} characters"
    try:
        row = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        return None, "is nested too deeply"
    except ValueError as e:
        return None, f"not JSON: {str(e)[:120]}"
    return (row, "") if isinstance(row, dict) else (None, "is not a JSON object")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands twice")
    return out


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number")
