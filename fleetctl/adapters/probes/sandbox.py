"""Assess, adapter layer: one child with limits: CPU, memory and file size of each process, wall time of all, no network, no sight of other
processes, files read-only but its own scratch.

Never a shell; its environment is made new. Where the kernel has no namespaces or Landlock for us, the limits still hold.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_OUTPUT = 4 * 2**20
ENTRY = Path(__file__).with_name("inside.py")
READABLE = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/opt",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/urandom",
    "/dev/zero",
)
"""What a compiler needs to read; homes, data, settings, other processes and /tmp are not among it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one child: seconds and bytes."""

    cpu_s: int = 60
    wall_s: float = 120.0
    memory: int = 4 * 2**30
    file_size: int = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a child ended; `code` None where it was stopped for time."""

    code: int | None
    out: str
    err: str


def run(argv: Sequence[str], *, scratch: Path, readable: Sequence[Path], limits: Limits, env: dict[str, str]) -> Ended:
    """Run a program to its end, or to its limit.

    Args:
        scratch: the one folder that it may write, empty and private; readable: what it may read besides the system.
    """
    plan = {
        "argv": list(argv),
        "cpu_s": limits.cpu_s,
        "memory": limits.memory,
        "file_size": limits.file_size,
        "write": [str(scratch)],
        "read": [*READABLE, sys.prefix, sys.base_prefix, *(str(p) for p in readable)],
    }
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(scratch), "TMPDIR": str(scratch), "LANG": "C.UTF-8", **env}
    with (scratch / "out").open("wb") as out, (scratch / "err").open("wb") as err:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(ENTRY), json.dumps(plan)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=scratch,
            env=environment,
            start_new_session=True,
            close_fds=True,
        )
        try:
            code: int | None = child.wait(limits.wall_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return Ended(code=code, out=_said(scratch / "out"), err=_said(scratch / "err"))


def _said(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(MOST_OUTPUT).decode("utf-8", "replace")


def first_line(text: str, *marks: str) -> str:
    """Return the first line that holds one of the marks (else the first line), cleaned and at most 300 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if any(m in line for m in marks)), lines[0] if lines else "")
    return "".join(c if c.isprintable() else "?" for c in found)[:300]
