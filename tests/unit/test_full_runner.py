"""`make test-full`: what passed is kept and not run again; what failed, or never came to a result, is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import full

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_x" name="test_good[a::b]" file="tests/unit/test_x.py" time="0.5" />
<testcase classname="tests.unit.test_x.TestY" name="test_bad" file="tests/unit/test_x.py" time="1">
<failure message="no">...</failure></testcase>
<testcase classname="tests.unit.test_x" name="test_not_here" file="tests/unit/test_x.py" time="0">
<skipped message="no tool" /></testcase>
</testsuite></testsuites>"""
IDS = [
    "tests/unit/test_x.py::test_good[a::b]",
    "tests/unit/test_x.py::TestY::test_bad",
    "tests/unit/test_x.py::test_not_here",
    "tests/unit/test_x.py::test_never_ran",
]


def test_a_report_is_read_under_the_ids_that_were_collected(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    found = {r.id: r for r in full.read_report(path, IDS)}
    assert [found[i].outcome for i in IDS[:3]] == ["passed", "failed", "skipped"]
    assert found[IDS[2]].text == "no tool"
    assert IDS[3] not in found


def test_a_rerun_runs_only_what_has_not_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(full, "ROOT", tmp_path)
    monkeypatch.setattr(full, "CACHE", tmp_path / ".cache" / "full")
    monkeypatch.setattr(full, "state_name", lambda: "abc")
    monkeypatch.setattr(full, "collect", lambda only: {"a.py": ["a.py::x", "a.py::y"], "b.py": ["b.py::z"]})
    ran: list[list[str]] = []
    outcome = {"a.py::x": "passed", "a.py::y": "failed", "b.py::z": "skipped"}

    def run_file(file: str, wanted: list[str], whole: bool) -> list[full.Result]:
        ran.append(list(wanted))
        return [full.Result(id=i, outcome=outcome[i], seconds=1.0) for i in wanted]

    monkeypatch.setattr(full, "run_file", run_file)
    assert full.main([]) == 1
    assert ran == [["a.py::x", "a.py::y"], ["b.py::z"]]
    outcome["a.py::y"] = "passed"
    ran.clear()
    assert full.main([]) == 0
    assert ran == [["a.py::y"]]
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["passed"], last["failed"], last["skipped"], last["not_run"]) == (2, 0, 1, 0)
    ran.clear()
    assert full.main(["--again"]) == 0
    assert len(ran) == 2
