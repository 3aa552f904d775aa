"""Coming home, use-case layer: tell the store, once it is back, what was done without it. Never touches a weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.domain.event import Event
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order, OrderKind
from fleetctl.errors import FleetctlError, StoreUnavailable
from fleetctl.ports.home import Mark
from fleetctl.ports.state import Store
from fleetctl.rollout.decide import STALE
from fleetctl.usecases.home import HomePorts
from fleetctl.usecases.home_choice import Failure, readable_marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What the store was told.

    Args:
        cells: whose returns it knows now; why_not: why it does not answer, "" where it does.
        failed: cells whose mark cannot be read, taken or forgotten; they hold up no other.
    """

    cells: tuple[CellId, ...] = ()
    why_not: str = ""
    failed: tuple[Failure, ...] = ()


def reconcile(ports: HomePorts) -> Reconciled:
    """Tell the store what marks say: raise its tokens, end the rollouts, write the events. Raises nothing of ours."""
    done: list[CellId] = []
    failed: tuple[Failure, ...] = ()
    try:
        marks, failed = readable_marks(ports.ways)
        if not marks:
            return Reconciled(failed=failed)
        store = ports.store()
    except FleetctlError as e:
        return Reconciled(why_not=e.message, failed=failed)
    for mark in marks:
        try:
            _reconcile_one(store, mark)
            ports.ways.clear_mark(mark.cell)
        except StoreUnavailable as e:
            return Reconciled(cells=tuple(done), why_not=e.message, failed=failed)
        except FleetctlError as e:
            failed = (*failed, Failure(cell=mark.cell, error=e))
        else:
            done.append(mark.cell)
    return Reconciled(cells=tuple(done), failed=failed)


def _reconcile_one(store: Store, mark: Mark) -> None:
    store.raise_token(mark.cell, mark.token)
    event = Event(
        at=mark.at,
        kind="fallback.returned",
        actor=mark.actor,
        text=f"{mark.cell} was brought home without the store",
        cell=mark.cell,
        data={"token": mark.token},
    )
    store.append((event,))
    rollout = store.load(mark.cell)
    if rollout is not None and rollout.ended in ("", "complete"):
        store.order(mark.cell, Order(kind="fallback", actor=mark.actor, at=mark.at, note="reconciled"))


def catch_up(ways: Sequence[WayHome], ports: HomePorts, actor: Actor) -> tuple[CellId, ...]:
    """Raise the store's token of every rollout that found the router ahead of it, though no mark tells why (a store from a backup).

    One whose cell is home on the router ends as fallen back, also one that was complete; any other goes on.

    Raises:
        StoreUnavailable: the store is not back yet; TrafficNotApplied: the router does not answer.
    """
    store = ports.store()
    done: list[CellId] = []
    for way in ways:
        r = store.load(way.cell)
        if r is None or r.ended not in ("", "complete") or r.hold_reason != STALE:
            continue
        shown = ports.router(way).read(way.cell)
        store.raise_token(way.cell, shown.token)
        text = f"{way.cell}: the store takes over the router's token {shown.token}"
        event = Event(at=ports.clock.now(), kind="fallback.reconciled", actor=actor, text=text, cell=way.cell, data={"token": shown.token})
        store.append((event,))
        kind: OrderKind = "fallback" if shown.target_bp == 0 else "resume"
        store.order(way.cell, Order(kind=kind, actor=actor, at=ports.clock.now(), note="reconciled"))
        done.append(way.cell)
    return tuple(done)
