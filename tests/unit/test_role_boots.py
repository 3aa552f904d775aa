"""What roles make of a node's boot: how long accelerators are waited for, and that the mount of the cache holds up nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes.role_tasks import holds, rendered, task_of

MOUNT = "/mnt/models"


@pytest.mark.parametrize(("found", "left_s", "ends"), [(8, 600, True), (5, 600, False), (0, 600, False), (5, -1, True)])
def test_accelerators_may_come_onto_the_bus_late_after_a_boot_and_not_for_ever(found: int, left_s: int, ends: bool) -> None:
    task = task_of("preflight", "main.yml", "Look for accelerators on the bus")
    given: dict[str, object] = {
        "preflight_accelerators": 8,
        "preflight_found": {"matched": found},
        "preflight_until": 1000,
    }
    # `now` is a function of Ansible's; what it says is compared.
    said = task["until"].replace("now(utc=true).strftime('%s')", str(1000 - left_s))
    assert holds("preflight", said, given) is ends
    assert int(task["delay"]) * 2 < 60


def server(**more: object) -> str:
    unit = {"name": "chat", "argv": ["/usr/bin/serve"], "port": 8000, "model": "m"}
    return rendered("model_server", "unit.j2", {"model_server_units": [unit], "item": "chat", **more})


def test_a_server_waits_for_the_disks_that_hold_its_models() -> None:
    assert "RequiresMountsFor" not in server()
    assert f"RequiresMountsFor={MOUNT}\n" in server(nvme_raid_devices=["/dev/nvme0n1"], nvme_raid_mount=MOUNT)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize(("options", "cycle"), [(None, False), ("noatime", True)])
def test_the_mount_of_the_cache_makes_no_cycle_of_a_boot_on_azure(tmp_path: Path, options: str | None, cycle: bool) -> None:
    """cloud-init mounts the VM's own disk on /mnt once there is a network; a firewall wants the local file systems before that."""
    text = task_of("nvme_raid", "present.yml", "Write the mount unit")["ansible.builtin.copy"]["content"]
    text = text.replace("{{ nvme_raid_array }}", "/dev/md/fleetctl").replace("{{ nvme_raid_mount }}", MOUNT)
    kept = "".join(f"Options={options}\n" if options and line.startswith("Options=") else f"{line}\n" for line in text.splitlines())
    stub = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
    (tmp_path / "mnt-models.mount").write_text(kept)
    (tmp_path / "mnt.mount").write_text(
        "[Unit]\nAfter=cloud-init-network.service\n[Mount]\nWhat=/dev/sdb1\nWhere=/mnt\nOptions=nofail,_netdev\n"
    )
    (tmp_path / "cloud-init-network.service").write_text(f"[Unit]\nDefaultDependencies=no\nAfter=net.service\n{stub}")
    (tmp_path / "net.service").write_text(f"[Unit]\nDefaultDependencies=no\nAfter=network-pre.target\n{stub}")
    (tmp_path / "ufw.service").write_text(
        f"[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=network-pre.target\nWants=network-pre.target\n{stub}"
    )
    (tmp_path / "boot.target").write_text(
        "[Unit]\nWants=mnt-models.mount mnt.mount local-fs.target cloud-init-network.service net.service ufw.service\n"
    )
    env = {"PATH": os.environ["PATH"], "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    argv = ["systemd-analyze", "verify", "--man=no", "--generators=no", str(tmp_path / "boot.target")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ("ordering cycle" in done.stdout + done.stderr) is cycle, done.stdout + done.stderr
