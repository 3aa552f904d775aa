"""Evidence, adapter layer: what both arms of a cell serve, asked every 30 s, sooner if in doubt. Never raises: silence is no change."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from fleetctl.adapters.engines.api import Api
from fleetctl.adapters.engines.identity import read_identity
from fleetctl.analysis.identity import compare_arms
from fleetctl.domain.evidence import Arm
from fleetctl.domain.identity import ArmsIdentity, ContractReport
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError

EVERY_S = 30.0
AGAIN_S = 2.0
"""After an answer that differs from the one before: a change counts when two answers agree."""
MOST_SHOWN = 3


class EngineArms:
    """Tells what the arms of cells serve.

    Args:
        api_of: the API of one arm; report: the newest contract report of a cell, None where it was never run.
        declared: flags in which the arms of a cell differ on purpose.
    """

    def __init__(
        self,
        api_of: Callable[[CellId, Arm], Api],
        now: Callable[[], Instant],
        *,
        report: Callable[[CellId], ContractReport | None] = lambda _: None,
        declared: Callable[[CellId], Collection[str]] = lambda _: (),
        every_s: float = EVERY_S,
        again_s: float = AGAIN_S,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api_of, self._now, self._report, self._declared = api_of, now, report, declared
        self._every_s, self._again_s, self._seconds = every_s, again_s, seconds
        self._known: dict[CellId, tuple[float, ArmsIdentity | None]] = {}
        self._last: dict[CellId, str] = {}

    def arms(self, c: CellId) -> ArmsIdentity | None:
        """Return what both arms serve; calls that the contract found broken on these very arms count as a difference."""
        due_at, found = self._known.get(c, (0.0, None))
        if c not in self._known or self._seconds() >= due_at:
            found = self._ask(c)
            self._known[c] = (self._seconds() + self._wait(c, found), found)
        return found

    def _wait(self, c: CellId, found: ArmsIdentity | None) -> float:
        if found is None:
            return self._every_s
        mark = found.hash()
        is_odd = self._last.get(c, mark) != mark
        self._last[c] = mark
        return min(self._every_s, self._again_s) if is_odd else self._every_s

    def _ask(self, c: CellId) -> ArmsIdentity | None:
        try:
            baseline = read_identity(self._api_of(c, "baseline"))
            canary = read_identity(self._api_of(c, "canary")) if baseline is not None else None
            if baseline is None or canary is None:
                return None
            found = compare_arms(baseline, canary, self._now(), declared=self._declared(c))
            mark = found.hash()  # a name that has no encoding is told as one that nobody told
            report = self._report(c)
        except (FleetctlError, ValueError):
            return None
        if report is None or report.a_a or report.arms != mark or not report.broken:
            return found
        broken = tuple(f"contract {r.call}: {r.canary or r.baseline}" for r in report.broken[:MOST_SHOWN])
        return replace(found, differs=(*found.differs, *broken))
