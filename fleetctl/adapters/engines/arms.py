"""Evidence, adapter layer: what both arms of a cell serve, asked at most every 30 s. Never raises; silence is no change."""

from __future__ import annotations

import time
from collections.abc import Callable
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
MOST_SHOWN = 3


class EngineArms:
    """Tells what the arms of cells serve.

    Args:
        api_of: the API of one arm; report: the newest contract report of a cell, None where it was never run.
    """

    def __init__(
        self,
        api_of: Callable[[CellId, Arm], Api],
        now: Callable[[], Instant],
        *,
        report: Callable[[CellId], ContractReport | None] = lambda _: None,
        every_s: float = EVERY_S,
    ) -> None:
        self._api_of, self._now, self._report, self._every_s = api_of, now, report, every_s
        self._known: dict[CellId, tuple[float, ArmsIdentity | None]] = {}

    def arms(self, c: CellId) -> ArmsIdentity | None:
        """Return what both arms serve; calls that the contract found broken on these very arms count as a difference."""
        asked = self._known.get(c)
        if asked is None or time.monotonic() - asked[0] >= self._every_s:
            asked = (time.monotonic(), self._ask(c))
            self._known[c] = asked
        return asked[1]

    def _ask(self, c: CellId) -> ArmsIdentity | None:
        try:
            baseline = read_identity(self._api_of(c, "baseline"))
            canary = read_identity(self._api_of(c, "canary")) if baseline is not None else None
            if baseline is None or canary is None:
                return None
            found = compare_arms(baseline, canary, self._now())
            mark = found.hash()  # a name that has no encoding is told as one that nobody told
            report = self._report(c)
        except (FleetctlError, ValueError):
            return None
        if report is None or report.a_a or report.arms != mark or not report.broken:
            return found
        broken = tuple(f"contract {r.call}: {r.canary or r.baseline}" for r in report.broken[:MOST_SHOWN])
        return replace(found, differs=(*found.differs, *broken))
