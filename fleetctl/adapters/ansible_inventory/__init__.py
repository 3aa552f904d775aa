"""Inventory, adapter layer: hosts of Ansible inventories, static or dynamic, as `ansible-inventory --list` tells them. Never runs a play.

A dynamic inventory is a program of the user's, and Ansible runs it; nothing of what it says is evaluated here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.tags import short, tag_facts
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import CredentialsMissing, FleetctlError, InventoryFailed, ToolMissing

TIMEOUT_S = 120.0
MOST_BYTES = 256 * 1024 * 1024
_FACTS = {"fleetctl_pool": "pool", "fleetctl_vendor": "vendor", "fleetctl_sku": "sku", "fleetctl_region": "region"}
_NO_CREDENTIAL = re.compile(
    r"credentials?\b|expired ?token|token\b.{0,40}\bexpired|unauthorized|not logged in|az login|401 |access ?denied|authenticat",
    re.IGNORECASE,
)
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "PYTHONPATH", "VIRTUAL_ENV", "KUBECONFIG")


class AnsibleDiscovery:
    """`PartedDiscovery` of Ansible inventories; one part per inventory.

    Args:
        name: of this source; inventories: files, folders or programs; environment: the process's own.
        own: words that begin the names of variables to pass on too (a dynamic inventory's credentials), such as "AWS_".
        now: the time.
    """

    def __init__(
        self,
        name: str,
        inventories: tuple[Path, ...],
        now: Callable[[], Instant],
        environment: Mapping[str, str],
        *,
        own: tuple[str, ...] = ("AWS_", "AZURE_", "ANSIBLE_"),
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._name = name
        self._inventories = {str(p): p for p in inventories}
        self._now = now
        self._timeout_s = timeout_s
        self._environment = {k: v for k, v in environment.items() if k in _PASSED_ON or k.startswith(own)}

    @property
    def name(self) -> str:
        """Return "ansible" and the source's name."""
        return f"ansible {self._name}"

    def parts(self) -> tuple[str, ...]:
        """Return the inventories."""
        return tuple(self._inventories)

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield the hosts of one inventory, or of all."""
        for part in [scope] if scope else self.parts():
            path = self._inventories[part]
            if not path.exists():
                raise InventoryFailed("inventory.ansible", "there is no such inventory.", hint="Mend its path")
            listed = self._list(path)
            source, now = f"{self.name}/{path.name}", self._now()
            groups = _groups(listed)
            hostvars = listed.get("_meta", {}).get("hostvars", {}) if isinstance(listed.get("_meta"), dict) else {}
            if not hostvars and not groups:
                yield Gap(scope=part, reason="the inventory lists no host", source=self.name, code="inventory.ansible")
            for host in sorted({*hostvars, *groups}):
                variables = hostvars.get(host, {})
                yield Facts(values=_host(host, variables if isinstance(variables, dict) else {}, groups), source=source, seen_at=now)

    def _list(self, path: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix="fleetctl-inventory-") as folder:
            settings = {
                "ANSIBLE_HOME": folder,
                "ANSIBLE_LOCAL_TEMP": str(Path(folder) / "files"),
                "ANSIBLE_NOCOLOR": "1",
                "LC_ALL": "C.UTF-8",
            }
            settings |= {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0"}
            if _is_program(path):
                settings["ANSIBLE_INVENTORY_ENABLED"] = "script"  # else one that fails is read as YAML and lists nothing
            out, err = Path(folder) / "out", Path(folder) / "err"
            with out.open("wb") as stdout, err.open("wb") as stderr:
                child = subprocess.Popen(
                    [str(_program()), "-i", str(path), "--list"],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env={**self._environment, **settings},
                    start_new_session=True,
                )
                try:
                    code = child.wait(self._timeout_s)
                except subprocess.TimeoutExpired:
                    raise InventoryFailed(
                        "inventory.ansible",
                        f"ansible-inventory took longer than {self._timeout_s:.0f} s.",
                        hint=f"Look: ansible-inventory -i {path} --list",
                    ) from None
                finally:
                    _end(child)
            if code != 0:
                raise _refused(path, err.read_text("utf-8", "replace")[-20_000:])
            if out.stat().st_size > MOST_BYTES:
                raise InventoryFailed("inventory.ansible", "the inventory is larger than 256 MiB.", hint="Split it")
            try:
                listed = json.loads(out.read_bytes())
            except (ValueError, RecursionError) as e:
                raise InventoryFailed("inventory.ansible", f"ansible-inventory's answer is not JSON: {e}.") from e
        return listed if isinstance(listed, dict) else {}


def _refused(path: Path, said: str) -> FleetctlError:
    """Return what ansible-inventory's failure means. Its own words are not repeated: they quote the lines of what was no inventory."""
    by_hand = f"Look: ansible-inventory -i {path} --list"
    if _NO_CREDENTIAL.search(said):
        return CredentialsMissing("credentials.ansible", "the inventory lacks a credential, or it has expired.", hint=by_hand)
    line = re.search(re.escape(str(path)) + r":(\d{1,9})\b", said)
    at = f" (line {line.group(1)})" if line else ""
    return InventoryFailed("inventory.ansible", f"ansible-inventory cannot read it{at}.", hint=by_hand)


def _is_program(path: Path) -> bool:
    if not path.is_file() or not os.access(path, os.X_OK):
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(4).startswith((b"#!", b"\x7fELF"))
    except OSError:
        return False


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _program() -> Path:
    beside = Path(sys.executable).parent / "ansible-inventory"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("ansible-inventory")
    if not found:
        raise ToolMissing(
            "tool.ansible_missing",
            f"ansible-inventory is neither beside {sys.executable} nor on PATH",
            hint="Install it: pip install 'ansible-core>=2.19,<2.23'.",
        )
    return Path(found)


def _groups(listed: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the groups of each host that name it directly."""
    groups: dict[str, list[str]] = {}
    for name, group in sorted(listed.items()):
        if name not in ("_meta", "all", "ungrouped") and isinstance(group, dict):
            for host in group.get("hosts") or ():
                if isinstance(host, str):
                    groups.setdefault(host, []).append(name)
    ungrouped = listed.get("ungrouped")
    for host in (ungrouped.get("hosts") or ()) if isinstance(ungrouped, dict) else ():
        groups.setdefault(str(host), [])
    return groups


def _host(host: str, variables: Mapping[str, Any], groups: Mapping[str, list[str]]) -> dict[str, Scalar]:
    told = {str(k): _unwrapped(v) for k, v in variables.items()}
    plain = {k: v for k, v in told.items() if isinstance(v, (str, int, float, bool))}
    address = plain.get("ansible_host") or host
    values: dict[str, Scalar] = {"machine": short(host), "name": "_".join(short(host).split())}
    values["address"] = "_".join(short(str(address)).split())
    if plain.get("ansible_port") not in (None, ""):
        values["port"] = short(str(plain["ansible_port"]))
    values |= {_FACTS[k]: short(str(v)) for k, v in plain.items() if k in _FACTS and v != ""}
    values |= {k: v for k, v in tag_facts(plain).items() if k not in values}
    if groups.get(host):
        values["groups"] = short(" ".join(groups[host]))
    return values


def _unwrapped(value: Any) -> Any:
    """Return a string that the inventory marked as unsafe (fleetctl's own does) without its mark."""
    return value["__ansible_unsafe"] if isinstance(value, dict) and list(value) == ["__ansible_unsafe"] else value
