"""Doctor, adapter layer: looks at this machine: tools, credentials, files, clock. Never writes, calls a cloud or prints a secret."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, NamedTuple

State = Literal["ok", "warn", "missing", "not configured"]
LEAST_PYTHON = (3, 11)
LEAST_FREE_MIB = 200
KEY_HEX_DIGITS = 64


class Found(NamedTuple):
    """What a look found: state, detail and the command that mends it."""

    state: State
    detail: str
    mend: str = ""


Look = Callable[[], Found]


MOST_STORE = 10 << 30
"""Bytes of a store from which a person is told. Source: docs/explanation/durability.md, how a store grows."""


def python() -> Found:
    """Look at the Python that runs this."""
    shown = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < LEAST_PYTHON:
        return Found("missing", f"Python {shown}, 3.11 or newer is needed", "install Python 3.11 or newer")
    return Found("ok", f"Python {shown}")


def ansible(*, needed: bool) -> Found:
    """Look for ansible-playbook beside this Python, else on PATH."""
    beside = Path(sys.executable).parent / "ansible-playbook"
    path = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    if path:
        return Found("ok", f"ansible-core {_version('ansible-core')} at {path}")
    if not needed:
        return Found("not configured", "no host of this fleet is prepared by fleetctl")
    return Found("missing", "no ansible-playbook beside this Python or on PATH", "pip install --force-reinstall fleetctl")


def state_folder(folder: Path) -> Found:
    """Look at fleetctl's own folder: private, and room on its disk."""
    if not folder.exists():
        return Found("missing", f"{folder} does not exist", "fleetctl init")
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        return Found("warn", f"{folder} has mode {mode:04o}, others can read it", f"chmod 700 {folder}")
    if not os.access(folder, os.W_OK):
        return Found("missing", f"{folder} cannot be written", f"chown {os.getuid()} {folder}")
    free = shutil.disk_usage(folder).free // 1024 // 1024
    if free < LEAST_FREE_MIB:
        return Found("warn", f"{free} MiB free on its disk, {LEAST_FREE_MIB} are wanted", "make room on that disk")
    return Found("ok", f"private, {free // 1024} GiB free")


def key(file: Path) -> Found:
    """Look at the key that signs the files of the way home."""
    if not file.exists():
        return Found("warn", f"{file} is made by the first plan", "fleetctl plan")
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        return Found("missing", f"{file} has mode {mode:04o}, only its owner may read it", f"chmod 600 {file}")
    if file.stat().st_size < KEY_HEX_DIGITS:
        return Found("missing", f"{file} holds no key of 32 bytes in hex", f"mv {file} {file}.old && fleetctl init && fleetctl plan")
    return Found("ok", "readable by its owner alone")


def store(file: Path) -> Found:
    """Open the store read-only and let SQLite check itself."""
    if not file.exists():
        return Found("ok", "not made yet; the first plan makes it")
    try:
        db = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=2)
        try:
            (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            db.close()
    except sqlite3.Error as e:
        return Found("missing", f"{file} cannot be read: {e}", "restore it from a backup; fleetctl fallback works without it")
    if said != "ok":
        return Found("missing", f"{file} is damaged: {said}", "restore it from a backup; fleetctl fallback works without it")
    size = file.stat().st_size
    if size >= MOST_STORE:
        text = f"{size / 2**30:.1f} GiB, checked by SQLite: looks of cells that have stood at a step for long"
        return Found("warn", text, "decide them, or archive the store while every cell is home: docs/explanation/durability.md")
    return Found("ok", f"{size // 1024} KiB, checked by SQLite")


def azure_credential(environment: Mapping[str, str], role: str) -> Found:
    """Look for an Azure credential; its rights are not asked for, because that would be a call."""
    for prefix in ("AZURE", "ARM"):
        if all(environment.get(f"{prefix}_{part}") for part in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET")):
            return _rights_unknown(f"{prefix}_CLIENT_ID in the environment", role)
    if environment.get("AZURE_FEDERATED_TOKEN_FILE") and environment.get("AZURE_CLIENT_ID"):
        return _rights_unknown("a workload identity in the environment", role)
    folder = Path(environment.get("AZURE_CONFIG_DIR") or Path(environment.get("HOME", "/")) / ".azure")
    if (folder / "azureProfile.json").exists():
        return _rights_unknown("a login of the az program", role)
    return Found("missing", "no Azure credential in the environment and no az login", "az login")


def aws_credential(environment: Mapping[str, str], policy: str) -> Found:
    """Look for an AWS credential; its rights are not asked for, because that would be a call."""
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        return _rights_unknown("AWS_ACCESS_KEY_ID in the environment", policy)
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        return _rights_unknown("a web identity in the environment", policy)
    home = Path(environment.get("HOME", "/")) / ".aws"
    files = (environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", environment.get("AWS_CONFIG_FILE") or home / "config")
    if any(Path(file).exists() for file in files):
        return _rights_unknown("a profile of the aws program", policy)
    return Found("missing", "no AWS credential in the environment and no profile", "aws configure sso")


def secret(kind: str, name: str, environment: Mapping[str, str]) -> Found:
    """Look whether a secret is there and private; its content is not read."""
    if kind == "env":
        return Found("ok", f"{name} is set") if environment.get(name) else Found("missing", f"{name} is not set", f"export {name}=...")
    file = Path(name)
    if not file.exists():
        return Found("missing", f"{name} does not exist", f"write it to {name} and: chmod 600 {name}")
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        return Found("missing", f"{name} can be read by others", f"chmod 600 {name}")
    return Found("ok", f"{name} is readable by its owner alone")


def clock(*, one_machine: bool) -> Found:
    """Look whether something keeps this clock: leases and evidence are judged by time."""
    if Path("/run/systemd/timesync/synchronized").exists():
        return Found("ok", "kept by systemd-timesyncd")
    if Path("/run/chrony").exists() or Path("/run/chrony.pid").exists() or Path("/run/ntpd.pid").exists():
        return Found("ok", "kept by a time service")
    if one_machine:
        return Found("ok", "one machine, one clock")
    return Found("warn", "nothing shows that this clock is kept in time", "timedatectl set-ntp true")


def _rights_unknown(found: str, file: str) -> Found:
    return Found("warn", f"{found}; its rights are not checked", f"compare its rights with {file}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
