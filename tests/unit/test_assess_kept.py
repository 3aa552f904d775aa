"""What is kept of an assessment: the verdict that a workload's name alone repeats, waivers that answer to something, parts not judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.test_assess_command import Desk

PTX = '__global__ void k() { asm volatile("mov.u32 %0, 1;"); }\n'


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "desk")


TREES: dict[str, Callable[[Path], object]] = {
    "stays": lambda f: (f / "a.cu").write_text(PTX),
    "is-translated": lambda f: (f / "a.cu").write_text("__global__ void k() {}\n"),
    "is-built-again": lambda f: (f / "requirements.txt").write_text("tensorrt==10\n"),
    "is-native": lambda f: (f / "requirements.txt").write_text("vllm==0.33\n"),
    "is-not-judged": lambda f: (f / "uv.lock").write_text("[[["),
}


@pytest.mark.parametrize("name", list(TREES))
def test_what_was_kept_and_what_the_name_alone_says_agree(desk: Desk, tmp_path: Path, name: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "main.py").write_text("print(1)\n")
    TREES[name](tree)
    kept = desk.json("assess", str(tree), "--save", "summaries")
    again = desk.json("assess", "summaries")
    assert {k: v for k, v in again.items() if k != "as_of"} == {k: v for k, v in kept.items() if k != "as_of"}
    rows = desk.json("assess")["rows"]
    assert isinstance(rows, list)
    assert next(r["route"] for r in rows if r["workload"] == "summaries") == kept["route"]


def test_a_waiver_by_the_name_alone_keeps_what_was_read(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(PTX)
    assert desk.json("assess", str(tmp_path / "a.cu"), "--save", "summaries")["route"] == "stay"
    assert desk.json("assess", "summaries", "--waive", "R038=we have a HIP kernel")["route"] == "hipify"
    assert desk.json("assess", "summaries")["route"] == "hipify"
    assert desk.json("assess", str(tmp_path / "a.cu"), "--save", "summaries")["route"] == "hipify"


def test_what_was_read_for_another_target_says_nothing(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(PTX)
    assert desk.run("assess", str(tmp_path / "a.cu"), "--save", "summaries").exit_code == 0
    result = desk.run("assess", "summaries", "--target", "gfx1100")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error[assess.other_target]" in result.stderr


@pytest.mark.parametrize(
    ("waiver", "is_said"),
    [("R999=no such rule", True), ("R038:other=no such name", True), ("R051=not found here", True), ("R038=it is compiled out", False)],
)
def test_a_waiver_that_answers_to_nothing_is_said(desk: Desk, tmp_path: Path, waiver: str, is_said: bool) -> None:
    (tmp_path / "a.cu").write_text(PTX)
    result = desk.run("assess", str(tmp_path / "a.cu"), "--waive", waiver)
    assert result.exit_code == 0
    assert ("answers to no finding" in result.stderr) is is_said


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("", "--detailed-exitcode"), "usage.no_path"),
        ((" ",), "usage.no_path"),
        (("summaries", "--waive", "R038=x"), "usage.waiver_reason"),
        (("summaries", "--waive", "R038=  "), "usage.waiver_reason"),
        (("summaries", "--waive", "=because"), "usage.waiver"),
    ],
)
def test_what_says_nothing_is_refused(desk: Desk, argv: tuple[str, ...], code: str) -> None:
    result = desk.run("assess", *argv)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error[{code}]" in result.stderr


NOT_JUDGED: dict[str, Callable[[Path], object]] = {
    "lock": lambda f: (f / "uv.lock").write_text("[[["),
    "size": lambda f: (f / "a.py").write_text(" " * (9 * 2**20)),
    "pointer": lambda f: (f / "m.onnx").write_text("version https://git-lfs.github.com/spec/v1\n"),
    "archive": lambda f: (f / "v.tar").write_bytes(b"junk" * 300),
    "link": lambda f: (f / "src").symlink_to("/usr"),
}


@pytest.mark.parametrize("name", list(NOT_JUDGED))
def test_what_was_not_judged_is_shown_is_not_clean_and_can_be_waived(desk: Desk, tmp_path: Path, name: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "main.py").write_text("print(1)\n")
    assert desk.run("assess", str(tree), "--detailed-exitcode").exit_code == 0
    NOT_JUDGED[name](tree)
    result = desk.run("assess", str(tree), "--detailed-exitcode")
    assert result.exit_code == 3
    assert "not judged" in result.stdout
    found = desk.json("assess", str(tree))["findings"]
    assert isinstance(found, list)
    label = next(f"{f['rule']}:{f['subject']}".rstrip(":") for f in found if f["rule"] in {"R088", "R089"})
    waived = desk.run("assess", str(tree), "--detailed-exitcode", "--waive", f"{label}=looked at it by hand", "-o", "json")
    assert (waived.exit_code, json.loads(waived.stdout)["route"]) == (0, "native")
