"""Lab, lab layer: what a lab consists of, process by process, and how each is. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetctl.lab.fault_control import lab_faults
from fleetctl.lab.parts import router_pid, support_units, unit_folders
from fleetctl.lab.record import LabRecord, need_record
from fleetctl.lab.service import answers_health, read_unit, status

MACHINE = "machine"
"""Unit of a real host; as in fleetctl.lab.machine, which only a lab with real hosts imports."""

Nature = Literal["real", "emulated"]
Health = Literal["healthy", "no answer", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process of the lab.

    Args:
        pid: 0 where it is dead; port: 0 where it listens on none.
        nature: whether it is what it stands for; text says what it is.
        faults: kinds that are switched on.
    """

    name: str
    pid: int
    nature: Nature
    text: str
    port: int
    health: Health
    host: str = ""
    faults: tuple[str, ...] = ()


_SUPPORT = {
    "packages": "apt repository of STAND-IN packages",
    "collector": "compares copied requests on both sides (shadow)",
    "load": "clients with conversations; the traffic is made up",
    "guard": "takes home a weight that nobody renews",
    "ticker": "resident ticker: judges, renews leases",
}


def lab_status(workspace: Path) -> tuple[ProcessRow, ...]:
    """Return a row per process: router, helpers, then every serving process of both sides.

    Raises:
        LabFailed: lab.not_up.
    """
    record = need_record(workspace.absolute())
    faults: dict[str, list[str]] = {}
    for f in lab_faults(workspace):
        faults.setdefault(f.unit, []).append(f.kind)
    wanted = support_units(record)
    places = [(f, n) for f, n in unit_folders(record) if f.name != "units" or n in wanted]
    real = {c.cell for c in record.cells if c.is_real}
    with ThreadPoolExecutor(max_workers=8) as pool:
        rows = pool.map(lambda p: _row(p[0], p[1], real, tuple(faults.get(p[1], ()))), places)
        return (_router_row(record), *rows, *_on_real_hosts(record, faults))


def _on_real_hosts(record: LabRecord, faults: Mapping[str, list[str]]) -> tuple[ProcessRow, ...]:
    if not record.machines:
        return ()
    from fleetctl.lab.bare_hosts import servers

    return tuple(
        ProcessRow(
            name=s.name,
            pid=s.pid,
            nature="emulated",
            text=f"engine (timing made up), target: a systemd unit of {s.host}",
            port=s.port,
            health="dead" if not s.pid else "healthy" if answers_health(s.port, address=s.address) else "no answer",
            host=s.host,
            faults=tuple(faults.get(s.name, ())),
        )
        for s in servers(record)
    )


def _router_row(record: LabRecord) -> ProcessRow:
    pid = router_pid(record)
    does = "splits each cell's traffic, fences, guards" if record.router == "haproxy" else "splits each cell's traffic"
    return ProcessRow(
        name=record.router,
        pid=pid,
        nature="real",
        text=f"router: {does}",
        port=record.router_port,
        health="healthy" if pid else "dead",
    )


def _row(folder: Path, name: str, real: set[str], faults: tuple[str, ...]) -> ProcessRow:
    found = status(folder, name)
    health: Health = "dead" if found.state != "running" else "healthy" if found.healthy else "no answer"
    port = read_unit(folder, name).port
    if folder.name == "units":
        nature: Nature = "emulated" if name == "load" else "real"
        return ProcessRow(name=name, pid=found.pid, nature=nature, text=_SUPPORT.get(name, ""), port=port, health=health)
    if name == MACHINE:
        text = f"{folder.name}: a host (systemd-nspawn)"
        return ProcessRow(name=name, pid=found.pid, nature="real", text=text, port=port, health=health, host=folder.name)
    cell, _, arm = name.rpartition("-")
    is_real = cell in real
    text = f"{'SmolLM2-135M on llama.cpp' if is_real else 'engine (OpenAI API, timing made up)'}, {_side(arm)}"
    return ProcessRow(
        name=name,
        pid=found.pid,
        nature="real" if is_real else "emulated",
        text=text,
        port=port,
        health=health,
        host=folder.name,
        faults=faults,
    )


def _side(arm: str) -> str:
    return "source" if arm.startswith("b") else "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStats:
    """What the clients have seen of one cell.

    Args:
        errors: count by kind (status_503, reset, connect, timeout, malformed).
        p50_ms, p95_ms: of the last 10 s, milliseconds; None where nothing was answered.
    """

    cell: str
    sent: int
    ok: int
    not_sent: int
    errors: Mapping[str, int]
    p50_ms: float | None
    p95_ms: float | None


def load_stats(workspace: Path) -> tuple[LoadStats, ...]:
    """Return what the clients have seen since the load was started; empty where there is no load.

    Raises:
        LabFailed: lab.not_up.
    """
    record = need_record(workspace.absolute())
    try:
        found = json.loads((record.folder / "load" / "stats.json").read_bytes())["cells"]
    except (OSError, ValueError, KeyError):
        return ()
    return tuple(
        LoadStats(
            cell=name,
            sent=int(c["sent"]),
            ok=int(c["ok"]),
            not_sent=int(c["not_sent"]),
            errors={str(k): int(v) for k, v in c["errors"].items()},
            p50_ms=c["p50_ms"],
            p95_ms=c["p95_ms"],
        )
        for name, c in sorted(found.items())
    )


def client_errors(workspace: Path) -> int:
    """Return how many requests of all clients have failed since the load was started.

    Raises:
        LabFailed: lab.not_up.
    """
    return sum(sum(c.errors.values()) for c in load_stats(workspace))
