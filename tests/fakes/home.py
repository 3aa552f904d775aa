"""Ways home and marks in memory."""

from __future__ import annotations

from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Instant
from fleetctl.errors import UnsafeFallback
from fleetctl.ports.home import Mark


class MemoryWaysHome:
    """`WaysHome` in memory; a cell in `tampered` is refused."""

    def __init__(self) -> None:
        self._ways: dict[CellId, WayHome] = {}
        self._marks: dict[CellId, Mark] = {}
        self.tampered: set[CellId] = set()

    def write(self, way: WayHome) -> None:
        self._ways[way.cell] = way
        self.tampered.discard(way.cell)

    def read(self, c: CellId) -> WayHome:
        if c not in self._ways:
            raise UnsafeFallback("fallback.no_way_home", f"there is no way home of {c}.")
        if c in self.tampered:
            raise UnsafeFallback("fallback.tampered", f"the way home of {c} is not what was written.")
        return self._ways[c]

    def read_all(self) -> tuple[WayHome, ...]:
        return tuple(self.read(c) for c in self.cells())

    def cells(self) -> tuple[CellId, ...]:
        return tuple(sorted(self._ways))

    def mark(self, cell: CellId, token: Token, at: Instant, actor: Actor) -> Mark:
        old = self._marks.get(cell)
        if old is None or old.token <= token:
            self._marks[cell] = Mark(cell=cell, token=token, at=at, actor=actor)
        return self._marks[cell]

    def marks(self) -> tuple[Mark, ...]:
        return tuple(self._marks[c] for c in sorted(self._marks))

    def clear_mark(self, c: CellId) -> None:
        self._marks.pop(c, None)
