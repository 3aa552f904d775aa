"""Coming home, adapters layer: fleetctl's own commands as child processes, journals and rehearsals as files. Never a shell.

A file is JSON lines, one canonical value each, 0600, appended and synced. A last line without its end was cut by a crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.ids import CellId, require_id
from fleetctl.domain.runbook import JournalLine, Timing
from fleetctl.errors import LeaseHeld, RunbookFailed
from fleetctl.ports.runbook import Ended

T = TypeVar("T")
REHEARSALS = "rehearsals.jsonl"
MOST_BYTES = 16 << 20
MOST_OUTPUT = 1 << 20
GRACE_S = 10.0
"""How long a command that is asked to stop may take to its next safe point, seconds."""


class OwnCommands:
    """`Commands` by this very installation, in a child process with stdin closed."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def run(self, words: Sequence[str], limit_s: float) -> Ended:
        """Run one command to its end, or interrupt it after `limit_s` seconds."""
        package = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
        env = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        argv = [sys.executable, "-m", "fleetctl.cli", "-C", str(self._workspace), *words]
        began = time.monotonic()
        child = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        code: int | None
        try:
            output, _ = child.communicate(timeout=limit_s)
            code = child.returncode
        except subprocess.TimeoutExpired:
            output, code = _stopped(child), None
        except BaseException:
            _stopped(child)
            raise
        return Ended(exit_code=code, output=output[-MOST_OUTPUT:], seconds=time.monotonic() - began)


def _stopped(child: subprocess.Popen[str]) -> str:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    try:
        return child.communicate(timeout=GRACE_S)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()[0]


class _Lines(Generic[T]):
    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path, self._kind = path, kind

    def read(self, *, strict: bool = True) -> tuple[T, ...]:
        try:
            data = self._path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as e:
            raise _broken(self._path, str(e.strerror)) from e
        if len(data) > MOST_BYTES:
            raise _broken(self._path, f"it has more than {MOST_BYTES} bytes")
        found = []
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            try:
                found.append(decode(self._kind, line))
            except (ValueError, TypeError, KeyError) as e:
                if strict:
                    raise _broken(self._path, f"it cannot be read by this release: {e}"[:300]) from e
        return tuple(found)

    def append(self, value: T) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                _cut_torn(fd)
                os.write(fd, canonical(value) + b"\n")
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as e:
            raise _broken(self._path, str(e.strerror)) from e


def _cut_torn(fd: int) -> None:
    """Take away a last line that a crash has cut."""
    size = os.fstat(fd).st_size
    data = os.pread(fd, min(size, 1 << 16), max(0, size - (1 << 16)))
    if data and not data.endswith(b"\n"):
        os.ftruncate(fd, size - len(data) + data.rfind(b"\n") + 1)


def _broken(path: Path, why: str) -> RunbookFailed:
    return RunbookFailed("runbook.journal", f"{path} cannot be used: {why}.", hint=f"Move it away: mv {path} {path}.old")


class JournalFile:
    """`Journal` in `<cell>.<runbook>.jsonl` of a folder."""

    def __init__(self, folder: Path, cell: CellId, runbook: str) -> None:
        self._path = folder / f"{require_id(cell)}.{require_id(runbook)}.jsonl"
        self._lines = _Lines(self._path, JournalLine)

    def lines(self) -> tuple[JournalLine, ...]:
        """Return every whole line, oldest first."""
        return self._lines.read()

    def append(self, line: JournalLine) -> None:
        """Add one line; it is on the disk when this returns."""
        self._lines.append(line)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others out meanwhile; the kernel lets go when this process ends, however it ends."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:  # a full disk: nothing can be kept there, and going home does not wait for it
            yield
            return
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"somebody steps through {self._path.stem} at this moment."
                raise LeaseHeld("lease.runbook", text, hint="Wait for its end, or stop it") from None
            yield
        finally:
            os.close(fd)


def read_journals(folder: Path) -> tuple[JournalLine, ...]:
    """Return the lines of every journal in a folder. Raises RunbookFailed (runbook.journal)."""
    paths = sorted(p for p in folder.glob("*.jsonl") if p.name != REHEARSALS)
    return tuple(line for p in paths for line in _Lines(p, JournalLine).read())


class RehearsalFile:
    """`Rehearsals` in `rehearsals.jsonl` of a folder."""

    def __init__(self, folder: Path) -> None:
        self._lines = _Lines(folder / REHEARSALS, Timing)

    def add(self, timing: Timing) -> None:
        """Add one."""
        self._lines.append(timing)

    def all(self) -> tuple[Timing, ...]:
        """Return every one that can be read, oldest first; they are shown beside a runbook, which is there without them."""
        return self._lines.read(strict=False)
