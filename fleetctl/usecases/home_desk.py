"""Coming home, use-case layer: many cells of one router told in a few exchanges. Never imports an adapter, never waits for a source.

Each cell is proven on its own and handed over here. What was handed over within a quarter of a second goes to the router together: fenced,
lowered, read back, and only then marked. So a source that hangs keeps no other cell, and a thousand cells are no thousand exchanges.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from fleetctl.domain.home import HOME_TOKEN_STEP, Returned, WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Applied, Split
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError, TrafficNotApplied
from fleetctl.ports.state import Clock
from fleetctl.ports.traffic import Together

GATHER_S = 0.25
"""How long the first of several waits for the others; an eighth of what the promise leaves (2 s). Source: design section 8, P3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a router shows of a cell after it was lowered.

    Args:
        asked: when the router heard of it first; ended: when it had shown it.
    """

    split: Split
    reported: str
    asked: Instant
    ended: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handed:
    """A cell that waits for its word to the router.

    Args:
        lowered: returns what to set from what stands and our token; finish: makes the result; alone: does all of it on its own.
    """

    way: WayHome
    shown: Split
    lowered: Callable[[Split, Token], Split]
    finish: Callable[[Done], Returned]
    alone: Callable[[], Returned]
    result: Future[Returned] = field(default_factory=Future)


class Desk:
    """Where the cells of one router are handed over.

    Args:
        ways: of all cells that may come; each comes once, by `lower` or `leave`.
        workers: of all desks; more desks than workers take turns.
    """

    def __init__(self, ways: Sequence[WayHome], router: Together, clock: Clock, workers: Executor) -> None:
        self._cells = [way.cell for way in ways]
        self._router, self._clock, self._workers = router, clock, workers
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._all_here = threading.Event()
        self._left, self._is_busy = len(ways), False
        self._waiting: list[_Handed] = []
        self._shown: Mapping[CellId, Split | FleetctlError] | None = None

    def shown(self, c: CellId) -> Split | None:
        """Return what the router showed when it was first asked; None where it does not tell many cells apart: ask it alone.

        Raises:
            TrafficNotApplied: as the router says of this cell.
        """
        with self._reading:
            if self._shown is None:
                self._shown = self._read()
        found = self._shown.get(c)
        if isinstance(found, FleetctlError):
            raise found
        return found

    def _read(self) -> Mapping[CellId, Split | FleetctlError]:
        try:
            return self._router.read_many(self._cells)
        except FleetctlError as e:
            return dict.fromkeys(self._cells, e) if e.code == "traffic.router_down" else {}

    def leave(self) -> None:
        """Say that a cell will not be handed over."""
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                self._all_here.set()

    def lower(
        self,
        way: WayHome,
        shown: Split,
        *,
        lowered: Callable[[Split, Token], Split],
        finish: Callable[[Done], Returned],
        alone: Callable[[], Returned],
    ) -> Future[Returned]:
        """Hand a cell over and return what will become of it."""
        handed = _Handed(way=way, shown=shown, lowered=lowered, finish=finish, alone=alone)
        with self._lock:
            self._waiting.append(handed)
            begins, self._is_busy = not self._is_busy, True
        self.leave()
        if begins:
            self._workers.submit(self._serve)
        return handed.result

    def _serve(self) -> None:
        """Take what has gathered until nothing waits."""
        while True:
            self._all_here.wait(GATHER_S)
            with self._lock:
                taken, self._waiting = self._waiting, []
                if not taken:
                    self._is_busy = False
                    return
            self._take(taken)

    def _take(self, taken: Sequence[_Handed]) -> None:
        try:
            done = self._told(taken)
        except FleetctlError as e:  # the exchange as a whole: each may have been done or not
            done = dict.fromkeys((h.way.cell for h in taken), e if e.code == "traffic.router_down" else None)
        except Exception as e:  # what nobody expected of one router; whoever waits for these cells is told
            for h in taken:
                h.result.set_exception(e)
            return
        self._workers.submit(_settle, taken, done)  # marks are written while the router hears of the next

    def _told(self, taken: Sequence[_Handed]) -> dict[CellId, Done | FleetctlError | None]:
        """Fence, lower and read back; None of a cell that another writer moved meanwhile, so that it goes alone."""
        asked = self._clock.now()
        found: dict[CellId, Done | FleetctlError | None] = {}
        tokens = {h.way.cell: Token(h.shown.token + HOME_TOKEN_STEP) for h in taken}
        by_cell = {h.way.cell: h for h in taken}
        wanted = []
        for c, stands in self._router.fence_many(tokens).items():
            if isinstance(stands, Split):
                wanted.append(by_cell[c].lowered(stands, tokens[c]))
            else:
                is_down = isinstance(stands, FleetctlError) and stands.code != "traffic.not_shown"  # else its fence's file alone, maybe
                found[c] = stands if is_down and isinstance(stands, FleetctlError) else None
        applied: dict[CellId, Applied] = {}
        for c, said in self._router.set_many(wanted).items():
            if isinstance(said, Applied):
                applied[c] = said
            else:
                found[c] = said if isinstance(said, FleetctlError) else None
        shown = self._router.read_many(list(applied))
        ended = self._clock.now()
        for s in wanted:
            if s.cell in applied:
                found[s.cell] = _checked(by_cell[s.cell].way, applied[s.cell], shown[s.cell], s.target_bp, asked, ended)
        return found


def _checked(
    way: WayHome, said: Applied, shown: Split | FleetctlError, most_bp: int, asked: Instant, ended: Instant
) -> Done | FleetctlError:
    if isinstance(shown, FleetctlError):
        return shown
    try:
        require_shown(way, shown.target_bp, most_bp)
    except FleetctlError as e:
        return e
    return Done(split=said.split, reported=said.reported, asked=asked, ended=ended)


def _settle(taken: Sequence[_Handed], done: Mapping[CellId, Done | FleetctlError | None]) -> None:
    for h in taken:
        found = done.get(h.way.cell)
        try:
            if isinstance(found, FleetctlError):
                raise found
            h.result.set_result(h.alone() if found is None else h.finish(found))
        except Exception as e:
            h.result.set_exception(e)


def require_shown(way: WayHome, shown_bp: int, most_bp: int) -> None:
    """Believe no router that took the order and shows another weight. Raises TrafficNotApplied (traffic.not_shown)."""
    if shown_bp > most_bp:
        text = f"router {way.router.name} took the order for {way.cell} and still shows {shown_bp / 100:g} % on the target."
        raise TrafficNotApplied("traffic.not_shown", text, hint=f"By hand: fleetctl fallback {way.cell} --paper")


def groups_of(ways: Sequence[WayHome]) -> tuple[tuple[WayHome, ...], ...]:
    """Return the cells by router; only those that share theirs with another."""
    groups: dict[tuple[object, ...], list[WayHome]] = {}
    for way in ways:
        r = way.router
        groups.setdefault((r.name, r.kind, *sorted(r.settings.items())), []).append(way)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
