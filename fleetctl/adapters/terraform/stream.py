"""Provision, adapters layer: one long Terraform run, followed line by line. Never kills it: the state must be written first.

The run gets a session of its own and writes to files, not pipes: it survives the death of fleetctl, and the terminal's Ctrl-C
does not reach it twice (a second interrupt makes Terraform drop its state).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

_LOOK_S = 0.05
_SECOND_S = 2.0
_GRACE_S = 120.0
_LEFTOVER_S = 5.0
_left_running: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended.

    Args:
        status: exit status; None where it was asked to stop and still runs (then `pid` is the way to find it).
        why: "" for by itself.
    """

    status: int | None
    pid: int
    seconds: float
    why: str = ""


class _Interrupts:
    """Counts SIGINT and SIGTERM instead of raising, in the main thread (elsewhere none arrive)."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._seen)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _seen(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def follow(
    argv: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    log: Path,
    on_line: Callable[[Mapping[str, object]], None],
    deadline_s: float,
) -> Ended:
    """Run argv to its end and hand over each JSON line it writes.

    An interrupt, or the deadline, is passed on as one SIGINT and waited for; a second interrupt leaves the run behind after 2 s, alive.
    What `on_line` raises is raised at the end, when the run is over.

    Args:
        log: file that takes standard output; errors go beside it with the suffix .err. Both 0600.
        deadline_s: seconds until the run is asked to stop.

    Raises:
        FileNotFoundError: the program is not there.
    """
    began = time.monotonic()
    with _Interrupts() as interrupts, _Output(log) as out, _Output(log.with_suffix(".err")) as err:
        run = subprocess.Popen(  # its end is waited for below
            argv, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, umask=0o077
        )  # a state holds all that a provider knows
        lines = _Lines(log, on_line)
        try:
            why, status = _watch(run, lines, interrupts, began, deadline_s)
        finally:
            lines.close()
    if status is None:
        _left_running.append(run)
    elif why or status < 0:  # killed by somebody: its providers would live on
        _end_leftovers(run.pid)
    if lines.error is not None:
        raise lines.error
    return Ended(status=status, pid=run.pid, seconds=time.monotonic() - began, why=why)


def _watch(run: subprocess.Popen[bytes], lines: _Lines, interrupts: _Interrupts, began: float, deadline_s: float) -> tuple[str, int | None]:
    why = ""
    leave_at = float("inf")
    while True:
        try:
            status = run.wait(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            status = None
        lines.read()
        if status is not None:
            return why, status
        now = time.monotonic()
        if not why and (interrupts.count or now - began > deadline_s):
            why = "interrupted" if interrupts.count else "timeout"
            leave_at = now + _GRACE_S
            run.send_signal(signal.SIGINT)
        if why and interrupts.count > 1:
            leave_at = min(leave_at, now + _SECOND_S)
        if now > leave_at:
            return why, None


class _Lines:
    """Reads a growing file of JSON lines; what is no JSON object is passed over."""

    def __init__(self, path: Path, on_line: Callable[[Mapping[str, object]], None]) -> None:
        self.error: BaseException | None = None
        self._file = path.open("rb")
        self._on_line = on_line
        self._rest = b""

    def read(self) -> None:
        self._rest += self._file.read()
        *whole, self._rest = self._rest.split(b"\n")
        for line in whole:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict) and self.error is None:
                try:
                    self._on_line(value)
                except BaseException as e:  # the run goes on; raised when it is over
                    self.error = e

    def close(self) -> None:
        self._file.close()


class _Output:
    """A file for the child's output: new, 0600."""

    def __init__(self, path: Path) -> None:
        self._number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(self._number, 0o600)

    def __enter__(self) -> int:
        return self._number

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._number)


def _end_leftovers(group: int) -> None:
    """End what an interrupted or killed run left in its process group; the state is written, and what means to live has its own session."""
    deadline = time.monotonic() + _LEFTOVER_S
    try:
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(_LOOK_S)
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
