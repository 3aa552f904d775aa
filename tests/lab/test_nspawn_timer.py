"""The rebalancing timer on a real systemd host: installed, fired by systemd itself, still there after a reboot, taken away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from tests.lab import nspawn_lab as nl
from tests.lab.lab_tools import until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "usr/local/lib/python3.11/dist-packages"
WORKSPACE = "/srv/fleet"
UNIT = "fleetctl-rebalance-example"
LOADED = """\
import json, sys
from fleetctl.cli.main import main
try:
    main(["-C", sys.argv[1], "rebalance"])
except SystemExit:
    pass
site = [p for p in sys.path if p.endswith("site-packages")][0]
print(json.dumps(sorted({n.partition(".")[0] for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(site)})))
print(json.dumps(site))
"""


def here(workspace: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, *argv], cwd=workspace, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def install(h: nl.RealHost, folder: Path) -> None:
    """Put the program with what it needs for this on the host, and a workspace in which nothing is worth moving."""
    here(folder, "-m", "fleetctl.cli", "-C", str(folder), "init", "example")
    path = folder / "inventory" / "example" / "fleet.yaml"
    text = path.read_text().replace("provisioned_by: azure", "provisioned_by: existing").replace("48.00", "4800.00")
    path.write_text(text)
    names, site = (json.loads(line) for line in here(folder, "-c", LOADED, str(folder)).stdout.splitlines()[-2:])
    to = h.root / PACKAGES
    to.mkdir(parents=True, exist_ok=True)
    for name in names:
        for made in (name, f"{name}.libs", f"{name}.py"):
            source = Path(site) / made
            if source.is_dir():
                shutil.copytree(source, to / made, ignore=shutil.ignore_patterns("__pycache__", "tests"), dirs_exist_ok=True)
            elif source.is_file():
                shutil.copy(source, to / made)
        for source in Path(site).glob(f"{name}*.so"):
            shutil.copy(source, to / source.name)
    shutil.copytree(ROOT / "fleetctl", to / "fleetctl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(folder / ".fleetctl", ignore_errors=True)
    shutil.copytree(folder, h.root / WORKSPACE.lstrip("/"))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nl.RealHost]:
    with nl.nspawn_lab(1) as lab:
        install(lab.hosts[0], tmp_path_factory.mktemp("workspace"))
        yield lab.hosts[0]


def fleetctl(h: nl.RealHost, *argv: str, root: bool = True, code: int = 0) -> str:
    """Run the program on the host; returns both of its outputs."""
    done = h.ssh(*(("sudo",) if root else ()), "python3", "-m", "fleetctl.cli", "-C", WORKSPACE, *argv)
    assert done.returncode == code, (argv, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def systemctl(h: nl.RealHost, *argv: str) -> str:
    return h.ssh("sudo", "systemctl", *argv).stdout.strip()


def shown(h: nl.RealHost, unit: str, key: str) -> str:
    return systemctl(h, "show", "--value", "-p", key, unit)


def runs(h: nl.RealHost) -> list[str]:
    """Return what the runs told, read from outside."""
    store = SqliteStore(h.root / WORKSPACE.lstrip("/") / ".fleetctl" / "store.db", create=False)
    try:
        return [e.text for e in store.events(None, 0) if e.kind == "rebalance.run"]
    finally:
        store.close()


def test_a_timer_is_installed_fires_survives_a_reboot_and_is_taken_away(host: nl.RealHost) -> None:
    h = host
    said = fleetctl(h, "rebalance", "--install-timer", "systemd", "--every", "daily", "--dwell", "3d")
    assert f"/etc/systemd/system/{UNIT}.timer" in said
    assert "No standing approval holds yet" in said
    assert systemctl(h, "is-enabled", f"{UNIT}.timer") == "enabled"
    assert systemctl(h, "is-active", f"{UNIT}.timer") == "active"
    assert f"{UNIT}.timer" in systemctl(h, "list-timers", "--no-pager")
    assert "--dwell 259200s" in systemctl(h, "cat", f"{UNIT}.service").replace('"', "")
    assert h.ssh("systemd-analyze", "verify", f"/etc/systemd/system/{UNIT}.timer").stderr == ""

    assert h.ssh("sudo", "systemctl", "start", f"{UNIT}.service").returncode != 0
    assert shown(h, f"{UNIT}.service", "ExecMainStatus") == "7", "without a standing approval a run ends at once"
    assert runs(h) == []

    fleetctl(h, "rebalance", "--approve", "--until", "2999-01-01", "--moves", "1")
    drop_in = h.root / f"etc/systemd/system/{UNIT}.timer.d"
    drop_in.mkdir()
    (drop_in / "soon.conf").write_text("[Timer]\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=100ms\n")
    systemctl(h, "daemon-reload")
    systemctl(h, "restart", f"{UNIT}.timer")
    fired = f"{UNIT}.service"
    until(lambda: shown(h, fired, "ExecMainStatus") == "0" and shown(h, fired, "ActiveState") == "inactive", "the timer ran it", 240)
    assert shown(h, fired, "Result") == "success"
    assert len(runs(h)) == 1, "its run is on record"
    assert runs(h)[0].startswith("nothing to move")
    fleetctl(h, "audit", "verify")
    shutil.rmtree(drop_in)

    again = fleetctl(h, "rebalance", "--install-timer", "systemd", "--every", "weekly")
    assert "No standing approval" not in again
    assert "Mon *-*-* 03:00:00 UTC" in systemctl(h, "cat", f"{UNIT}.timer")
    h.stop()
    h.start()
    assert systemctl(h, "is-active", f"{UNIT}.timer") == "active", "it is there after a reboot"

    assert f"removed /etc/systemd/system/{UNIT}.timer" in fleetctl(h, "rebalance", "--remove-timer", "systemd")
    assert UNIT not in systemctl(h, "list-timers", "--all", "--no-pager")
    assert list((h.root / "etc/systemd/system").glob(f"**/{UNIT}*")) == []
    assert "nothing was changed" in fleetctl(h, "rebalance", "--remove-timer", "systemd")


def test_a_user_without_a_manager_of_their_own_is_told_what_to_do(host: nl.RealHost) -> None:
    host.ssh("sudo", "chown", "-R", nl.USER, WORKSPACE)
    said = fleetctl(host, "rebalance", "--install-timer", "systemd", root=False, code=1)
    assert "error[timer.failed]" in said
    assert "loginctl enable-linger" in said
