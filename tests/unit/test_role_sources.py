"""Sources of packages: what apt itself reads beside what the node has, and what a role refuses of that before a change."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.role_tasks import refusals, rendered

ROCM = "https://repo.radeon.com/rocm/apt/6.4.4"
DEB822 = "Types: deb\nURIs: https://a.example/x\n {uri}\nSuites: jammy noble\nComponents: main\nSigned-By: /etc/apt/keyrings/rocm.gpg\n"


def row(uri: str = ROCM, suite: str = "noble", components: str = "main") -> dict[str, str]:
    return {"name": "rocm", "uri": uri, "suite": suite, "components": components, "fingerprint": "AB" * 20}


def read_by_apt(folder: Path) -> str:
    """Return what the real apt says of the sources in a folder; "" where it reads them."""
    for name in ("state/lists/partial", "cache", "parts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    set_ = {"Dir::Etc": folder, "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": folder / "sources.list.d"}
    set_ |= {"Dir::State": folder / "state", "Dir::Cache": folder / "cache", "Dir::Etc::parts": folder / "parts"}
    argv = ["apt-cache", *(f"-o{name}={value}" for name, value in set_.items()), "policy"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def asked(folder: Path) -> dict[str, object]:
    """Return what the role's own look at the sources of a folder gives, as if it were the node's."""
    import yaml

    from tests.fakes.ansible_world import PLAYBOOKS

    tasks: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / "roles/apt_ready/tasks/check.yml").read_text("utf-8"))
    (argv,) = [t["ansible.builtin.command"]["argv"] for t in tasks if t.get("register") == "apt_ready_sources"]
    done = subprocess.run([*argv[:-1], str(folder)], capture_output=True, text=True, check=False)
    return {"stdout_lines": done.stdout.replace(str(folder), "/etc/apt").splitlines(), "rc": done.returncode}


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="needs apt")
@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("rocm.list", f"deb [arch=amd64 signed-by=/etc/apt/keyrings/rocm.gpg] {ROCM} noble main\n", True),
        ("zz.list", f"# AMD\n\n  deb [arch=amd64 signed-by=/etc/apt/keyrings/rocm.gpg] {ROCM}/ noble main # x\n", True),
        ("rocm.sources", DEB822.format(uri=ROCM), True),
        ("rocm.sources", f"Types: deb\nURIs: {ROCM}\nSuites: noble\nComponents: main\nSigned-By: /etc/apt/keyrings/rocm.gpg\n", True),
        ("rocm.sources", f"URIs:{ROCM}/\nTypes:deb\nSuites:noble\nComponents:main\nSigned-By:/etc/apt/keyrings/rocm.gpg\n", True),
        ("rocm.list", f"#deb [signed-by=/etc/apt/keyrings/rocm.gpg] {ROCM} noble main\n", False),
        ("rocm.list.save", f"deb [signed-by=/etc/apt/keyrings/rocm.gpg] {ROCM} noble main\n", False),
        ("rocm.list", f"deb [signed-by=/etc/apt/keyrings/rocm.gpg] {ROCM} jammy main\n", False),
        ("rocm.list", f"deb [signed-by=/etc/apt/keyrings/rocm.gpg] {ROCM}.1 noble main\n", False),
        ("rocm.sources", "Enabled: no\n" + DEB822.format(uri=ROCM), False),
        ("rocm.sources", DEB822.format(uri=ROCM).replace("noble", "noble-updates"), False),
    ],
)
def test_a_source_that_would_keep_apt_from_reading_any_is_refused_before_ours_is_written(
    tmp_path: Path, name: str, text: str, refused: bool
) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / name).write_text(text)
    assert read_by_apt(tmp_path) == ""
    given = {"apt_ready_repositories": [row()], "apt_ready_sources": asked(tmp_path)}
    said = refusals("apt_ready", given)
    (parts / "fleetctl-rocm.sources").write_text(rendered("apt_ready", "sources.j2", {"item": row()}))
    assert ("Conflicting values set for option Signed-By" in read_by_apt(tmp_path)) is refused
    assert [f"/etc/apt/sources.list.d/{name} names a repository of this release" in s for s in said] == [True] * refused


def test_our_own_source_is_no_reason_to_refuse_a_second_run(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "fleetctl-rocm.sources").write_text(rendered("apt_ready", "sources.j2", {"item": row()}))
    assert refusals("apt_ready", {"apt_ready_repositories": [row()], "apt_ready_sources": asked(tmp_path)}) == []


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="needs apt")
@pytest.mark.parametrize("repository", [row(), row(suite="./", components=""), row(suite="/"), row(suite="x86_64/")])
def test_apt_reads_the_source_of_a_repository_flat_or_not(tmp_path: Path, repository: dict[str, str]) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "fleetctl-rocm.sources").write_text(rendered("apt_ready", "sources.j2", {"item": repository}))
    assert read_by_apt(tmp_path) == ""
