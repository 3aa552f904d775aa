"""Evidence, adapter layer: recordings as files of JSON lines, one per cell and UTC day. Never judges, never keeps a prompt or an answer.

A recording is a folder of `<cell>-<YYYYMMDD>.jsonl`, or one file. Lines stand in the order in which they were written.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleetctl.domain.ids import CellId, is_id
from fleetctl.domain.records import Attempt, Scrape
from fleetctl.domain.units import Instant
from fleetctl.formats.cut_mark import cut_mark
from fleetctl.formats.recording import from_line, to_line

KEPT_DAYS = 8
"""Files older than that are removed when a new day begins, but for those that a step which still runs rests on."""
MOST_LINE = 1 << 20
_NAME = re.compile(r"(?P<cell>.+)-(?P<day>\d{8})\.jsonl\Z")


class Recorder:
    """Appends records; safe for threads, and for several processes since each record is one write.

    Args:
        folder: made with mode 0700 when needed; files have 0600.
        needed: since when a cell's records are still read; None where it is not known yet: then nothing is removed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        needed: Callable[[CellId], Instant | None] | None = None,
        now: Callable[[], Instant] = lambda: datetime.now(UTC),
    ) -> None:
        self._folder, self._needed, self._now = folder, needed, now
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, int]] = {}

    def add(self, records: Sequence[Attempt | Scrape]) -> None:
        """Append records of one cell."""
        if not records or not is_id(records[0].cell):
            return
        text = "".join(to_line(r) + "\n" for r in records).encode()
        with self._lock:
            os.write(self._file(records[0].cell), text)

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for _, fd in self._open.values():
                os.close(fd)
            self._open.clear()

    def _file(self, cell: str) -> int:
        day = _day(self._now())
        known = self._open.get(cell)
        if known is not None and known[0] == day and os.fstat(known[1]).st_nlink:  # else somebody removed it
            return known[1]
        if known is not None:
            os.close(known[1])
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._folder / f"{cell}-{day}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._open[cell] = (day, fd)
        self._remove_old(CellId(cell))
        return fd

    def _remove_old(self, c: CellId) -> None:
        since = self._needed(c) if self._needed is not None else self._now()
        if since is None:
            return
        oldest = _day(min(self._now() - timedelta(days=KEPT_DAYS), since))
        for path in files_of(self._folder, c):
            if day_of(path.name) < oldest:
                path.unlink(missing_ok=True)


def _day(at: Instant) -> str:
    return at.astimezone(UTC).strftime("%Y%m%d")


def day_of(name: str) -> str:
    """Return the day of a file's name, "99999999" for a name without one: such a file is never an old one."""
    found = _NAME.match(name)
    return found["day"] if found else "99999999"


def is_before(name: str, at: Instant) -> bool:
    """Tell whether a file was written whole on days before a moment's."""
    return day_of(name) < _day(at)


def files_of(place: Path, cell: CellId) -> list[Path]:
    """Return a cell's files in a folder by day; the file itself where the place is one.

    Raises:
        OSError: the place cannot be read.
    """
    if place.is_file():
        return [place]
    found = [p for p in place.iterdir() if (m := _NAME.match(p.name)) and m["cell"] == cell]
    return sorted(found, key=lambda p: p.name)


def lines_of(path: Path, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield whole lines from a byte on, each with the byte after it; one that is too long is yielded empty."""
    with path.open("rb") as f:
        f.seek(start)
        at = start
        while True:
            line = f.readline(MOST_LINE)
            if not line.endswith(b"\n"):
                if len(line) < MOST_LINE:
                    return
                while line and not line.endswith(b"\n"):
                    at += len(line)
                    line = f.readline(MOST_LINE)
                at += len(line)
                yield b"", at
                continue
            at += len(line)
            yield line[:-1], at


def mark_of(path: Path, offset: int) -> str:
    """Return a short hash of what stands before a byte of a file; "" at its beginning."""
    with path.open("rb") as f:
        return cut_mark(f, offset)


def stands(path: Path, offset: int, mark: str) -> bool:
    """Tell whether a file still reaches to a place, with what stood before it; without a mark its length alone is known."""
    return path.stat().st_size >= offset and (not mark or mark_of(path, offset) == mark)


def records_of(path: Path) -> Iterator[tuple[int, Attempt | Scrape | str]]:
    """Yield line number and record of a file, or the text of what is wrong with a line; lines of other kinds are left out."""
    for number, (line, _) in enumerate(lines_of(path, 0), start=1):
        if not line.strip():
            continue
        try:
            record = from_line(line)
        except ValueError as e:
            yield number, str(e)[:200]
            continue
        if record is not None:
            yield number, record
