"""Traffic, adapter layer: start-up files written beside the caller's path, and again until they are. Never holds up going home."""

from __future__ import annotations

import atexit
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

AGAIN_S = 1.0
"""How long after a write that failed it is tried again, unless the cell was ordered anew: else a restart brings back what was before."""

EXIT_S = 3.0
"""How long a process that ends waits for files that it has not written yet."""

_unwritten: set[threading.Event] = set()


@atexit.register
def _finish() -> None:
    end = time.monotonic() + EXIT_S
    for written in tuple(_unwritten):
        written.wait(max(0.0, end - time.monotonic()))


class LateWriter:
    """Writes a cell's start-up file in a thread of its own, the newest order last, until it is written."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._writes: dict[CellId, int] = {}
        self._stuck: threading.Event | None = None

    def write(self, c: CellId, action: Callable[[], None], limit_s: float, late: Callable[[], None] = lambda: None) -> str:
        """Do it and wait at most `limit_s`; return what failed or was late, "" where nothing was. What failed is tried again each second.

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
        tried, written = threading.Event(), threading.Event()
        _unwritten.add(written)

        def newest() -> list[CellId]:
            return [c for c, number in numbers.items() if self._writes[c] == number]

        def run() -> None:
            began = 0.0
            try:
                while left := newest():  # a late thread never overwrites a newer order
                    began = time.monotonic()
                    try:
                        action(left)
                        break
                    except OSError as why:
                        failed.append(f"start-up file of router {self._router} not written: {why}")
                    tried.set()
                    time.sleep(AGAIN_S)
            finally:
                _unwritten.discard(written)
                tried.set()
                written.set()
            if left and time.monotonic() - began > LOCK_LIMIT_S / 2:
                with suppress(TrafficNotApplied, OSError):
                    late()

        is_stuck = self._stuck is not None and not self._stuck.is_set()
        threading.Thread(target=run, name=f"start-up-{next(iter(cells))}", daemon=True).start()
        if not tried.wait(min(limit_s, STUCK_LIMIT_S) if is_stuck else limit_s):
            self._stuck = tried
            return f"start-up file of router {self._router} not written within {limit_s * 1_000:.0f} ms"
        return failed[0] if failed else ""
