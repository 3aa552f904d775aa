"""Inventory, use case layer: what changed between two looks. Never calls a thing gone that was merely not seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fleetctl.domain.merge import Thing, merge, source_kind
from fleetctl.domain.scan import Scan
from fleetctl.domain.units import Instant, Scalar

_RESTLESS = frozenset({"running", "waiting", "used", "free", "requests_per_s", "input_tokens", "output_tokens", "p95_ms", "gpu_use"}) | {
    "trough_per_s",
    "healthy",
}
"""What differs at every look without anything having changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that came, went or changed.

    Args:
        fields: per changed fact, what it was and what it is.
    """

    what: Literal["added", "removed", "changed"]
    kind: str
    id: str
    fields: tuple[tuple[str, Scalar, Scalar], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryDiff:
    """The changes from one look to the next.

    Args:
        unsure: things of the first look that no part of the second could tell anything of.
    """

    before: int
    after: int
    before_at: Instant
    after_at: Instant
    changes: tuple[Change, ...]
    unsure: int


def diff_scans(before: Scan, after: Scan, kinds: Iterable[str] = ()) -> InventoryDiff:
    """Compare two looks.

    Args:
        kinds: only these; () for all.
    """
    wanted = set(kinds)
    first, second = ({(t.kind, t.id): t for t in merge(s.facts())[0] if not wanted or t.kind in wanted} for s in (before, after))
    asked = {source_of(p.source, p.part) for p in after.parts if not p.gaps}
    changes = [Change(what="added", kind=k[0], id=k[1]) for k in second.keys() - first.keys()]
    unsure = 0
    for key in first.keys() - second.keys():
        if _was_asked(first[key], asked):
            changes.append(Change(what="removed", kind=key[0], id=key[1]))
        else:
            unsure += 1
    for key in first.keys() & second.keys():
        fields = _fields(first[key], second[key])
        if fields:
            changes.append(Change(what="changed", kind=key[0], id=key[1], fields=fields))
    changes.sort(key=lambda c: (c.kind, c.id))
    return InventoryDiff(
        before=before.number,
        after=after.number,
        before_at=before.at,
        after_at=after.at,
        changes=tuple(changes),
        unsure=unsure,
    )


def source_of(name: str, part: str) -> str:
    """Return the beginning of what facts of a part call their source."""
    return f"{name}/{part}" if source_kind(name) in ("azure", "aws", "kubernetes", "table") else name


def _was_asked(thing: Thing, asked: set[str]) -> bool:
    return any(thing.source == a or thing.source.startswith(f"{a}/") for a in asked)


def _fields(old: Thing, new: Thing) -> tuple[tuple[str, Scalar, Scalar], ...]:
    names = sorted((old.values.keys() | new.values.keys()) - _RESTLESS)
    return tuple((n, old.values.get(n), new.values.get(n)) for n in names if old.values.get(n) != new.values.get(n))
