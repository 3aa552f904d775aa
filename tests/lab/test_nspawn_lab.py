"""The bench of real hosts leaves nothing behind, and a host whose power is taken is really off."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.lab.nspawn import USER
from fleetctl.lab.standins import OLD, Repository
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


@pytest.fixture
def closed() -> Iterator[None]:
    """A umask that takes everything from others, as Terraform's programs have it."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("closed")
def test_a_host_that_is_made_under_a_closed_umask_lets_its_user_in() -> None:
    with nl.nspawn_lab(1) as lab:
        h = lab.hosts[0]
        said = h.ssh("stat", "-c", "%a", "/", "/etc/hosts", "/etc/apt/sources.list", f"/home/{USER}", "/var/lib/apt/lists")
        assert said.stdout.split() == ["755", "644", "644", "755", "755"], said.stderr
        assert (lab.folder.stat().st_mode & 0o777, (lab.folder / "id").stat().st_mode & 0o777) == (0o700, 0o600), "what is secret stays so"


@pytest.mark.usefixtures("closed")
def test_packages_that_are_built_under_a_closed_umask_can_be_used_by_all(tmp_path: Path) -> None:
    made = Repository(folder=tmp_path / "repo", address="127.0.0.1")
    try:
        made.build()
    finally:
        made.stop_agent()
    argv = ["dpkg-deb", "--contents", str(made.folder / f"pool/standin-engine_{OLD}_amd64.deb")]
    rows = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(rows) > 3
    assert {row.split()[0][-3:] for row in rows} == {"r-x"}, rows
    assert os.umask(0o077) == 0o077, "the umask is as before"
