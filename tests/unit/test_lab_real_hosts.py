"""Real hosts of the lab: refused where they cannot run, before anything is started; no name or path leads elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetctl.errors import LabFailed
from fleetctl.lab import nspawn, nspawn_needs
from fleetctl.lab.bare_hosts import endpoints
from fleetctl.lab.host import create_host, destroy_host
from fleetctl.lab.lifecycle import lab_up
from fleetctl.lab.machine import host_of, network_of

RUN = Path("/tmp/fl-0a1b2c3d")


@pytest.mark.parametrize("missing", ["root", "systemd-nspawn"])
def test_a_machine_that_cannot_is_told_why_and_nothing_is_started(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000 if missing == "root" else 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else f"/usr/bin/{name}")
    with pytest.raises(LabFailed) as e:
        lab_up(tmp_path, machines="nspawn")
    assert e.value.code == "lab.hosts"
    assert missing in e.value.message
    assert "Nothing was started" in e.value.message
    assert list(tmp_path.iterdir()) == []


def test_everything_of_a_lab_has_its_name_and_links_fit_the_kernel() -> None:
    h = host_of(RUN / "hosts/mi300x-lab-2", 2, "10.213.7")
    assert h.address == "10.213.7.12"
    assert (h.lab.bridge, h.netns) == ("fl0a1b2cbr", "fl0a1b2c-2")
    assert len(f"{h.lab.id}v64") <= 15
    assert endpoints("10.213.7", (1, 2, 3)) == ("10.213.7.11:1", "10.213.7.12:2", "10.213.7.11:3")


@pytest.mark.parametrize(
    ("folder", "number", "network"),
    [
        (RUN / "hosts/../../etc", 1, "10.213.7"),
        (Path("/etc/hosts/x"), 1, "10.213.7"),
        (RUN / "hosts/a b", 1, "10.213.7"),
        (RUN / "hosts/x", 0, "10.213.7"),
        (RUN / "hosts/x", 65, "10.213.7"),
        (RUN / "hosts/x", 1, "10.0.0"),
        (RUN / "units/x", 1, "10.213.7"),
    ],
)
def test_what_is_no_host_of_a_lab_is_refused(folder: Path, number: int, network: str) -> None:
    with pytest.raises(ValueError, match=r"no host of a lab|no lab with real hosts"):
        host_of(folder, number, network)


def test_a_folder_of_a_real_host_is_removed_only_once_its_machine_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "x"
    create_host(folder, {"id": "x", "network": "10.213.7", "number": "1"})
    with pytest.raises(ValueError, match=r"no host of a lab|no lab with real hosts"):
        destroy_host(folder, "x")
    assert (folder / "host.json").exists(), "it may be in use: it stays"


def test_what_is_mounted_below_a_folder_is_found_deepest_first() -> None:
    found = nspawn.mounts_below(Path("/"))
    assert all(re.match("/", str(p)) for p in found)
    assert [len(p.parts) for p in found] == sorted((len(p.parts) for p in found), reverse=True)


def test_a_network_of_another_shape_is_none() -> None:
    with pytest.raises(ValueError, match="no lab with real hosts"):
        network_of(Path("/tmp/other"), "10.213.7")


@pytest.mark.parametrize("refusing", ["mount", "network namespace", "user namespace"])
def test_a_machine_that_refuses_root_what_hosts_need_says_so_in_one_line(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(argv: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        refused = ("--mount" in argv) == (refusing == "mount")
        return subprocess.CompletedProcess(
            argv, 1 if refused else 0, "", "unshare: unshare failed: Operation not permitted\n" if refused else ""
        )

    mapped = "0 1000 1\n" if refusing == "user namespace" else "0 0 4294967295\n"
    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(Path, "read_text", lambda self: mapped)
    why = nspawn_needs.refused.__wrapped__()
    assert refusing in why
    assert "\n" not in why


@pytest.mark.parametrize("archive", ["", "http://127.0.0.1:9/debian"])
def test_without_a_root_and_without_an_archive_real_hosts_are_not_tried(
    archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_CACHE", str(tmp_path))
    monkeypatch.setattr(nspawn_needs, "archive", lambda: archive)
    assert "needs a Debian root" in nspawn_needs.no_root.__wrapped__()
    nspawn_needs.root_tar().touch()
    assert nspawn_needs.no_root.__wrapped__() == ""


@pytest.mark.parametrize(
    ("told", "archive"),
    [
        (
            "Debian http://a.example/debian-security\nOther https://b.example/debian\nDebian https://c.example/debian\n",
            "https://c.example/debian",
        ),
        ("Debian file:/srv/debian\nDebian cdrom://x\n", ""),
        ("", ""),
    ],
)
def test_debians_archive_is_the_one_that_apt_is_set_up_with(told: str, archive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 0, told, ""))
    assert nspawn_needs.archive.__wrapped__() == archive
