"""Provision: plans that nobody keeps: private, gone afterwards, and what a killed run left is removed by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.adapters.terraform.folder import remove_scratch, scratch


def test_a_scratch_plan_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch(tmp_path, "drift") as file:
        assert file.stat().st_mode & 0o777 == 0o600
        remove_scratch(tmp_path)
        assert not file.exists(), "this very process holds one at a time"
        file.touch()
    with pytest.raises(RuntimeError), scratch(tmp_path, "destroy"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_what_killed_runs_left_is_removed_and_what_a_living_one_holds_is_not(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    for name in (".drift.tfplan", ".destroy.tfplan", f".drift.{ended.pid}.tfplan", f".destroy.{os.getppid()}.tfplan", "pool.tfplan"):
        (tmp_path / name).write_text("secret")
    with scratch(tmp_path, "drift"):
        pass
    assert {p.name for p in tmp_path.iterdir()} == {f".destroy.{os.getppid()}.tfplan", "pool.tfplan"}
