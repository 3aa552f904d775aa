"""Inventory, adapter layer: CSV and YAML files that people keep, for what no API shows. Reads those files and nothing else.

CSV: the first column's title says what the rows are about (workload, cell, machine, pool or engine), its values are their names.
YAML: a mapping of such a word to a mapping of names to facts. Unknown columns and broken rows are gaps with file and line.
"""

from __future__ import annotations

import csv
import io
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

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
            text = _read(self._files[part], part)
            rows = _yaml_rows(text, part) if part.endswith((".yaml", ".yml")) else _csv_rows(text)
            source, now = f"{self.name}/{part}", self._now()
            for line, kind, id_, values in rows:
                wrong = _wrong(kind, id_, values)
                if wrong:
                    yield Gap(scope=f"{part}:{line}", reason=wrong, source=self.name, code="inventory.table")
                    continue
                told = {k: _value(k, v) for k, v in values.items() if v is not None and v != ""}
                if told:
                    yield Facts(values={kind: short(id_), **told}, source=source, seen_at=now)


def _read(path: Path, shown: str) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise InventoryFailed("inventory.table", f"{shown} is no regular file.", hint="Name a .csv or .yaml file")
            data = stream.read(MOST_BYTES + 1)
    except OSError as e:
        raise InventoryFailed("inventory.table", f"{shown} cannot be read: {e.strerror}.", hint="Mend the file's name or rights") from e
    if len(data) > MOST_BYTES:
        raise InventoryFailed("inventory.table", f"{shown} is larger than 16 MiB.", hint="Split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise InventoryFailed("inventory.table", f"{shown} is not UTF-8 (byte {e.start}).", hint="Save it as UTF-8") from e


Row = tuple[int, str, str, Mapping[str, object]]


def _csv_rows(text: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    titles: list[str] = []
    try:
        for cells in reader:
            if not any(c.strip() for c in cells):
                continue
            if not titles:
                titles = [c.strip() for c in cells]
                continue
            extra = {"a cell too many": "x"} if len(cells) > len(titles) else {}
            named = {t: c.strip() for t, c in zip(titles[1:], cells[1:], strict=False) if t}
            yield reader.line_num, titles[0], cells[0].strip(), {**named, **extra}
    except csv.Error as e:
        yield reader.line_num, "", "", {"": f"not CSV: {e}"}


def _yaml_rows(text: str, shown: str) -> Iterator[Row]:
    from fleetctl.formats.yaml_source import read_yaml

    document = read_yaml(text)
    for mistake in document.mistakes:
        yield mistake.line, "", "", {"": mistake.text}
    if document.value is None:
        return
    if not isinstance(document.value, dict):
        yield 1, "", "", {"": "a table is a mapping of workload, cell, machine, pool or engine to names"}
        return
    for kind, things in document.value.items():
        if not isinstance(things, dict):
            yield document.line((kind,)), "", "", {"": f"{kind} must be a mapping of names"}
            continue
        for id_, values in things.items():
            line = document.line((kind, id_))
            yield (line, kind, id_, values) if isinstance(values, dict) else (line, "", "", {"": f"{id_} must be a mapping of facts"})


def _wrong(kind: str, id_: str, values: Mapping[str, object]) -> str:
    if not kind and "" in values:
        return str(values[""])
    if kind not in KINDS:
        return f"the first column is {kind[:40]!r}; it must be {', '.join(KINDS)}"
    if not id_:
        return "the row has no name"
    for name, value in values.items():
        if name not in TEXTS and name not in NUMBERS:
            return f"unknown column {name[:40]!r}"
        if isinstance(value, (dict, list)) or (isinstance(value, str) and len(value) > MAX_TEXT):
            return f"{name} must be one short value"
        if name in NUMBERS and value not in (None, "") and _number(value) is None:
            return f"{name} must be a number of at least 0, not {str(value)[:40]!r}"
    return ""


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
