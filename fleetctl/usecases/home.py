"""Coming home, use-case layer: bring cells back with the router alone; plan, Terraform, approval, target and store are not needed.

Never imports an adapter. The router first, then a mark in a file, then (where it answers) the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import BoundedSemaphore
from typing import TypeVar

from fleetctl.domain.home import HOME_TOKEN_STEP, Returned, WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.split import Split, Stale, stays_bp
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import FleetctlError, TrafficNotApplied, UnsafeFallback
from fleetctl.ports.home import WaysHome
from fleetctl.ports.state import Clock, Store
from fleetctl.ports.traffic import Prober, Router, Together
from fleetctl.usecases.home_choice import Failure, readable_marks
from fleetctl.usecases.home_desk import Desk, Done, groups_of, require_shown

PARALLEL = 48
"""Cells whose routers are told side by side: an API that is asked for more at a time refuses."""
ASKED = 250
"""Cells whose sources are asked side by side. One with a replica that hangs takes the 5 s of a proof: a thousand of them 20 s."""

TRIES = 3
"""A live controller may fence between our read and our fence; then we read again."""

THROWN_BACK, THROWN_BACK_FOR = "traffic.throttled", timedelta(seconds=60)
"""A router that was asked too much at a time is asked again, for so long after the last cell that came home. Source: promise P3."""

PROOF_LASTS_S = 60.0
"""Age from which a real completion proves nothing any more. Source: design section 6."""

WEIGHT_LEASE = timedelta(seconds=180)
"""Lease of what stays on the target while the source warms up. Source: design section 6."""


def _cuts_nothing(way: WayHome) -> int:
    text = f"nothing here can end the target's open streams of {way.cell}; they finish by themselves."
    raise TrafficNotApplied("traffic.cannot_cut", text, hint="To end them all the same, stop the target's servers")


def _copies_nothing(_: WayHome) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePorts:
    """All that a return touches.

    Args:
        together: the router of several cells as one that takes words for many at a time, None where it does not.
        cut: ends the target's open streams of a cell at its router, and returns how many there were; raises TrafficNotApplied.
        hush: stops the copies of a cell's requests for its shadow at its router, idempotent; raises TrafficNotApplied.
        turns: how many cells' routers are told at a time, whoever waits for a source meanwhile.
    """

    router: Callable[[WayHome], Router]
    prober: Callable[[WayHome], Prober]
    ways: WaysHome
    clock: Clock
    store: Callable[[], Store]
    cut: Callable[[WayHome], int] = _cuts_nothing
    together: Callable[[Sequence[WayHome]], Together | None] = lambda _: None
    hush: Callable[[WayHome], None] = _copies_nothing
    turns: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(PARALLEL))


def return_home(way: WayHome, ports: HomePorts, actor: Actor, *, unproven: bool = False, first: Returned | None = None) -> Returned:
    """Bring one cell home without the store, as far as the replicas of its source that answer real completions can take it.

    Then the copies for its shadow stop too: whoever orders this wants nothing of the cell on the target, and no tick may come to stop them.

    Args:
        way: its verified way home.
        unproven: a person's choice to go all the way though some or all replicas of the source answered no real completion.
        first: what was reached before, where this goes on with it.

    Raises:
        UnsafeFallback: fallback.unproven, no replica of the source answers.
        TrafficNotApplied: the router cannot be reached or keeps refusing.
    """
    began = ports.clock.now()
    with ports.turns:
        router = ports.router(way)
        shown = router.read(way.cell)
    if shown.target_bp == 0:
        return _at_home(way, shown, ports) if first is None else replace(first, left_bp=0, unseen=shown.unseen)
    proof = _proven(way, shown, ports, unproven=unproven)
    asked = ports.clock.now()
    with ports.turns:
        done, reported = _lower(router, way, shown, proof.may_stay_bp, ports.clock, first.token if first is not None else None)
    found = _ended(way, proof, Done(split=done, reported=reported, asked=asked, ended=ports.clock.now()), began, ports, actor)
    return found if first is None else replace(found, was_bp=first.was_bp, ms_to_zero=found.ms_to_zero + first.ms_to_zero)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """How much of a cell's source answers real completions.

    Args:
        was_bp: weight before; may_stay_bp: what may stay on the target since no more of the source answers.
        is_proven: whether as much as goes home was proven.
    """

    was_bp: int
    may_stay_bp: int
    ready: int
    total: int
    is_proven: bool


def _proven(way: WayHome, shown: Split, ports: HomePorts, *, unproven: bool = False) -> _Proof:
    """Ask the source's replicas how much of the cell they can take.

    Raises:
        UnsafeFallback: fallback.unproven, no replica of the source answers.
    """
    ready, total = _prove(way, ports)
    if not ready and not unproven:
        raise UnsafeFallback(
            "fallback.unproven",
            f"no replica of {way.source} answers a real completion for {way.cell}; it keeps {shown.target_bp / 100:g} % on the target.",
            hint=f"If the target fails as well: fleetctl fallback {way.cell} --unproven",
        )
    is_whole = 0 < total <= ready
    return _Proof(
        was_bp=shown.target_bp,
        may_stay_bp=0 if unproven or is_whole else stays_bp(FULL_BP, ready / total),
        ready=ready,
        total=total,
        is_proven=is_whole if unproven else ready > 0,
    )


def _ended(way: WayHome, proof: _Proof, done: Done, began: Instant, ports: HomePorts, actor: Actor) -> Returned:
    """Mark what was reached, and tell it."""
    return Returned(
        cell=way.cell,
        ms_to_zero=(done.ended - began) / timedelta(milliseconds=1),
        was_bp=proof.was_bp,
        token=done.split.token,
        source_proven=proof.is_proven,
        reported="; ".join(filter(None, (done.reported, _mark(way, done.split.token, ports, actor), _hush(way, ports)))),
        left_bp=done.split.target_bp,
        ready=proof.ready,
        total=proof.total,
        router="" if done.split.target_bp else way.router.name,
        router_ms=(done.ended - done.asked) / timedelta(milliseconds=1),
        unseen=done.split.unseen,
    )


def _at_home(way: WayHome, shown: Split, ports: HomePorts) -> Returned:
    said = "; ".join(filter(None, ("was home already", _hush(way, ports))))
    return Returned(cell=way.cell, ms_to_zero=0.0, was_bp=0, token=shown.token, source_proven=True, reported=said, unseen=shown.unseen)


def _mark(way: WayHome, token: Token, ports: HomePorts, actor: Actor) -> str:
    """Note the return for the store; return why it could not be (the cell is home all the same), "" where it was."""
    try:
        ports.ways.mark(way.cell, token, ports.clock.now(), actor)
    except FleetctlError as e:
        return f"home, but not noted for the store: {e.message} Then run: fleetctl fallback --reconcile"
    return ""


def _hush(way: WayHome, ports: HomePorts) -> str:
    """Stop the copies for the shadow, once customers are home; return why they go on, "" where they do not."""
    try:
        ports.hush(way)
    except FleetctlError as e:
        return f"copies for the shadow of {way.cell} may go on: {e.message}"
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

    with ThreadPoolExecutor(max_workers=ASKED) as pool:
        return frozenset(w.cell for w, nothing in zip(ways, pool.map(asked, ways), strict=True) if nothing)


def _lower(router: Router, way: WayHome, shown: Split, may_stay_bp: int, clock: Clock, token: Token | None = None) -> tuple[Split, str]:
    """Leave at most so much on the target; by a token far above the router's, or by ours of before.

    Args:
        shown: what the router showed just now.

    Returns:
        What stands now, and what the router reported.
    """
    unfenced = ""
    for _ in range(TRIES):
        if token is None:
            token = Token(shown.token + HOME_TOKEN_STEP)
            stands, unfenced = _fenced(router, shown, token)
            if unfenced:
                token = shown.token
            if isinstance(stands, Stale):
                token, shown = None, router.read(way.cell)
                continue
        else:
            stands = shown
        done = router.set(_lowered(stands, may_stay_bp, token, clock))
        if not isinstance(done, Stale):
            require_shown(way, router.read(way.cell).target_bp, min(stands.target_bp, may_stay_bp))
            return done.split, "; ".join(filter(None, (unfenced, done.reported)))
        token, shown = None, router.read(way.cell)
    raise TrafficNotApplied("traffic.contended", f"another writer keeps moving {way.cell}", hint="Stop it, then run the same command again")


def _lowered(stands: Split, may_stay_bp: int, token: Token, clock: Clock) -> Split:
    """Return the split to set: at most so much stays, under a lease of its own."""
    stays = min(stands.target_bp, may_stay_bp)
    lease = clock.now() + WEIGHT_LEASE if stays else stands.lease_until
    return Split(cell=stands.cell, target_bp=stays, cap_bp=max(stands.cap_bp, stays), token=token, lease_until=lease)


def _fenced(router: Router, shown: Split, token: Token) -> tuple[Split | Stale, str]:
    """Raise the router's floor; where it cannot (its file cannot be written) customers go home all the same, by the token that stands.

    Returns:
        What stands, and what people must know, "" where it was fenced.
    """
    try:
        return router.fence(shown.cell, token), ""
    except TrafficNotApplied as e:
        if e.code != "traffic.not_shown":
            raise
        return shown, f"not fenced, so a controller that still runs may raise it again: {e.message}"


Results = tuple[Returned | Failure, ...]
Found = TypeVar("Found")


def fallback(ways: Sequence[WayHome], ports: HomePorts, actor: Actor, *, unproven: bool = False) -> Results:
    """Bring cells home side by side; one that fails does not hold up the others."""
    first = _together(ways, ports, actor, unproven=unproven)
    results = thrown_back(ways, first, ports.clock, lambda way: return_home(way, ports, actor, unproven=unproven))
    if not any(_was_home(r) for r in results):
        return results
    noted = _noted(ports)
    return tuple(
        _keep_home(w, r, ports, actor) if isinstance(r, Returned) and _was_home(r) and w.cell not in noted else r
        for w, r in zip(ways, results, strict=True)
    )


def thrown_back(
    ways: Sequence[WayHome],
    results: Sequence[Found | Failure],
    clock: Clock,
    go: Callable[[WayHome], Found],
    *,
    patience: timedelta = THROWN_BACK_FOR,
) -> tuple[Found | Failure, ...]:
    """Try those again that their router threw back since too much was asked of it, until for so long none of them gets through."""
    so_far, least, end = list(results), len(ways) + 1, clock.now()
    while left := [i for i, r in enumerate(so_far) if isinstance(r, Failure) and r.error.code == THROWN_BACK]:
        if len(left) < least:
            least, end = len(left), clock.now() + patience
        if clock.now() >= end:
            break
        clock.wait(clock.now() + timedelta(seconds=1), lambda: False)
        for i, found in zip(left, side_by_side([ways[i] for i in left], go), strict=True):
            so_far[i] = found
    return tuple(so_far)


def _together(ways: Sequence[WayHome], ports: HomePorts, actor: Actor, *, unproven: bool) -> Results:
    """Bring them home side by side; those of a router that takes many words at a time are handed over to it together."""
    with ThreadPoolExecutor(max_workers=PARALLEL) as workers:
        desks = _desks(ways, ports, workers)

        def go(way: WayHome) -> Future[Returned]:
            desk = desks.get(way.cell)
            if desk is None:
                return _over(return_home(way, ports, actor, unproven=unproven))
            return _hand_over(desk, way, ports, actor, unproven=unproven)

        handed = side_by_side(ways, go, ASKED)
        return tuple(f if isinstance(f, Failure) else _attempt(way, f.result) for way, f in zip(ways, handed, strict=True))


def _desks(ways: Sequence[WayHome], ports: HomePorts, workers: Executor) -> dict[CellId, Desk]:
    found: dict[CellId, Desk] = {}
    for group in groups_of(ways):
        try:
            router = ports.together(group)
        except FleetctlError:  # each of its cells says so
            continue
        if router is not None:
            desk = Desk(group, router, ports.clock, workers)
            found |= dict.fromkeys((way.cell for way in group), desk)
    return found


def _hand_over(desk: Desk, way: WayHome, ports: HomePorts, actor: Actor, *, unproven: bool) -> Future[Returned]:
    """Prove a cell's source and hand the cell over to its router's desk."""
    is_handed = False
    began = ports.clock.now()
    try:
        shown = desk.shown(way.cell)
        if shown is None:
            return _over(return_home(way, ports, actor, unproven=unproven))
        if shown.target_bp == 0:
            return _over(_at_home(way, shown, ports))
        proof = _proven(way, shown, ports, unproven=unproven)
        is_handed = True
        return desk.lower(
            way,
            shown,
            lowered=lambda stands, token: _lowered(stands, proof.may_stay_bp, token, ports.clock),
            finish=lambda done: _ended(way, proof, done, began, ports, actor),
            alone=lambda: return_home(way, ports, actor, unproven=unproven),
        )
    finally:
        if not is_handed:
            desk.leave()


def _over(r: Returned) -> Future[Returned]:
    done: Future[Returned] = Future()
    done.set_result(r)
    return done


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

    return tuple({**so_far, **{r.cell: r for r in side_by_side(open_, again, ASKED)}}.values())


def is_open(r: Returned | Failure, *, patient: bool = False) -> bool:
    """Tell whether waiting, for the source or for what routes, may bring a cell further home."""
    if isinstance(r, Returned):
        return not r.is_home
    return patient and r.error.code == "fallback.unproven"


def side_by_side(ways: Sequence[WayHome], go: Callable[[WayHome], Found], most: int | None = None) -> tuple[Found | Failure, ...]:
    """Do the same with many cells at a time; one that fails or hangs keeps no other from it. Results are in the order of the cells.

    Args:
        most: cells at a time, 48 by default; more only where `go` takes turns at routers.
    """

    order = _spread(ways)
    with ThreadPoolExecutor(max_workers=most or PARALLEL) as pool:
        done = pool.map(lambda way: _attempt(way, lambda: go(way)), (ways[i] for i in order))
        found = dict(zip(order, done, strict=True))
    return tuple(found[i] for i in range(len(ways)))


def _attempt(way: WayHome, go: Callable[[], Found]) -> Found | Failure:
    try:
        return go()
    except FleetctlError as e:
        return Failure(cell=way.cell, error=e)
    except Exception as e:  # what nobody expected of one router keeps no other cell from home
        text = f"{way.cell}: unexpected {type(e).__name__}: {e}"[:300]
        return Failure(cell=way.cell, error=FleetctlError("fallback.unexpected", text, hint="Run: fleetctl fallback CELL --paper"))


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
        if rollout is None or rollout.ended not in ("", "complete"):
            return found
    except FleetctlError:  # whatever ails the store
        pass
    try:
        router = ports.router(way)
        done, reported = _lower(router, way, router.read(way.cell), 0, ports.clock)
    except FleetctlError as e:
        return Failure(cell=way.cell, error=e)
    reported = "; ".join(filter(None, (reported, _mark(way, done.token, ports, actor), _hush(way, ports))))
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
