"""Every complaint of the research on other tools that concerns evidence has a test that is named after it, and each of them asserts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
OF_TRAFFIC_AND_HOME = {*range(14, 23), 34, 35, 36, 39, 41, 42, 43, 45}
"""About coming home, roles and routes; what is named here concerns evidence."""
OF_EVIDENCE = sorted(set(range(1, 46)) - OF_TRAFFIC_AND_HOME)
_NUMBER = re.compile(r"(?<![a-z0-9])t(\d\d)(?![a-z0-9])")
_RANDOM = re.compile(r"(?<!np\.)\b(random\.|default_rng\(\)|urandom|time\.sleep)")


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


def test_the_list_is_whole() -> None:
    assert len(OF_EVIDENCE) == 28
    assert set(OF_EVIDENCE) <= set(range(1, 46))


@pytest.mark.parametrize("number", OF_EVIDENCE, ids=[f"T{n}" for n in OF_EVIDENCE])
def test_a_complaint_about_evidence_has_its_test(number: int) -> None:
    tests = NAMED.get(number, [])
    assert tests, f"no test is named test_..._t{number:02}_..."
    for file, source in tests:
        assert "assert " in source or "pytest.raises" in source, (file, number)
        assert not _RANDOM.search(source), f"{file}: T{number} is not deterministic"
