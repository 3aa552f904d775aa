"""Traffic, adapter layer: start-up files written beside the caller's path. Never holds up going home."""

from __future__ import annotations

import threading
from collections.abc import Callable

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
        number = self._writes.get(c, 0) + 1
        self._writes[c] = number
        failed: list[str] = []

        def run() -> None:
            try:
                if self._writes[c] == number:  # a late thread never overwrites a newer order
                    action()
            except OSError as why:
                failed.append(f"start-up file of router {self._router} not written: {why}")

        writer = threading.Thread(target=run, name=f"start-up-{c}", daemon=True)
        writer.start()
        is_stuck = self._stuck is not None and self._stuck.is_alive()
        writer.join(min(limit_s, STUCK_LIMIT_S) if is_stuck else limit_s)
        if writer.is_alive():
            self._stuck = writer
            return f"start-up file of router {self._router} not written within {limit_s * 1_000:.0f} ms"
        return failed[0] if failed else ""
