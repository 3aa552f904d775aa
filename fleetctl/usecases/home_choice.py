"""Coming home, use-case layer: which cells are meant, by name, region, tenant, class and wave. Never touches a router or the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fleetctl.domain.home import Wanted, WayHome
from fleetctl.domain.ids import CellId
from fleetctl.errors import FleetctlError, UnsafeFallback
from fleetctl.ports.home import WaysHome

MOST_NAMED = 12
"""What exists is named up to so many; a fleet has thousands of workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cell that could not be brought home, and why."""

    cell: CellId
    error: FleetctlError


def readable(ways: WaysHome) -> tuple[tuple[WayHome, ...], tuple[Failure, ...]]:
    """Read every way home; one that is refused does not stand in the way of the others."""
    good: list[WayHome] = []
    bad: list[Failure] = []
    for c in ways.cells():
        try:
            good.append(ways.read(c))
        except FleetctlError as e:
            bad.append(Failure(cell=c, error=e))
    return tuple(good), tuple(bad)


def choose(ways: Sequence[WayHome], wanted: Wanted) -> tuple[WayHome, ...]:
    """Pick the cells that fit everything that was asked for; a cohort also by the names of those whose requests it takes.

    Raises:
        UnsafeFallback: fallback.unknown, a value that no way home has; fallback.none, no way home at all, or none that fits all of it.
    """
    if not ways:
        raise UnsafeFallback("fallback.none", "no way home is saved here, so no plan was ever made.", hint="Run: fleetctl plan")
    parts: list[tuple[str, Collection[object], Callable[[WayHome], Collection[object]]]] = [
        ("workload or cell", wanted.names, lambda w: (w.workload, w.cell, *w.part_of)),
        ("region", wanted.regions, lambda w: (w.region,)),
        ("tenant", wanted.tenants, lambda w: (w.tenant,)),
        ("class", wanted.classes, lambda w: (w.klass,)),
        ("wave", wanted.waves, lambda w: (w.wave,) if w.wave else ()),
    ]
    chosen = list(ways)
    for what, values, of in parts:
        if not values:
            continue
        known = {v for w in ways for v in of(w) if v != ""}
        shown = {w.workload for w in ways} if values is wanted.names else known
        if unknown := [v for v in values if v not in known]:
            raise _unknown(what, unknown, sorted(shown, key=str))
        chosen = [w for w in chosen if any(v in values for v in of(w))]
    if not chosen:
        asked = ", ".join(f"{what} {' or '.join(map(str, values))}" for what, values, _ in parts if values)
        text = f"no cell is of {asked[:200]} at once; nothing was changed."
        raise UnsafeFallback("fallback.none", text, hint="Look: fleetctl fallback --all --dry-run")
    return tuple(chosen)


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
