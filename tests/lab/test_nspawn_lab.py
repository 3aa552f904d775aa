"""The bench of real hosts leaves nothing behind, and a host whose power is taken is really off."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]


def test_power_off_is_off_and_nothing_is_left_behind() -> None:
    with nl.nspawn_lab(1) as lab:
        h = lab.hosts[0]
        name, folder = lab.id, lab.folder
        assert h.ssh("sudo", "id", "-u").stdout == "0\n"
        h.kill()
        assert h.ssh("true").returncode != 0
        h.start()
        assert h.ssh("cat", "/proc/1/comm").stdout == "systemd\n"
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert name not in links
    assert name not in spaces
    assert not folder.exists()
    assert not [*Path("/sys/fs/cgroup").glob(f"*/{name}"), *Path("/sys/fs/cgroup").glob(name)]
    assert str(folder) not in Path("/proc/mounts").read_text()
