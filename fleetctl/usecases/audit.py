"""Audit, use-case layer: events picked out of the log, and verdicts computed again from stored looks. Never changes a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from fleetctl.analysis.looks import replay
from fleetctl.domain.event import Event
from fleetctl.domain.evidence import LookRow, Verdict
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.errors import UsageError
from fleetctl.ports.state import Records, Store

MOST_SHOWN = 10
FLEET = "fleet"
"""Names the chain of what belongs to no cell: plans, approvals, anchors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsWanted:
    """Which events a person asks for; what is empty narrows nothing.

    Args:
        names: of cells and workloads, "fleet" for what belongs to no cell; kinds: the beginning of a kind, up to a dot or its end.
        by: names of actors; since: included, until: not; last: at most so many, the newest, 0 for all.
    """

    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    since: Instant | None = None
    until: Instant | None = None
    last: int = 0


class Log(Store, Records, Protocol):
    """What events and past fleets are read from."""


def find_events(log: Log, wanted: EventsWanted) -> tuple[Event, ...]:
    """Return the events that fit all of what is asked for, oldest first; those of one moment by chain and number.

    Raises:
        UsageError: audit.unknown: a name that is no cell with events and no workload of any fleet that was recorded.
    """
    found = [e for c in _chains(log, wanted.names) for e in log.events(c, 0) if _fits(e, wanted)]
    found.sort(key=lambda e: (e.at, e.cell or "", e.seq))
    return tuple(found[-wanted.last :] if wanted.last else found)


def _fits(e: Event, wanted: EventsWanted) -> bool:
    return (
        (not wanted.kinds or any(f"{e.kind}.".startswith(f"{kind.rstrip('.')}.") for kind in wanted.kinds))
        and (not wanted.by or e.actor.name in wanted.by)
        and (wanted.since is None or e.at >= wanted.since)
        and (wanted.until is None or e.at < wanted.until)
    )


def _chains(log: Log, names: tuple[str, ...]) -> tuple[CellId | None, ...]:
    known = log.cells()
    if not names:
        return (None, *known)
    chosen: dict[CellId | None, None] = {}
    past = log.all(Fleet)
    for name in names:
        theirs = {c.id for fleet in past for c in fleet.cells if name in (c.workload, c.id)}
        cells = [c for c in known if c == name or c in theirs]
        if not cells and not theirs and name != FLEET:
            raise UsageError("audit.unknown", f"there is no cell or workload {name!r}.", hint="Run: fleetctl status")
        chosen.update(dict.fromkeys(cells) if name != FLEET else {None: None})
    return tuple(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A look whose verdicts come out otherwise: the first verdict that differs, as it was stored and as it is computed."""

    at: Instant
    stored: Verdict | None
    computed: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LooksCheck:
    """What computing a cell's verdicts again came to.

    Args:
        looks: judged again; same: with the same verdicts to the last digit; shared: that rest on equal cells too (lane pooled).
        without: verdicts of an earlier release, which kept too little; differing: how many differ, differences: the first of them.
    """

    cell: CellId
    looks: int = 0
    same: int = 0
    shared: int = 0
    without: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()


def check_looks(cell: CellId, rows: Iterable[LookRow]) -> LooksCheck:
    """Judge a cell's stored looks again.

    Raises:
        UsageError: audit.no_looks: there are none, or the first ones are gone.
    """
    kept = list(rows)
    without = sum(1 for r in kept if r.seen is None and r.verdicts and r.arms)
    looks = same = shared = differing = 0
    shown: list[Difference] = []
    try:
        for r in replay(kept):
            looks += 1
            if r.agrees or r.is_shared:
                same, shared = same + r.agrees, shared + (not r.agrees)
                continue
            differing += 1
            if len(shown) < MOST_SHOWN:
                shown.append(_difference(r.row, r.verdicts))
    except ValueError as e:
        raise UsageError("audit.no_looks", f"the looks at {cell} cannot be judged again: {e}.", hint="Run: fleetctl audit verify") from e
    if not looks and not without:
        raise UsageError("audit.no_looks", f"nothing was ever judged at {cell!r}.", hint="Run: fleetctl status")
    return LooksCheck(cell=cell, looks=looks, same=same, shared=shared, without=without, differing=differing, differences=tuple(shown))


def _difference(row: LookRow, computed: tuple[Verdict, ...]) -> Difference:
    longest = max(len(row.verdicts), len(computed))
    stored, again = (tuple(v) + (None,) * (longest - len(v)) for v in (row.verdicts, computed))
    first = next((i for i in range(longest) if stored[i] != again[i]), 0)
    return Difference(at=row.at, stored=stored[first], computed=again[first])
