"""Evidence, adapter layer: HAProxy's log as requests by host, for calibration. Never judges, never writes."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from fleetctl.adapters.routers.log import newest_lines, parse
from fleetctl.domain.calibration import Sample
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.errors import EvidenceUnavailable

MOST_LINES = 1_000_000


class RouterLogSamples:
    """Requests of a cell's source, newest first in the log, returned oldest first."""

    def __init__(self, log_folder: Path) -> None:
        self._folder = log_folder

    def recent(self, c: CellId, most: int) -> tuple[Sample, ...]:
        """Return at most `most` requests that the baseline served, by the server that answered.

        Raises:
            EvidenceUnavailable: evidence.down, where the log cannot be read.
        """
        found: list[Sample] = []
        mark = f'"{c}"'.encode()
        try:
            for line in islice(newest_lines(self._folder), MOST_LINES):
                if mark not in line:
                    continue
                attempt = parse(line)
                if not isinstance(attempt, Attempt) or attempt.cell != c or attempt.arm != "baseline":
                    continue
                host = str(json.loads(line)["srv"])[:64]
                found.append(Sample(host=host, started_ms=attempt.started_ms, failed=attempt.failed, latency_ms=attempt.latency_ms))
                if len(found) >= most:
                    break
        except OSError as e:
            raise EvidenceUnavailable("evidence.down", f"the log in {self._folder} cannot be read: {e.strerror}.") from e
        return tuple(sorted(found, key=lambda s: s.started_ms))
