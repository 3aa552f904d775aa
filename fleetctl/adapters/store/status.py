"""See, adapters layer: one light row per cell for a status line, from columns kept beside each rollout. Imports no domain value."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import NamedTuple

from fleetctl.adapters.store.database import NOW_MS, Database

HELD = ("pinning", "pinned", "restoring")
"""States of a pin that is not given back yet, as the domain names them (a test compares)."""


class VerdictNote(NamedTuple):
    """One guardrail's answer at the last look, as short as a status line needs it."""

    guardrail: str
    kind: str
    e_value: float
    fail_bound: float
    pass_e_value: float
    pass_bound: float
    missing: int | None
    detail: str


class StatusRow(NamedTuple):
    """One cell's current rollout.

    Args:
        weight_bp: what the rollout wants the router to show now; want_bp: what its step is for. Both in basis points.
        step: 0-based; until: the last phase it may pass; ended: "" while it goes on.
        served_bp: measured at the last look, None without traffic; looked_at: None before the first look.
        due_in_s: seconds to the next look, negative when overdue; orders: open ones.
        holder: who ticks it at this moment, "" where nobody does.
    """

    cell: str
    plan: str
    phase: str
    step: int
    steps: int
    weight_bp: int
    want_bp: int
    until: str
    direction: str
    ended: str
    paused: bool
    step_done: bool
    hold_reason: str
    attempt: int
    verdicts: tuple[VerdictNote, ...]
    look: str
    looked_at: datetime | None
    served_bp: int | None
    due_in_s: float
    orders: int
    holder: str
    token: int
    updated_at: datetime

    @property
    def verdict(self) -> str:
        """The verdicts in one short line."""
        return ", ".join(f"{v.guardrail} {v.kind}" for v in self.verdicts)


_QUERY = f"""
SELECT r.cell, r.plan, r.phase, r.step, r.steps, r.weight_bp, r.want_bp, r.pass_through, r.direction, r.ended, r.paused, r.step_done,
       r.hold_reason, r.attempt, l.verdicts, l.why, l.at_us, l.served_bp, r.look_at_ms - {NOW_MS},
       (SELECT count(*) FROM wish w WHERE w.cell = r.cell AND w.closed_ms IS NULL),
       CASE WHEN e.until_ms > {NOW_MS} THEN e.holder ELSE '' END, coalesce(e.token, 0), r.updated_ms
FROM rollout r
LEFT JOIN look l ON l.id = (SELECT max(id) FROM look WHERE rollout = r.id)
LEFT JOIN lease e ON e.scope = r.cell
WHERE r.is_current = 1 ORDER BY r.cell
"""  # noqa: S608 - only constants of ours


def status_rows(path: str | os.PathLike[str]) -> tuple[StatusRow, ...]:
    """Return one row per cell with a rollout, by name.

    Raises:
        StoreUnavailable: store.unreachable where there is no store, or it cannot be read.
    """
    db = Database(path, create=False)
    try:
        return read_status(db)
    finally:
        db.close()


def held_pools(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return by cell the pool whose minimum is held for it. Raises StoreUnavailable (store.unreachable)."""
    import json

    db = Database(path, create=False)
    try:
        with db.read() as q:
            pins = [json.loads(body) for (body,) in q.execute("SELECT body FROM value WHERE kind = 'pin'")]
    finally:
        db.close()
    return {c: p["pool"] for p in pins if p["state"] in HELD for c in p["cells"]}


def read_status(db: Database) -> tuple[StatusRow, ...]:
    """Return the rows of an open store."""
    with db.read() as q:
        return tuple(_row(r) for r in q.execute(_QUERY))


def _row(r: tuple[object, ...]) -> StatusRow:
    import json

    values = list(r)
    values[10], values[11] = bool(r[10]), bool(r[11])
    values[14] = tuple(VerdictNote(*v) for v in json.loads(str(r[14]))) if r[14] is not None else ()
    values[15] = r[15] or ""
    values[16] = _instant(r[16], 1e6)
    values[18] = int(str(r[18])) / 1000
    values[20] = r[20] or ""
    values[22] = _instant(r[22], 1e3)
    return StatusRow(*values)  # type: ignore[arg-type]


def _instant(number: object, per_s: float) -> datetime | None:
    return None if number is None else datetime.fromtimestamp(int(str(number)) / per_s, UTC)
