"""The workload's own kernels: a build that was cut off is built again by the next run. Real Ansible, STAND-IN translator and compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.adapters.ansible.settings import find_program
from tests.fakes.ansible_world import PLAYBOOKS

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
TRANSLATOR = """#!/bin/sh
# STAND-IN for hipify-perl.
cp "$2" "${1#-o=}"
"""
COMPILER = """#!/bin/sh
# STAND-IN for hipcc: its program is its source, and half of one where it is cut off.
[ -e cut-off ] && echo half > "$5" && exit 1
{ echo amdgcn-amd-amdhsa--gfx942; cat "$6"; } > "$5"
"""


def build(folder: Path, text: str) -> tuple[int, int]:
    """Run the role's tasks over one source; returns the exit code and how many tasks changed something."""
    sources = [{"name": "twice", "text": text}]
    given = {"translation_layer_build": str(folder / "built"), "translation_layer_target": "gfx942", "translation_layer_sources": sources}
    tasks = PLAYBOOKS / "roles/translation_layer/tasks/hip.yml"
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "environment": environment}
    (folder / "play.yml").write_text(json.dumps([play | {"tasks": [{"ansible.builtin.include_tasks": str(tasks)}]}]))
    (folder / "given.json").write_text(json.dumps(given | {"ansible_python_interpreter": sys.executable}))
    argv = [str(find_program()), "--inventory", "localhost,", "--extra-vars", f"@{folder / 'given.json'}", str(folder / "play.yml")]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600)
    recap = done.stdout[done.stdout.index("PLAY RECAP") :]
    return done.returncode, int(recap.split("changed=")[1].split()[0])


def test_a_build_that_was_cut_off_is_built_again_and_a_finished_one_is_not(tmp_path: Path) -> None:
    for name, text in (("hipify-perl", TRANSLATOR), ("hipcc", COMPILER)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    program = tmp_path / "built" / "twice"
    assert build(tmp_path, "one")[0] == 0
    assert build(tmp_path, "one") == (0, 0), "what was built to the end is not built again"
    (tmp_path / "built" / "cut-off").touch()
    assert build(tmp_path, "two")[0] != 0
    assert program.read_text() == "half\n"
    (tmp_path / "built" / "cut-off").unlink()
    assert build(tmp_path, "two")[0] == 0
    assert program.read_text().endswith("two")
