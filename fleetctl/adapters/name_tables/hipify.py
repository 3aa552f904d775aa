"""Assess, adapter layer: HIPIFY's Markdown tables (11 to 18 columns) into our table of names. Never trusts a cell: names are checked.

Columns are found by their titles, since newer tables have one more (U: unsupported for some CUDA versions): CUDA, A(dded), D(eprecated),
C(hanged), R(emoved), then the same for HIP and for the ROCm library, then E(xperimental).
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.catalog.portability import FROM_MARK, NAME_COLUMNS, parse_names
from fleetctl.errors import ConfigInvalid

MOST_TABLE = 16 * 2**20
_FILE = re.compile(r"(?P<lib>\w+?)_API(?:_functions)?_supported_by_(?P<by>HIP_and_ROC|HIP_and_MIOPEN|HIP|ROC|MIOPEN)\.md\Z")
_NAME = re.compile(r"[A-Za-z_][\w:]{0,120}(?:<\w{0,20}>)?\Z")
_VERSION = re.compile(r"\d+(?:\.\d+){0,3}\Z")
_HEADING = re.compile(r"##\s+\**[\d.]+\s*(.*?)\**\s*\Z")
_LIBS = {
    "CUDA_Runtime": "runtime",
    "CUDA_Driver": "driver",
    "CUDA_Device": "device",
    "CUDA_RTC": "nvrtc",
    "CUCOMPLEX": "cucomplex",
    "CUFILE": "cufile",
}
_ORDER = ("MIOPEN", "HIP_and_ROC", "HIP_and_MIOPEN", "HIP", "ROC")
"""cuDNN's names count as MIOpen's, as in the shipped table: hipDNN has left HIPIFY's defaults with ROCm 7.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedNames:
    """What an import made."""

    path: Path
    rows: int
    tables: int
    new: int


def import_names(checkout: Path, into: Path, shipped: str) -> ImportedNames:
    """Write a table of names from a checkout; libraries that it does not cover are kept from the shipped one.

    Args:
        shipped: the text of the shipped table.

    Raises:
        ConfigInvalid: catalog.no_tables: the folder holds none of HIPIFY's tables.
    """
    tables = _tables(checkout)
    rows: dict[str, dict[str, str]] = {}
    newest: tuple[int, ...] = (0,)
    changed = 0.0
    for lib, path in tables:
        changed = max(changed, path.stat().st_mtime)
        for row in _rows(lib, path):
            kept = rows.setdefault(row["cuda_name"], row)
            if kept is not row and not kept["hip_name"] and row["hip_name"]:
                rows[row["cuda_name"]] = row
            newest = max(newest, tuple(int(p) for p in row["hip_added"].split(".") if p.isdigit()) or (0,))
    if len(rows) < 10:
        raise ConfigInvalid(
            "catalog.no_tables", f"{checkout} holds none of HIPIFY's tables.", hint="Name a checkout with docs/reference/tables"
        )
    known = parse_names(shipped.splitlines())
    libs = {r["lib"] for r in rows.values()}
    for name, api in known.items():
        if name not in rows and api.lib not in libs:
            values = (api.lib, api.kind, name, api.hip_name, api.hip_added, api.status)
            rows[name] = dict(zip(NAME_COLUMNS, values, strict=True))
    made_from = f"HIPIFY checkout with names up to HIP {'.'.join(map(str, newest))}, {datetime.fromtimestamp(changed, UTC):%Y-%m-%d}"
    _write(into, made_from, rows)
    return ImportedNames(path=into, rows=len(rows), tables=len(tables), new=len(rows.keys() - known.keys()))


def _write(into: Path, made_from: str, rows: dict[str, dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, NAME_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[name] for name in sorted(rows))
    into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = into.with_suffix(".part")
    part.write_text(f"{FROM_MARK} {made_from}\n{text.getvalue()}", encoding="utf-8")
    os.replace(part, into)


def _tables(checkout: Path) -> list[tuple[str, Path]]:
    """Return the tables of a checkout, the most telling of each library first."""
    found: list[tuple[int, str, Path]] = []
    for folder in (checkout / "docs" / "reference" / "tables", checkout / "docs" / "tables", checkout):
        if folder.is_dir():
            for path in sorted(folder.glob("*_supported_by_*.md")):
                match = _FILE.match(path.name)
                if match and path.is_file() and not path.is_symlink():
                    lib = match.group("lib")
                    found.append((_ORDER.index(match.group("by")), _LIBS.get(lib, _LIBS.get(lib.upper(), lib.lower())), path))
            break
    return [(lib, path) for _, lib, path in sorted(found, key=lambda f: (f[0], f[2].name))]


def _rows(lib: str, path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        text = stream.read(MOST_TABLE)
    section, columns = "", {}
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            section = heading.group(1)
        if not line.startswith("|"):
            continue
        cells = [c.strip().strip("`*").strip() for c in line.strip().strip("|").split("|")]
        if cells and cells[0] == "CUDA":
            columns = _columns(cells)
        elif columns and len(cells) > columns["last"] and _NAME.match(cells[0]):
            yield _row(lib, section, cells, columns)


def _columns(titles: list[str]) -> dict[str, int]:
    """Return where what stands: the second library's A, D, R and E follow its title."""
    found = {"last": len(titles) - 1}
    owner = "CUDA"
    for i, title in enumerate(titles):
        if title in {"HIP", "ROC", "MIOPEN"}:
            owner = "HIP" if title == "HIP" or (title == "MIOPEN" and "HIP" not in titles) else "ROC"
            found[owner] = i
        elif i and len(title) == 1:
            found[f"{owner}.{title}"] = i
    return found


def _row(lib: str, section: str, cells: list[str], columns: dict[str, int]) -> dict[str, str]:
    def cell(key: str) -> str:
        at = columns.get(key)
        return "" if at is None else cells[at]

    hip = cell("HIP") if _NAME.match(cell("HIP")) else ""
    roc = cell("ROC") if _NAME.match(cell("ROC")) else ""
    added = cell("HIP.A") if _VERSION.match(cell("HIP.A")) else ""
    if hip and cell("HIP.R"):
        status = "removed"
    elif hip:
        status = "experimental" if cell("HIP.E") else "deprecated" if cell("HIP.D") else "supported"
    else:
        status = "roc_only" if roc else "unsupported"
    name = cells[0]
    is_type = "type" in section.lower() and "function" not in section.lower()
    kind = ("macro" if name.upper() == name else "type") if is_type or name.upper() == name else "function"
    return dict(zip(NAME_COLUMNS, (lib, kind, name, hip, added, status), strict=True))
