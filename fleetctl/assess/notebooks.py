"""Assess, pure layer: the code cells of a notebook: Python, CUDA, and the commands among them. Never I/O, never runs a cell."""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

_CUDA = re.compile(r"%%(?:cu|cuda\w*|nvcc\w*)\b")
_SHELL = re.compile(r"%%(?:bash|sh|script|shell)\b")
_WRITES = re.compile(r"%%writefile\s+(?:-a\s+)?(\S{1,200})")
MOST_CELLS = 20_000


class Cell(NamedTuple):
    """One code cell: `text` is Python or CUDA with the same lines, `commands` what it gives to a shell."""

    number: int
    kind: Literal["python", "cuda", "shell"]
    text: str
    commands: str


def cells(text: str) -> list[Cell]:
    """Return the code cells of a notebook.

    Raises:
        ValueError: it is not JSON, or has no cells.
    """
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("not an object")
    found = data.get("cells")
    if found is None and isinstance(data.get("worksheets"), list):
        found = [c for w in data["worksheets"] if isinstance(w, dict) for c in w.get("cells") or ()]
    if not isinstance(found, list):
        raise ValueError("it has no cells")
    return [_cell(n, _source(c)) for n, c in enumerate(found[:MOST_CELLS], start=1) if isinstance(c, dict) and c.get("cell_type") == "code"]


def _source(cell: dict[str, object]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return "".join(str(line) for line in source) if isinstance(source, list) else str(source)


def _cell(number: int, source: str) -> Cell:
    first = source.lstrip()
    written = _WRITES.match(first)
    if _CUDA.match(first) or (written and written.group(1).lower().endswith((".cu", ".cuh"))):
        return Cell(number, "cuda", "\n" + source.partition("\n")[2], "")
    if _SHELL.match(first):
        return Cell(number, "shell", "", "\n" + source.partition("\n")[2])
    lines = source.split("\n")
    commands = "\n".join(re.sub(r"^\s*[!%]+", "", line) if re.match(r"\s*[!%]", line) else "" for line in lines)
    python = "\n".join("" if re.match(r"\s*[!%]", line) or line.lstrip().startswith("?") else line for line in lines)
    return Cell(number, "python", python, commands)
