"""Migrate, view layer: one line per change of a cell on stderr, or a live table on a terminal. Never decides."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetctl.views.columns import WIDTH

if TYPE_CHECKING:
    from types import TracebackType

    from fleetctl.domain.rollout import Rollout


_HOLDS = {
    "traffic.router_down": "the router does not answer; traffic stays as it is",
    "traffic.throttled": "too much is asked of the router at a time; traffic stays as it is",
    "stale": "a newer writer was at the router. Run: fleetctl fallback --reconcile",
    "step.inconclusive": "evidence stays INCONCLUSIVE; a person must look. Run: fleetctl promote or abort",
    "evidence.lost": "no evidence arrives",
    "tick.unexpected": "something failed in a way that nobody foresaw; traffic stays as it is. See: fleetctl audit list",
    "evidence.provider": "many cells have no evidence: the provider is at fault",
    "home.source_not_ready": "the source does not answer real completions",
    "home.not_proven": "its weight is 0, and nothing shows that customers left the target; a person must look. Then: fleetctl promote",
    "freeze": "a freeze window is open",
    "source.lost": "the cap is lifted: everybody is on the target",
    "lifted.failing": "the cap is lifted and the target fails; there is no way home until the source answers",
    "lifted.blind": "the cap is lifted and nobody can see how the target does",
    "checks.failed": "a check of both arms FAILed; a person must look. See: fleetctl status",
    "checks.open": "a check of both arms settled nothing; a person must look. See: fleetctl status",
    "checks.due": "a check of both arms must be run. See: fleetctl status",
}
"""What holds a cell, in words; any other reason is shown as its code."""

FIRST_WAIT_S, MOST_WAIT_S = 8.0, 120.0
"""A cell that does not move says what it waits for after the first, then in doubled gaps up to the last."""


class MigrateView:
    """Shows rollouts as they move, and what those that do not move wait for.

    Args:
        why: returns per cell what its last look said.
        stream: writes one object of a stream (kind, value); None where people read stderr.
        tty: draw a live table instead of lines.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        *,
        why: Callable[[], Mapping[str, str]],
        stream: Callable[[str, object], None] | None = None,
        tty: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tty = tty
        self._why, self._stream, self._clock = why, stream, clock
        self._last: dict[str, tuple[str, ...]] = {}
        self._waits: dict[str, tuple[float, float]] = {}
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
        """Show what changed since the last call, and what has waited long."""
        known = [r for r in rollouts if r is not None]
        if self._live is not None:
            self._live.update(_table(known, self._why()))
        now = self._clock()
        for r in known:
            state = (r.phase, str(r.weight_bp), r.ended, r.hold_reason, str(r.step_done), r.latched.guardrail if r.latched else "")
            if self._last.get(r.cell) != state:
                self._last[r.cell] = state
                self._waits[r.cell] = (now + FIRST_WAIT_S, FIRST_WAIT_S)
                self._say(r, line(r), "")
                continue
            due, gap = self._waits[r.cell]
            if now >= due and not r.ended and not r.step_done and not r.hold_reason:  # a hold has said why
                gap = min(2 * gap, MOST_WAIT_S)
                self._waits[r.cell] = (now + gap, gap)
                why = self._why().get(r.cell, "")
                if why:
                    self._say(r, f"{r.cell:<14} {r.phase:<9} {r.weight_bp / 100:>5g} % waits: {why}", why)

    def _say(self, r: Rollout, text: str, waits: str) -> None:
        if self._stream is not None:
            row = {"cell": r.cell, "phase": r.phase, "weight_bp": r.weight_bp, "ended": r.ended, "hold": r.hold_reason, "waits": waits}
            self._stream("migrate.cell", row)
        elif self._live is None:
            lines = textwrap.wrap(f"  {text}", WIDTH, subsequent_indent=" " * 17, break_on_hyphens=False) if waits else [f"  {text}"]
            sys.stderr.write("\n".join(lines) + "\n")
            sys.stderr.flush()


def line(r: Rollout) -> str:
    """Return one sentence about a cell, with the code of what holds it."""
    if r.ended:
        return f"{r.cell:<14} {r.ended.replace('_', ' ')}" + (f": {r.hold_reason}" if r.hold_reason else "")
    going = " going home" if r.direction == "home" else ""
    done = " done" if r.step_done else ""
    hold = f" holding: {_HOLDS.get(r.hold_reason, r.hold_reason)} [{r.hold_reason}]" if r.hold_reason else ""
    return f"{r.cell:<14} {r.phase:<9} {r.weight_bp / 100:>5g} %{going}{done}{hold}"


def _table(rollouts: Sequence[Rollout], why: Mapping[str, str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("CELL", "PHASE", "TARGET", "STATE"):
        table.add_column(name, no_wrap=True)
    table.add_column("WAITS FOR", overflow="ellipsis", no_wrap=True)
    for r in rollouts:
        state = r.ended.replace("_", " ") or (
            "going home" if r.direction == "home" else r.hold_reason or ("done" if r.step_done else "judging")
        )
        colour = {"complete": "green", "rolled back": "red"}.get(state, "yellow" if r.hold_reason else "cyan")
        bar = "#" * round(r.weight_bp / 1000)
        waits = "" if r.ended or r.step_done else why.get(r.cell, "")
        table.add_row(r.cell, r.phase, f"{r.weight_bp / 100:>5g} % {bar:<10}", Text(state, style=colour), Text(waits))
    return table
