"""Doctor, views layer: needs as a table with the command that mends each. Never I/O."""

from __future__ import annotations

from fleetctl.usecases.doctor import Diagnosis
from fleetctl.views.output import Column, Table, clean

COLUMNS = (Column(title="NEED"), Column(title="STATE"), Column(title="FOUND", shrink=1))


def doctor_table(diagnosis: Diagnosis) -> Table:
    """Return the needs as a table; what mends them stands under it, whole."""
    rows = tuple((need.name, need.state, need.detail or "-") for need in diagnosis.needs)
    wrong = [need for need in diagnosis.needs if need.state in {"warn", "missing"}]
    mends = [line for need in wrong for line in _mend(need.name, need.detail, need.mend)]
    missing = sum(need.state == "missing" for need in diagnosis.needs)
    warn = sum(need.state == "warn" for need in diagnosis.needs)
    foot = ["", f"{missing} missing, {warn} to look at, {len(rows) - missing - warn} in order or not needed."]
    if mends:
        foot += ["To mend:", *mends]
    return Table(columns=COLUMNS, rows=rows, foot=tuple(foot))


def _mend(name: str, detail: str, mend: str) -> tuple[str, ...]:
    first = f"  {clean(name)}: {clean(detail)}"
    return (first, f"      {clean(mend)}") if mend else (first,)


def doctor_names(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the lines of `-o name`: needs that are missing."""
    return tuple(f"need/{need.name}" for need in diagnosis.needs if need.state == "missing")
