"""Hosts out of Ansible inventories, static and dynamic, by a real ansible-inventory; nothing that they say is evaluated."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.ansible_inventory import AnsibleDiscovery
from fleetctl.domain.merge import merge
from fleetctl.errors import InventoryFailed
from fleetctl.usecases.scan import scan_sources

pytestmark = pytest.mark.lab


def now() -> datetime:
    return datetime.now(UTC)


def source(*paths: Path, timeout_s: float = 120) -> AnsibleDiscovery:
    return AnsibleDiscovery("site", paths, now, os.environ, timeout_s=timeout_s)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_static_and_dynamic_inventories_are_read(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    static = tmp_path / "hosts.yaml"
    lure = f"{{{{ lookup('pipe', 'touch {mark}') }}}}"
    static.write_text(
        "all:\n  children:\n    gpu:\n      hosts:\n"
        "        gpu-1: {ansible_host: 10.0.0.1, fleetctl_sku: H100, owner: ada, cost_centre: 7}\n"
        f'        gpu-2: {{team: "{lure}"}}\n'
    )
    dynamic = script(
        tmp_path / "dynamic", """echo '{"web": {"hosts": ["w1"]}, "_meta": {"hostvars": {"w1": {"ansible_host": "10.0.0.9"}}}}'"""
    )
    scan = scan_sources([source(static, dynamic)], None, now)
    assert scan.gaps() == ()
    found = {t.id: t for t in merge(scan.facts())[0]}
    assert set(found) == {"gpu-1", "gpu-2", "w1"}
    assert [found["gpu-1"].text(n) for n in ("address", "sku", "owner", "groups")] == ["10.0.0.1", "H100", "ada", "gpu"]
    assert found["gpu-2"].text("owner") == lure
    assert found["w1"].text("address") == "10.0.0.9"
    assert not mark.exists()


@pytest.mark.parametrize("text", ["exit 3", "echo '[1, 2'", "echo nothing"], ids=["fails", "half", "no-json"])
def test_a_broken_dynamic_inventory_is_a_gap(tmp_path: Path, text: str) -> None:
    (gap,) = scan_sources([source(script(tmp_path / "broken", text))], None, now).gaps()
    assert gap.code == "inventory.ansible"
    assert "broken" in gap.scope + gap.mend


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(InventoryFailed, match="longer than 2 s"):
        list(source(script(tmp_path / "hang", "exec sleep 600"), timeout_s=2).scan(""))


def test_one_that_is_not_there_is_a_gap(tmp_path: Path) -> None:
    (gap,) = scan_sources([source(tmp_path / "none")], None, now).gaps()
    assert "no such inventory" in gap.reason


SECRET = "hunter2-$6$abcdef"
NO_INVENTORIES = {
    "shadow": f"root:{SECRET}:20228:0:99999:7:::\ndaemon:*:20228:0:99999:7:::\n",
    "broken.ini": f"[web]\nx ansible_password='{SECRET} =\n",
    "section.ini": f"[web\nx ansible_password={SECRET}\n",
    "keys.yml": f"plugin: nope\npassword: {SECRET}\n",
    "list.yml": f"- {SECRET}\n",
    "key.pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET} = [\n",
    "script": f"#!/bin/sh\necho 'ERROR! token {SECRET} is wrong' >&2\nexit 1\n",
}


@pytest.mark.parametrize("name", NO_INVENTORIES)
def test_lines_of_what_is_no_inventory_are_never_repeated(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(NO_INVENTORIES[name])
    path.chmod(0o755 if name == "script" else 0o644)
    scan = scan_sources([source(path)], None, now)
    assert scan.gaps() or name == "shadow"
    assert SECRET not in str([(g.reason, g.mend, g.scope) for g in scan.gaps()])


@pytest.mark.parametrize(
    "said",
    [
        "ERROR! Insufficient credentials found",
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        "ClientAuthenticationError: Please run 'az login' to setup account.",
        "ERROR: HTTP 401 Unauthorized",
        "An error occurred (ExpiredToken)",
    ],
)
def test_a_dynamic_inventory_without_a_credential_says_so(tmp_path: Path, said: str) -> None:
    (gap,) = scan_sources([source(script(tmp_path / "cloud", f'echo "{said}" >&2; exit 1'))], None, now).gaps()
    assert (gap.code, gap.mend) == ("credentials.ansible", f"Look: ansible-inventory -i {tmp_path / 'cloud'} --list")


def test_an_inventory_without_hosts_is_a_gap(tmp_path: Path) -> None:
    (gap,) = scan_sources([source(script(tmp_path / "none", "echo '{}'"))], None, now).gaps()
    assert gap.reason == "the inventory lists no host"
