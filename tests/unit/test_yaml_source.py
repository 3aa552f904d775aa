"""YAML text to values with lines: safe types only, YAML 1.1 traps refused."""

from __future__ import annotations

import pytest

from fleetctl.formats.yaml_source import MAX_DEPTH, read_yaml


def test_values_and_lines() -> None:
    document = read_yaml('a: 1\nb:\n  - x\n  - {c: 2.5}\nd: "1"\ne: null\nf: true\n')
    assert document.mistakes == ()
    assert document.value == {"a": 1, "b": ["x", {"c": 2.5}], "d": "1", "e": None, "f": True}
    assert document.line(("b", 1, "c")) == 4
    assert document.line(("b", 1, "missing", "deeper")) == 4
    assert document.line(("nowhere",)) == 1


@pytest.mark.parametrize("word", ["y", "n", "yes", "No", "on", "OFF"])
def test_words_that_some_readers_take_for_booleans(word: str) -> None:
    (mistake,) = read_yaml(f"first: 1\na: {word}\n").mistakes
    assert mistake.line == 2
    assert f'"{word}" in quotes' in mistake.text
    (mistake,) = read_yaml(f"{word}: 1\n").mistakes
    assert mistake.text.startswith("the key")


@pytest.mark.parametrize("number", ["010", "0x1f", "1_000", "1:30", "0b11"])
def test_numbers_that_readers_disagree_about(number: str) -> None:
    (mistake,) = read_yaml(f"a: {number}\n").mistakes
    assert "decimal" in mistake.text


@pytest.mark.parametrize("text", ["10.20.1.11:8001", "2026-12-18T00:00:00Z", "1e", "-", "0.11.0", "12:99"])
def test_plain_text_stays_text(text: str) -> None:
    assert read_yaml(f"a: {text}\n").value == {"a": text} or text == "-"


def test_quoted_traps_are_text() -> None:
    assert read_yaml("a: \"on\"\nb: '010'\n").value == {"a": "on", "b": "010"}


def test_duplicate_keys_name_both_lines() -> None:
    (mistake,) = read_yaml("a: 1\nb: 2\na: 3\n").mistakes
    assert (mistake.line, mistake.text) == (3, "'a' stands here twice (first in line 1)")


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: [1\nb: 2\n", 2, "not YAML"),
        ("a: !!python/object/apply:os.system [echo]\n", 1, "tag"),
        ("a: !secret x\n", 1, "tag"),
        ("base: &b {x: 1}\nc:\n  <<: *b\n", 3, "merge keys"),
        ("? [a]\n: 1\n", 1, "a key must be text"),
        ("a: \x01\n", 1, "character"),
        ("a: 1\n---\nb: 2\n", 2, "not YAML"),
        ("a: *nothing\n", 1, "not YAML"),
    ],
)
def test_what_is_refused(text: str, line: int, part: str) -> None:
    mistakes = read_yaml(text).mistakes
    assert any(m.line == line and part in m.text for m in mistakes), mistakes


def test_too_deep_and_laughing_files_are_bounded() -> None:
    deep = read_yaml("[" * (MAX_DEPTH + 5) + "]" * (MAX_DEPTH + 5))
    assert "nested" in deep.mistakes[0].text
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "more than" in read_yaml("\n".join(rows)).mistakes[0].text
    assert "nested" in read_yaml("a: &a [*a]\n").mistakes[0].text


def test_an_empty_file_is_nothing() -> None:
    assert read_yaml("# only a comment\n").value is None
