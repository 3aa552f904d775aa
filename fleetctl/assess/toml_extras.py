"""Assess, pure layer: what a project's TOML file makes optional: extras, optional groups, features. Never I/O, nothing is resolved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetctl.assess.requirements import normalised

NEVER = "-"
"""The extra of what is optional and in no extra: nothing can ask for it."""


def own_name(data: dict[str, Any]) -> str:
    """Return the project's own name, "" where the file gives none."""
    return str(_table(data, "project").get("name") or _table(data, "tool", "poetry").get("name") or "")


def extras_of(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield extra and requirement of a project's optional dependencies. Source: the pyproject.toml specification."""
    for extra, items in _table(data, "project", "optional-dependencies").items():
        yield from ((str(extra), i) for i in (items if isinstance(items, list) else ()) if isinstance(i, str))


def take_optional(data: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Take what is optional out of a Poetry or Cargo file; yield name, value and the extra, group or feature that brings it.

    Args:
        data: of the whole file; what is yielded is no longer in it.

    Source: Poetry's documentation (extras, optional groups), the Cargo book (features, optional dependencies).
    """
    poetry = _table(data, "tool", "poetry")
    extras = {str(k): {normalised(str(n)) for n in v} for k, v in _table(poetry, "extras").items() if isinstance(v, list)}
    by_name: dict[str, list[str]] = {}
    for extra, names in extras.items():
        for name in names:
            by_name.setdefault(name, []).append(extra)
    yield from _optional(_table(poetry, "dependencies"), by_name)
    for group, table in _table(poetry, "group").items():
        if isinstance(table, dict) and table.get("optional") is True and isinstance(table.get("dependencies"), dict):
            yield from ((str(name), value, str(group)) for name, value in table.pop("dependencies").items())
    if "package" in data or "workspace" in data:
        features = _table(data, "features")
        for place in (data, *_table(data, "target").values()):
            crates = _table(place, "dependencies") if isinstance(place, dict) else {}
            yield from _optional(crates, {normalised(str(c)): _features_with(str(c), features) for c in crates})


def _optional(table: dict[str, Any], extras: dict[str, list[str]]) -> Iterator[tuple[str, Any, str]]:
    for name, value in list(table.items()):
        brought_by = extras.get(normalised(name), [])
        if isinstance(value, dict) and value.get("optional") is True and "default" not in brought_by:
            del table[name]
            yield from ((name, value, extra) for extra in (brought_by or [NEVER]))


def _features_with(crate: str, features: dict[str, Any]) -> list[str]:
    """Return the features that bring an optional crate, by itself and through other features; its own name is one unless `dep:` is used."""
    brings = {f for f, items in features.items() if isinstance(items, list) and any(_brings(str(i), crate) for i in items)}
    if not any(f"dep:{crate}" in map(str, items) for items in features.values() if isinstance(items, list)):
        brings.add(crate)
    while True:
        more = {f for f, items in features.items() if isinstance(items, list) and brings & set(map(str, items))} - brings
        if not more:
            return sorted(brings)
        brings |= more


def _brings(item: str, crate: str) -> bool:
    return item in {crate, f"dep:{crate}"} or item.startswith(f"{crate}/")


def _table(data: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}
