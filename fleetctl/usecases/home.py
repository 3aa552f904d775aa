"""Coming home, use-case layer: bring cells back with the router alone; plan, Terraform, approval, target and store are not needed.

Never imports an adapter. The router first, then a mark in a file, then (where it answers) the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from fleetctl.domain.event import Event
from fleetctl.domain.home import HOME_TOKEN_STEP, Returned, WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order, OrderKind
from fleetctl.domain.split import Split, Stale, stays_bp
from fleetctl.domain.units import FULL_BP
from fleetctl.errors import FleetctlError, StoreUnavailable, TrafficNotApplied, UnsafeFallback
from fleetctl.ports.home import Mark, WaysHome
from fleetctl.ports.state import Clock, Store
from fleetctl.ports.traffic import Prober, Router
from fleetctl.usecases.home_choice import Failure, readable_marks

PARALLEL = 48
"""Cells brought home side by side."""

TRIES = 3
"""A live controller may fence between our read and our fence; then we read again."""

PROOF_LASTS_S = 60.0
"""Age from which a real completion proves nothing any more. Source: design section 6."""

WEIGHT_LEASE = timedelta(seconds=180)
"""Lease of what stays on the target while the source warms up. Source: design section 6."""


def _cuts_nothing(way: WayHome) -> int:
    text = f"nothing here can end the target's open streams of {way.cell}; they finish by themselves."
    raise TrafficNotApplied("traffic.cannot_cut", text, hint="To end them all the same, stop the target's servers")


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePorts:
    """All that a return touches.

    Args:
        cut: ends the target's open streams of a cell at its router, and returns how many there were; raises TrafficNotApplied.
    """

    router: Callable[[WayHome], Router]
    prober: Callable[[WayHome], Prober]
    ways: WaysHome
    clock: Clock
    store: Callable[[], Store]
    cut: Callable[[WayHome], int] = _cuts_nothing


def return_home(way: WayHome, ports: HomePorts, actor: Actor, *, unproven: bool = False, first: Returned | None = None) -> Returned:
    """Bring one cell home without the store, as far as the replicas of its source that answer real completions can take it.

    Args:
        way: its verified way home.
        unproven: a person's choice to go all the way though some or all replicas of the source answered no real completion.
        first: what was reached before, where this goes on with it.

    Raises:
        UnsafeFallback: fallback.unproven, no replica of the source answers.
        TrafficNotApplied: the router cannot be reached or keeps refusing.
    """
    began = ports.clock.now()
    router = ports.router(way)
    shown = router.read(way.cell)
    if shown.target_bp == 0:
        if first is not None:
            return replace(first, left_bp=0, unseen=shown.unseen)
        said = "was home already"
        return Returned(cell=way.cell, ms_to_zero=0.0, was_bp=0, token=shown.token, source_proven=True, reported=said, unseen=shown.unseen)
    ready, total = _prove(way, ports)
    if not ready and not unproven:
        raise UnsafeFallback(
            "fallback.unproven",
            f"no replica of {way.source} answers a real completion for {way.cell}; it keeps {shown.target_bp / 100:g} % on the target.",
            hint=f"If the target fails as well: fleetctl fallback {way.cell} --unproven",
        )
    is_whole = 0 < total <= ready
    may_stay = 0 if unproven or is_whole else stays_bp(FULL_BP, ready / total)
    asked = ports.clock.now()
    done, reported = _lower(router, way, shown, may_stay, ports.clock, first.token if first is not None else None)
    ended = ports.clock.now()
    took = (ended - began) / timedelta(milliseconds=1) + (first.ms_to_zero if first is not None else 0.0)
    reported = "; ".join(filter(None, (reported, _mark(way, done.token, ports, actor))))
    return Returned(
        cell=way.cell,
        ms_to_zero=took,
        was_bp=first.was_bp if first is not None else shown.target_bp,
        token=done.token,
        source_proven=is_whole if unproven else ready > 0,
        reported=reported,
        left_bp=done.target_bp,
        ready=ready,
        total=total,
        router="" if done.target_bp else way.router.name,
        router_ms=(ended - asked) / timedelta(milliseconds=1),
        unseen=done.unseen,
    )


def _mark(way: WayHome, token: Token, ports: HomePorts, actor: Actor) -> str:
    """Note the return for the store; return why it could not be (the cell is home all the same), "" where it was."""
    try:
        ports.ways.mark(way.cell, token, ports.clock.now(), actor)
    except FleetctlError as e:
        return f"home, but not noted for the store: {e.message} Then run: fleetctl fallback --reconcile"
    return ""


def _prove(way: WayHome, ports: HomePorts) -> tuple[int, int]:
    """Return how many replicas of the source answered a real completion lately, and how many there are."""
    try:
        found = ports.prober(way).ready(way.source, way.cell)
    except FleetctlError:
        return 0, 0
    return (found.ready, found.total) if found.age_s <= PROOF_LASTS_S else (0, found.total)


def silent(ways: Sequence[WayHome], ports: HomePorts) -> frozenset[CellId]:
    """Return the cells of whose source no replica answers a real completion; asked side by side."""

    def asked(way: WayHome) -> bool:
        try:
            return _prove(way, ports)[0] == 0
        except Exception:  # what nobody expected of one router proves no source
            return True

    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        return frozenset(w.cell for w, nothing in zip(ways, pool.map(asked, ways), strict=True) if nothing)


def _lower(router: Router, way: WayHome, shown: Split, may_stay_bp: int, clock: Clock, token: Token | None = None) -> tuple[Split, str]:
    """Leave at most so much on the target; by a token far above the router's, or by ours of before.

    Args:
        shown: what the router showed just now.

    Returns:
        What stands now, and what the router reported.
    """
    for _ in range(TRIES):
        if token is None:
            token = Token(shown.token + HOME_TOKEN_STEP)
            stands = router.fence(way.cell, token)
            if isinstance(stands, Stale):
                token, shown = None, router.read(way.cell)
                continue
        else:
            stands = shown
        stays = min(stands.target_bp, may_stay_bp)
        lease = clock.now() + WEIGHT_LEASE if stays else stands.lease_until
        wanted = Split(cell=way.cell, target_bp=stays, cap_bp=max(stands.cap_bp, stays), token=token, lease_until=lease)
        done = router.set(wanted)
        if not isinstance(done, Stale):
            _require_shown(router, way, stays)
            return done.split, done.reported
        token, shown = None, router.read(way.cell)
    raise TrafficNotApplied("traffic.contended", f"another writer keeps moving {way.cell}", hint="Stop it, then run the same command again")


def _require_shown(router: Router, way: WayHome, most_bp: int) -> None:
    """Believe no router that took the order and shows another weight."""
    shown = router.read(way.cell).target_bp
    if shown > most_bp:
        text = f"router {way.router.name} took the order for {way.cell} and still shows {shown / 100:g} % on the target."
        raise TrafficNotApplied("traffic.not_shown", text, hint=f"By hand: fleetctl fallback {way.cell} --paper")


Results = tuple[Returned | Failure, ...]
Found = TypeVar("Found")


def fallback(ways: Sequence[WayHome], ports: HomePorts, actor: Actor, *, unproven: bool = False) -> Results:
    """Bring cells home side by side; one that fails does not hold up the others."""
    results = side_by_side(ways, lambda way: return_home(way, ports, actor, unproven=unproven))
    if not any(_was_home(r) for r in results):
        return results
    noted = _noted(ports)
    return tuple(
        _keep_home(w, r, ports, actor) if isinstance(r, Returned) and _was_home(r) and w.cell not in noted else r
        for w, r in zip(ways, results, strict=True)
    )


def _was_home(r: Returned | Failure) -> bool:
    return isinstance(r, Returned) and r.was_bp == 0


def _noted(ports: HomePorts) -> frozenset[CellId]:
    """Return the cells whose mark holds: these were fenced by us. A mark that cannot be read proves nothing, and is written anew."""
    try:
        return frozenset(m.cell for m in readable_marks(ports.ways)[0])
    except FleetctlError:  # the folder cannot be listed
        return frozenset()


def go_on(ways: Sequence[WayHome], results: Results, ports: HomePorts, actor: Actor, *, patient: bool = False) -> Results:
    """Go on with the cells that are home in part, now that more of their source may answer.

    Args:
        results: of the same cells, so far; patient: also with those whose source did not answer at all.
    """
    so_far = {r.cell: r for r in results}
    open_ = [w for w in ways if is_open(so_far[w.cell], patient=patient)]

    def again(way: WayHome) -> Returned:
        before = so_far[way.cell]
        first = before if isinstance(before, Returned) else None
        try:
            return return_home(way, ports, actor, first=first)
        except UnsafeFallback:
            if first is None:
                raise
            return first  # the source answers no more: what was reached stands

    return tuple({**so_far, **{r.cell: r for r in side_by_side(open_, again)}}.values())


def is_open(r: Returned | Failure, *, patient: bool = False) -> bool:
    """Tell whether waiting, for the source or for what routes, may bring a cell further home."""
    if isinstance(r, Returned):
        return not r.is_home
    return patient and r.error.code == "fallback.unproven"


def side_by_side(ways: Sequence[WayHome], go: Callable[[WayHome], Found]) -> tuple[Found | Failure, ...]:
    """Do the same with many cells at a time; one that fails or hangs keeps no other from it. Results are in the order of the cells."""

    def one(way: WayHome) -> Found | Failure:
        try:
            return go(way)
        except FleetctlError as e:
            return Failure(cell=way.cell, error=e)
        except Exception as e:  # what nobody expected of one router keeps no other cell from home
            text = f"{way.cell}: unexpected {type(e).__name__}: {e}"[:300]
            return Failure(cell=way.cell, error=FleetctlError("fallback.unexpected", text, hint="Run: fleetctl fallback CELL --paper"))

    order = _spread(ways)
    with ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        found = dict(zip(order, pool.map(one, (ways[i] for i in order)), strict=True))
    return tuple(found[i] for i in range(len(ways)))


def _spread(ways: Sequence[WayHome]) -> list[int]:
    """Return in which order to take them: the first cell of each router, then the second of each, so that none waits for another."""
    seen: Counter[str] = Counter()
    turn = []
    for way in ways:
        turn.append(seen[way.router.name])
        seen[way.router.name] += 1
    return sorted(range(len(ways)), key=turn.__getitem__)


def _keep_home(way: WayHome, found: Returned, ports: HomePorts, actor: Actor) -> Returned | Failure:
    """Fence a cell that was at zero, so that a rollout still before its first step cannot raise it a second later."""
    try:
        rollout = ports.store().load(way.cell)
        if rollout is None or rollout.ended:
            return found
    except FleetctlError:  # whatever ails the store
        pass
    try:
        router = ports.router(way)
        done, reported = _lower(router, way, router.read(way.cell), 0, ports.clock)
    except FleetctlError as e:
        return Failure(cell=way.cell, error=e)
    reported = "; ".join(filter(None, (reported, _mark(way, done.token, ports, actor))))
    return replace(found, token=done.token, reported=reported or "was home already; its rollout ends", unseen=done.unseen)


def cut_streams(ways: Sequence[WayHome], results: Results, ports: HomePorts) -> dict[CellId, int | FleetctlError]:
    """End what the target still answers of cells that are home; a router that cannot is told by its error."""
    home = {r.cell for r in results if isinstance(r, Returned) and r.left_bp == 0}
    found: dict[CellId, int | FleetctlError] = {}
    for way in ways:
        if way.cell in home:
            try:
                found[way.cell] = ports.cut(way)
            except FleetctlError as e:
                found[way.cell] = e
    return found


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
