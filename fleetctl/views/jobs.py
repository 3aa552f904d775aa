"""Status, view layer: the jobs of batch cells as a table. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.domain.jobs import JobsRow
from fleetctl.views.columns import counted
from fleetctl.views.output import Column, Table

COLUMNS = (
    Column(title="CELL", shrink=1, middle=True),
    *(Column(title=t, right=True) for t in ("WAITING", "TAKEN", "GOOD", "BAD", "POISON")),
)


def jobs_table(rows: Sequence[JobsRow]) -> Table:
    """Return the jobs of batch cells, with a line for each poison job, and for each cell of which nothing can be told."""
    cells = tuple((str(r.cell), *_numbers(r)) for r in rows)
    foot = [f"{r.cell}: not known: {r.why}" for r in rows if r.why]
    foot += [
        f"poison {r.cell} {job.id}: lost {counted(job.tries, 'time')}, last by the {'target' if job.arm == 'canary' else 'source'}"
        f" at {job.at:%Y-%m-%d %H:%M:%S} UTC"
        for r in rows
        for job in r.poison
    ]
    return Table(columns=COLUMNS, rows=cells, foot=("", *foot) if foot else (), empty="No cell of this fleet stands behind a queue.")


def _numbers(r: JobsRow) -> tuple[str, ...]:
    if r.why:
        return ("?",) * 5
    return tuple("-" if n is None else f"{n:,}" for n in (r.waiting, r.taken, r.good, r.bad, r.dead))
