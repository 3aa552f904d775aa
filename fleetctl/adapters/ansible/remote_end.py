"""Configure, on the host: ends every process of the ssh connection that it came by, and no other. Never imports fleetctl, needs Python 3.8.

The run sends this text to a host's Python when it is cancelled: sshd lets a command go on when its connection ends.
What systemd started is no process of the connection and stays.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

TERM_S, KILL_S = 2.0, 1.0
"""How long SIGTERM may take, and how long SIGKILL."""


class Process(NamedTuple):
    """One line of the process table."""

    parent: int
    name: bytes
    state: bytes


def table() -> dict[int, Process]:
    """Return the process table by process id."""
    rows = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open("/proc/" + name + "/stat", "rb") as f:
            data = f.read()
            at = data.rindex(b")")
            state, parent = data[at + 2 :].split()[:2]
            rows[int(name)] = Process(int(parent), data[data.index(b"(") + 1 : at], state)
    return rows


def below(root: int, without: set[int]) -> set[int]:
    """Return what lives below a process, except what is named."""
    rows, found = table(), {root}
    while True:
        more = {p for p, r in rows.items() if r.parent in found and p not in found and p not in without and r.state not in (b"Z", b"X")}
        if not more:
            return found - {root}
        found |= more


def main() -> None:
    """Ask all to end, then kill what is left."""
    rows, at = table(), os.getpid()
    mine: set[int] = set()
    while at in rows and not rows[at].name.startswith(b"sshd"):
        mine.add(at)
        at = rows[at].parent
    if at not in rows:
        return
    for number, wait in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        until = time.monotonic() + wait
        for pid in below(at, mine):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        while below(at, mine) and time.monotonic() < until:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
