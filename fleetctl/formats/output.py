"""Every step, formats layer: `-o json`, `-o yaml` and streams of JSON lines, with a format version. Never a table.

An answer is one object: format_version, kind, and either `items` (a list) or the fields of the one thing. A stream is one such
object a line. Fields are added in a minor version and never renamed or removed within a major one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fleetctl.domain.canonical import plain

OUTPUT_FORMAT = "1.0"
_PUBLIC = {"klass": "class", "class_": "class"}
"""Fields whose domain name only avoids a word of Python's."""


def public(value: object) -> Any:
    """Return a domain value (or plain data) as JSON types, without the encoder's class names.

    Durations are seconds, instants ISO 8601 in UTC, money and prices exact text.
    """
    return _without_names(plain(value, whole=True))


def _without_names(data: Any) -> Any:
    if isinstance(data, dict):
        return {_PUBLIC.get(key, key): _without_names(value) for key, value in data.items() if key != "_"}
    if isinstance(data, list):
        return [_without_names(item) for item in data]
    return data


def envelope(kind: str, value: object) -> dict[str, Any]:
    """Wrap a value: a sequence becomes `items`, an object gives its own fields."""
    data = public(value)
    head: dict[str, Any] = {"format_version": OUTPUT_FORMAT, "kind": kind}
    return {**head, **data} if isinstance(data, Mapping) else {**head, "items": data}


def as_json(kind: str, value: object) -> str:
    """Return the answer as indented JSON."""
    return json.dumps(envelope(kind, value), indent=2, ensure_ascii=False, allow_nan=False)


def as_yaml(kind: str, value: object) -> str:
    """Return the answer as YAML."""
    import yaml

    text = yaml.safe_dump(envelope(kind, value), sort_keys=False, allow_unicode=True, width=120)
    return str(text).rstrip("\n")
