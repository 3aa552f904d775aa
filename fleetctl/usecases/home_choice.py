"""Coming home, use-case layer: which cells are meant, by name, region, tenant, class and wave. Never touches a router or the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fleetctl.domain.home import Wanted, WayHome
from fleetctl.domain.ids import CellId
from fleetctl.errors import FleetctlError, UnsafeFallback
from fleetctl.ports.home import Mark, WaysHome

T = TypeVar("T")
MOST_NAMED = 12
"""What exists is named up to so many; a fleet has thousands of workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cell that could not be brought home, and why."""

    cell: CellId
    error: FleetctlError


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a person asked for.

    Args:
        ways: of the cells that go; refused: files that cannot be read, of which each may be meant.
        unknown: what was asked for and no readable way home has, as "region 'eu'"; one of the refused may have it.
    """

    ways: tuple[WayHome, ...]
    refused: tuple[Failure, ...] = ()
    unknown: tuple[str, ...] = ()


def readable(ways: WaysHome) -> tuple[tuple[WayHome, ...], tuple[Failure, ...]]:
    """Read every way home; one that is refused does not stand in the way of the others."""
    return _one_by_one(ways.cells(), ways.read)


def readable_marks(ways: WaysHome) -> tuple[tuple[Mark, ...], tuple[Failure, ...]]:
    """Read every mark; one that is refused does not stand in the way of the others."""
    return _one_by_one(ways.marked(), ways.read_mark)


def _one_by_one(cells: Sequence[CellId], read: Callable[[CellId], T]) -> tuple[tuple[T, ...], tuple[Failure, ...]]:
    good: list[T] = []
    bad: list[Failure] = []
    for c in cells:
        try:
            good.append(read(c))
        except FleetctlError as e:
            bad.append(Failure(cell=c, error=e))
    return tuple(good), tuple(bad)


def choose(ways: Sequence[WayHome], wanted: Wanted, refused: Sequence[Failure] = ()) -> Choice:
    """Pick the cells that fit everything that was asked for; a cohort also by the names of those whose requests it takes.

    A file that cannot be read says neither workload nor region: unless only other cells are named, it may be of a cell that is meant, and
    what nobody else has may be its own.

    Raises:
        UnsafeFallback: fallback.unknown, a value that no way home has; fallback.none, no way home at all, or none that fits all of it.
    """
    maybe = _may_be_meant(ways, wanted, refused)
    if not ways and not maybe:
        raise UnsafeFallback("fallback.none", "no way home is saved here, so no plan was ever made.", hint="Run: fleetctl plan")
    parts: list[tuple[str, Collection[object], Callable[[WayHome], Collection[object]]]] = [
        ("workload or cell", wanted.names, lambda w: (w.workload, w.cell, *w.part_of)),
        ("region", wanted.regions, lambda w: (w.region,)),
        ("tenant", wanted.tenants, lambda w: (w.tenant,)),
        ("class", wanted.classes, lambda w: (w.klass,)),
        ("wave", wanted.waves, lambda w: (w.wave,) if w.wave else ()),
    ]
    chosen, missed = list(ways), list[str]()
    for what, values, of in parts:
        if not values:
            continue
        known = {v for w in ways for v in of(w) if v != ""}
        shown = {w.workload for w in ways} if values is wanted.names else known
        unknown = [v for v in values if v not in known]
        if unknown and not maybe:
            raise _unknown(what, unknown, sorted(shown, key=str))
        missed += [f"{what} {str(v)[:70]!a}" for v in unknown if v not in {f.cell for f in maybe}]
        chosen = [w for w in chosen if any(v in values for v in of(w))]
    if not chosen and not maybe:
        asked = ", ".join(f"{what} {' or '.join(map(str, values))}" for what, values, _ in parts if values)
        text = f"no cell is of {asked[:200]} at once; nothing was changed."
        raise UnsafeFallback("fallback.none", text, hint="Look: fleetctl fallback --all --dry-run")
    return Choice(ways=tuple(chosen), refused=maybe, unknown=tuple(missed[:MOST_NAMED]))


def _may_be_meant(ways: Sequence[WayHome], wanted: Wanted, refused: Sequence[Failure]) -> tuple[Failure, ...]:
    """Return the files that cannot be read and may be of a cell that is meant: all, unless every name is a cell's and no workload's."""
    cells = {w.cell for w in ways} | {f.cell for f in refused}
    groups = {name for w in ways for name in (w.workload, *w.part_of) if name != w.cell}
    if wanted.names and all(n in cells and n not in groups for n in wanted.names):
        return tuple(f for f in refused if f.cell in wanted.names)
    return tuple(refused)


def _unknown(what: str, unknown: Sequence[object], known: Sequence[object]) -> UnsafeFallback:
    """Return the refusal, with what there is and what a typing error may have meant."""
    asked = ", ".join(ascii(str(v)[:70]) for v in unknown[:MOST_NAMED])
    if not known:
        there = "none is known here"
    else:
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        there = f"there are {', '.join(str(k) for k in known[:MOST_NAMED])}{more}"
    return UnsafeFallback(
        "fallback.unknown", f"no {what} {asked}; {there}. Nothing was changed.", hint="Look: fleetctl fallback --all --dry-run"
    )
