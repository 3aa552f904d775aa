"""Plan, catalogue layer: a CSV table as rows with their lines. Never a guess: a row that does not fit its head is named, not shifted."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Numbered = tuple[int, Mapping[str, str]]
"""A row, and the line of the file where it ends."""
MOST_ROWS = 1_000_000


def numbered(rows: Iterable[Mapping[str, str]]) -> list[Numbered]:
    """Return rows that come from no file, numbered as if they stood under a head."""
    return list(enumerate(rows, start=2))


def read_table(path: Path, needed: Sequence[str] = ()) -> tuple[list[Numbered], list[str]]:
    """Read a table; returns its rows, and what is wrong with it as `file:line: text`.

    Args:
        needed: columns that must be there.

    Raises:
        OSError: the file cannot be read.
    """
    rows: list[Numbered] = []
    name = path.name
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, strict=True)
            head = [c.strip() for c in next(reader, [])]
            faults = _head_faults(head, needed, name)
            for cells in reader:
                if not any(c.strip() for c in cells):
                    continue
                if len(cells) != len(head):
                    faults.append(f"{name}:{reader.line_num}: {len(cells)} cells under a head of {len(head)}")
                elif len(rows) >= MOST_ROWS:
                    faults.append(f"{name}:{reader.line_num}: more than {MOST_ROWS:,} rows")
                    break
                else:
                    rows.append((reader.line_num, {h: c.strip() for h, c in zip(head, cells, strict=True)}))
    except (UnicodeDecodeError, csv.Error) as e:
        return [], [f"{name}: is not a CSV table in UTF-8 with commas: {str(e)[:120]}"]
    return ([], faults) if any(f.startswith(f"{name}:1:") for f in faults) else (rows, faults)


def _head_faults(head: Sequence[str], needed: Sequence[str], name: str) -> list[str]:
    if not any(head):
        return [f"{name}:1: has no head of column names"]
    if any(not c.isprintable() for c in head):
        return [f"{name}:1: a column name has a control character: this is no text table"]
    twice = [c or "(no name)" for c, n in Counter(head).items() if n > 1]
    missing = [c for c in needed if c not in head]
    faults = [f"{name}:1: the column {', '.join(repr(c[:40]) for c in twice)} stands twice"] if twice else []
    return faults + ([f"{name}:1: lacks the column {', '.join(missing)}"] if missing else [])
