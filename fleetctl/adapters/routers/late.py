"""Traffic, adapter layer: start-up files written beside the caller's path. Never holds up going home."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from fleetctl.adapters.routers.lock import LOCK_LIMIT_S
from fleetctl.domain.ids import CellId
from fleetctl.errors import TrafficNotApplied

FILE_LIMIT_S = 0.2
"""How long a start-up file may hold up going home. Source: contract of ports.traffic.Router.set."""

STUCK_LIMIT_S = 0.02
"""How long it may while the one before it has not been written yet: a slow disk holds a cell up once, not at each order."""


class LateWriter:
    """Writes a cell's start-up file in a thread of its own, the newest order last."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._writes: dict[CellId, int] = {}
        self._stuck: threading.Event | None = None

    def write(self, c: CellId, action: Callable[[], None], limit_s: float, late: Callable[[], None] = lambda: None) -> str:
        """Do it and wait at most `limit_s`; return what failed or was late, "" where nothing was.

        Args:
            late: done after a write that took so long that others may have found the files locked meanwhile.
        """
        return self.write_many((c,), lambda _: action(), limit_s, late)

    def write_many(
        self,
        cells: Collection[CellId],
        action: Callable[[Collection[CellId]], None],
        limit_s: float,
        late: Callable[[], None] = lambda: None,
    ) -> str:
        """Write the files of several cells at once, those that were not ordered anew since; as `write`."""
        numbers = {c: self._writes.get(c, 0) + 1 for c in cells}
        self._writes |= numbers
        failed: list[str] = []

        began, ended = time.monotonic(), threading.Event()

        def run() -> None:
            try:
                newest = [c for c, number in numbers.items() if self._writes[c] == number]
                if newest:  # a late thread never overwrites a newer order
                    action(newest)
            except OSError as why:
                failed.append(f"start-up file of router {self._router} not written: {why}")
            finally:
                ended.set()
            if time.monotonic() - began > LOCK_LIMIT_S / 2:
                with suppress(TrafficNotApplied, OSError):
                    late()

        is_stuck = self._stuck is not None and not self._stuck.is_set()
        threading.Thread(target=run, name=f"start-up-{next(iter(cells))}", daemon=True).start()
        if not ended.wait(min(limit_s, STUCK_LIMIT_S) if is_stuck else limit_s):
            self._stuck = ended
            return f"start-up file of router {self._router} not written within {limit_s * 1_000:.0f} ms"
        return failed[0] if failed else ""
