"""The bench of coming home: every field is there, and one that was not run in this call is null."""

from __future__ import annotations

import json

import pytest

from tests.bench import rollback


def test_a_row_that_was_not_run_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    assert rollback.main(["--runs", "1", "--row", "fallback"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["fallback_1000_home"], found["fallback_1000_routers"]) == (rollback.CELLS, "in memory")
    assert [f for f in rollback.FIELDS if found[f] is not None] == ["fallback_1000_seconds"]
    assert found["fallback_1000_seconds"] <= 5


def test_faults_are_home_in_the_promised_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback, "SHARES", (2_500,))
    monkeypatch.setattr(rollback, "FAULTS", {name: rollback.FAULTS[name] for name in ("all_fail", *rollback.PROMISED)})
    found = rollback.faults(1)
    hard, soft = found["hard_fault_to_zero_max_s"], found["fault_to_zero_p98_s"]
    assert isinstance(hard, float)
    assert isinstance(soft, float)
    assert hard <= 10
    assert soft <= 90


def test_a_quantile_of_what_never_came_home_is_none() -> None:
    assert rollback._quantile([1.0, 2.0, None], 1.0) is None
    assert rollback._quantile([1.0, 2.0, None], 0.5) == 2.0
    assert rollback._quantile([float(n) for n in range(1, 101)], 0.98) == 98.0
