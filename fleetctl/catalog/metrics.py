"""Evidence, catalogue layer: reads the mapping table of metric names into domain rows. Never a network call, never a guessed name."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from fleetctl.domain.metrics import SYSTEMS, Family, MetricTable, parse_roles
from fleetctl.errors import ConfigInvalid

FILE = "metric_names.csv"
KINDS = ("counter", "gauge", "histogram", "summary", "prefix", "rule", "sentinel")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


@cache
def load_metrics() -> MetricTable:
    """Return the shipped table.

    Raises:
        ConfigInvalid: catalog.metrics, with every bad row as `file:line: text`.
    """
    return parse_metrics((files("fleetctl.catalog") / "data" / FILE).read_text("utf-8").splitlines())


def parse_metrics(lines: Iterable[str]) -> MetricTable:
    """Build the table from CSV lines.

    Raises:
        ConfigInvalid: catalog.metrics: an unknown system, kind or role, a factor that is no number above 0, bounds that do not ascend, no
            source or date, the same family twice for one version.
    """
    found: list[Family] = []
    faults: list[str] = []
    for line, row in enumerate(csv.DictReader(lines), start=2):
        try:
            found.append(_family(row))
        except (ValueError, KeyError, TypeError, re.error) as e:
            faults.append(f"{FILE}:{line}: {e}")
    seen: set[tuple[str, str, str]] = set()
    for f in found:
        key = (f.system, f.name, f.since + "/" + f.until)
        if key in seen:
            faults.append(f"{FILE}: {f.system} {f.name} stands twice for one version")
        seen.add(key)
    if faults or not found:
        raise ConfigInvalid(
            "catalog.metrics", f"The table of metric names has {len(faults)} bad rows.", hint="Reinstall fleetctl.", details=tuple(faults)
        )
    return MetricTable(found)


def _family(row: dict[str, str]) -> Family:
    bounds = tuple(float(b) for b in row["buckets"].split(";") if b)
    factor = float(row["factor"])
    wrong = (
        (row["system"] not in SYSTEMS, f"{row['system']!r} is no system"),
        (row["type"] not in KINDS, f"{row['type']!r} is no kind of metric"),
        (not 0 < factor < 1e12, f"the factor {row['factor']!r} is no number above 0"),
        (list(bounds) != sorted(set(bounds)), "the bounds do not ascend"),
        (not row["source"] or not _DATE.match(row["as_of"]), "no source or date"),
        (not row["name"], "no name"),
    )
    for is_wrong, why in wrong:
        if is_wrong:
            raise ValueError(why)
    return Family(
        system=row["system"],
        name=row["name"],
        kind=row["type"],
        unit=row["unit"],
        factor=factor,
        roles=parse_roles(row["roles"]),
        since=row["since"],
        until=row["until"],
        labels=tuple(filter(None, row["labels"].split(";"))),
        statistic=row["statistic"],
        rank=int(row["rank"]),
        bounds=bounds,
        meaning=row["meaning"],
        source=row["source"],
        as_of=row["as_of"],
    )
