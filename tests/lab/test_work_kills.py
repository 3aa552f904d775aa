"""Batch work with real consumers that are killed at random: every job ends once, and none begins on the target after the way home."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.moto_account import moto_server
from tests.lab.work_kills import Killed, kills, sqs_kills

pytestmark = [pytest.mark.lab, pytest.mark.crash]


def test_consumers_killed_at_random_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    assert kills(tmp_path, jobs=200, rounds=6, seed=1) == Killed(jobs=200, lost=0, double=0, late=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_consumers_killed_many_times_lose_nothing_and_do_nothing_twice(tmp_path: Path, seed: int) -> None:
    assert kills(tmp_path, jobs=3_000, rounds=50, seed=seed) == Killed(jobs=3_000, lost=0, double=0, late=0)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n == 0 else pytest.mark.slow) for n in range(10)])
def test_consumers_of_sqs_killed_at_random_lose_nothing_and_no_result_counts_twice(tmp_path: Path, seed: int) -> None:
    with moto_server(tmp_path) as url:
        assert sqs_kills(tmp_path, url, jobs=40, rounds=6, seed=seed) == Killed(jobs=40, lost=0, double=0, late=0)
