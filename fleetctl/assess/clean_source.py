"""Assess, pure layer: takes comments and strings out of C-like source and finds its conditional regions. Never I/O, never a judgement."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

_TOKENS = re.compile(
    r'R"(?P<mark>[^()\\\s"]{0,16})\('
    r"|//(?:[^\\\n]|\\.)*+"
    r"|/\*"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:\\[^\n]|[^'\\\n]){1,4}+'",
    re.DOTALL,
)
"""Possessive throughout: no input makes it look at a character many times."""
_DIGITS = frozenset("0123456789abcdefABCDEF")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b([^\n]*)", re.MULTILINE)
GUARD_WORDS = frozenset(
    {
        "__HIP_PLATFORM_AMD__",
        "__HIP_PLATFORM_HCC__",
        "__HIPCC__",
        "__HIP__",
        "__HIP_DEVICE_COMPILE__",
        "USE_ROCM",
        "USE_HIP",
        "GGML_USE_HIP",
        "GGML_USE_HIPBLAS",
        "BNB_HIP",
        "BUILD_HIP",
        "USE_AMD_ROCM",
        "FLASHATTENTION_ENABLE_HIP",
        "CT2_USE_HIP",
        "WITH_HIP",
        "__AMDGCN__",
        "IS_ROCM",
        "ENABLE_HIP",
        "TORCH_HIP_VERSION",
        "__gfx942__",
        "__gfx90a__",
        "ROCM_VERSION",
        "HIP_VERSION",
    }
)
_GUARD = re.compile(r"\b(?:" + "|".join(sorted(GUARD_WORDS)) + r")\b")


class Views(NamedTuple):
    """One source in two views with the same line breaks.

    `text` has no comments; `code` has no comments and empty strings.
    """

    text: str
    code: str


def views(source: str) -> Views:
    """Return both views of a source."""
    text: list[str] = []
    code: list[str] = []
    at = 0
    while token := _TOKENS.search(source, at):
        start, end = token.span()
        first = source[start]
        if first == "'" and start and source[start - 1] in _DIGITS:
            end = start + 1  # a digit separator, as in 1'000'000
            text.append(source[at:end])
            code.append(source[at:end])
            at = end
            continue
        if source.startswith("/*", start):
            end = _after(source, "*/", end)
        elif first == "R":
            end = _after(source, f'){token.group("mark")}"', end)
        before = source[at:start]
        text.append(before)
        code.append(before)
        breaks = "\n" * source.count("\n", start, end)
        if first == "/":
            text.append(breaks or " ")
            code.append(breaks or " ")
        else:
            text.append(source[start:end])
            code.append(("''" if first == "'" else '""') + breaks)
        at = end
    rest = source[at:]
    text.append(rest)
    code.append(rest)
    seen = Views("".join(text), "".join(code))
    if _CONSTANT.search(seen.code):
        dead = dead_lines(seen.code)
        return Views(_blank(seen.text, dead), _blank(seen.code, dead))
    return seen


def _after(source: str, mark: str, at: int) -> int:
    found = source.find(mark, at)
    return len(source) if found < 0 else found + len(mark)


_CONSTANT = re.compile(r"^[ \t]*#[ \t]*(?:el)?if[ \t]+\(?[ \t]*(0|1|false|true)[ \t]*\)?[ \t]*(?:&&[^\n]*)?$", re.MULTILINE)
_NEVER, _ALWAYS = re.compile(r"[ \t]*\(?[ \t]*(?:0|false)[ \t]*(?:\)|&&|$)"), re.compile(r"[ \t]*\(?[ \t]*(?:1|true)[ \t]*\)?[ \t]*$")


def dead_lines(code: str) -> list[tuple[int, int]]:
    """Return line ranges (1-based, both inclusive) of branches that are never compiled: under `#if 0`, or beside `#if 1`."""
    found: list[tuple[int, int]] = []
    groups: list[tuple[int, bool, bool]] = []  # first line of the branch, whether it is dead, whether one before it is always taken
    line, at = 1, 0
    for match in _CONDITION.finditer(code):
        line += code.count("\n", at, match.start(1))
        at = match.start(1)
        word, rest = match.group(1), match.group(2)
        if word in {"if", "ifdef", "ifndef"}:
            groups.append((line, word == "if" and _NEVER.match(rest) is not None, word == "if" and _ALWAYS.match(rest) is not None))
            continue
        if not groups:
            continue
        start, is_dead, is_settled = groups.pop()
        if is_dead and line - 1 > start:
            found.append((start + 1, line - 1))
        if word != "endif":
            never = word == "elif" and _NEVER.match(rest) is not None
            groups.append((line, is_settled or never, is_settled or (word == "elif" and _ALWAYS.match(rest) is not None)))
    return found


def _blank(text: str, dead: list[tuple[int, int]]) -> str:
    lines = text.split("\n")
    for start, end in dead:
        lines[start - 1 : end] = [""] * (min(end, len(lines)) - start + 1)
    return "\n".join(lines)


def guarded_lines(code: str) -> list[tuple[int, int]]:
    """Return line ranges (1-based, both inclusive, apart and in order) of #if groups one of whose conditions names AMD's platform."""
    open_groups: list[tuple[int, bool]] = []
    found: list[tuple[int, int]] = []
    line, at = 1, 0
    for match in _CONDITION.finditer(code):
        line += code.count("\n", at, match.start(1))
        at = match.start(1)
        word, rest = match.group(1), match.group(2)
        if word in {"if", "ifdef", "ifndef"}:
            if len(open_groups) < 256:
                open_groups.append((line, _GUARD.search(rest) is not None))
        elif word == "elif" and open_groups:
            start, known = open_groups[-1]
            open_groups[-1] = (start, known or _GUARD.search(rest) is not None)
        elif word == "endif" and open_groups:
            start, known = open_groups.pop()
            if known:
                found.append((start, line))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def inside(line: int, ranges: list[tuple[int, int]]) -> bool:
    """Tell whether a line lies in one of the ranges, which are apart and in order."""
    at = bisect_right(ranges, (line, 1 << 60)) - 1
    return at >= 0 and ranges[at][0] <= line <= ranges[at][1]
