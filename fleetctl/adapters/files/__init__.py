"""Inventory, adapter layer: CSV and YAML files that people keep, for what no API shows. Reads those files and nothing else.

CSV: the first column's title says what the rows are about (workload, cell, machine, pool or engine), its values are their names; commas,
semicolons or tabs stand between cells. YAML: a mapping of such a word to a mapping of names to facts. What cannot be used is a gap with
file and line, and all else counts. What is no table is never quoted: it may be a file of secrets.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.tags import MAX_TEXT, short
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import InventoryFailed

MOST_BYTES = 16 * 1024 * 1024
KINDS = ("workload", "cell", "machine", "pool", "engine")
TEXTS = (
    "owner",
    "cost_centre",
    "tenant",
    "data_class",
    "class",
    "environment",
    "workload",
    "cell",
    "pool",
    "model",
    "engine",
    "engine_version",
    "adapters",
    "autoscaler",
    "region",
    "zone",
    "sku",
    "cloud",
    "account",
    "address",
    "name",
    "gpu",
    "priority",
    "notes",
)
NUMBERS = (
    "requests_per_s",
    "trough_per_s",
    "input_tokens",
    "output_tokens",
    "p95_ms",
    "gpus",
    "count",
    "minimum",
    "maximum",
    "context_tokens",
    "gpu_use",
    "usd_per_hour",
)


COLUMNS = (*TEXTS, *NUMBERS)
_SEPARATORS = ",;\t"
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_ /-]{0,39}")
"""What a title looks like; anything else is not quoted in a message."""


class Wrong(NamedTuple):
    """A mistake, with its line."""

    line: int
    text: str


class Row(NamedTuple):
    """What a table says of one thing, not checked yet."""

    line: int
    kind: str
    id: str
    values: Mapping[str, object]


class TableDiscovery:
    """`PartedDiscovery` of tables; one part per file.

    Args:
        name: of this source; files: .csv, .yaml or .yml; shown: how messages name a file; now: the time.
    """

    def __init__(self, name: str, files: tuple[Path, ...], now: Callable[[], Instant], *, shown: Callable[[Path], str] = str) -> None:
        self._name = name
        self._files = {shown(f): f for f in files}
        self._now = now

    @property
    def name(self) -> str:
        """Return "table" and the source's name."""
        return f"table {self._name}"

    def parts(self) -> tuple[str, ...]:
        """Return the files."""
        return tuple(self._files)

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield what one file says, or all of them."""
        for part in [scope] if scope else self.parts():
            text = _read(self._files[part])
            found = _yaml_rows(text) if part.endswith((".yaml", ".yml")) else _csv_rows(text)
            source, now = f"{self.name}/{part}", self._now()
            for one in found:
                wrong, told = ([one.text], {}) if isinstance(one, Wrong) else _told(one)
                for text in wrong:
                    yield Gap(scope=f"{part}:{one.line}", reason=text, source=self.name, code="inventory.table")
                if isinstance(one, Row) and told:
                    yield Facts(values={one.kind: short(one.id), **told}, source=source, seen_at=now)


def _read(path: Path) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise InventoryFailed("inventory.table", "this is no regular file.", hint="Name a .csv or .yaml file")
            data = stream.read(MOST_BYTES + 1)
    except OSError as e:
        raise InventoryFailed("inventory.table", f"it cannot be read: {e.strerror}.", hint="Mend the file's name or rights") from e
    if len(data) > MOST_BYTES:
        raise InventoryFailed("inventory.table", "the table is larger than 16 MiB.", hint="Split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise InventoryFailed("inventory.table", f"the table is not UTF-8 (byte {e.start}).", hint="Save it as UTF-8") from e


def _csv_rows(text: str) -> Iterator[Row | Wrong]:
    text, separator = _separated(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    titles: list[str] | None = None
    try:
        for cells in reader:
            if not any(c.strip() for c in cells):
                continue
            if titles is None:
                titles = [c.strip() for c in cells]
                wrong = list(_wrong_titles(titles, reader.line_num))
                yield from wrong
                if titles[0] not in KINDS:
                    return
                continue
            if len(cells) > len(titles):
                yield Wrong(reader.line_num, f"{len(cells)} cells under {len(titles)} titles: quote what holds {_NAMED[separator]}")
                continue
            known = {t: c.strip() for t, c in zip(titles[1:], cells[1:], strict=False) if t in COLUMNS}
            yield Row(reader.line_num, titles[0], cells[0].strip(), known)
    except csv.Error as e:
        yield Wrong(reader.line_num, f"not CSV: {e}")
    if titles is None:
        yield Wrong(1, f"the table is empty; its first line must hold titles, the first of them {_one_of(KINDS)}")


_NAMED = {",": "a comma", ";": "a semicolon", "\t": "a tab"}


def _separated(text: str) -> tuple[str, str]:
    """Return the text without a spreadsheet's "sep=" line, and what stands between cells: what follows the first title."""
    said = re.match(r"sep=([,;\t])\r?\n", text)
    if said:
        return text[said.end() :], said.group(1)
    head = text.lstrip().split("\n", 1)[0]
    first = re.match(r"\"?[^,;\t\"]*\"?([,;\t])", head)
    return text, first.group(1) if first else ","


def _wrong_titles(titles: list[str], line: int) -> Iterator[Wrong]:
    if titles[0] not in KINDS:
        yield Wrong(line, f"the first column is {_quoted(titles[0], KINDS)}; it must be {_one_of(KINDS)}, and nothing of the table is read")
        return
    for n, title in enumerate(titles[1:], 1):
        if title in titles[1:n]:
            yield Wrong(line, f"there are two columns {_quoted(title)}; the last one counts")
        elif title not in COLUMNS:
            yield Wrong(line, f"unknown column {_quoted(title, COLUMNS)}; it is left out")


def _quoted(word: str, known: tuple[str, ...] = ()) -> str:
    """Return a word in quotes, with the known one that it may have meant; not the word where it does not look like a title."""
    if not _WORD.fullmatch(word):
        return "without a title" if not word else "no word"
    near = get_close_matches(word.casefold().replace(" ", "_").replace("-", "_"), known, n=1)
    return f"{word!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def _one_of(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _yaml_rows(text: str) -> Iterator[Row | Wrong]:
    from fleetctl.formats.yaml_source import read_yaml

    document = read_yaml(text)
    for mistake in document.mistakes:
        yield Wrong(mistake.line, mistake.text)
    if document.value is None:
        if not document.mistakes:
            yield Wrong(1, f"the table is empty; it is a mapping of {_one_of(KINDS)} to names")
        return
    if not isinstance(document.value, dict):
        yield Wrong(1, f"a table is a mapping of {_one_of(KINDS)} to names")
        return
    for kind, things in document.value.items():
        if kind not in KINDS:
            yield Wrong(document.line((kind,)), f"a table tells of {_one_of(KINDS)}, not of {_quoted(str(kind), KINDS)}")
        elif not isinstance(things, dict):
            yield Wrong(document.line((kind,)), f"{kind} must be a mapping of names")
        else:
            for id_, values in things.items():
                line = document.line((kind, id_))
                yield Row(line, kind, str(id_), values) if isinstance(values, dict) else Wrong(line, f"{id_} must be a mapping of facts")


def _told(row: Row) -> tuple[list[str], dict[str, Scalar]]:
    """Return what is wrong with a row, and the facts of it that are not."""
    if not row.id:
        return ["the row has no name"], {}
    wrong, told = [], {}
    for name, value in row.values.items():
        if value is None or value == "":
            continue
        if name not in COLUMNS:
            wrong.append(f"unknown column {_quoted(str(name), COLUMNS)}; it is left out")
        elif isinstance(value, (dict, list)) or (isinstance(value, str) and len(value) > MAX_TEXT):
            wrong.append(f"{name} must be one short value")
        elif name in NUMBERS and _number(value) is None:
            comma = ": a point separates decimals" if re.fullmatch(r"\d+,\d+", str(value)) else ""
            wrong.append(f"{name} must be a number of at least 0, not {str(value)[:40]!r}{comma}")
        else:
            told[name] = _value(name, value)
    return wrong, told


def _value(name: str, value: object) -> Scalar:
    if name in NUMBERS:
        return _number(value)
    return value if isinstance(value, bool) else short(str(value))


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    if not math.isfinite(number) or number < 0 or isinstance(value, bool):
        return None
    return int(number) if number.is_integer() else number
