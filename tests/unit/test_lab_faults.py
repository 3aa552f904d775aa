"""Faults of the lab: what is allowed, and the file that carries them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.lab import faults
from fleetctl.lab.faults import FaultsFile, check_fault, parse_faults, read_faults, write_faults


def test_defaults_are_filled_in() -> None:
    assert check_fault("tail", {"share": "0.1"}) == {"share": 0.1, "factor": 3.0}
    assert check_fault("metrics", {}) == {"state": "gone"}
    assert check_fault("hang", {}) == {}


@pytest.mark.parametrize(
    ("kind", "args", "says"),
    [
        ("slower", {}, "no fault"),
        ("latency", {"ratio": 1}, "has no ratio"),
        ("errors", {"ratio": 1.5}, "0 to 1"),
        ("errors", {"ratio": "nan"}, "0 to 1"),
        ("errors", {"ratio": True}, "0 to 1"),
        ("latency", {"factor": 0}, "0.01 to 1000"),
        ("metrics", {"state": "late"}, "not one of"),
        ("crash", {"now": 1}, "no argument"),
    ],
)
def test_what_is_refused_says_what_is_allowed(kind: str, args: dict[str, float | str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_fault(kind, args)


def test_several_faults_stand_together() -> None:
    found = parse_faults({"latency": {"factor": 2}, "errors": {"ratio": 0.05}, "metrics": {"state": "nan"}})
    assert (found.latency_factor, found.error_ratio, found.metrics) == (2.0, 0.05, "nan")
    assert not found.hangs
    assert parse_faults({}) == faults.NONE


@pytest.mark.parametrize("data", [[], "latency", {"latency": 2}, {"latency": {"factor": "x"}}])
def test_a_shape_that_is_none_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="fault"):
        parse_faults(data)


def test_the_file_is_read_when_it_was_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "u.faults.json"
    file = FaultsFile(path)
    assert not file.poll()
    write_faults(path, {"errors": {"ratio": 0.5}})
    assert file.poll()
    assert file.current.error_ratio == 0.5
    assert not file.poll()
    path.write_text("{not json")
    assert not file.poll()
    assert file.current.error_ratio == 0.5
    assert "kept out" in capsys.readouterr().err
    write_faults(path, {})
    assert not path.exists()
    assert file.poll()
    assert file.current == faults.NONE


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "u.faults.json"
    assert read_faults(path) == {}
    write_faults(path, {"latency": {"factor": 2.0}})
    assert read_faults(path) == {"latency": {"factor": 2.0}}
    path.write_text(json.dumps({"nonsense": {}}))
    with pytest.raises(ValueError, match="no fault"):
        read_faults(path)
