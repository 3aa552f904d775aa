"""Layers on a host: a torch that is not for AMD is refused, an archive is taken by SHA-256. Real Ansible; STAND-IN torch and archives."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from jinja2 import Environment

from fleetctl.adapters.ansible.settings import find_program
from tests.fakes.ansible_world import PLAYBOOKS

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
PYTHON = """#!/bin/sh
# STAND-IN for a Python whose torch says what it was built for.
echo "a warning of torch's own"
cat "$0.says"
"""


def run(folder: Path, runs: Sequence[Mapping[str, object]]) -> list[tuple[str, str]]:
    """Run the role once per set of variables, each as a host of its own; returns "ok", "changed" or "failed" and what was said."""
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "translation_layer_target": "gfx942"}
    hosts = {}
    for n, given in enumerate(runs):
        (folder / f"records{n}" / "before").mkdir(parents=True, exist_ok=True)  # as node_manifest makes it first
        own = {"translation_layer_file": f"h{n}.env", "translation_layer_prefix": f"h{n}", "node_manifest_records": f"records{n}"}
        hosts[f"h{n}"] = {**common, **{name: str(folder / at) for name, at in own.items()}, **given}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    (folder / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "roles": ["translation_layer"]}]))
    argv = [str(find_program()), "--inventory", str(folder / "hosts.yml"), str(folder / "play.yml")]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "ANSIBLE_ROLES_PATH": str(PLAYBOOKS / "roles")}
    env |= {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_FORKS": "8"}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert "PLAY RECAP" in done.stdout, done.stdout + done.stderr
    found = []
    for n in range(len(runs)):
        recap = next(line for line in done.stdout[done.stdout.index("PLAY RECAP") :].splitlines() if line.startswith(f"h{n} "))
        said = " ".join(line for line in done.stdout.splitlines() if line.startswith((f"fatal: [h{n}]", f"failed: [h{n}]")))
        state = "failed" if "failed=0" not in recap else "ok" if "changed=0" in recap else "changed"
        found.append((state, said + done.stdout if state == "failed" else said))
    return found


@pytest.mark.parametrize("where", ["python", pytest.param("container", marks=pytest.mark.slow)])
def test_a_torch_that_is_not_for_these_accelerators_is_refused_in_a_wheel_and_in_an_image(tmp_path: Path, where: str) -> None:
    good = {"hip": "7.2.1", "archs": ["gfx90a", "gfx942:sramecc+:xnack-"], "nvidia": []}
    cases: list[tuple[dict[str, object], str]] = [
        ({}, ""),
        ({"hip": None}, "built for HIP none"),
        ({"nvidia": ["nvidia-nccl-cu12"]}, "beside it are nvidia-nccl-cu12"),
        ({"archs": ["gfx90a", "gfx1100"]}, "gfx90a, gfx1100"),
        ({"archs": []}, "no architecture"),
    ]
    runs: list[dict[str, object]] = []
    for n, (change, _) in enumerate(cases):
        path = tmp_path / f"python{n}"
        path.write_text(PYTHON)
        path.chmod(0o755)
        (tmp_path / f"python{n}.says").write_text(json.dumps(good | change))
        runs.append(
            {"translation_layer_python": str(path)} if where == "python" else {"translation_layer_ask": ["/usr/bin/env", str(path)]}
        )
    found = run(tmp_path, runs)
    assert [state for state, _ in found] == ["changed", *["failed"] * 4]
    for (_, said), (_, text) in zip(found, cases, strict=True):
        assert text in said
        assert not text or "configure.layer" in said


def test_an_archive_is_unpacked_by_its_sha256_alone_and_the_servers_find_it(tmp_path: Path) -> None:
    (tmp_path / "scale-1/targets/gfx942/lib").mkdir(parents=True)
    (tmp_path / "scale-1/targets/gfx942/lib/libcudart.so").write_text("STAND-IN")
    archive = tmp_path / "layer.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "scale-1", arcname="scale-1")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    scale = {
        "translation_layer_kind": "scale",
        "translation_layer_url": archive.as_uri(),
        "translation_layer_sha256": sha256,
        "translation_layer_licence_accepted": True,
    }
    zluda = scale | {"translation_layer_kind": "zluda", "translation_layer_target": "gfx1100"}
    runs = [scale, zluda, scale | {"translation_layer_sha256": "0" * 64}, scale | {"translation_layer_sha256": ""}]
    runs += [scale | {"translation_layer_licence_accepted": False}, zluda | {"translation_layer_target": "gfx942"}]
    found = run(tmp_path, runs)
    assert [state for state, _ in found] == ["changed", "changed", *["failed"] * 4]
    paths = []
    for n in (0, 1):
        (line,) = [x for x in (tmp_path / f"h{n}.env").read_text().splitlines() if x.startswith("LD_LIBRARY_PATH=")]
        paths.append(Path(line.partition("=")[2].strip('"')))
    assert (paths[0] / "libcudart.so").read_text() == "STAND-IN"
    assert (paths[1] / "targets/gfx942/lib/libcudart.so").exists()
    for n in range(2, 6):
        assert not (tmp_path / f"h{n}.env").exists(), "nothing of it reaches a server"
        assert not list(tmp_path.glob(f"h{n}/**/*.so"))
    assert [state for state, _ in run(tmp_path, runs[:2])] == ["ok", "ok"], "a second run changes nothing"
    (tmp_path / "scale-1/targets/gfx942/lib/libcudart.so").rename(tmp_path / "scale-1/targets/gfx942/lib/libcuda.so")
    newer = tmp_path / "newer.tar"
    with tarfile.open(newer, "w") as tar:
        tar.add(tmp_path / "scale-1", arcname="scale-1")
    other = {"translation_layer_url": newer.as_uri(), "translation_layer_sha256": hashlib.sha256(newer.read_bytes()).hexdigest()}
    before = (tmp_path / "h0.env").read_text()
    assert run(tmp_path, [scale | other])[0][0] == "changed"
    assert (tmp_path / "h0.env").read_text() != before, "servers see that it is another one"
    (line,) = [x for x in (tmp_path / "h0.env").read_text().splitlines() if x.startswith("LD_LIBRARY_PATH=")]
    assert [p.name for p in Path(line.partition("=")[2].strip('"')).iterdir()] == ["libcuda.so"], "of the older one nothing is mixed in"


def test_other_sources_of_own_programs_are_seen_by_the_servers() -> None:
    template = (PLAYBOOKS / "roles/translation_layer/templates/environment.j2").read_text()
    environment = Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {
        "to_json": json.dumps,
        "hash": lambda text, kind: hashlib.new(kind, text.encode()).hexdigest(),
        "dictsort": lambda d: sorted(d.items()),
    }
    given = {"translation_layer_kind": "hip", "translation_layer_target": "gfx942", "translation_layer_environment": {}}
    made = [
        environment.from_string(template).render(given | {"translation_layer_sources": [{"name": "a", "text": text}]})
        for text in ("one", "one", "two")
    ]
    assert made[0] == made[1] != made[2]
