"""Configure, lab layer: which unit files serve a cell on one side, built from the workload's serving mapping. Never starts anything."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, HostId
from fleetctl.domain.pool import Host
from fleetctl.domain.workload import Cell, Workload
from fleetctl.errors import ConfigInvalid

Side = Literal["source", "target"]
UnitConfig = dict[str, str | int | float]


class UnitFile(TypedDict):
    """What the service tool reads."""

    argv: list[str]
    env: dict[str, str]
    config: UnitConfig


_LETTER = {"source": "b", "target": "c"}
EMULATED = "emulated"
REAL_LLM = "llama.cpp"


def unit_name(cell: CellId, side: Side, index: int) -> str:
    """Return the name of a unit, such as chat-lab-b1.

    Args:
        index: of the replica, from 1.
    """
    return f"{cell}-{_LETTER[side]}{index}"


def python_env() -> dict[str, str]:
    """Return what a child needs in its environment to import this very fleetctl; nothing where it is installed."""
    root = Path(__file__).resolve().parents[2]
    return {} if root.name in ("site-packages", "dist-packages") else {"PYTHONPATH": str(root)}


def unit_for(*, cell: Cell, workload: Workload, side: Side, index: int, folder: Path) -> UnitFile:
    """Build one unit file.

    Args:
        index: of the replica, from 1; its port is that of the cell's endpoint of that number.
        folder: of the host, absolute; the unit file will lie there.

    Returns:
        argv, env and config, as the service tool reads them.

    Raises:
        ConfigInvalid: config.serving: the workload's serving mapping or the cell's endpoints do not say enough.
    """
    endpoints = cell.router.baseline_endpoints if side == "source" else cell.router.canary_endpoints
    if not 1 <= index <= len(endpoints):
        raise ConfigInvalid(
            "config.serving",
            f"cell {cell.id} has {len(endpoints)} {side} endpoints, so there is no replica {index}.",
            hint="Add the endpoint to its router in the fleet file.",
        )
    port = endpoints[index - 1].rpartition(":")[2]
    serving = workload.serving
    kind = serving.get("kind", "")
    config: UnitConfig = {"port": int(port), "model": workload.model.name}
    if kind == EMULATED:
        prefix = "" if side == "source" else "target_"
        for name in ("ttft_ms", "token_ms"):
            config[name] = _number(workload, serving.get(prefix + name, serving.get(name)), prefix + name)
        config["log_sd"] = _number(workload, serving.get("log_sd", "0.25"), "log_sd")
        module = "fleetctl.lab.engine"
    elif kind == REAL_LLM:
        config["model_path"] = serving.get("model_path", "")
        config["kv"] = serving.get(f"{side}_kv", "f16" if side == "source" else "q8_0")
        module = "fleetctl.lab.llm"
    else:
        raise ConfigInvalid(
            "config.serving",
            f"workload {workload.id}: serving kind {kind!r} is none that the lab can start.",
            hint=f"Set serving.kind to {EMULATED} or {REAL_LLM}.",
        )
    path = folder / f"{unit_name(cell.id, side, index)}.json"
    return {"argv": [sys.executable, "-m", module, "--config", str(path)], "env": python_env(), "config": config}


def _number(workload: Workload, text: str | None, name: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ConfigInvalid(
            "config.serving",
            f"workload {workload.id}: serving {name} is {text!r}, not a number from 0.",
            hint="Mend it in the fleet file.",
        )
    return value


def units_on_hosts(fleet: Fleet, cell: Cell, side: Side, hosts: Sequence[Host], folders: Path) -> dict[HostId, dict[str, UnitFile]]:
    """Spread the replicas of a cell over the hosts of a pool, in turn.

    Args:
        hosts: of that side's pool; the order of their ids decides.
        folders: folder that holds a folder per host.

    Returns:
        per host: unit name to unit file. Empty where there are no hosts.
    """
    workload = fleet.workload(cell.workload)
    endpoints = cell.router.baseline_endpoints if side == "source" else cell.router.canary_endpoints
    ordered = sorted(hosts, key=lambda h: h.id)
    out: dict[HostId, dict[str, UnitFile]] = {h.id: {} for h in ordered}
    for index in range(1, len(endpoints) + 1 if ordered else 1):
        host = ordered[(index - 1) % len(ordered)]
        unit = unit_for(cell=cell, workload=workload, side=side, index=index, folder=folders / host.id)
        out[host.id][unit_name(cell.id, side, index)] = unit
    return out


def write_unit(folder: Path, name: str, unit: UnitFile) -> bool:
    """Write `<name>.json` into a host's folder; return whether its text changed."""
    path = folder / f"{name}.json"
    text = json.dumps(unit, indent=2, sort_keys=True) + "\n"
    try:
        if path.read_text() == text:
            return False
    except FileNotFoundError:
        pass
    new = folder / f".{name}.json.{os.getpid()}.new"
    new.write_text(text)
    os.replace(new, path)
    return True
