"""Traffic, adapter layer: counts who answered, from the newest lines of HAProxy's log. Never judges latency or errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.domain.units import Instant

_BLOCK = 1 << 18
_ENOUGH_LINES = 200
"""Lines in a row that ended before the cursor after which older ones cannot matter: lines stand in order of their end."""
_NAME = re.compile(r"haproxy-(\d+)\.log\Z")


def count_served(log_folder: Path, cell: CellId, since: Instant) -> Served:
    """Count unpinned requests of a cell that started at or after `since`, by the server that answered.

    Raises:
        OSError: the folder or a log cannot be read.
    """
    baseline = canary = 0
    last: float | None = None
    whole_ms = math.floor(since.timestamp() * 1_000)  # the log holds starts in whole milliseconds; none may be missed
    for started, server in _answers(log_folder, cell, whole_ms):
        if server.startswith("b"):
            baseline += 1
        elif server.startswith("c"):
            canary += 1
            last = started if last is None else max(last, started)
    return Served(baseline=baseline, canary=canary, last_canary_start=None if last is None else _instant(last))


def last_new_request_ms(log_folder: Path, cell: CellId, ordered: Instant) -> float:
    """Return the milliseconds from an order (to take the target to 0) to the start of the last new request on it, 0 where there was none.

    Call it once the requests of that moment have ended: a request is logged at its end.

    Raises:
        OSError: the folder or a log cannot be read.
    """
    last = count_served(log_folder, cell, ordered).last_canary_start
    return 0.0 if last is None else max(0.0, (last - ordered).total_seconds() * 1_000)


def _answers(log_folder: Path, cell: CellId, since_ms: int) -> Iterator[tuple[float, str]]:
    mark = f'"c":"{cell}"'.encode()
    ended_before = 0
    for line in _newest_lines(log_folder):
        if not line.startswith(b"{"):
            continue
        try:
            row = json.loads(line)
            started, active = float(row["t0"]), max(0.0, float(row["ta"]))
            pinned, server = row["p"] != "-", str(row["srv"])
        except (ValueError, KeyError, TypeError):
            continue
        if started + active < since_ms:
            ended_before += 1
            if ended_before >= _ENOUGH_LINES:
                return
            continue
        ended_before = 0
        if started >= since_ms and mark in line and not pinned:
            yield started, server


def _newest_lines(log_folder: Path) -> Iterator[bytes]:
    """Yield whole lines, newest first, over all files."""
    numbered = ((int(found[1]), path) for path in log_folder.iterdir() if (found := _NAME.match(path.name)))
    for _, path in sorted(numbered, reverse=True):
        with path.open("rb") as log:
            position = log.seek(0, 2)
            rest = b""
            newest = True
            while position > 0:
                size = min(_BLOCK, position)
                position -= size
                log.seek(position)
                lines = (log.read(size) + rest).split(b"\n")
                rest = lines.pop(0)
                if newest and lines:
                    lines.pop()  # what stands after the last line end is not whole yet
                    newest = False
                yield from reversed(lines)
            if rest and not newest:
                yield rest


def _instant(epoch_ms: float) -> Instant:
    return datetime.fromtimestamp(epoch_ms / 1_000, UTC)
