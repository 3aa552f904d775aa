"""Coming home, use-case layer: bring cells back with the router alone; plan, Terraform, approval, target and store are not needed.

Never imports an adapter. The router first, then a mark in a file, then (where it answers) the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta

from fleetctl.domain.event import Event
from fleetctl.domain.home import HOME_TOKEN_STEP, Returned, WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order, OrderKind
from fleetctl.domain.split import Split, Stale
from fleetctl.errors import FleetctlError, StoreUnavailable, TrafficNotApplied, UnsafeFallback
from fleetctl.ports.home import Mark, WaysHome
from fleetctl.ports.state import Clock, Store
from fleetctl.ports.traffic import Prober, Router

PARALLEL = 16
"""Cells brought home side by side."""

TRIES = 3
"""A live controller may fence between our read and our fence; then we read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cell that could not be brought home, and why."""

    cell: CellId
    error: FleetctlError


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePorts:
    """All that a return touches."""

    router: Callable[[WayHome], Router]
    prober: Callable[[WayHome], Prober]
    ways: WaysHome
    clock: Clock
    store: Callable[[], Store]


def return_home(way: WayHome, ports: HomePorts, actor: Actor, *, unproven: bool = False) -> Returned:
    """Bring one cell home without the store.

    Args:
        way: its verified way home.
        unproven: a person's choice to go to a source that answered no real completion.

    Raises:
        UnsafeFallback: fallback.unproven, no replica of the source answers.
        TrafficNotApplied: the router cannot be reached or keeps refusing.
    """
    began = ports.clock.now()
    router = ports.router(way)
    shown = router.read(way.cell)
    if shown.target_bp == 0:
        return Returned(cell=way.cell, ms_to_zero=0.0, was_bp=0, token=shown.token, source_proven=True, reported="was home already")
    proven = _prove(way, ports)
    if not proven and not unproven:
        raise UnsafeFallback(
            "fallback.unproven",
            f"no replica of {way.source} answers a real completion for {way.cell}; it keeps {shown.target_bp / 100:g} % on the target.",
            hint=f"If the target fails as well: fleetctl fallback {way.cell} --unproven",
        )
    asked = ports.clock.now()
    token, reported = _set_zero(router, way)
    done = ports.clock.now()
    reported = "; ".join(filter(None, (reported, _mark(way, token, ports, actor))))
    return Returned(
        cell=way.cell,
        ms_to_zero=(done - began) / timedelta(milliseconds=1),
        was_bp=shown.target_bp,
        token=token,
        source_proven=proven,
        reported=reported,
        router=way.router.name,
        router_ms=(done - asked) / timedelta(milliseconds=1),
    )


def _mark(way: WayHome, token: Token, ports: HomePorts, actor: Actor) -> str:
    """Note the return for the store; return why it could not be (the cell is home all the same), "" where it was."""
    try:
        ports.ways.mark(way.cell, token, ports.clock.now(), actor)
    except FleetctlError as e:
        return f"home, but not noted for the store: {e.message} Then run: fleetctl fallback --reconcile"
    return ""


def _prove(way: WayHome, ports: HomePorts) -> bool:
    try:
        return ports.prober(way).ready(way.source, way.cell).ready > 0
    except FleetctlError:
        return False


def _set_zero(router: Router, way: WayHome) -> tuple[Token, str]:
    for _ in range(TRIES):
        token = Token(router.read(way.cell).token + HOME_TOKEN_STEP)
        fenced = router.fence(way.cell, token)
        if isinstance(fenced, Stale):
            continue
        done = router.set(Split(cell=way.cell, target_bp=0, cap_bp=fenced.cap_bp, token=token, lease_until=fenced.lease_until))
        if not isinstance(done, Stale):
            return token, done.reported
    raise TrafficNotApplied("traffic.contended", f"another writer keeps moving {way.cell}", hint="Stop it, then run the same command again")


def fallback(ways: Sequence[WayHome], ports: HomePorts, actor: Actor, *, unproven: bool = False) -> tuple[Returned | Failure, ...]:
    """Bring cells home side by side; one that fails does not hold up the others."""

    def one(way: WayHome) -> Returned | Failure:
        try:
            return return_home(way, ports, actor, unproven=unproven)
        except FleetctlError as e:
            return Failure(cell=way.cell, error=e)
        except Exception as e:  # what nobody expected of one router keeps no other cell from home
            text = f"{way.cell}: unexpected {type(e).__name__}: {e}"[:300]
            return Failure(cell=way.cell, error=FleetctlError("fallback.unexpected", text, hint="Run: fleetctl fallback CELL --paper"))

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        results = tuple(pool.map(one, ways))
    was_home = [isinstance(r, Returned) and r.was_bp == 0 for r in results]
    return tuple(_keep_home(w, r, ports, actor) if zero else r for w, r, zero in zip(ways, results, was_home, strict=True))


def _keep_home(way: WayHome, found: Returned | Failure, ports: HomePorts, actor: Actor) -> Returned | Failure:
    """Fence a cell that was at zero, so that a rollout still before its first step cannot raise it a second later."""
    if isinstance(found, Failure) or any(m.cell == way.cell for m in ports.ways.marks()):
        return found
    try:
        rollout = ports.store().load(way.cell)
        if rollout is None or rollout.ended:
            return found
    except StoreUnavailable:
        pass
    try:
        token, reported = _set_zero(ports.router(way), way)
    except FleetctlError as e:
        return Failure(cell=way.cell, error=e)
    reported = "; ".join(filter(None, (reported, _mark(way, token, ports, actor))))
    return replace(found, token=token, reported=reported or "was home already; its rollout ends")


def reconcile(ports: HomePorts) -> tuple[tuple[CellId, ...], str]:
    """Tell the store what marks say: raise its tokens, end the rollouts, write the events.

    Returns:
        Cells reconciled, and why the rest is not (empty where all are).
    """
    done: list[CellId] = []
    marks = ports.ways.marks()
    if not marks:
        return (), ""
    try:
        store = ports.store()
        for mark in marks:
            _reconcile_one(store, mark)
            ports.ways.clear_mark(mark.cell)
            done.append(mark.cell)
    except StoreUnavailable as e:
        return tuple(done), e.message
    return tuple(done), ""


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

    One whose cell is home on the router ends as fallen back; any other goes on.

    Raises:
        StoreUnavailable: the store is not back yet; TrafficNotApplied: the router does not answer.
    """
    store = ports.store()
    done: list[CellId] = []
    for way in ways:
        r = store.load(way.cell)
        if r is None or r.ended or r.hold_reason != "stale":
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


def choose(ways: Sequence[WayHome], names: Sequence[str], *, everything: bool = False) -> tuple[WayHome, ...]:
    """Pick cells by cell or workload name; a cohort also by those whose requests it takes.

    Raises:
        UnsafeFallback: fallback.unknown, a name that no way home has; fallback.none, no way home at all.
    """
    if not ways:
        raise UnsafeFallback("fallback.none", "no way home is saved here, so no plan was ever made.", hint="Run: fleetctl plan")
    if everything:
        return tuple(ways)
    chosen = [w for w in ways if set(names) & {w.cell, w.workload, *w.part_of}]
    unknown = [n for n in names if not any(n in (w.cell, w.workload, *w.part_of) for w in ways)]
    if unknown:
        known = ", ".join(sorted({w.workload for w in ways}))
        raise UnsafeFallback("fallback.unknown", f"no workload or cell {', '.join(unknown)}; there are {known}.")
    return tuple(chosen)
