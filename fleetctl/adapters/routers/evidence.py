"""Evidence, adapter layer: HAProxy's log as a source of evidence. Never judges, never sets a weight, never writes.

Each new line is parsed once per process and handed to the tallies of its cell; a cursor that this process has not seen is counted
from its own place in the log first, so a new process comes to the same counts. A stream's time in the log is neither time to first
token nor per token, so streaming cells are counted for errors only.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from fleetctl.adapters.routers.log import LogTail, last_written, newest_lines, parse, read_position
from fleetctl.analysis.freeze import FREEZE_MOST, frozen
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, SETTLE_S, Cursor, Evidence, Series, Thresholds
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, GaveUp
from fleetctl.domain.units import Instant
from fleetctl.errors import EvidenceUnavailable

FREEZE_LINES = 1_000_000
"""Newest lines of the log in which they are looked for: other cells wait meanwhile, and a log grows for as long as HAProxy runs."""
LEAST_FOR_ERRORS = 200
"""Baseline requests from which a streaming cell's error ratio is taken; its times come from elsewhere."""
SETTLE_MS = 1_000.0 * SETTLE_S
LOOKED_BACK_FOR = 64
"""Cells whose newest requests are looked for in one go."""
_CELL = re.compile(rb'\{"c":"([a-z0-9-]{1,63})"')
_TALLIES_PER_CELL = 3
_DESCRIBE_LINES = 5_000


class RouterLogEvidence:
    """EvidenceSource over `haproxy-<n>.log` files in one folder.

    Args:
        streaming: cells whose answers are server-sent events; slo_latency_ms: promised latency per cell; now: the clock.
        sticky: cells whose route has an affinity key.
        cells: of this router; their newest requests are looked for together, so that a log is read back once and not once per cell.
    """

    def __init__(
        self,
        log_folder: Path,
        *,
        now: Callable[[], Instant],
        streaming: Iterable[CellId] = (),
        slo_latency_ms: Mapping[CellId, float] | None = None,
        cells: Iterable[CellId] = (),
        sticky: Iterable[CellId] = (),
    ) -> None:
        self._sticky = frozenset(sticky)
        self._cells = tuple(cells)
        self._newest: dict[CellId, deque[Attempt]] = {}
        self._folder = log_folder
        self._now = now
        self._streaming = frozenset(streaming)
        self._slo = dict(slo_latency_ms or {})
        self._tail: LogTail | None = None
        self._tallies: dict[CellId, OrderedDict[Cursor, Tally]] = {}

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now, without thresholds."""
        now = self._now()
        with _Reading(self._folder):
            return Cursor(position=str(self._pump().end()), since=now)

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take the baseline's quantiles from its newest requests (up to 3,000); None where fewer than `least` are there."""
        with _Reading(self._folder):
            self._pump()
            if c not in self._newest:
                self._look_back(c)
        newest = list(self._newest[c])
        metrics: tuple[str, ...] = ("latency",)
        if c in self._streaming:  # errors alone need no tail
            metrics, least = (), min(least, LEAST_FOR_ERRORS)
        return frozen(newest, metrics, scales, least, slo_latency_ms=self._slo.get(c))

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return cumulative counts since the cursor; the same cursor and log give the same counts."""
        with _Reading(self._folder):
            tail = self._pump()
            kept = self._tallies.setdefault(c, OrderedDict())
            if since not in kept:
                kept[since] = self._catch_up(c, since, tail)
            kept.move_to_end(since)
            while len(kept) > _TALLIES_PER_CELL:
                kept.popitem(last=False)
            written = last_written(self._folder)
        tally = kept[since]
        asked = f"lines of {c} in {self._folder}, from {since.position}, started since {since.since:%Y-%m-%dT%H:%M:%S.%fZ}"
        return replace(tally.evidence(self._now()), query=asked, source_at=written, sticky=c in self._sticky)

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List what the newest lines of the log hold per arm."""
        with _Reading(self._folder):
            attempts = list(_newest(self._folder, c, lines=_DESCRIBE_LINES))
        out: list[Series] = []
        for arm in ARMS:
            own = [a for a in attempts if a.arm == arm]
            timed = sum(a.latency_ms is not None for a in own)
            tokens = sum(a.prompt_tokens >= 0 for a in own)
            cached = sum(a.cached_tokens >= 0 for a in own)
            latency = "streams: not usable" if c in self._streaming else f"{timed} timed"
            out += [
                Series(arm=arm, name="attempts", present=bool(own), detail=f"{len(own)} in the newest lines"),
                Series(arm=arm, name="latency", present=timed > 0 and c not in self._streaming, detail=latency),
                Series(arm=arm, name="prompt_tokens", present=tokens > 0, detail=f"{tokens} with tokens"),
                Series(arm=arm, name="cached_tokens", present=cached > 0, detail=f"{cached} with cached tokens"),
            ]
        return tuple(out)

    def _pump(self) -> LogTail:
        """Hand every new line to the tallies of its cell."""
        if self._tail is None:
            self._tail = LogTail(self._folder)
            return self._tail
        cuts = self._tail.cuts
        for line in self._tail.new_lines():
            found = parse(line)
            if isinstance(found, Attempt):
                for tally in self._tallies.get(CellId(found.cell), {}).values():
                    tally.add(found)
                if found.arm == "baseline" and found.cell in self._newest:
                    self._newest[CellId(found.cell)].append(found)
            elif isinstance(found, GaveUp):
                for tally in self._tallies.get(CellId(found.cell), {}).values():
                    tally.give_up(found)
            else:
                for cell, tallies in self._tallies.items():
                    if _concerns(line, cell):
                        for tally in tallies.values():
                            tally.skip(found)
        for tallies in self._tallies.values() if self._tail.cuts > cuts else ():
            for tally in tallies.values():
                tally.cut()
        return self._tail

    def _look_back(self, c: CellId) -> None:
        """Read the newest lines once for this cell and the router's others; from now on new lines are added as they are read."""
        wanted = [c, *(other for other in self._cells if other != c and other not in self._newest)][:LOOKED_BACK_FOR]
        found: dict[str, list[Attempt]] = {cell: [] for cell in wanted}
        missing = set(found)
        for line in islice(newest_lines(self._folder), FREEZE_LINES):
            named = _CELL.match(line)
            if named is None or (cell := named[1].decode()) not in missing:
                continue
            attempt = parse(line)
            if isinstance(attempt, Attempt) and attempt.arm == "baseline":
                found[cell].append(attempt)
                if len(found[cell]) == FREEZE_MOST:
                    missing.discard(cell)
                    if not missing:
                        break
        for cell in wanted:
            self._newest[cell] = deque(reversed(found[cell]), maxlen=FREEZE_MOST)

    def _catch_up(self, c: CellId, since: Cursor, tail: LogTail) -> Tally:
        tally = Tally(
            c,
            since,
            streaming=c in self._streaming,
            slo_latency_ms=self._slo.get(c),
            refusals=True,
            settle_ms=SETTLE_MS if c in self._streaming else 0.0,
        )
        start = read_position(since.position)
        if not tail.has(start):
            tally.cut()
        for line in tail.old_lines(start):
            if not _concerns(line, c):
                continue
            found = parse(line)
            if isinstance(found, str):
                tally.skip(found)
            elif found.cell == c:
                tally.add(found) if isinstance(found, Attempt) else tally.give_up(found)
        return tally


class _Reading:
    """Turns what the file system refuses into EvidenceUnavailable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise EvidenceUnavailable(
                "evidence.down",
                f"the router's log in {self._folder} cannot be read: {error.strerror or error}",
                hint="Run: fleetctl doctor",
            ) from error


def _names(line: bytes, cell: CellId) -> bool:
    return b'"' + cell.encode() + b'"' in line


def _concerns(line: bytes, cell: CellId) -> bool:
    """Tell whether a line is about a cell or may be: one that is not whole may be anybody's."""
    return _names(line, cell) or not (line.startswith(b'{"c":"') and line.endswith(b"}"))


def _newest(folder: Path, cell: CellId, *, lines: int) -> Iterator[Attempt]:
    """Yield a cell's attempts among the newest `lines`, newest first."""
    for line in islice(newest_lines(folder), lines):
        found = parse(line) if _names(line, cell) else "other"
        if isinstance(found, Attempt) and found.cell == cell:
            yield found
