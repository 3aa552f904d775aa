"""Configure, test bench: nodes files over real hosts. Never a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fleetctl.domain.matrix import Wanted
from fleetctl.lab.standins import OLD
from fleetctl.planning.check_matrix import release_variables
from tests.fakes.ansible_world import ROOT
from tests.lab.nspawn_bench import Bench
from tests.lab.nspawn_lab import USER


def nodes_file(bench: Bench, release: str, variables: Mapping[str, object] | None = None) -> Path:
    """Write a nodes file over the lab's hosts and return its path; `variables` are the site play's where they are not the usual ones."""
    repository, lab = bench.repository, bench.lab
    variables = variables or repository.variables()
    given = set(
        release_variables(repository.matrix(), Wanted(release=f"standin-{OLD}", layer="native", gpu_target="gfx942", container=False))
    )
    roles = {k: v for k, v in variables.items() if k not in given and k != "apt_ready_keys"}
    (lab.folder / "matrix.json").write_text(repository.matrix_text())
    (lab.folder / "standin.asc").write_text(repository.key)
    file = {
        "pool": "mi300x-nspawn",
        "release": release,
        "layer": "native",
        "container": False,
        "matrix": "matrix.json",
        "keys": {"standin": "standin.asc"},
        "known_hosts": "known_hosts",
        "identity": "id",
        "hosts": {h.name: {"address": h.address, "user": USER} for h in lab.hosts},
        "roles": roles,
    }
    path = lab.folder / "nodes.yaml"
    path.write_text(json.dumps(file))  # JSON is YAML
    return path


def fleetctl(workspace: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a workspace, made where it is empty, with little of this environment and what is given."""
    env = {"PATH": os.environ["PATH"], "HOME": str(workspace), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **more}

    def run(*said: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "fleetctl.cli", "-C", str(workspace), *said]
        return subprocess.run(program, env=env, cwd=workspace, capture_output=True, text=True, check=False, timeout=2400)

    if not any(workspace.iterdir()):
        made = run("init")
        assert made.returncode == 0, made.stderr
    return run(*argv)
