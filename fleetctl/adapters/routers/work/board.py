"""Traffic, adapter layer: where the split of a queue stands, and the Router over it. Never decides a weight.

A board holds one text per cell: share, cap, token, lease. Consumers look at it before they take a job; so a share is exact by bucket
where the queue itself compares (a database), and by the numbers of consumers where it cannot (SQS).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.marks import Mark
from fleetctl.adapters.routers.odd import understood
from fleetctl.adapters.routers.splits import as_split, checked_cell, epoch_ms, natural, rounded
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Drained, RouterCapabilities, Served, Split, Stale
from fleetctl.domain.units import Instant
from fleetctl.errors import TrafficNotApplied

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What a board says of a cell.

    Args:
        bp: share of the jobs that the target's consumers may take, 0 to 10,000.
    """

    bp: int = 0
    mark: Mark = field(default_factory=Mark)


class Board(Protocol):
    """Where a split stands. Every method raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell) by the deadline."""

    compares: Literal["target", "single_writer"]
    keeps_change: bool
    """Whether it keeps when the share last changed."""

    def read(self, c: CellId, deadline: Deadline) -> Posted:
        """Return what stands."""
        ...

    def post(self, c: CellId, floor: int, new: Posted, deadline: Deadline) -> bool:
        """Write it where the token that stands is `floor`; False where it is another."""
        ...

    def fence(self, c: CellId, floor: int, token: int, deadline: Deadline) -> bool:
        """Write the token alone where the one that stands is `floor`; False where it is another."""
        ...

    def taken(self, c: CellId, since: Instant, deadline: Deadline) -> Served:
        """Count jobs that were begun since then, by the side that took them."""
        ...

    def open_jobs(self, c: CellId, deadline: Deadline, *, on_target: bool) -> int:
        """Count the jobs that a side is working at."""
        ...


class WorkSplit:
    """The Router of batch work: the share of a queue's jobs that the target's consumers take.

    Args:
        board: where it stands; sources: source pool per cell; any other pool is the target.
    """

    def __init__(self, name: str, board: Board, *, sources: Mapping[CellId, PoolId] | None = None) -> None:
        self.name = name
        self._board = board
        self._sources = dict(sources or {})
        self._took_ms: deque[float] = deque(maxlen=20)
        self._fencing: dict[CellId, Token] = {}

    def capabilities(self) -> RouterCapabilities:
        """Tell what this split can do; `switch_ms` is the slowest of the last 20 sets, from the order to the read-back."""
        return RouterCapabilities(switch_ms=max(self._took_ms, default=None), streaming=False, mirror=False, fence=self._board.compares)

    @understood
    def read(self, c: CellId) -> Split:
        """Return what consumers go by. Raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell)."""
        cell = checked_cell(c)
        return _shown(cell, self._read(cell, Deadline()))

    @understood
    def fence(self, c: CellId, token: Token) -> Split | Stale:
        """Raise the floor to `token` and return what stands; Stale unless token > floor or this very fence was ours.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        cell, wanted, deadline = checked_cell(c), natural("token", token), Deadline()
        posted = self._read(cell, deadline)
        if wanted <= posted.mark.token:
            if wanted == posted.mark.token and self._fencing.get(cell) == wanted:
                return _shown(cell, posted)
            self._fencing.pop(cell, None)
            return Stale(cell=cell, seen=Token(posted.mark.token))
        if not self._ask(deadline, lambda: self._board.fence(cell, posted.mark.token, wanted, deadline)):
            return Stale(cell=cell, seen=Token(self._read(cell, deadline).mark.token))
        self._fencing[cell] = token
        return _shown(cell, self._read(cell, deadline))

    @understood
    def set(self, s: Split) -> Applied | Stale:
        """Post share, cap and lease where the token is the floor, then read back.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.not_shown.
        """
        started, cell, deadline = time.monotonic(), checked_cell(s.cell), Deadline()
        posted = self._read(cell, deadline)
        if posted.mark.token != s.token:
            return Stale(cell=cell, seen=Token(posted.mark.token))
        changed_ms = posted.mark.changed_ms if s.target_bp == posted.bp else 0
        if self._board.keeps_change:
            changed_ms = changed_ms or now_ms()
        mark = Mark(cap_bp=s.cap_bp, token=posted.mark.token, lease_ms=epoch_ms(s.lease_until), changed_ms=changed_ms)
        new = Posted(bp=s.target_bp, mark=mark)
        if not self._post(cell, posted.mark.token, new, deadline):
            return Stale(cell=cell, seen=Token(self._read(cell, deadline).mark.token))
        shown = self._read(cell, deadline)
        if shown.mark.token > s.token:
            if shown.bp == s.target_bp > 0:  # somebody fenced us off in between, and our word came last: then the last word is home
                home = replace(shown, bp=0, mark=replace(shown.mark, changed_ms=now_ms() if self._board.keeps_change else 0))
                self._post(cell, shown.mark.token, home, deadline)
            return Stale(cell=cell, seen=Token(shown.mark.token))
        if shown != new:
            text = f"queue {self.name} shows {shown.bp} bp for cell {cell} after {s.target_bp} bp were set: somebody else writes there too."
            raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl status")
        self._took_ms.append((time.monotonic() - started) * 1_000)
        return Applied(split=rounded(s))

    @understood
    def drain(self, c: CellId, pool: PoolId, token: Token) -> Drained | Stale:
        """Count the jobs that side is working at; stops none.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell, traffic.unknown_pool where the cell's source pool is not known.
        """
        cell, deadline = checked_cell(c), Deadline()
        posted = self._read(cell, deadline)
        if posted.mark.token != token:
            return Stale(cell=cell, seen=Token(posted.mark.token))
        if cell not in self._sources:
            raise TrafficNotApplied("traffic.unknown_pool", f"queue {self.name} was not told the source pool of cell {cell}.")
        on_target = self._sources[cell] != pool
        return Drained(open_streams=self._ask(deadline, lambda: self._board.open_jobs(cell, deadline, on_target=on_target)))

    @understood
    def served(self, c: CellId, since: Cursor) -> Served:
        """Count jobs begun since the cursor, by the side that took them. Raises TrafficNotApplied."""
        cell, deadline = checked_cell(c), Deadline()
        self._read(cell, deadline)
        return self._ask(deadline, lambda: self._board.taken(cell, since.since, deadline))

    def _read(self, cell: CellId, deadline: Deadline) -> Posted:
        return self._ask(deadline, lambda: self._board.read(cell, deadline))

    def _post(self, cell: CellId, floor: int, new: Posted, deadline: Deadline) -> bool:
        return self._ask(deadline, lambda: self._board.post(cell, floor, new, deadline))

    def _ask(self, deadline: Deadline, action: Callable[[], T]) -> T:
        """Do it and wait no longer than the call may take: neither for a queue nor for the disk that it lies on."""
        try:
            return within(deadline, action, f"queue {self.name}")
        except TimeoutError as late:
            text = f"the queue {self.name} cannot be asked: {late}."
            raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor") from late


def now_ms() -> int:
    """Return the time as epoch milliseconds."""
    return round(time.time() * 1_000)


def _shown(cell: CellId, posted: Posted) -> Split:
    return as_split(cell, posted.bp, posted.mark.cap_bp, posted.mark.token, posted.mark.lease_ms)
