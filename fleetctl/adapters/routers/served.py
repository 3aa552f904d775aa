"""Traffic, adapter layer: counts who answered, from the newest lines of HAProxy's log. Never judges latency or errors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.adapters.deadline import Deadline
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.domain.units import Instant
from fleetctl.errors import TrafficNotApplied

READ_LIMIT_S = 4.5
_BLOCK = 1 << 20
_OUT_OF_ORDER_MS = 2_000
"""Lines stand in order of their end; by this much a start plus its active time may fall short of it."""
_FILE = re.compile(r"(?:haproxy|envoy|work)-(\d+)\.log\Z")
_LINE = re.compile(
    rb'^\{"c":"([^"\n]*)","a":"[^"\n]*","srv":"([^"\n]*)","st":-?\d+,"ts":"[^"\n]*","t0":(\d+),"ta":(-?\d+),[^\n]*?"p":"([^"\n]*)"', re.M
)


def count_served(log_folder: Path, cell: CellId, since: Instant) -> Served:
    """Count unpinned requests of a cell that started at or after `since`, by the server that answered.

    Raises:
        OSError: the folder or a log cannot be read, or not within 4.5 s.
    """
    baseline = canary = last = 0
    wanted = cell.encode()
    since_ms = math.floor(since.timestamp() * 1_000)  # the log holds starts in whole milliseconds; none may be missed
    for block in _newest_blocks(log_folder):
        newest_end = 0
        lines = _LINE.findall(block)
        for name, server, t0, ta, pin in lines:
            started = int(t0)
            newest_end = max(newest_end, started + int(ta))
            if started >= since_ms and name == wanted and pin == b"-":
                if server.startswith(b"b"):
                    baseline += 1
                elif server.startswith(b"c"):
                    canary += 1
                    last = max(last, started)
        if lines and newest_end + _OUT_OF_ORDER_MS < since_ms:
            break
    return Served(baseline=baseline, canary=canary, last_canary_start=_instant(last) if canary else None)


def served_by_log(router: str, log_folder: Path | None, cell: CellId, since: Instant) -> Served:
    """Count as `count_served` does, for a router of that name.

    Raises:
        TrafficNotApplied: traffic.not_shown, where it has no log or that cannot be read.
    """
    if log_folder is None:
        text = f"router {router} has no setting log_folder, so nobody can count who answered."
        raise TrafficNotApplied("traffic.not_shown", text)
    try:
        return count_served(log_folder, cell, since)
    except OSError as failed:
        text = f"the log of router {router} cannot be read: {failed}."
        raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl doctor") from failed


def last_new_request_ms(log_folder: Path, cell: CellId, ordered: Instant) -> float:
    """Return the milliseconds from an order (to take the target to 0) to the start of the last new request on it, 0 where there was none.

    Call it once the requests of that moment have ended: a request is logged at its end.

    Raises:
        OSError: the folder or a log cannot be read, or not within 4.5 s.
    """
    last = count_served(log_folder, cell, ordered).last_canary_start
    return 0.0 if last is None else max(0.0, (last - ordered).total_seconds() * 1_000)


def _newest_blocks(log_folder: Path) -> Iterator[bytes]:
    """Yield blocks of whole lines, newest block first, over all files."""
    deadline = Deadline(READ_LIMIT_S)
    numbered = ((int(found[1]), path) for path in log_folder.iterdir() if (found := _FILE.match(path.name)))
    for _, path in sorted(numbered, reverse=True):
        with path.open("rb") as log:
            position = log.seek(0, 2)
            rest = b""
            whole = False  # what stands after the last line end is not whole yet
            while position > 0:
                if deadline.left_s() <= 0:
                    raise TimeoutError(f"{path} is too long to be counted within {READ_LIMIT_S} s")
                size = min(_BLOCK, position)
                position -= size
                log.seek(position)
                block = log.read(size) + rest
                if not whole:
                    end = block.rfind(b"\n") + 1
                    if not end:
                        rest = block
                        continue
                    block, whole = block[:end], True
                cut = block.find(b"\n") + 1 if position else 0
                rest = block[:cut]
                yield block[cut:]


def _instant(epoch_ms: int) -> Instant:
    return datetime.fromtimestamp(epoch_ms / 1_000, UTC)
