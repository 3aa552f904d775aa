"""Configure, lab layer: starts and stops the units of an emulated host. Stands in for systemd, which no unprivileged lab can use.

Run as `python -m fleetctl.lab.service {start,stop,status} <host folder> <unit>`. Prints one JSON line on stdout (broken here):
{"changed": bool, "state": "running"|"stopped"|"failed", "pid": n, "healthy": bool, "emulated": true,
 where it failed: "error": text, "log": [last lines]}.
A unit is `<unit>.json` in the host folder: {"argv": [...], "env": {...}, "config": {...}}.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fleetctl.domain.ids import is_id
from fleetctl.lab.processes import ProcessMark, end, is_alive, log_tail, mark, reap, wait_until

HEALTH_WAIT_S = 20.0
STOP_GRACE_S = 5.0

State = Literal["running", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit file, read.

    Args:
        port: that it answers on, on 127.0.0.1; 0 where it has none.
        health_path: what answers 200 there once it works.
        health_wait_s: how long a start may take, seconds.
        ready_file: file that it writes once it works; empty where it writes none.
        settle_s: it must live this long, seconds, before it counts as started (for units with neither port nor file).
        digest: of its content, not of its white space.
    """

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    port: int
    health_path: str
    health_wait_s: float
    ready_file: str
    settle_s: float
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """What a call found or did.

    Args:
        error: empty unless the state is "failed"; log: its last lines then.
    """

    changed: bool
    state: State
    pid: int = 0
    healthy: bool = False
    error: str = ""
    log: tuple[str, ...] = ()


def read_unit(folder: Path, unit: str) -> Unit:
    """Read `<unit>.json` of a host.

    Raises:
        ValueError: no such unit, or a file that is none.
    """
    if not is_id(unit):
        raise ValueError(f"{unit!r} does not name a unit")
    path = folder / f"{unit}.json"
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"no unit {unit} on this host: {path} is not there") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not an object")
    argv, env, config = data.get("argv"), data.get("env", {}), data.get("config", {})
    if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
        raise ValueError(f"{path}: argv is not a list of strings")
    if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()) or not isinstance(config, dict):
        raise ValueError(f"{path}: env is not strings, or config is not an object")
    return Unit(
        name=unit,
        argv=tuple(argv),
        env=tuple(sorted(env.items())),
        port=int(config.get("port", 0)),
        health_path=str(config.get("health_path", "/health")),
        health_wait_s=float(config.get("health_wait_s", HEALTH_WAIT_S)),
        ready_file=str(config.get("ready_file", "")),
        settle_s=float(config.get("settle_s", 0)),
        digest=hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest(),
    )


def start(folder: Path, unit: str) -> ServiceResult:
    """Bring the unit up, and again if its file changed; wait until its /health answers. Idempotent.

    Raises:
        ValueError: there is no such unit.
    """
    wanted = read_unit(folder, unit)
    with _locked(folder, unit):
        known, digest = _read_pid(folder, unit)
        if known is not None and is_alive(known):
            if digest == wanted.digest:
                return _await_health(folder, wanted, known, changed=False)
            end(known, grace_s=STOP_GRACE_S)
        try:
            known = _launch(folder, wanted)
        except OSError as e:
            return _failed(folder, unit, f"{wanted.argv[0]} cannot be run: {e.strerror}")
        if known is None:
            return _failed(folder, unit, "it ended at once")
        return _await_health(folder, wanted, known, changed=True)


def stop(folder: Path, unit: str) -> ServiceResult:
    """Bring the unit down with all its children; what it is answering may end within 5 s. Idempotent."""
    if not is_id(unit):
        raise ValueError(f"{unit!r} does not name a unit")
    with _locked(folder, unit):
        known, _ = _read_pid(folder, unit)
        changed = known is not None and end(known, grace_s=STOP_GRACE_S)
        _pid_file(folder, unit).unlink(missing_ok=True)
        return ServiceResult(changed=changed, state="stopped")


def status(folder: Path, unit: str) -> ServiceResult:
    """Tell how the unit is; changes nothing.

    Raises:
        ValueError: there is no such unit.
    """
    wanted = read_unit(folder, unit)
    known, _ = _read_pid(folder, unit)
    if known is None or not is_alive(known):
        return ServiceResult(changed=False, state="stopped")
    return ServiceResult(changed=False, state="running", pid=known.pid, healthy=_is_ready(wanted))


def process_of(folder: Path, unit: str) -> ProcessMark | None:
    """Return the living process of the unit, None where there is none."""
    known, _ = _read_pid(folder, unit)
    return known if known is not None and is_alive(known) else None


def answers_health(port: int, path: str = "/health", timeout_s: float = 1.0, address: str = "127.0.0.1") -> bool:
    """Tell whether GET `path` on address:port answers 200; true for port 0 (no port to ask)."""
    if not port:
        return True
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode())
            first = s.recv(64)
    except OSError:
        return False
    return first.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200"))


def _launch(folder: Path, unit: Unit) -> ProcessMark | None:
    """Start the program in a session of its own and note which process it is; None where it ended at once."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(folder / f"{unit.name}.log"), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", **dict(unit.env)}
    if unit.ready_file:
        Path(unit.ready_file).unlink(missing_ok=True)
    pid = os.posix_spawnp(unit.argv[0], list(unit.argv), environment, file_actions=actions, setsid=True)
    known = mark(pid)
    if known is not None:
        text = json.dumps({**asdict(known), "digest": unit.digest})
        new = folder / f".{unit.name}.pid.{os.getpid()}.new"
        new.write_text(text + "\n")
        os.replace(new, _pid_file(folder, unit.name))
    return known


def _await_health(folder: Path, unit: Unit, known: ProcessMark, *, changed: bool) -> ServiceResult:
    def is_over() -> bool:
        reap(known.pid)
        return not is_alive(known) or _is_ready(unit)

    if changed and unit.settle_s:
        wait_until(lambda: not is_alive(known), unit.settle_s)
    answered = wait_until(is_over, unit.health_wait_s, every_s=0.05)
    if not is_alive(known):
        return _failed(folder, unit.name, "it ended by itself")
    if not answered:
        what = f"{unit.health_path} on port {unit.port}" if unit.port else unit.ready_file
        return _failed(folder, unit.name, f"{what} was not there within {unit.health_wait_s:g} s", pid=known.pid)
    return ServiceResult(changed=changed, state="running", pid=known.pid, healthy=True)


def _is_ready(unit: Unit) -> bool:
    return (not unit.ready_file or Path(unit.ready_file).exists()) and answers_health(unit.port, unit.health_path)


def _failed(folder: Path, unit: str, why: str, *, pid: int = 0) -> ServiceResult:
    return ServiceResult(changed=True, state="failed", pid=pid, error=f"unit {unit}: {why}", log=log_tail(folder / f"{unit}.log"))


def _pid_file(folder: Path, unit: str) -> Path:
    return folder / f"{unit}.pid"


def _read_pid(folder: Path, unit: str) -> tuple[ProcessMark | None, str]:
    try:
        data = json.loads(_pid_file(folder, unit).read_bytes())
        return ProcessMark(pid=int(data["pid"]), start_ticks=int(data["start_ticks"]), boot=str(data["boot"])), str(data["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, ""


@contextmanager
def _locked(folder: Path, unit: str) -> Iterator[None]:
    with (folder / f".{unit}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(argv: list[str]) -> int:
    """Run `{start,stop,status} <host folder> <unit>`. Returns an exit code: 0 done, 1 failed, 2 usage."""
    actions = {"start": start, "stop": stop, "status": status}
    if len(argv) != 3 or argv[0] not in actions:
        sys.stderr.write("usage: python -m fleetctl.lab.service {start,stop,status} <host folder> <unit>\n")
        return 2
    try:
        result = actions[argv[0]](Path(argv[1]), argv[2])
    except (OSError, ValueError) as e:
        result = ServiceResult(changed=False, state="failed", error=str(e))
    shown: dict[str, object] = {
        "changed": result.changed,
        "state": result.state,
        "pid": result.pid,
        "healthy": result.healthy,
        "emulated": True,
    }
    if result.state == "failed":
        shown |= {"error": result.error, "log": list(result.log)}
    sys.stdout.write(json.dumps(shown) + "\n")
    return 1 if result.state == "failed" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
