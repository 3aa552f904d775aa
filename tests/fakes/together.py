"""Traffic, fake: a router in memory that takes words for many cells in one exchange, and counts the exchanges. Never a socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.split import Applied, Split, Stale
from fleetctl.errors import FleetctlError
from tests.fakes.router import FakeRouter

T = TypeVar("T")


class FakeTogether(FakeRouter):
    """A `FakeRouter` that is `Together` as well.

    `exchanges` names each exchange with how many cells it was for; `broken` holds what an exchange of that name raises as a whole;
    `before_fence` is called before a fence of many.
    """

    def __init__(self, router: FakeRouter) -> None:
        super().__init__(router._sources, target=router.target)
        self.exchanges: list[tuple[str, int]] = []
        self.broken: dict[str, Exception] = {}
        self.before_fence: Callable[[], None] = lambda: None

    def read_many(self, cells: Sequence[CellId]) -> Mapping[CellId, Split | FleetctlError]:
        self._exchange("read", len(cells))
        return {c: _or_error(lambda c=c: self.read(c)) for c in cells}  # type: ignore[misc]

    def fence_many(self, tokens: Mapping[CellId, Token]) -> Mapping[CellId, Split | Stale | FleetctlError]:
        self.before_fence()
        self._exchange("fence", len(tokens))
        return {c: _or_error(lambda c=c, t=t: self.fence(c, t)) for c, t in tokens.items()}  # type: ignore[misc]

    def set_many(self, splits: Sequence[Split]) -> Mapping[CellId, Applied | Stale | FleetctlError]:
        self._exchange("set", len(splits))
        if self.hide_sets:  # says that it did
            return {s.cell: Applied(split=s) for s in splits}
        return {s.cell: _or_error(lambda s=s: self.set(s)) for s in splits}  # type: ignore[misc]

    def _exchange(self, name: str, cells: int) -> None:
        self.exchanges.append((name, cells))
        if name in self.broken:
            raise self.broken[name]


def _or_error(action: Callable[[], T]) -> T | FleetctlError:
    try:
        return action()
    except FleetctlError as e:
        return e
