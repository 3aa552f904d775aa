"""Coming home, adapters layer: a test workload that its owner marked is broken and mended by its owner's own commands. Never a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from fleetctl.domain.ids import CellId
from fleetctl.domain.runbook import SEEN_BY_LOOKING, Fault
from fleetctl.domain.workload import Breakage
from fleetctl.errors import RunbookFailed

LIMIT_S = 120.0
"""How long a command that breaks or mends may take."""
MOST_SAID = 300


class MarkedBreakable:
    """`Breakable` of workloads whose fleet file says `drill`.

    Args:
        mark_of: the mark of a cell's workload, None where there is none; folder: where the commands are run.
    """

    def __init__(self, mark_of: Callable[[CellId], Breakage | None], folder: Path) -> None:
        self._mark_of, self._folder = mark_of, folder

    def refuses(self, c: CellId) -> str:
        """Say why nothing may be broken for this cell; "" where its workload is marked."""
        return "" if self._mark_of(c) is not None else "its workload is not marked as one that may be broken (drill, in the fleet file)"

    def inject(self, c: CellId, fault: Fault) -> None:
        """Run the command that begins the fault. Raises RunbookFailed (runbook.not_a_lab, runbook.break)."""
        mark = self._need(c)
        if fault.kind in SEEN_BY_LOOKING:
            text = f"{fault.kind} would break more than the workload of {c}; only a lab's router, store or source is broken on purpose."
            raise RunbookFailed("runbook.not_a_lab", text, hint="Run: fleetctl lab up, in a folder of its own")
        self._run([w.replace("{fault}", fault.kind) for w in mark.inject])

    def mend(self, c: CellId) -> None:
        """Run the command that takes the fault away. Raises RunbookFailed (runbook.not_a_lab, runbook.break)."""
        self._run(self._need(c).mend)

    def _need(self, c: CellId) -> Breakage:
        mark = self._mark_of(c)
        if mark is None:
            raise RunbookFailed("runbook.not_a_lab", f"{c} is not broken on purpose: {self.refuses(c)}.", hint="Run: fleetctl lab up")
        return mark

    def _run(self, words: Sequence[str]) -> None:
        why = ""
        try:
            done = subprocess.run(
                list(words), cwd=self._folder, env=dict(os.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=LIMIT_S, check=False,
            )  # fmt: skip
            if done.returncode:
                why = f"ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-MOST_SAID:]}"
        except subprocess.TimeoutExpired:
            why = f"did not end within {LIMIT_S:.0f} s"
        except OSError as e:
            why = f"cannot be run: {e.strerror}"
        if why:
            text = f"{words[0]} of the workload's drill section {why}."
            raise RunbookFailed("runbook.break", text, hint="Mend it by hand, then look again")
