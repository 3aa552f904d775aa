"""Lab, lab layer: the parts of a running lab one by one: router, collector, load, ticker; their files, health and end."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fleetctl.adapters.routers.envoy.config import EnvoyConfig
from fleetctl.adapters.routers.envoy.config import write_files as write_files_of_envoy
from fleetctl.adapters.routers.haproxy.config import RouterConfig, write_files
from fleetctl.adapters.routers.haproxy.process import HaproxyProcess, find_binary
from fleetctl.adapters.routers.route import CellRoute
from fleetctl.domain.ids import CellId, is_id
from fleetctl.domain.workload import AffinityKey
from fleetctl.errors import LabFailed
from fleetctl.lab.envoy import envoy_argv, find_envoy
from fleetctl.lab.load import CellLoad, LoadConfig
from fleetctl.lab.processes import ProcessMark, end, log_tail, mark
from fleetctl.lab.record import CellRecord, LabRecord, write_private
from fleetctl.lab.service import process_of, start, stop
from fleetctl.lab.units import UnitConfig, python_env, write_unit

COLLECTOR_MODULE = "fleetctl.adapters.shadow.collector"
AFFINITY = "x-conversation-id"
ANSWER_TIMEOUT_S = 10.0
REAL_CHECK_TIMEOUT_MS = 30_000
"""On two busy cores the real model may need many seconds for one token; slow is not dead."""
_RUN = re.compile(r"fl-[0-9a-f]{8}\Z")


def reserved_ports(tmp: Path) -> set[int]:
    """Return the ports that the labs of this machine have reserved, also those that nobody listens on yet."""
    ports: set[int] = set()
    for folder in tmp.glob("fl-*"):
        if not _RUN.match(folder.name):
            continue
        try:
            found = json.loads((folder / "ports.json").read_bytes())
        except (OSError, ValueError):
            continue
        ports |= {p for p in found if type(p) is int} if isinstance(found, list) else set()
    return ports


def ports_text(record: LabRecord) -> str:
    """Return the list of a lab's ports, for other labs to keep away from."""
    cells = [p for c in record.cells for p in (*c.baseline, *c.canary)]
    more = [p for p in (record.admin_port, record.packages_port) if p]
    return json.dumps([record.router_port, record.collector_port, *more, *cells]) + "\n"


def router(record: LabRecord) -> HaproxyProcess:
    """Return the lab's HAProxy, running or not.

    Raises:
        ToolMissing: tool.haproxy.
    """
    folder = record.folder / "haproxy"
    return HaproxyProcess(folder=folder, socket=folder / "haproxy.sock", binary=find_binary(), pin_key=_pin_key(record))


def _pin_key(record: LabRecord) -> str:
    try:
        return (record.router_folder / "pin.key").read_text().strip()
    except OSError:
        return ""


def start_router(record: LabRecord) -> bool:
    """Start the router where it does not run, with weights as they stood; return whether it was started.

    Raises:
        LabFailed: lab.router_start; ConfigInvalid: config.router; ToolMissing: tool.haproxy, tool.envoy.
    """
    if record.router == "envoy":
        return _start_envoy(record)
    process = router(record)
    if process.is_running():
        return False
    config = RouterConfig(
        cells=tuple(_route(c, canary_endpoints(record, c)) for c in record.cells),
        port=record.router_port,
        socket=process.socket,
        map_folder=process.folder,
        collector_port=record.collector_port,
        retries=record.retries,
    )
    write_files(config, process.folder)
    process.start()
    return True


def _start_envoy(record: LabRecord) -> bool:
    folder = record.router_folder
    config = EnvoyConfig(
        cells=tuple(_route(c, canary_endpoints(record, c)) for c in record.cells),
        port=record.router_port,
        admin_port=record.admin_port,
        folder=folder,
        log=folder / "log" / "envoy-1.log",
        pin_key=_pin_key(record),
        collector_port=record.collector_port,
    )
    if process_of(record.folder / "units", "envoy") is None:
        path = write_files_of_envoy(config)
        listening: UnitConfig = {"port": record.admin_port, "health_path": "/ready"}
        write_unit(record.folder / "units", "envoy", {"argv": envoy_argv(find_envoy(), path), "env": {}, "config": listening})
    result = start(record.folder / "units", "envoy")
    if result.state == "failed":
        text = f"Envoy did not start: {result.error}."
        raise LabFailed("lab.router_start", text, hint="Run: fleetctl lab down, then fleetctl lab up", details=result.log)
    return result.changed


def router_pid(record: LabRecord) -> int:
    """Return the pid of the lab's router, 0 where it does not run."""
    if record.router == "envoy":
        found = process_of(record.folder / "units", "envoy")
        return found.pid if found else 0
    known = haproxy_mark(record)
    return known.pid if known else 0


def canary_endpoints(record: LabRecord, c: CellRecord) -> tuple[str, ...]:
    """Return where the target replicas of a cell answer, now or later."""
    if not record.machines:
        return _endpoints(c.canary)
    from fleetctl.lab.bare_hosts import endpoints

    return endpoints(record.network, c.canary)


def _route(c: CellRecord, canary: tuple[str, ...]) -> CellRoute:
    return CellRoute(
        cell=CellId(c.cell),
        model=c.model,
        baseline=_endpoints(c.baseline),
        canary=canary,
        affinity=AffinityKey(kind="header", name=AFFINITY),
        streaming=c.is_stream,
        check_every_ms=2_000 if c.is_real else 1_000,
        check_timeout_ms=REAL_CHECK_TIMEOUT_MS if c.is_real else 3_000,
    )


def _endpoints(ports: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{port}" for port in ports)


def support_units(record: LabRecord) -> tuple[str, ...]:
    """Return the names of the processes beside router and engines, in the order of their start."""
    guard = record.router == "envoy"  # HAProxy has one inside
    names = [
        ("packages", bool(record.machines)),
        ("collector", True),
        ("guard", guard),
        ("load", record.load),
        ("ticker", record.ticker),
    ]
    return tuple(name for name, wanted in names if wanted)


def load_config(record: LabRecord, trace: Path | None = None) -> LoadConfig:
    """Return the load of a lab."""
    cells = tuple(
        CellLoad(
            cell=c.cell,
            rate_per_s=c.rate_per_s,
            model=c.model,
            is_stream=c.is_stream,
            affinity_header=AFFINITY,
            most_chars=c.most_chars,
            max_tokens=c.max_tokens,
            timeout_s=60.0 if c.is_real else 10.0,
            most_in_flight=6 if c.is_real else 400,
        )
        for c in record.cells
    )
    return LoadConfig(port=record.router_port, stats=record.folder / "load" / "stats.json", cells=cells, trace=trace)


def write_support(record: LabRecord) -> None:
    """Write configurations and unit files of collector, load and ticker; what stands of the load stays (it may have been changed)."""
    folder, units = record.folder, record.folder / "units"
    if not (folder / "load" / "load.json").exists():
        write_private(folder / "load" / "load.json", load_config(record).to_json())
    write_load_unit(record)
    collector = folder / "shadow" / "collector.json"
    write_private(collector, _collector_text(record))
    listening: UnitConfig = {"port": record.collector_port, "health_path": "/status"}
    argv = [sys.executable, "-m", COLLECTOR_MODULE, "--config", str(collector)]
    write_unit(units, "collector", {"argv": argv, "env": python_env(), "config": listening})
    living: UnitConfig = {"settle_s": 1.0}
    argv = [sys.executable, "-m", "fleetctl.cli.main", "lab", "ticker", "--workspace", record.workspace]
    write_unit(units, "ticker", {"argv": argv, "env": python_env(), "config": living})
    if "guard" in support_units(record):
        argv = [sys.executable, "-m", "fleetctl.cli.main", "-C", record.workspace, "guard", "--every", "1"]
        write_unit(units, "guard", {"argv": argv, "env": python_env(), "config": living})


def write_load_unit(record: LabRecord) -> None:
    """Write the load's unit file, bound to the digest of its configuration so that a change restarts it."""
    path = record.folder / "load" / "load.json"
    config: UnitConfig = {
        "ready_file": str(record.folder / "load" / "stats.json"),
        "load_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    argv = [sys.executable, "-m", "fleetctl.lab.load", "--config", str(path)]
    write_unit(record.folder / "units", "load", {"argv": argv, "env": python_env(), "config": config})


def _collector_text(record: LabRecord) -> str:
    return (
        json.dumps(
            {
                "port": record.collector_port,
                "router_url": record.url,
                "pin_key_file": str(record.router_folder / "pin.key"),
                "folder": str(record.folder / "shadow"),
                "cells": {c.cell: {"streaming": c.is_stream} for c in record.cells},
            },
            indent=2,
        )
        + "\n"
    )


def complete(record: LabRecord, cell: CellRecord) -> int:
    """Ask a cell for a completion of one token through the router; return the HTTP status, 0 where nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", record.router_port, timeout=ANSWER_TIMEOUT_S)
    body = json.dumps({"model": cell.model, "prompt": "ok", "max_tokens": 1, "temperature": 0})
    try:
        connection.request("POST", f"/{cell.cell}/v1/completions", body, {"content-type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def unit_folders(record: LabRecord) -> Iterator[tuple[Path, str]]:
    """Yield folder and name of every unit that there is, on hosts and beside them."""
    for folder in (record.folder / "units", *sorted(record.hosts.glob("*"))):
        for path in sorted(folder.glob("*.json")):
            if is_id(path.stem) and path.stem not in ("host", "manifest", "fleetctl-units"):
                yield folder, path.stem


def is_any_alive(record: LabRecord) -> bool:
    """Tell whether any process of the lab lives."""
    return any(process_of(*place) for place in unit_folders(record)) or haproxy_mark(record) is not None


def haproxy_mark(record: LabRecord) -> ProcessMark | None:
    """Return the lab's HAProxy as a process, None where it does not run."""
    config = str(record.folder / "haproxy" / "haproxy.cfg").encode()
    return next((m for m, words in _own_processes() if config in words), None)


def stop_all(record: LabRecord) -> tuple[str, ...]:
    """End everything: ticker and load first, then router, collector and engines, then what a crash has left. Returns the names."""
    stopped = []
    units = record.folder / "units"
    for name in ("ticker", "guard", "load", "envoy"):
        if (units / f"{name}.pid").exists() and stop(units, name).changed:
            stopped.append(name)
    balancer = haproxy_mark(record)
    if balancer is not None:
        end(balancer, grace_s=2.0)
        stopped.append("haproxy")
    pid_files = [p for f in (units, *record.hosts.glob("*")) for p in f.glob("*.pid") if is_id(p.stem)]
    with ThreadPoolExecutor(max_workers=16) as pool:
        results = pool.map(lambda p: (p.stem, stop(p.parent, p.stem).changed), pid_files)
        stopped += sorted(name for name, changed in results if changed)
    for left in _left_over(record):
        end(left, grace_s=1.0)
        stopped.append(f"pid {left.pid}")
    return tuple(stopped)


def _left_over(record: LabRecord) -> list[ProcessMark]:
    """Return processes of this lab whose pid file is gone: our modules with a path in the run folder, or its ticker or guard."""
    inside = (record.run + "/").encode()
    ticker = [b"lab", b"ticker", b"--workspace", record.workspace.encode()]
    guard = [b"-C", record.workspace.encode(), b"guard", b"--every", b"1"]
    found = []
    for known, words in _own_processes():
        ours = any(w.startswith(b"fleetctl.") for w in words)
        if known.pid != os.getpid() and ours and (any(w.startswith(inside) for w in words) or ticker == words[-4:] or guard == words[-5:]):
            found.append(known)
    return found


def _own_processes() -> Iterator[tuple[ProcessMark, list[bytes]]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.getuid():
                continue
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        known = mark(int(entry.name))
        if known is not None:
            yield known, words


def router_log_tail(record: LabRecord) -> tuple[str, ...]:
    """Return the last lines that HAProxy said on stderr."""
    logs = sorted((record.folder / "haproxy" / "log").glob("stderr-*.txt"), key=lambda p: p.stat().st_mtime)
    return log_tail(logs[-1]) if logs else ()
