"""Every step, views layer: a value as table, wide table, JSON, YAML or names. Never writes, never asks for the time.

Tables: one object a row, name first, no spaces in cells by convention, two spaces between columns; control characters of discovered text
are shown as "?" so that no text can drive a terminal.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.views.columns import wrapped

LEAST_WIDTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Args:
        right: numbers align to the right; wide: shown with `-o wide` only.
        shrink: 0 never cut to fit, else the higher is cut first; middle: names keep both ends when cut.
        wraps: continued on lines of its own instead of cut; least: narrowest that it is made, in characters.
    """

    title: str
    right: bool = False
    wide: bool = False
    shrink: int = 0
    middle: bool = False
    wraps: bool = False
    least: int = LEAST_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns, rows of as many cells, and lines under them."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    foot: tuple[str, ...] = ()
    empty: str = "Nothing to show."


def render(output: str, *, kind: str, value: object, table: Table, names: Sequence[str] = (), width: int = 80) -> str:
    """Return a result in the form that -o asks for.

    Args:
        output: table, wide, json, yaml or name; width: columns of a table (wide has no bound).
    """
    if output in {"json", "yaml"}:
        from fleetctl.formats.output import as_json, as_yaml

        return as_json(kind, value) if output == "json" else as_yaml(kind, value)
    if output == "name":
        return "\n".join(clean(name) for name in names)
    return render_table(table, width=None if output == "wide" else width, wide=output == "wide")


def render_table(table: Table, *, width: int | None, wide: bool = False) -> str:
    """Return a table at most `width` characters wide (None: no bound), its shrinkable columns cut first."""
    foot = table.foot if width is None else folded(table.foot, width)
    if not table.rows:
        return "\n".join((table.empty, *foot))
    shown = [i for i, column in enumerate(table.columns) if wide or not column.wide]
    columns = [table.columns[i] for i in shown]
    cells = [[column.title for column in columns], *([clean(row[i]) for i in shown] for row in table.rows)]
    widths = [max(cell_width(row[i]) for row in cells) for i in range(len(columns))]
    if width is not None:
        widths = _fitted(columns, widths, width)
    lines = [line for row in cells for line in _lines(columns, widths, row)]
    return "\n".join([*lines, *foot])


def folded(lines: Sequence[str], width: int) -> list[str]:
    """Return lines with those that are too long continued on the next, at the same indentation; only what fits no line is cut."""
    out: list[str] = []
    for line in lines:
        if cell_width(line) <= width:
            out.append(line)
        else:
            indent = line[: min(len(line) - len(line.lstrip()), max(width // 2, 0))]
            wrapped_at_spaces = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
            out += [piece for part in wrapped_at_spaces for piece in _cut(part, indent, width)]
    return out


def _cut(line: str, indent: str, width: int) -> list[str]:
    """Return a line without a space to break at, such as a long path, in pieces that fit, cut after a "/" where there is one."""
    pieces: list[str] = []
    while cell_width(line) > width:
        end = len(indent) + 1 if line.startswith(indent) else 1
        while end < len(line) and cell_width(line[: end + 1]) <= width:
            end += 1
        end = line.rfind("/", end // 2, end) + 1 or end
        pieces.append(line[:end])
        line = indent + line[end:]
    return [*pieces, line]


def _fitted(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    out = list(widths)
    over = sum(out) + 2 * (len(out) - 1) - width
    for level in sorted({c.shrink for c in columns if c.shrink}, reverse=True):
        at_level = [i for i, c in enumerate(columns) if c.shrink == level]
        least = {i: max(columns[i].least, len(columns[i].title)) for i in at_level}
        while over > 0 and any(out[i] > least[i] for i in at_level):
            out[max((i for i in at_level if out[i] > least[i]), key=lambda i: out[i])] -= 1
            over -= 1
    return out


def _lines(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> list[str]:
    """Return one row: one line, and more where a column wraps."""
    pieces = [wrapped(text, width) if column.wraps else [text] for column, width, text in zip(columns, widths, cells, strict=True)]
    return [_line(columns, widths, [p[n] if n < len(p) else "" for p in pieces]) for n in range(max(1, *map(len, pieces)))]


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    parts = []
    for column, width, text in zip(columns, widths, cells, strict=True):
        cut = shorten(text, width, middle=column.middle)
        space = " " * (width - cell_width(cut))
        parts.append(space + cut if column.right else cut + space)
    return "  ".join(parts).rstrip()


def shorten(text: str, width: int, *, middle: bool = False) -> str:
    """Cut text to `width` columns, with "…" where something is missing: at the end, or in the middle."""
    if cell_width(text) <= width:
        return text
    if middle and text.isascii() and width > 3:
        end = (width - 1) // 2
        return text[: width - 1 - end] + "…" + text[-end:]
    out, used = "", 0
    for char in text:
        used += cell_width(char)
        if used > width - 1:
            break
        out += char
    return out + "…"


def cell_width(text: str) -> int:
    """Count the terminal columns of text: East Asian wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def clean(text: str) -> str:
    """Replace what a terminal would obey (control, format and surrogate characters) by "?"."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("?" if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else c for c in text)
