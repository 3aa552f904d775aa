"""Every complaint of the research on other tools has a test that is named after it, and each of them asserts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
COMPLAINTS = tuple(range(1, 46))
_NUMBER = re.compile(r"(?<![a-z0-9])t(\d\d)(?![a-z0-9])")
_RANDOM = re.compile(r"(?<!np\.)\b(random\.(?!Random\(\w)|default_rng\(\)|urandom|time\.sleep)")


def named() -> dict[int, list[tuple[str, str]]]:
    """Return file and source of every test by the numbers in its name."""
    found: dict[int, list[tuple[str, str]]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in _NUMBER.findall(node.name.replace("_", " ")):
                    found.setdefault(int(number), []).append((path.name, ast.get_source_segment(text, node) or ""))
    return found


NAMED = named()


@pytest.mark.parametrize("number", COMPLAINTS, ids=[f"T{n}" for n in COMPLAINTS])
def test_a_complaint_has_its_test(number: int) -> None:
    tests = NAMED.get(number, [])
    assert tests, f"no test is named test_..._t{number:02}_..."
    for file, source in tests:
        assert "assert " in source or "pytest.raises" in source, (file, number)
        assert not _RANDOM.search(source), f"{file}: T{number} is not deterministic"
