"""Read Terraform files that `terraform fmt` has formatted: blocks, arguments and their text. Never a full parser: that is enough.

Used by the README maker and by the check of arguments against the provider's facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_OPEN = re.compile(r'^(\w+)((?:\s+"[^"]*")*)\s*\{$')
_EMPTY = re.compile(r'^(\w+)((?:\s+"[^"]*")*)\s*\{\s*\}$')
_ARGUMENT = re.compile(r"^([A-Za-z_][\w-]*)\s*=\s*(.*)$")
_PAIRS = {"{": "}", "[": "]", "(": ")"}


@dataclass(slots=True)
class Block:
    """One block.

    Args:
        labels: without quotes; arguments: name to the text of its value; line: where it begins, from 1.
    """

    kind: str
    labels: tuple[str, ...]
    line: int
    arguments: dict[str, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def inner(self) -> Iterator[tuple[str, Block]]:
        """Yield nested blocks by the name that the provider knows them by: what `dynamic` makes counts as what it makes."""
        for block in self.blocks:
            if block.kind == "dynamic":
                yield from ((block.labels[0], content) for content in block.blocks if content.kind == "content")
            else:
                yield block.kind, block


def read_file(path: Path) -> list[Block]:
    """Return the top blocks of a file.

    Raises:
        ValueError: a line is not what a formatted file has there.
    """
    lines = path.read_text().split("\n")
    top = Block(kind="", labels=(), line=0)
    place = _body(lines, 0, top, path)
    if place != len(lines):
        raise ValueError(f"{path}:{place}: a block is closed that was not opened")
    return top.blocks


def read_folder(folder: Path) -> list[Block]:
    """Return the top blocks of every *.tf of a folder, not of those below it."""
    return [block for path in sorted(folder.glob("*.tf")) for block in read_file(path)]


def _body(lines: list[str], place: int, into: Block, path: Path) -> int:
    while place < len(lines):
        text = lines[place].strip()
        place += 1
        if not text or text.startswith("#"):
            continue
        if text == "}":
            return place
        opened = _OPEN.match(text) or _EMPTY.match(text)
        if opened:
            block = Block(kind=opened[1], labels=tuple(re.findall(r'"([^"]*)"', opened[2])), line=place)
            into.blocks.append(block)
            if not _EMPTY.match(text):
                place = _body(lines, place, block, path)
            continue
        named = _ARGUMENT.match(text)
        if named is None:
            raise ValueError(f"{path}:{place}: not understood: {text[:60]}")
        value = named[2]
        while _depth(value) > 0:
            if place >= len(lines):
                raise ValueError(f"{path}:{place}: a value is not closed")
            value += "\n" + lines[place]
            place += 1
        into.arguments[named[1]] = value.strip()
    return place


def _depth(text: str) -> int:
    """Return how many brackets are open at the end of a value; strings and comments do not count."""
    depth, quoted, escaped = 0, False, False
    for line in text.split("\n"):
        for place, char in enumerate(line):
            if quoted:
                escaped, quoted = (char == "\\" and not escaped), not (char == '"' and not escaped)
            elif char == '"':
                quoted = True
            elif char == "#" and (place == 0 or line[place - 1] == " "):
                break
            elif char in _PAIRS:
                depth += 1
            elif char in _PAIRS.values():
                depth -= 1
    return depth
