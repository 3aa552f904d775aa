"""Evidence, adapter layer: a router's log of JSON lines as attempts, read forwards in steps or backwards. Never judges, never writes.

Who pays for an attempt (the arm is the one that the split chose, the server the one that answered):
    pinned                                        left out (ours, not a user's)
    the client went away (termination "C.", DC)   no attempt; counted by arm (GaveUp)
    canary answered by a source server (backup)   canary error, no latency
    no answer, cut, 5xx, 429, or retried          error of its arm, no latency
    other 4xx                                     attempt of its arm, no latency, refused
    else                                          attempt with its active time (%Ta) as latency
Lines stand in order of their end; a line counts once its line end is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fleetctl.domain.records import Attempt, GaveUp
from fleetctl.domain.units import Instant
from fleetctl.formats.cut_mark import cut_mark

Skipped = Literal["pinned", "mislabelled", "broken", "other"]
_NAME = re.compile(r"(?:haproxy|envoy|work)-(\d{1,9})\.log\Z")
_POSITION = re.compile(r"(\d{1,9}):(\d{1,15})(?::([0-9a-f]{8}))?\Z")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in the logs: file number and the byte after a line end; later files follow whole.

    Args:
        mark: of what stands before it, "" where it is not known.
    """

    file: int = 0
    offset: int = 0
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}" + (f":{self.mark}" if self.mark else "")


def read_position(text: str) -> Position:
    """Return the position that `str()` wrote; anything else means the beginning."""
    found = _POSITION.match(text)
    return Position(file=int(found[1]), offset=int(found[2]), mark=found[3] or "") if found else Position()


_MOST_MS, _MOST_ACTIVE_MS, _MOST_TOKENS = 4_102_444_800_000, 30 * 86_400_000, 100_000_000
"""The year 2100, thirty days and a hundred million tokens: what is beyond is no measurement."""


def parse(line: bytes) -> Attempt | GaveUp | Skipped:
    """Return what one line tells of, or why it is no evidence."""
    if not line.startswith(b"{"):
        return "other"
    try:
        row = json.loads(line)
        cell, arm, server, termination = row["c"], row["a"], row["srv"], row["ts"]
        status, started, active = int(row["st"]), int(row["t0"]), int(row["ta"])
        pin, retries = row.get("p", "-"), str(row.get("rc", "0"))
        flags, tries = str(row.get("rf", "-")), int(row.get("ac", 1))  # how Envoy says it
        prompt, cached = (n if -1 <= (n := int(row.get(k, -1))) <= _MOST_TOKENS else -1 for k in ("pt", "cc"))
        model, cohort = _name(row.get("m")), _name(row.get("co"))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "broken"
    if not (isinstance(cell, str) and isinstance(server, str) and isinstance(termination, str)):
        return "broken"
    if not (0 < started < _MOST_MS and active < _MOST_ACTIVE_MS):
        return "broken"
    if pin != "-":
        return "pinned"
    if arm not in ("baseline", "canary") or (arm == "baseline" and server.startswith("c")):
        return "mislabelled"
    if termination.startswith("C") or "DC" in flags.split(","):
        return GaveUp(cell=cell, arm=arm, started_ms=started, ended_ms=started + max(0, active))
    failed = (
        status <= 0
        or status >= 500
        or status == 429
        or not termination.startswith("-")
        or (arm == "canary" and not server.startswith("c"))
        or (arm == "baseline" and not server.startswith("b"))
        or retries not in ("0", "+0")
        or flags != "-"
        or tries > 1
    )
    timed = not failed and status < 400 and active >= 0
    return Attempt(
        cell=cell,
        arm=arm,
        started_ms=started,
        ended_ms=started + max(0, active),
        failed=failed,
        latency_ms=float(active) if timed else None,
        prompt_tokens=prompt,
        cached_tokens=cached,
        model=model,
        cohort=cohort,
        refused=not failed and status >= 400,
    )


def _name(told: object) -> str:
    """Return the name of an adapter model or cohort, "" where there is none or it is no plain text."""
    return told[:128] if isinstance(told, str) and told not in ("-", "") and told.isprintable() else ""


def log_files(folder: Path) -> dict[int, Path]:
    """Return the log files by number, ascending.

    Raises:
        OSError: the folder cannot be read.
    """
    found = ((_NAME.match(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def last_written(folder: Path) -> Instant | None:
    """Return when anything was written to the logs last, whatever it tells of; None where there is none.

    Raises:
        OSError: the folder or a log cannot be read.
    """
    newest = max((path.stat().st_mtime for path in log_files(folder).values()), default=None)
    return None if newest is None else datetime.fromtimestamp(newest, UTC)


def whole_until(path: Path) -> int:
    """Return the byte after the last line end of a file, 0 where it has none."""
    with path.open("rb") as log:
        end = log.seek(0, 2)
        while end > 0:
            size = min(_CHUNK, end)
            log.seek(end - size)
            found = log.read(size).rfind(b"\n")
            if found >= 0:
                return end - size + found + 1
            end -= size
    return 0


def lines_between(path: Path, start: int, stop: int | None) -> Iterator[tuple[bytes, int]]:
    """Yield whole lines without their end from byte `start` to `stop` (None: as far as they are whole), each with the byte after it."""
    with path.open("rb") as log:
        log.seek(start)
        at, rest = start, b""
        while stop is None or at + len(rest) < stop:
            room = _CHUNK if stop is None else min(_CHUNK, stop - at - len(rest))
            chunk = log.read(room)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                at += len(line) + 1
                yield line, at


def newest_lines(folder: Path) -> Iterator[bytes]:
    """Yield whole lines of all files, newest first."""
    for path in reversed(log_files(folder).values()):
        with path.open("rb") as log:
            end = whole_until(path)
            rest = b""
            while end > 0:
                size = min(_CHUNK, end)
                end -= size
                log.seek(end)
                first, *lines = (log.read(size) + rest).split(b"\n")
                for line in reversed(lines):
                    if line:
                        yield line
                rest = first
            if rest:
                yield rest


@dataclass(slots=True)
class _Read:
    """How far a file has been read, and what stood before that."""

    offset: int = 0
    mark: str = ""


class LogTail:
    """Reads what is new in every file since it was last asked; starts at the end of what is there.

    A file that was cut, or replaced by another one of its name, is read from its beginning: what stood there and was not read is lost.
    `cuts` counts how often that happened.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = {n: _Read(end := whole_until(path), _mark(path, end)) for n, path in log_files(folder).items()}
        self.cuts = 0

    def end(self) -> Position:
        """Return where the newest file has been read to."""
        newest = max(self._read, default=0)
        read = self._read.get(newest, _Read())
        return Position(file=newest, offset=read.offset, mark=read.mark)

    def new_lines(self) -> Iterator[bytes]:
        """Yield whole lines written since the last call.

        Raises:
            OSError: the folder or a file cannot be read.
        """
        for number, path in log_files(self._folder).items():
            read = self._read.setdefault(number, _Read())
            if not _stands(path, read.offset, read.mark):
                self.cuts += 1
                read.offset = 0
            read.mark = ""  # not known while lines are read
            for line, after in lines_between(path, read.offset, None):
                read.offset = after
                yield line
            read.mark = _mark(path, read.offset)

    def old_lines(self, start: Position) -> Iterator[bytes]:
        """Yield the lines from `start` to where this tail has read, oldest file first; all of a file that was cut since."""
        for number, path in log_files(self._folder).items():
            if number >= start.file and number in self._read:
                begin = start.offset if number == start.file and self.has(start) else 0
                for line, _ in lines_between(path, begin, self._read[number].offset):
                    yield line

    def has(self, start: Position) -> bool:
        """Tell whether the file of a position is still there with what stood before it."""
        if start == Position():
            return True
        path = log_files(self._folder).get(start.file)
        if path is None:
            return False
        return _stands(path, start.offset, start.mark)


def _stands(path: Path, offset: int, mark: str) -> bool:
    """Tell whether a file still reaches to a place, with what stood before it; without a mark its length alone is known."""
    return path.stat().st_size >= offset and (not mark or _mark(path, offset) == mark)


def _mark(path: Path, offset: int) -> str:
    with path.open("rb") as log:
        return cut_mark(log, offset)
