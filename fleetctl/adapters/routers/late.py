"""Traffic, adapter layer: start-up files written beside the caller's path. Never holds up going home."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fleetctl.domain.ids import CellId

FILE_LIMIT_S = 0.2
"""How long a start-up file may hold up going home. Source: contract of ports.traffic.Router.set."""


class LateWriter:
    """Writes a cell's start-up file in a thread of its own, the newest order last."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._writes: dict[CellId, int] = {}

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
        writer.join(limit_s)
        if writer.is_alive():
            return f"start-up file of router {self._router} not written within {limit_s * 1_000:.0f} ms"
        return failed[0] if failed else ""
