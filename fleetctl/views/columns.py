"""Every step, view layer: text in columns, units and time for people. Never I/O, never colour, never a control character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WIDTH = 80
SHORT = 12
"""Columns that are not kept are clipped down to this before one that is."""


def clean(text: object) -> str:
    """Return text that cannot move a cursor or break a line: every control or invisible formatting character becomes "?"."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def clipped(text: str, width: int) -> str:
    """Return text of at most `width` characters, its end replaced by one … where it is longer."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Break text into lines of at most `width` characters, each behind `indent`; a longer word is cut."""
    room = max(8, width - len(indent))
    lines: list[str] = []
    line = ""
    for word in text.split():
        while len(word) > room:
            if line:
                lines.append(line)
                line = ""
            lines.append(word[:room])
            word = word[room:]
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [indent + part for part in [*lines, line] if part]


def columns(
    rows: Sequence[Sequence[object]],
    *,
    right: Iterable[int] = (),
    indent: str = "",
    width: int = WIDTH,
    gap: int = 2,
    keep: Iterable[int] = (),
) -> list[str]:
    """Lay rows out in columns; the widest column is clipped until a line fits.

    Args:
        right: columns aligned right, 0-based; keep: those that are clipped only once all others are short.
    """
    cells = [[clean(c) for c in row] for row in rows]
    if not cells:
        return []
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    kept = set(keep)
    while len(indent) + sum(widths) + gap * (len(widths) - 1) > width and max(widths) > 4:
        others = [i for i, w in enumerate(widths) if i not in kept and w > SHORT]
        at = max(others or range(len(widths)), key=lambda i: widths[i])
        widths[at] -= 1
    to_right = set(right)
    lines = []
    for row in cells:
        parts = [
            clipped(c, w).rjust(w) if i in to_right else clipped(c, w).ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + (" " * gap).join(parts)).rstrip())
    return lines


def percent(basis_points: int) -> str:
    """Return basis points as per cent: "10 %", "0.5 %"."""
    return f"{basis_points / 100:g} %"


def duration(seconds: float) -> str:
    """Return seconds for people: "45 s", "12 min", "3.5 h", "7.2 d"."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: "1 cell", "1,200 cells"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
