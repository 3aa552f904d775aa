"""Traffic, adapter layer: start-up files written beside the caller's path. Never holds up going home."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from fleetctl.domain.ids import CellId

FILE_LIMIT_S = 0.2
"""How long a start-up file may hold up going home. Source: contract of ports.traffic.Router.set."""

STUCK_LIMIT_S = 0.02
"""How long it may while the one before it has not been written yet: a slow disk holds a cell up once, not at each order."""


class LateWriter:
    """Writes a cell's start-up file in a thread of its own, the newest order last."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._writes: dict[CellId, int] = {}
        self._stuck: threading.Thread | None = None

    def write(self, c: CellId, action: Callable[[], None], limit_s: float) -> str:
        """Do it and wait at most `limit_s`; return what failed or was late, "" where nothing was."""
        return self.write_many((c,), lambda _: action(), limit_s)

    def write_many(self, cells: Collection[CellId], action: Callable[[Collection[CellId]], None], limit_s: float) -> str:
        """Write the files of several cells at once, those that were not ordered anew since; as `write`."""
        numbers = {c: self._writes.get(c, 0) + 1 for c in cells}
        self._writes |= numbers
        failed: list[str] = []

        def run() -> None:
            try:
                newest = [c for c, number in numbers.items() if self._writes[c] == number]
                if newest:  # a late thread never overwrites a newer order
                    action(newest)
            except OSError as why:
                failed.append(f"start-up file of router {self._router} not written: {why}")

        writer = threading.Thread(target=run, name=f"start-up-{next(iter(cells))}", daemon=True)
        writer.start()
        is_stuck = self._stuck is not None and self._stuck.is_alive()
        writer.join(min(limit_s, STUCK_LIMIT_S) if is_stuck else limit_s)
        if writer.is_alive():
            self._stuck = writer
            return f"start-up file of router {self._router} not written within {limit_s * 1_000:.0f} ms"
        return failed[0] if failed else ""
