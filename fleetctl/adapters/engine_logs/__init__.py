"""Evidence, adapter layer: hard faults that engines, runtimes and drivers write to their logs. Never counts requests, keeps no line.

A thread per cell has its places read, all at a time, while somebody reads the cell's evidence, so that a tick never waits for a log and
a slow place holds up no other for long. A kind of fault that the baseline's logs show too, or that stands in a log of both arms, is told
and trips nothing, and neither does what a user wrote and an engine printed. A log that cannot be read is told, and is no lost evidence:
requests still are.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleetctl.adapters.engine_logs.places import LogCommand, LogFile, LogLine, Unreadable
from fleetctl.analysis.engine_lines import OwnLines
from fleetctl.analysis.faults import classify, is_hard
from fleetctl.domain.evidence import ARMS, Arm, Counts, Cursor, Evidence, Series, Thresholds
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant

IDLE_S = 60.0
PASS_S = 5.0
"""How long a reading waits for its places: what a slower one finds comes with a later reading."""
MOST_AT_ONCE = 16
"""Places of a cell that are read at a time."""
MOST_FOUND = 1_000
"""Newest faults kept; what matters of them is which kinds there are."""
Place = LogFile | LogCommand


@dataclass(frozen=True, slots=True)
class _Fault:
    place: Place
    line: LogLine
    kind: str


class _Reader:
    """Reads one place in a thread of its own, one reading at a time."""

    def __init__(self, place: Place, at_once: threading.Semaphore) -> None:
        self.place, self._at_once = place, at_once
        self._own = OwnLines()
        self._found: list[_Fault] = []
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def start(self) -> None:
        """Begin to read, unless that still goes on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name=f"engine log {self.place.name}"[:80], daemon=True)
            self._thread.start()

    def take(self, wait_s: float) -> list[_Fault] | None:
        """Return what was found, None where that is not known within `wait_s`."""
        if self._thread is not None:
            self._thread.join(wait_s)
            if self._thread.is_alive():
                return None
        found, self._found, self._thread = self._found, [], None
        return found

    def _read(self) -> None:
        with self._at_once:
            try:
                for line in self.place.new_lines():
                    kind = classify("\n".join(self._own.own(part) for part in line.text.splitlines()))
                    if kind:
                        self._found = [*self._found[-MOST_FOUND + 1 :], _Fault(self.place, line, kind)]
                self.trouble = ""
            except Unreadable as e:
                self.trouble = str(e)[:200]


@dataclass(slots=True, kw_only=True)
class _Cell:
    readers: tuple[_Reader, ...]
    found: list[_Fault] = field(default_factory=list)
    asked_at: float = field(default_factory=time.monotonic)
    thread: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    reading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def places(self) -> tuple[Place, ...]:
        """Return where its logs are."""
        return tuple(r.place for r in self.readers)

    def arms_of(self) -> dict[str, set[Arm]]:
        """Return whose log each source is, as the fleet file says."""
        out: dict[str, set[Arm]] = {}
        for place in self.places:
            out.setdefault(place.source, set()).add(place.arm)
        return out


class EngineLogs:
    """EvidenceSource that tells hard faults alone; never the first source of a cell.

    Args:
        places: of a cell's logs; now: the clock; every_s: between two readings, 0 for none by itself (`pump` reads).
    """

    def __init__(
        self, places: Callable[[CellId], Sequence[Place]], *, now: Callable[[], Instant], every_s: float = 2.0, idle_s: float = IDLE_S
    ) -> None:
        self._places, self._now, self._every_s, self._idle_s = places, now, every_s, idle_s
        self._cells: dict[CellId, _Cell] = {}

    def mark(self, c: CellId) -> Cursor:
        """Return a cursor at now, with the place in every file."""
        now = self._now()
        cell = self._cell(c, {}, now.timestamp())
        return Cursor(position=json.dumps({p.name: p.mark() for p in cell.places if p.mark()}), since=now)

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        """Return thresholds without a quantile: a log has none."""
        return Thresholds(class_edges=(), latency_ms=(), scales=scales, baseline_n=0, baseline_error_ratio=0.0, log_sd=0.0)

    def read(self, c: CellId, since: Cursor) -> Evidence:
        """Return the hard faults of the canary since the cursor; counts are empty."""
        marks = _marks(since.position)
        cell = self._cell(c, marks, since.since.timestamp())
        kinds: dict[Arm, set[str]] = {arm: set() for arm in ARMS}
        arms_of = cell.arms_of()
        with cell.lock:
            for f in cell.found:
                if not f.place.is_before(f.line, marks.get(f.place.name, ""), since.since.timestamp()):
                    for arm in arms_of[f.place.source]:
                        kinds[arm].add(f.kind)
        trouble = [r.trouble for r in cell.readers if r.trouble]
        hard = {k for k in kinds["canary"] if is_hard(k)}
        told = [f"canary's log: {k}" for k in sorted(kinds["canary"] - hard)]
        told += [f"{k} in the logs of both arms" for k in sorted(hard & kinds["baseline"])]
        told += [f"engine log cannot be read: {text}" for text in trouble[:3]]
        return Evidence(
            cell=c,
            at=self._now(),
            arms={arm: Counts() for arm in ARMS},
            state=dict.fromkeys(ARMS, "ok"),
            cursor=since,
            detail="; ".join(told)[:400],
            faults=tuple(sorted(hard - kinds["baseline"])),
            query=f"engine logs {', '.join(p.name for p in cell.places)}"[:400],
        )

    def describe(self, c: CellId) -> tuple[Series, ...]:
        """List each log and whether it can be read."""
        self.pump(c)
        cell = self._cells[c]
        return tuple(Series(arm=r.place.arm, name="log", present=not r.trouble, detail=r.trouble or r.place.name) for r in cell.readers)

    def pump(self, c: CellId) -> None:
        """Read what is new of a cell's logs once."""
        _pump(self._cell(c, {}, self._now().timestamp()))

    def close(self) -> None:
        """End every thread."""
        for cell in self._cells.values():
            cell.stop.set()
        for cell in self._cells.values():
            if cell.thread is not None:
                cell.thread.join()

    def _cell(self, c: CellId, marks: dict[str, str], since_s: float) -> _Cell:
        """Return a cell; one that this process has not read yet is read from the cursor on."""
        cell = self._cells.get(c)
        if cell is None:
            at_once = threading.Semaphore(MOST_AT_ONCE)
            cell = self._cells[c] = _Cell(readers=tuple(_Reader(place, at_once) for place in self._places(c)))
            for place in cell.places:
                place.begin(marks.get(place.name, "" if marks else place.mark()), since_s)
        cell.asked_at = time.monotonic()
        if self._every_s > 0 and (cell.thread is None or not cell.thread.is_alive()):
            cell.stop.clear()
            cell.thread = threading.Thread(target=self._keep, args=(cell,), name=f"engine logs {c}", daemon=True)
            cell.thread.start()
        return cell

    def _keep(self, cell: _Cell) -> None:
        while not cell.stop.is_set() and time.monotonic() - cell.asked_at < self._idle_s:
            _pump(cell)
            cell.stop.wait(self._every_s)


def _pump(cell: _Cell) -> None:
    """Have every place read, and take what was found at one moment, so that no arm's fault is told before the other's is known."""
    with cell.reading:
        for reader in cell.readers:
            reader.start()
        end = time.monotonic() + PASS_S
        new = [reader.take(max(0.0, end - time.monotonic())) for reader in cell.readers]
        with cell.lock:
            cell.found = [*cell.found, *(f for found in new if found is not None for f in found)][-MOST_FOUND:]


def _marks(position: str) -> dict[str, str]:
    try:
        found = json.loads(position or "{}")
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
