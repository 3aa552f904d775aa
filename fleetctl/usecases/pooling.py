"""Migrate, use-case layer: cells whose evidence counts together (lane pooled). Never judges, never touches traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fleetctl.analysis.pooled import Member, stop_of
from fleetctl.domain.evidence import JudgeState
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Decision, Rollout
from fleetctl.errors import RowUnreadable
from fleetctl.ports.state import Store


def members(r: Rollout, store: Store) -> Iterator[Member]:
    """Yield the other cells of a pooled group as they stand at this rollout's step, or stood when they left it."""
    for cell in r.spec.group:
        other = _other(cell, store) if cell != r.cell else None
        if other is None or other.plan != r.plan:
            continue
        here = other.step == r.step and other.settled_at is not None and other.direction == "forward" and not other.ended
        stop = next((s for s in other.stops if s.step == r.step), None)
        yield Member(cell=cell, state=other.judge if here else None, stop=None if here else stop, failed=other.latched is not None)


def _other(c: CellId, store: Store) -> Rollout | None:
    """Return another cell's rollout, None where its row cannot be read: that is its own matter, and its evidence is missing."""
    try:
        return store.load(c)
    except RowUnreadable:
        return None


def with_stop(r: Rollout, d: Decision, judged: JudgeState) -> Decision:
    """Keep what a pooled cell has shown at a step that it leaves, whichever way: its judge begins afresh at the next one."""
    leaves = d.next.step != r.step or d.next.direction == "home" or bool(d.next.ended)
    if r.spec.lane.kind != "pooled" or not leaves or r.settled_at is None or r.direction == "home" or r.ended or not r.weight_bp:
        return d
    kept = tuple(s for s in d.next.stops if s.step != r.step)
    return replace(d, next=replace(d.next, stops=(*kept, stop_of(judged, r.step))))
