"""Configure, adapter layer: one ansible-playbook process and its end. Never reads what it prints.

A signal goes to the main process only: it ends its workers, which lead sessions of their own so that a signal to the group would miss
them. Source: cancel trials of this project: SIGTERM to the main process left nothing, killing the group left a worker and its command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

GRACE_S = 10.0
"""How long SIGTERM may take. Source: 4 s was the longest seen on a busy machine."""

_TIED = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n"
    "os.getppid() == int(sys.argv[1]) or sys.exit(143)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)
"""Asks the kernel to send SIGTERM when fleetctl itself is killed, then becomes the program; no run outlives the one who watches it."""


class Child:
    """A process in a session of its own, so that a key press reaches fleetctl alone, which passes it on once."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output: Path) -> None:
        """Start it, its output going to the file `output` (0600).

        Raises:
            OSError: it cannot be started.
        """
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
            )

        self._sessions: frozenset[int] = frozenset({self._process.pid})

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """Wait at most that long; return the exit code (negative for a signal), None while it runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def ask_to_end(self) -> None:
        """Send SIGTERM to the main process and return at once."""
        if self._process.poll() is None:
            self._sessions |= _sessions(self.pid)  # seen now, because its workers have another parent once it is gone
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def end(self, grace_s: float = GRACE_S) -> None:
        """End it and all it started; what does not obey within `grace_s` seconds is killed. Returns when nothing runs.

        What a host was told to serve leads a session of its own by then and is not part of the run.
        """
        self.ask_to_end()
        until = time.monotonic() + grace_s
        if _await(lambda: self._process.poll() is not None and not _members(self._sessions), until):
            return
        self._sessions |= _sessions(self.pid)
        for pid in _members(self._sessions):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        _await(lambda: not _members(self._sessions), time.monotonic() + grace_s)


def _await(holds: Callable[[], bool], until: float) -> bool:
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _processes() -> list[tuple[int, int, int]]:
    """Return (pid, parent, session) of every process that lives; a zombie does not."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            data = (entry / "stat").read_bytes()
        except OSError:
            continue
        fields = data[data.rfind(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X"):
            found.append((int(entry.name), int(fields[1]), int(fields[3])))
    return found


def _sessions(main: int) -> frozenset[int]:
    """Return the sessions of a run: that of the main process and those that its workers lead, or are about to: they fork first."""
    return frozenset({main, *(pid for pid, parent, _ in _processes() if parent == main)})


def _members(sessions: frozenset[int]) -> list[int]:
    return [pid for pid, _, session in _processes() if session in sessions]
