"""Evidence, adapter layer: where an engine's log is: a file that grows, or a command that prints what is new. Bounded; each line once.

A command is an argv, never a shell's text: no standard input, a small environment, ended after `LIMIT_S` with all that it started.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.domain.evidence import Arm

MOST_BYTES = 4 << 20
"""Read of one place at a time; what is more waits for the next time."""
MOST_LINE = 64 << 10
LIMIT_S = 20.0
OVERLAP_S = 2.0
"""A command is asked from so long before it was asked last, since clocks and flushes differ; lines seen before are left out."""
_KNOWN_LINES = 20_000
_MARK = re.compile(r"(\d{1,20}\.\d{1,6}):(\d{1,15})\Z")
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "SSH_AUTH_SOCK", "KUBECONFIG", "TMPDIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a log.

    Args:
        at_s: epoch seconds, as it says itself, else when it was read; file, offset: which file, and the byte after it, if any.
    """

    text: str
    at_s: float
    file: str = ""
    offset: int = 0


class Unreadable(Exception):
    """A place that cannot be read now; the text says why."""


class LogFile:
    """A log file, followed over rotation: one that was replaced is read to its end first, if it still lies beside it as `.1`.

    A mark is "<inode>.<times that the file was cut>:<byte>".
    """

    def __init__(self, arm: Arm, path: Path) -> None:
        self.arm, self.name, self._path = arm, str(path), path
        self.source = str(path.resolve())
        self._file, self._offset, self._cuts = 0, 0, 0
        self._order: list[str] = []

    def mark(self) -> str:
        """Return the place after what is there now; "" where there is no file."""
        with suppress(OSError):
            found = self._path.stat()
            cuts = self._cuts if found.st_ino == self._file else 0
            return f"{found.st_ino}.{cuts}:{found.st_size}"
        return ""

    def begin(self, mark: str, since_s: float) -> None:
        """Read from a mark on; a file that was not there then is read whole."""
        key, offset = _mark(mark)
        self._order = [key] if key else []
        if key:
            inode, _, cuts = key.partition(".")
            self._file, self._cuts, self._offset = int(inode), int(cuts), offset

    def new_lines(self) -> Iterator[LogLine]:
        """Yield whole lines that were not read yet. Raises Unreadable."""
        try:
            found = self._path.stat()
            if self._file and found.st_ino != self._file:
                yield from self._rest_of_the_old()
            if found.st_ino != self._file:
                self._file, self._offset, self._cuts = found.st_ino, 0, 0
            if found.st_size < self._offset:
                self._offset, self._cuts = 0, self._cuts + 1
            yield from self._lines(self._path)
        except OSError as e:
            raise Unreadable(f"{self.name}: {e.strerror or e}") from e

    def is_before(self, line: LogLine, mark: str, since_s: float) -> bool:
        """Tell whether a line stood there at a mark."""
        key, offset = _mark(mark)
        if key == line.file:
            return line.offset <= offset
        known = self._order
        return key in known and line.file in known and known.index(line.file) < known.index(key)

    def _key(self) -> str:
        key = f"{self._file}.{self._cuts}"
        if key not in self._order:
            self._order = [*self._order[-15:], key]
        return key

    def _rest_of_the_old(self) -> Iterator[LogLine]:
        old = self._path.with_name(self._path.name + ".1")
        with suppress(OSError):
            if old.stat().st_ino == self._file:
                yield from self._lines(old)

    def _lines(self, path: Path) -> Iterator[LogLine]:
        key = self._key()
        with path.open("rb") as f:
            f.seek(self._offset)
            data = f.read(MOST_BYTES)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == MOST_BYTES:
            end = len(data)  # a line without an end
        at = self._offset
        self._offset += end
        now = time.time()
        for raw in data[:end].splitlines(keepends=True):
            at += len(raw)
            yield LogLine(text=raw[:MOST_LINE].decode("utf-8", "replace").rstrip(), at_s=now, file=key, offset=at)


def _mark(text: str) -> tuple[str, int]:
    """Return file and byte of a mark, ("", 0) for none."""
    found = _MARK.match(text)
    return (found[1], int(found[2])) if found else ("", 0)


class LogCommand:
    """A command that prints a log from a moment on; `{since}` is replaced by "@" and epoch seconds, `{since_iso}` by RFC 3339."""

    def __init__(self, arm: Arm, name: str, argv: Sequence[str], *, now: Callable[[], float] = time.time) -> None:
        self.arm, self.name, self._argv, self._now = arm, name, tuple(argv), now
        self.source = "\0".join(self._argv)
        self._from_s = 0.0
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def mark(self) -> str:
        """Return "": lines of a command are told apart by time."""
        return ""

    def begin(self, mark: str, since_s: float) -> None:
        """Ask from that moment on."""
        self._from_s = since_s

    def new_lines(self) -> Iterator[LogLine]:
        """Yield lines that were not printed before. Raises Unreadable."""
        asked_at = self._now()
        since = max(0.0, self._from_s)
        iso = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        data = _output([a.replace("{since}", f"@{int(since)}").replace("{since_iso}", iso) for a in self._argv], self.name)
        self._from_s = asked_at - OVERLAP_S
        for raw in data.splitlines():
            key = hashlib.blake2b(raw, digest_size=12).digest()
            if key in self._known:
                continue
            self._known[key] = None
            while len(self._known) > _KNOWN_LINES:
                self._known.popitem(last=False)
            text, at_s = journal_line(raw[:MOST_LINE])
            yield LogLine(text=text, at_s=asked_at if at_s is None else at_s)

    def is_before(self, line: LogLine, mark: str, since_s: float) -> bool:
        """Tell whether a line is older than a moment."""
        return line.at_s < since_s


def journal_line(raw: bytes) -> tuple[str, float | None]:
    """Return text and time of a line of `journalctl -o json`; any other line is its own text, without a time."""
    if raw.startswith(b"{"):
        with suppress(ValueError, RecursionError, TypeError):
            row = json.loads(raw)
            message = row.get("MESSAGE")
            if isinstance(message, list):  # bytes that are no text
                message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
            if isinstance(message, str):
                return message, int(row["__REALTIME_TIMESTAMP"]) / 1e6 if "__REALTIME_TIMESTAMP" in row else None
    return raw.decode("utf-8", "replace"), None


def _output(argv: list[str], name: str) -> bytes:
    """Run a command and return the first `MOST_BYTES` of its output. Raises Unreadable."""
    env = {k: os.environ[k] for k in _ENVIRONMENT if k in os.environ}
    end = time.monotonic() + LIMIT_S
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, start_new_session=True
        )
    except OSError as e:
        raise Unreadable(f"{name}: {argv[0][:60]} cannot be run: {e.strerror or e}") from e
    data = bytearray()
    try:
        is_whole = _read(child, data, end)
    finally:
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    if not is_whole and len(data) < MOST_BYTES:
        raise Unreadable(f"{name}: {argv[0][:60]} took over {LIMIT_S:g} s")
    if is_whole and child.returncode != 0 and not data:
        raise Unreadable(f"{name}: {argv[0][:60]} ended with {child.returncode}")
    return bytes(data)


def _read(child: subprocess.Popen[bytes], data: bytearray, end: float) -> bool:
    """Read until the command ends; False where time or room is over before."""
    assert child.stdout is not None  # noqa: S101 - it was asked for
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        while len(data) < MOST_BYTES:
            left = end - time.monotonic()
            if left <= 0 or not ready.select(left):
                return False
            chunk = os.read(child.stdout.fileno(), 1 << 16)
            if not chunk:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=max(0.0, end - time.monotonic()))
                return True
            data += chunk
    return False
