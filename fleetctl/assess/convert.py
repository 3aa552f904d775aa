"""Assess, pure layer: CUDA names of a source replaced by HIP's, comments and strings left alone. Never I/O, never a guess: a name that
the table does not map stays as it is and is listed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.assess.names import coverage
from fleetctl.domain.portability import USABLE, ApiName

_PIECES = re.compile(
    r'(?P<raw>R"(?P<mark>[^()\\\s"]{0,16})\()'
    r"|(?P<line>//[^\n]*+)"
    r"|(?P<block>/\*)"
    r"|(?P<include>^[ \t]*#[ \t]*include[ \t]*[<\"](?P<header>[^>\"\n]{1,200})[>\"])"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*+"?)'
    r"|(?P<word>[A-Za-z_]\w*+)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A translated source.

    Args:
        replaced: names and headers that were replaced; by_hand: CUDA names that stand as they were, with their lines.
    """

    text: str
    replaced: int
    by_hand: tuple[tuple[str, int], ...]


def convert(source: str, names: Mapping[str, ApiName]) -> Converted:
    """Translate one source."""
    out: list[str] = []
    at = replaced = counted = 0
    line = 1
    left: dict[str, int] = {}
    while match := _PIECES.search(source, at):
        start, end = match.span()
        out.append(source[at:start])
        piece = match.group()
        if match.group("block"):
            end = _after(source, "*/", end)
            piece = source[start:end]
        elif match.group("raw"):
            end = _after(source, f'){match.group("mark")}"', end)
            piece = source[start:end]
        elif match.group("include"):
            row = names.get(match.group("header"))
            if row is not None and row.hip_name and row.status in USABLE:
                piece = f"#include <{row.hip_name}>"
                replaced += 1
            elif row is not None and row.status == "drop":
                piece = ""
                replaced += 1
        elif match.group("word"):
            row = names.get(piece)
            if row is not None and row.hip_name and row.status in USABLE and row.lib != "include":
                replaced += row.hip_name != piece
                piece = row.hip_name
            elif piece not in left and coverage(piece, names) in {"unsupported", "uncovered"} and (row is None or row.lib != "device"):
                line += source.count("\n", counted, start)
                counted = start
                left[piece] = line
        out.append(piece)
        at = end
    out.append(source[at:])
    return Converted(text="".join(out), replaced=replaced, by_hand=tuple(sorted(left.items(), key=lambda x: x[1])))


def _after(source: str, mark: str, at: int) -> int:
    found = source.find(mark, at)
    return len(source) if found < 0 else found + len(mark)


def hip_path(path: str) -> str:
    """Return the name of a translated file: .cu becomes .hip, .cuh stays a header."""
    return path[: -len(".cu")] + ".hip" if path.endswith(".cu") else path


def patch_of(path: str, before: str, after: str) -> str:
    """Return a unified diff of one file, empty where nothing changed."""
    if before == after:
        return ""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm="", n=2)
    return "\n".join(lines) + "\n"
