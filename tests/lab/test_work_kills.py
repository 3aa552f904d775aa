"""Batch work with real consumers that are killed at random: every job ends once, and none begins on the target after the way home."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.work_kills import Killed, kills

pytestmark = [pytest.mark.lab, pytest.mark.crash]


def test_consumers_killed_at_random_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    assert kills(tmp_path, jobs=200, rounds=6, seed=1) == Killed(jobs=200, lost=0, double=0, late=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_consumers_killed_many_times_lose_nothing_and_do_nothing_twice(tmp_path: Path, seed: int) -> None:
    assert kills(tmp_path, jobs=3_000, rounds=50, seed=seed) == Killed(jobs=3_000, lost=0, double=0, late=0)
