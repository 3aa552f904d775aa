"""A whole migration onto real systemd hosts: provisioned bare, prepared over ssh, served from, gone home from, undone, removed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.lab.machine import host_of
from fleetctl.lab.nspawn import RealHost
from fleetctl.lab.nspawn_needs import why_not
from fleetctl.lab.record import need_record
from tests.fakes.ansible_world import ROOT
from tests.lab import nspawn_bench as nb

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can"),
]


def fleetctl(workspace: Path, *argv: str, code: int = 0) -> str:
    """Run the program, prove its exit code and return what it said."""
    env = {"PATH": os.environ["PATH"], "HOME": str(workspace), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100"}
    env |= {k: os.environ[k] for k in ("FLEETCTL_CACHE",) if k in os.environ} or {"FLEETCTL_CACHE": str(Path.home() / ".cache/fleetctl")}
    program = [sys.executable, "-m", "fleetctl.cli", "-C", str(workspace), *argv]
    done = subprocess.run(program, env=env, cwd=workspace, capture_output=True, text=True, check=False, timeout=2400)
    assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def left_of(id_: str, run: Path) -> list[str]:
    """Return what a lab has left on this machine."""
    places = [*Path("/sys/class/net").glob(f"{id_}*"), *Path("/run/netns").glob(f"{id_}-*")]
    places += [*Path("/sys/fs/cgroup").glob(f"*/{id_}"), *Path("/sys/fs/cgroup").glob(id_)]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if f" {run}/" in line]
    return [*map(str, places), *mounts, *([str(run)] if run.exists() else [])]


def changes(said: str) -> list[int]:
    return [int(n) for n in re.findall(r"host/mi300x-lab-\d ok: .* (\d+) changed", said)]


def test_real_hosts_are_made_prepared_migrated_to_left_and_removed(tmp_path: Path) -> None:
    said = fleetctl(tmp_path, "lab", "up", "--hosts", "nspawn", "--scale", "0.5")
    assert "STAND-INS" in said
    record = need_record(tmp_path)
    try:
        _whole_way(tmp_path, record.hosts, record.network)
    finally:
        fleetctl(tmp_path, "lab", "down")
    assert left_of(f"fl{record.folder.name[3:9]}", record.folder) == []


def _whole_way(workspace: Path, hosts: Path, network: str) -> None:
    # Both guardrails judge, latency by a margin that a busy machine keeps: hosts that are well must pass.
    file = workspace / "inventory/lab/fleet.yaml"
    text = file.read_text()
    assert "latency: {margin: 25%}" in text
    file.write_text(text.replace("latency: {margin: 25%}", "latency: {margin: 100%}"))
    fleetctl(workspace, "plan")
    early = fleetctl(workspace, "configure", code=1)
    assert "error[configure.no_hosts]" in early
    fleetctl(workspace, "provision")
    h = host_of(hosts / "mi300x-lab-1", 1, network)
    assert h.ssh("cat", "/proc/1/comm").stdout == "systemd\n"
    assert h.ssh("which", "rocminfo").returncode != 0, "it is bare"
    difference, packages = nb.remember(h), nb.packages(h)

    said = fleetctl(workspace, "configure")
    assert "> mi300x-lab-2  health_gate\n" in said, "it is shown live, per host"
    assert "+ mi300x-lab-1  model_server : Write units  changed" in said
    assert len(changes(said)) == 2
    assert min(changes(said)) > 20
    _serves(h)
    assert changes(fleetctl(workspace, "configure")) == [0, 0], "the second run changes nothing"
    shown = fleetctl(workspace, "lab", "status")
    assert re.search(r"chat-lab-c1 +emulated +\d+ +\d+ +healthy", shown), shown

    fleetctl(workspace, "migrate", "--phase", "canary", "chat-lab")
    assert re.search(r"chat-lab +canary +10 % .* PASS ", fleetctl(workspace, "status"))
    assert "on: chat-lab-c1 (target) factor 2" in fleetctl(workspace, "lab", "fault", "latency", "chat-lab", "--factor", "2")
    assert "off" in fleetctl(workspace, "lab", "fault", "all", "chat-lab", "--off")
    assert "cell/chat-lab home: 10 % -> 0 %" in fleetctl(workspace, "fallback", "chat")

    fleetctl(workspace, "configure", "--play", "drain")
    assert h.ssh("systemctl", "is-active", "fleetctl-chat-lab-c1.service").stdout != "active\n"
    fleetctl(workspace, "configure", "--play", "uninstall")
    assert nb.packages(h) == packages
    assert difference() == {}
    assert h.ssh("cat", "/proc/1/comm").stdout == "systemd\n", "the host itself stays"


def _serves(h: RealHost) -> None:
    units = h.ssh("systemctl", "list-units", "--plain", "--no-legend", "fleetctl-*.service").stdout
    for unit in ("fleetctl-chat-lab-c1.service", "fleetctl-summary-lab-c1.service", "fleetctl-stream-lab-c1.service"):
        assert re.search(rf"{unit} +loaded active running", units), units
    user = h.ssh("systemctl", "show", "-P", "User", "fleetctl-chat-lab-c1.service").stdout
    assert user == "inference\n"
