"""Lab, lab layer: one process known by its id and its start, so that a reused id is never taken for it. Knows no lab.

Linux only: the start is field 22 of /proc/<pid>/stat, in clock ticks since boot.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FIRST_PORT, LAST_PORT = 20_000, 29_999


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """A process that was started once.

    Args:
        pid: process id, above 0.
        start_ticks: its start in clock ticks since boot.
        boot: id of that boot; another boot means that the process is gone.
    """

    pid: int
    start_ticks: int
    boot: str


def boot_id() -> str:
    """Return the id of this boot; empty where the kernel tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None where it is not there, or only its zombie is."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def mark(pid: int) -> ProcessMark | None:
    """Return the mark of a living process, None where there is none."""
    ticks = start_ticks(pid)
    return None if ticks is None else ProcessMark(pid=pid, start_ticks=ticks, boot=boot_id())


def is_alive(known: ProcessMark) -> bool:
    """Tell whether that very process still lives; another one with its id does not count."""
    return known.boot == boot_id() and start_ticks(known.pid) == known.start_ticks


def end(known: ProcessMark, *, grace_s: float = 5.0, whole_group: bool = True) -> bool:
    """End the process: SIGTERM, and SIGKILL after `grace_s` seconds. Returns whether it was alive.

    Args:
        whole_group: signal the process group that it leads (it was started by setsid), so that its children end too.
    """
    if not is_alive(known):
        return False
    leads = whole_group and _group(known.pid) == known.pid
    _signal(known, signal.SIGTERM, leads)
    _signal(known, signal.SIGCONT, leads)
    if not wait_until(lambda: not is_alive(known), grace_s):
        _signal(known, signal.SIGKILL, leads)
        wait_until(lambda: not is_alive(known), 5.0)
    if leads:
        _kill_rest(known.pid)
    reap(known.pid)
    return True


def reap(pid: int) -> None:
    """Take a child's exit status, so that no zombie stays; nothing where it still runs or is nobody's child here."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except OSError:
        return


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _signal(known: ProcessMark, number: int, leads: bool) -> None:
    if not is_alive(known):
        return
    try:
        if leads:
            os.killpg(known.pid, number)
        else:
            os.kill(known.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _kill_rest(group: int) -> None:
    """Kill what is left of a group whose leader has just ended; the id cannot have been reused while members live."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def wait_until(is_so: Callable[[], bool], timeout_s: float, *, every_s: float = 0.02) -> bool:
    """Look until `is_so` holds or `timeout_s` seconds have passed; return whether it does."""
    until = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() >= until:
            return False
        time.sleep(every_s)
    return True


def is_port_free(port: int) -> bool:
    """Tell whether 127.0.0.1:port can be bound now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(start: int, taken: Sequence[int] | set[int] = ()) -> int:
    """Return the first free port from `start` on, wrapping at 29,999, that is not in `taken`.

    Raises:
        OSError: none is free.
    """
    span = LAST_PORT - FIRST_PORT + 1
    for step in range(span):
        port = FIRST_PORT + (start - FIRST_PORT + step) % span
        if port not in taken and is_port_free(port):
            return port
    raise OSError(f"no free port from {FIRST_PORT} to {LAST_PORT}")


def log_tail(path: Path, lines: int = 5, *, most_bytes: int = 4096) -> tuple[str, ...]:
    """Return the last lines of a log, without control characters; empty where there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - most_bytes))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ()
    clean = ("".join(c if c.isprintable() else " " for c in line).rstrip()[:300] for line in text.splitlines())
    return tuple([line for line in clean if line][-lines:])
