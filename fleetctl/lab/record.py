"""Lab, lab layer: what `lab up` started, kept in `.fleetctl/lab.json` of a workspace. Never starts or stops anything."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleetctl.domain.canonical import canonical, decode
from fleetctl.errors import LabFailed

RUN_FOLDER = re.compile(r"/tmp/fl-[0-9a-f]{8}\Z")  # noqa: S108 - made with a random name and mode 0700
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord:
    """One cell of a running lab.

    Args:
        baseline, canary: ports on 127.0.0.1 per replica; the canary's are reserved and started by `fleetctl configure`.
    """

    cell: str
    workload: str
    model: str
    is_real: bool
    is_stream: bool
    rate_per_s: float
    most_chars: int
    max_tokens: int
    baseline: tuple[int, ...]
    canary: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRecord:
    """A running lab.

    Args:
        run: run folder; workspace: absolute.
        model: path of the real model; without_llm: why there is none (then the path is empty).
        machines: "nspawn" where the target's hosts are real ones, "" where they are emulated; network: of those, first three numbers.
        packages_port: of the repository that they install from.
    retries: of a failed try by the router.
    router: which one splits; admin_port: of Envoy, 0 for HAProxy.
    changed: names of what this call started; empty where all of it was up already (not kept in the file).
    """

    run: str
    workspace: str
    router_port: int
    collector_port: int
    cells: tuple[CellRecord, ...]
    model: str = ""
    without_llm: str = ""
    load: bool = False
    ticker: bool = False
    machines: str = ""
    network: str = ""
    packages_port: int = 0
    router: Literal["haproxy", "envoy"] = "haproxy"
    admin_port: int = 0
    changed: tuple[str, ...] = ()
    retries: int = 0
    format_version: int = FORMAT

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return Path(self.run)

    @property
    def router_folder(self) -> Path:
        """Return the folder of the router's files: its configuration, its weights, the pin key, its log."""
        return self.folder / self.router

    @property
    def hosts(self) -> Path:
        """Return the folder that holds a folder per emulated host."""
        return self.folder / "hosts"

    @property
    def url(self) -> str:
        """Return the router's address; a cell's path follows it."""
        return f"http://127.0.0.1:{self.router_port}"

    def cell(self, name: str) -> CellRecord:
        """Return a cell.

        Raises:
            LabFailed: lab.no_cell, with the names there are.
        """
        for c in self.cells:
            if c.cell == name:
                return c
        names = ", ".join(c.cell for c in self.cells)
        raise LabFailed("lab.no_cell", f"the lab has no cell {name!r}.", hint=f"Use one of: {names}")


def record_path(workspace: Path) -> Path:
    """Return where the record of a workspace lies."""
    return workspace / ".fleetctl" / "lab.json"


def read_record(workspace: Path) -> LabRecord | None:
    """Return the record of a workspace's lab, None where none is up.

    Raises:
        LabFailed: lab.record: the file is not a record.
    """
    path = record_path(workspace)
    try:
        record = decode(LabRecord, path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        raise LabFailed("lab.record", f"{path} cannot be read as a lab's record: {e}.", hint=f"Remove it: rm {path}") from None
    if not RUN_FOLDER.match(record.run):
        raise LabFailed("lab.record", f"{path} names {record.run!r} as run folder, which is none.", hint=f"Remove it: rm {path}")
    return record


def need_record(workspace: Path) -> LabRecord:
    """Return the record of a workspace's lab.

    Raises:
        LabFailed: lab.not_up: there is none.
    """
    record = read_record(workspace)
    if record is None:
        raise LabFailed("lab.not_up", f"no lab is up in {workspace}.", hint="Run: fleetctl lab up")
    return record


def write_record(record: LabRecord) -> None:
    """Replace the record of a workspace (0600)."""
    path = record_path(Path(record.workspace))
    data = json.loads(canonical(record))
    del data["changed"]
    write_private(path, json.dumps(data, indent=2, sort_keys=True) + "\n")


def write_private(path: Path, text: str) -> None:
    """Replace a file (0600) in one step."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(new, path)
