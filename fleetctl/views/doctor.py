"""Doctor, views layer: needs as a table with the command that mends each. Never I/O."""

from __future__ import annotations

from fleetctl.usecases.doctor import Diagnosis
from fleetctl.views.output import Column, Table

COLUMNS = (Column(title="NEED"), Column(title="STATE"), Column(title="FOUND", shrink=True))


def doctor_table(diagnosis: Diagnosis) -> Table:
    """Return the needs as a table; what mends them stands under it, whole."""
    rows = tuple((need.name, need.state, need.detail or "-") for need in diagnosis.needs)
    mends = [f"  {need.name}: {need.mend}" for need in diagnosis.needs if need.mend and need.state in {"warn", "missing"}]
    missing = sum(need.state == "missing" for need in diagnosis.needs)
    warn = sum(need.state == "warn" for need in diagnosis.needs)
    foot = ["", f"{missing} missing, {warn} to look at, {len(rows) - missing - warn} in order or not needed."]
    if mends:
        foot += ["To mend:", *mends]
    return Table(columns=COLUMNS, rows=rows, foot=tuple(foot))


def doctor_names(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the lines of `-o name`: needs that are missing."""
    return tuple(f"need/{need.name}" for need in diagnosis.needs if need.state == "missing")
