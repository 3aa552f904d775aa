"""Configure, test stand-ins: emulated hosts of connection "local" and the processes that runs leave. Never used by the program."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.pool import Host

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = ROOT / "playbooks"
SERVER = ROOT / "tests" / "fakes" / "completion_server.py"
POOL = PoolId("mi300x-lab")

SLOW = """\
---
- name: Slow
  hosts: all
  gather_facts: false
  tasks:
    - name: Take long
      ansible.builtin.command:
        argv: [/bin/sleep, "{{ slow_seconds }}"]
      changed_when: false
"""


def free_port() -> int:
    """Return a port of 20000-29999 that nobody listens on."""
    for port in range(24000 + os.getpid() % 2000, 30000):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError("no free port")


_given: set[int] = set()


def local_host(folder: Path, name: str) -> Host:
    """Make the folder of an emulated host and return the host."""
    where = folder / name
    where.mkdir(parents=True, exist_ok=True)
    return Host(id=HostId(name), pool=POOL, address="127.0.0.1", connection="local", variables=(("folder", str(where)),))


def closed_host(name: str) -> Host:
    """Return a host reached by ssh at a port that nobody listens on."""
    return Host(
        id=HostId(name), pool=POOL, address=f"127.0.0.1:{free_port()}", connection="ssh", user="nobody", variables=(("folder", "/srv/lab"),)
    )


def unit(host: Host, name: str, *, model: str = "m", tokens: int = 1, env: dict[str, str] | None = None) -> dict[str, object]:
    """Return a serving unit that answers one token."""
    config = {"port": free_port(), "model": model, "tokens": tokens}
    return {
        "name": name,
        "content": {
            "argv": [sys.executable, str(SERVER), "--config", str(Path(dict(host.variables)["folder"]) / f"{name}.json")],
            "env": env or {},
            "config": config,
        },
    }


def slow_playbooks(folder: Path) -> Path:
    """Make a folder of playbooks with `slow.yml`, which takes `slow_seconds`."""
    folder.mkdir(parents=True)
    (folder / "slow.yml").write_text(SLOW)
    (folder / "plugins").symlink_to(PLAYBOOKS / "plugins")
    return folder


def stop_units(folder: Path) -> None:
    """End every unit of every host below the folder."""
    for pid in folder.glob("*/*.pid"):
        argv = [sys.executable, "-m", "fleetctl.lab.service", "stop", str(pid.parent), pid.stem]
        subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)


def is_running(folder: Path, name: str) -> bool:
    """Tell whether the process of a unit lives."""
    try:
        pid = json.loads((folder / f"{name}.pid").read_bytes())["pid"]
    except FileNotFoundError:
        return False
    return Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() != b""


def command_lines() -> dict[int, str]:
    """Return the command line of every process but this one."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
    return found


def processes_with(text: str) -> dict[int, str]:
    """Return the processes whose command line holds the text."""
    return {pid: line for pid, line in command_lines().items() if text in line}


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Look until it holds, or the time is over."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
