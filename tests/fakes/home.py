"""Ways home and marks in memory."""

from __future__ import annotations

from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Instant
from fleetctl.errors import UnsafeFallback
from fleetctl.ports.home import Mark


class MemoryWaysHome:
    """`WaysHome` in memory; a cell in `tampered` is refused, and the mark of one in `torn`."""

    def __init__(self) -> None:
        self._ways: dict[CellId, WayHome] = {}
        self._marks: dict[CellId, Mark] = {}
        self.tampered: set[CellId] = set()
        self.torn: set[CellId] = set()
        self.marks_read: list[CellId] = []

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
        old = self._marks.get(cell) if cell not in self.torn else None
        self.torn.discard(cell)
        if old is None or old.token <= token:
            self._marks[cell] = Mark(cell=cell, token=token, at=at, actor=actor)
        return self._marks[cell]

    def marked(self) -> tuple[CellId, ...]:
        return tuple(sorted(self._marks))

    def read_mark(self, c: CellId) -> Mark:
        self.marks_read.append(c)
        if c not in self._marks:
            raise UnsafeFallback("fallback.no_way_home", f"there is no mark of {c}.")
        if c in self.torn:
            raise UnsafeFallback("fallback.tampered", f"the mark of {c} is not what was written.")
        return self._marks[c]

    def clear_mark(self, c: CellId) -> None:
        self._marks.pop(c, None)
