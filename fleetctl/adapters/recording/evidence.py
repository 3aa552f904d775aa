"""Evidence, adapter layer: recorded attempts as a source of evidence. Never judges, never writes.

Every new line is parsed once per process and handed to the tallies of its cell; a cursor that this process has not seen is counted from
its own place first, so a new process comes to the same counts.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fleetctl.adapters.recording.files import files_of, is_before, lines_of, mark_of, stands
from fleetctl.analysis.freeze import FREEZE_MOST, LEAST_PER_CLASS, frozen
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, LADDER_METRICS, Cursor, Evidence, Series, Thresholds
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, Scrape
from fleetctl.domain.units import Instant
from fleetctl.errors import EvidenceUnavailable
from fleetctl.formats.recording import from_line

_TALLIES_PER_CELL = 3


class _Cell:
    """What has been read of one cell's recording."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self.marks: dict[str, str] = {}
        self.tallies: OrderedDict[Cursor, Tally] = OrderedDict()
        self.newest: deque[Attempt] = deque(maxlen=2 * FREEZE_MOST)
        self.broken = 0


class RecordedEvidence:
    """EvidenceSource over a recording of attempts: paired probes, or what another tool wrote.

    Args:
        place: the folder of recordings, or one file; metrics: ladder metrics that it holds.
        slo_latency_ms: promised latency per cell; now: the clock.
        may_begin: the folder may not be there yet, since we write it ourselves; per_class: least attempts of a prompt-length class.
    """

    def __init__(
        self,
        place: Path,
        *,
        now: Callable[[], Instant],
        metrics: tuple[str, ...] = LADDER_METRICS,
        slo_latency_ms: Mapping[CellId, float] | None = None,
        may_begin: bool = False,
        per_class: int = LEAST_PER_CLASS,
    ) -> None:
        self._per_class = per_class
        self._place, self._now, self._metrics, self._may_begin = place, now, metrics, may_begin
        self._slo = dict(slo_latency_ms or {})
        self._cells: dict[CellId, _Cell] = {}

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now, without thresholds."""
        cell = self._pump(c)
        places = {name: [offset, cell.marks.get(name, "")] for name, offset in cell.offsets.items()}
        return Cursor(position=json.dumps(places, sort_keys=True), since=self._now())

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Take the baseline's quantiles from its newest attempts (up to 3,000); None where fewer than `least` are there."""
        own = [a for a in self._pump(c).newest if a.arm == "baseline"][-FREEZE_MOST:]
        measured = tuple(m for m in self._metrics if any(a.measured(m) is not None for a in own))
        if not measured and self._metrics:
            return None
        return frozen(own, measured, scales, least, slo_latency_ms=self._slo.get(c), per_class=self._per_class)

    def needed(self, c: CellId) -> Instant | None:
        """Return since when a cell's records are read at present; None where nobody has read them."""
        cell = self._cells.get(c)
        return next(reversed(cell.tallies)).since if cell is not None and cell.tallies else None

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return cumulative counts since the cursor; the same cursor and recording give the same counts."""
        cell = self._pump(c)
        if since not in cell.tallies:
            cell.tallies[since] = self._caught_up(c, since, cell)
        cell.tallies.move_to_end(since)
        while len(cell.tallies) > _TALLIES_PER_CELL:
            cell.tallies.popitem(last=False)
        return cell.tallies[since].evidence(self._now())

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List what the newest attempts hold per arm."""
        newest = list(self._pump(c).newest)
        out = []
        for arm in ARMS:
            own = [a for a in newest if a.arm == arm]
            out.append(
                Series(arm=arm, name="attempts", present=bool(own), detail=f"{len(own)} newest, {sum(a.failed for a in own)} failed")
            )
            for metric in self._metrics:
                n = sum(a.measured(metric) is not None for a in own)
                out.append(Series(arm=arm, name=metric, present=n > 0, detail=f"{n} measured"))
        return tuple(out)

    def _pump(self, c: CellId) -> _Cell:
        """Read what is new of a cell."""
        cell = self._cells.setdefault(c, _Cell())
        try:
            for path in self._files(c):
                start = cell.offsets.setdefault(path.name, 0)
                if not stands(path, start, cell.marks.pop(path.name, "")):
                    start = cell.offsets[path.name] = 0
                    for tally in cell.tallies.values():
                        tally.cut()
                for a, after in _attempts(path, start, c, cell):
                    cell.offsets[path.name] = after
                    if a is not None:
                        cell.newest.append(a)
                        for tally in cell.tallies.values():
                            tally.add(a)
                cell.marks[path.name] = mark_of(path, cell.offsets[path.name])
        except OSError as e:
            raise EvidenceUnavailable(
                "evidence.down", f"the recording {self._place} cannot be read: {e.strerror or e}", hint="Run: fleetctl doctor"
            ) from e
        return cell

    def _files(self, c: CellId) -> list[Path]:
        """Return the cell's files; a folder that nobody has written to yet holds none, one that was there and is not is an error."""
        is_new = self._may_begin and (c not in self._cells or not self._cells[c].offsets)
        return [] if is_new and not self._place.exists() else files_of(self._place, c)

    def _caught_up(self, c: CellId, since: Cursor, cell: _Cell) -> Tally:
        tally = Tally(c, since, streaming=False, slo_latency_ms=self._slo.get(c))
        starts, files = _places(since.position), self._files(c)
        has_gap = any(
            name not in {p.name for p in files} and not is_before(name, since.since) for name in starts
        )  # older ones hold nothing
        for path in files:
            (start, mark), stop = starts.get(path.name, (0, "")), cell.offsets.get(path.name, 0)
            if start > stop or not stands(path, start, mark):
                start, has_gap = 0, True
            for a, after in _attempts(path, start, c, _Cell()):
                if after > stop:
                    break
                if a is not None:
                    tally.add(a)
        if has_gap:
            tally.cut()
        return tally


def _places(position: str) -> dict[str, tuple[int, str]]:
    """Return byte and mark by file, as `mark` wrote them; a mark is "" where it is not known."""
    try:
        found = json.loads(position or "{}")
    except ValueError:
        return {}
    out = {}
    for name, place in found.items() if isinstance(found, dict) else ():
        start, mark = place if isinstance(place, list) and len(place) == 2 else (place, "")
        out[str(name)] = (start, str(mark)) if isinstance(start, int) else (0, "")
    return out


def _attempts(path: Path, start: int, c: CellId, cell: _Cell) -> Iterator[tuple[Attempt | None, int]]:
    for line, after in lines_of(path, start):
        record: Attempt | Scrape | None = None
        try:
            record = from_line(line) if line.strip() else None
        except ValueError:
            cell.broken += 1
        yield (record if isinstance(record, Attempt) and record.cell == c else None), after
