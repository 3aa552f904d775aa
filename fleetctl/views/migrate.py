"""Migrate, view layer: one line per change of a cell on stderr, or a live table on a terminal. Never decides."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from fleetctl.domain.rollout import Rollout


_HOLDS = {
    "traffic.router_down": "the router does not answer; traffic stays as it is",
    "stale": "a newer writer was at the router. Run: fleetctl fallback --reconcile",
    "step.inconclusive": "evidence stays INCONCLUSIVE; a person must look. Run: fleetctl promote or abort",
    "evidence.lost": "no evidence arrives",
    "evidence.provider": "many cells have no evidence: the provider is at fault",
    "home.source_not_ready": "the source does not answer real completions",
    "freeze": "a freeze window is open",
}
"""What holds a cell, in words; any other reason is shown as its code."""


class MigrateView:
    """Shows rollouts as they move.

    Args:
        output: "json" streams one object a line on stdout; else people read stderr.
        tty: draw a live table instead of lines.
    """

    def __init__(self, *, output: str, tty: bool) -> None:
        self.output = output
        self.tty = tty
        self._last: dict[str, tuple[str, ...]] = {}
        self._live: Any = None

    def __enter__(self) -> MigrateView:
        if self.tty:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, rollouts: Sequence[Rollout | None]) -> None:
        """Show what changed since the last call."""
        known = [r for r in rollouts if r is not None]
        if self._live is not None:
            self._live.update(_table(known))
        for r in known:
            state = (r.phase, str(r.weight_bp), r.ended, r.hold_reason, str(r.step_done), r.latched.guardrail if r.latched else "")
            if self._last.get(r.cell) == state:
                continue
            self._last[r.cell] = state
            if self.output == "json":
                row = {"type": "migrate.cell", "cell": r.cell, "phase": r.phase, "weight_bp": r.weight_bp, "ended": r.ended}
                print(json.dumps(row | {"hold": r.hold_reason}), flush=True)
            elif self._live is None:
                sys.stderr.write(f"  {line(r)}\n")
                sys.stderr.flush()


def line(r: Rollout) -> str:
    """Return one sentence about a cell, with the code of what holds it."""
    if r.ended:
        return f"{r.cell:<14} {r.ended.replace('_', ' ')}" + (f": {r.hold_reason}" if r.hold_reason else "")
    going = " going home" if r.direction == "home" else ""
    done = " done" if r.step_done else ""
    hold = f" holding: {_HOLDS.get(r.hold_reason, r.hold_reason)} [{r.hold_reason}]" if r.hold_reason else ""
    return f"{r.cell:<14} {r.phase:<9} {r.weight_bp / 100:>5g} %{going}{done}{hold}"


def _table(rollouts: Sequence[Rollout]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("CELL", "PHASE", "TARGET", "STATE"):
        table.add_column(name)
    for r in rollouts:
        state = r.ended.replace("_", " ") or (
            "going home" if r.direction == "home" else r.hold_reason or ("done" if r.step_done else "judging")
        )
        colour = {"complete": "green", "rolled back": "red"}.get(state, "yellow" if r.hold_reason else "cyan")
        bar = "#" * round(r.weight_bp / 1000)
        table.add_row(r.cell, r.phase, f"{r.weight_bp / 100:>5g} % {bar:<10}", Text(state, style=colour))
    return table
