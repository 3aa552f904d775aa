"""Each promise has tests that its pattern finds, and a row in the page of promises whose files are among them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.usecases import migrate
from tests.bench import rollback
from tests.bench.promises import OFFSETS_H, approved_plan, window_in
from tests.full import PROMISES, of_promise

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "promises.md").read_text("utf-8")
NAMES = {p.split()[0] for p in PROMISES}


@pytest.fixture(scope="module")
def ids() -> tuple[str, ...]:
    """Return the ids of all tests as their files name them, with the first words of parameters where a decorator names them."""
    found = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        where = file.relative_to(ROOT).as_posix()
        names = re.findall(r"(?m)^\s*(?:async )?def (test_\w+)", file.read_text("utf-8"))
        found += [f"{where}::{name}" for name in names]
    return tuple(found)


def test_every_part_of_every_pattern_finds_a_test(ids: tuple[str, ...]) -> None:
    dead = [
        (promise, part)
        for promise, pattern in PROMISES.items()
        for part in re.split(r"\|(?![^(]*\))", pattern)
        if not any(re.search(part, i) for i in ids)
    ]
    dead = [(promise, part) for promise, part in dead if not part.endswith(r"\[")]  # of a parameter
    assert dead == [], "a part of a pattern that finds nothing proves nothing"


def test_every_promise_of_the_design_is_there() -> None:
    assert {f"P{n}" for n in range(1, 16)} <= NAMES


def test_the_page_has_a_row_for_each_whose_files_prove_it(ids: tuple[str, ...]) -> None:
    rows = {m[1]: m[0] for m in re.finditer(r"(?m)^\| (P\d+(?:-P\d+)?) .*$", PAGE)}
    assert set(rows) == NAMES
    for promise, pattern in PROMISES.items():
        name = promise.split()[0]
        assert f"`python -m tests.full --promise {name}`" in rows[name]
        files = re.findall(r"`(tests/[\w/.]+\.py)`", rows[name])
        assert files, name
        for file in files:
            assert any(i.startswith(f"{file}::") and re.search(pattern, i) for i in ids), f"{file} does not count for {name}"


def test_a_file_whose_name_ends_in_the_word_counts_too(ids: tuple[str, ...]) -> None:
    pattern = next(v for k, v in PROMISES.items() if k.startswith("P5 "))
    mine = [i for i in ids if i.startswith("tests/lab/test_lift_cap.py::")]
    assert mine
    assert all(re.search(pattern, i) for i in mine)


def test_windows_of_six_zones_are_six_different_windows() -> None:
    windows = [window_in(h) for h in OFFSETS_H]
    assert len({w.start for w in windows}) == len({w.end for w in windows}) == len(OFFSETS_H) == 6
    assert {(w.start.hour, w.start.minute) for w in windows} == {(0, 0)}, "midnight on the wall of each"


def test_commands_of_the_page_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"make (bench-[a-z]+)", PAGE))
    assert targets
    assert all(f"\n{target}:" in makefile for target in targets)
    assert set(re.findall(r"bench-rollback ARGS='--row (\w+)'", PAGE)) <= set(rollback.ROWS)


def test_one_promise_alone_is_chosen() -> None:
    files = {"tests/unit/test_x.py": ["tests/unit/test_x.py::test_freeze", "tests/unit/test_x.py::test_y"], "b.py": ["b.py::z"]}
    assert of_promise(files, "P10") == {"tests/unit/test_x.py": ["tests/unit/test_x.py::test_freeze"]}
    assert of_promise(files, "") == files
    with pytest.raises(SystemExit, match="there is no promise P99"):
        of_promise(files, "P99")


def test_a_gate_that_compares_no_content_takes_a_flipped_plan_and_the_count_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    few = approved_plan(step=97)
    assert few.cases > 50
    assert few.broken == 0
    monkeypatch.setattr(migrate, "require_unchanged", lambda _: None)
    assert approved_plan(step=97).broken > 0
