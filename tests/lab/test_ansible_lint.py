"""The playbooks keep ansible-lint's production profile, without a single exception."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.fakes.ansible_world import PLAYBOOKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LINT = Path(sys.executable).parent / "ansible-lint"


@pytest.mark.lab
@pytest.mark.skipif(not LINT.exists(), reason="ansible-lint is not installed: pip install 'fleetctl[dev]'")
def test_the_playbooks_keep_the_production_profile(tmp_path: Path) -> None:
    env = {"PATH": f"{LINT.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path / "ansible"), "NO_COLOR": "1"}
    done = subprocess.run(
        [LINT, "--offline", "--strict", "--profile", "production", "."], cwd=PLAYBOOKS, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Profile 'production' was required, and it passed" in done.stderr + done.stdout


def test_no_rule_is_switched_off() -> None:
    texts = {p: p.read_text() for p in PLAYBOOKS.rglob("*.yml")}
    assert len(texts) >= 10
    assert not [p for p, text in texts.items() if "noqa" in text or "skip_ansible_lint" in text]
    assert not list(PLAYBOOKS.rglob(".ansible-lint*"))
    assert not [p for p, text in texts.items() if "ansible.builtin.shell" in text or "shell" in _keys(yaml.safe_load(text))]


def _keys(tasks: object) -> set[str]:
    """Return the keys of tasks and of blocks of tasks; the arguments of a module are none."""
    found: set[str] = set()
    for task in tasks if isinstance(tasks, list) else ():
        found |= set(task)
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            found |= _keys(task.get(part))
    return found
