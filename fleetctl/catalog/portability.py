"""Assess, catalogue layer: reads the shipped rules, packages and CUDA names into domain values. Never a network call.

The table of names is made of HIPIFY's tables (MIT, notice in data/NOTICE.hipify); a table of the user's own, made from a HIPIFY
checkout, takes its place where one is given.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import cast, get_args

from fleetctl.domain.plan import Grade, Route
from fleetctl.domain.portability import ApiName, PackageRule, Rule, RuleBook
from fleetctl.errors import ConfigInvalid

RULE_FILE, PACKAGE_FILE, NAME_FILE, LATER_FILE = "rules.csv", "packages.csv", "hip_api.csv", "hip_later.csv"
NAMES_FROM = "HIPIFY of ROCm 7.0, 2025-07-23; NCCL names of librccl 5.4.3"
NAMES_AS_OF = "2025-07-23"
"""Source: the commit date of the tables that hip_api.csv was made of."""
FROM_MARK = "# from:"
"""First line of an imported table: `# from: <what it was made of>, <ISO date>`."""
NAME_COLUMNS = ("lib", "kind", "cuda_name", "hip_name", "hip_added", "status")


@cache
def load_rule_book(names_file: Path | None = None) -> RuleBook:
    """Return the shipped rules.

    Args:
        names_file: a table of CUDA names to use instead of the shipped one.

    Raises:
        ConfigInvalid: catalog.rules, with every bad row as `file:line: text`; catalog.names for a bad table of names.
    """
    faults: list[str] = []
    folder = files("fleetctl.catalog") / "data"
    rules = _rules((folder / RULE_FILE).read_text("utf-8").splitlines(), faults)
    packages = _packages((folder / PACKAGE_FILE).read_text("utf-8").splitlines(), faults)
    if faults:
        raise ConfigInvalid("catalog.rules", f"The rules have {len(faults)} bad rows.", hint="Reinstall fleetctl.", details=tuple(faults))
    made_from, as_of = NAMES_FROM, NAMES_AS_OF
    if names_file is None:
        text = (folder / NAME_FILE).read_text("utf-8")
    else:
        text = names_file.read_text("utf-8")
        head = text.partition("\n")[0]
        if head.startswith(FROM_MARK):
            made_from = head.removeprefix(FROM_MARK).strip()
            as_of = made_from.rpartition(", ")[2]
            text = text.partition("\n")[2]
    later = parse_names((folder / LATER_FILE).read_text("utf-8").splitlines())  # what HIP's headers have and HIPIFY's tables lack
    names = later | parse_names(text.splitlines())
    return RuleBook(rules=rules, packages=packages, names=names, names_from=made_from, names_as_of=as_of)


def shipped_names() -> str:
    """Return the text of the shipped table of CUDA names."""
    return (files("fleetctl.catalog") / "data" / NAME_FILE).read_text("utf-8")


def parse_names(lines: Iterable[str]) -> dict[str, ApiName]:
    """Build the look-up of CUDA names from CSV lines.

    Raises:
        ConfigInvalid: catalog.names: a column is missing.
    """
    reader = csv.reader(lines)
    head = next(reader, [])
    if any(c not in head for c in NAME_COLUMNS):
        raise ConfigInvalid(
            "catalog.names", "The table of CUDA names lacks a column.", hint="Run: fleetctl assess --import-names HIPIFY_CHECKOUT"
        )
    at = [head.index(c) for c in NAME_COLUMNS]
    names: dict[str, ApiName] = {}
    for row in reader:
        if len(row) >= len(head):
            lib, kind, name, hip, added, status = (row[i] for i in at)
            names[name] = ApiName(status, hip, lib, kind, added)
    return names


def _rules(lines: list[str], faults: list[str]) -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for number, row in enumerate(csv.DictReader(lines), start=2):
        place = f"{RULE_FILE}:{number}"
        if row["grade"] not in get_args(Grade) or (row["least"] and row["least"] not in get_args(Route)) or row["id"] in found:
            faults.append(f"{place}: {row['id']}: unknown grade or route, or a second row")
            continue
        if not row["evidence"] or not row["as_of"]:
            faults.append(f"{place}: {row['id']} has no evidence or date")
        try:
            re.compile(row["pattern"])
        except re.error as e:
            faults.append(f"{place}: {row['id']}: {e}")
            continue
        found[row["id"]] = Rule(
            id=row["id"],
            kind=row["kind"],
            grade=cast(Grade, row["grade"]),
            least=cast(Route, row["least"]),
            signal=row["signal"],
            effect=row["effect"],
            why=row["why"],
            evidence=row["evidence"],
            as_of=row["as_of"],
            since=row["since"],
            until=row["until"],
            scopes=tuple(row["scopes"].split()),
            triggers=tuple(row["triggers"].split()),
            pattern=row["pattern"],
            mode="code" if row["mode"] == "code" else "text",
        )
    return found


def _packages(lines: list[str], faults: list[str]) -> tuple[PackageRule, ...]:
    found: list[PackageRule] = []
    for number, row in enumerate(csv.DictReader(lines), start=2):
        if not row["names"] or not row["evidence"] or not row["as_of"]:
            faults.append(f"{PACKAGE_FILE}:{number}: {row['id']} has no name, evidence or date")
            continue
        found.append(
            PackageRule(
                id=row["id"],
                names=tuple(row["names"].split()),
                imports=tuple(row["imports"].split()),
                status=row["status"],
                move=row["move"],
                action=row["action"],
                evidence=row["evidence"],
                as_of=row["as_of"],
                since=row["since"],
                until=row["until"],
                replaced_by=tuple(row["replaced_by"].split()),
            )
        )
    return tuple(found)
