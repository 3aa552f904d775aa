"""Every step, adapters layer: the looks of a cell, the older ones packed. Nothing of a look is ever lost: packing is exact.

A look is some 2.6 KB of text that differs little from the one before; packed it is some 160 bytes.

Source: tests/unit/test_look_packs.py, which measures both.
"""

from __future__ import annotations

import json
import sqlite3
import zlib

from fleetctl.domain.canonical import canonical
from fleetctl.domain.evidence import LookRow, Verdict

PACK = 512
"""Looks in a pack."""
KEEP = 256
"""Newest looks of a cell that stay as they are, for `status` and the report."""
PAGE = 500
_LEVEL = 6


def add_look(q: sqlite3.Connection, row: LookRow, at_us: int) -> None:
    """Append a look, and pack the cell's older ones when there are enough of them."""
    notes = json.dumps([_note(v) for v in row.verdicts], separators=(",", ":"), allow_nan=False)
    q.execute(
        "INSERT INTO look (cell, rollout, at_us, phase, target_bp, served_bp, verdicts, why, body)"
        " VALUES (?, (SELECT id FROM rollout WHERE cell = ? AND is_current = 1), ?, ?, ?, ?, ?, ?, ?)",
        (row.cell, row.cell, at_us, row.phase, row.target_bp, row.served_bp, notes, row.why, canonical(row).decode()),
    )
    pack_looks(q, row.cell)


def pack_looks(q: sqlite3.Connection, cell: str) -> None:
    """Pack the oldest looks of a cell where more than a pack and the newest ones are there."""
    (count,) = q.execute("SELECT count(*) FROM look WHERE cell = ?", (cell,)).fetchone()
    if count < PACK + KEEP:
        return
    rows = q.execute("SELECT id, at_us, body FROM look WHERE cell = ? ORDER BY at_us, id LIMIT ?", (cell, PACK)).fetchall()
    text = json.dumps([[at, id_, body] for id_, at, body in rows], separators=(",", ":"), ensure_ascii=False)
    q.execute(
        "INSERT INTO look_pack (cell, first_us, last_us, looks, body) VALUES (?, ?, ?, ?, ?)",
        (cell, rows[0][1], rows[-1][1], len(rows), zlib.compress(text.encode(), _LEVEL)),
    )
    q.executemany("DELETE FROM look WHERE id = ?", [(id_,) for id_, _, _ in rows])


def next_looks(q: sqlite3.Connection, cell: str, after: tuple[int, int]) -> list[tuple[int, int, str]]:
    """Return the next looks of a cell after a moment and id, as (at, id, body), oldest first; none where there are no more.

    All within one snapshot, so that looks which are packed meanwhile are neither missed nor told twice.
    """
    packs = q.execute("SELECT body FROM look_pack WHERE cell = ? AND last_us >= ? ORDER BY id", (cell, after[0]))
    for (body,) in packs:
        found = [(at, id_, text) for at, id_, text in json.loads(zlib.decompress(body)) if (at, id_) > after]
        if found:
            return found
    plain = "SELECT at_us, id, body FROM look WHERE cell = ? AND (at_us, id) > (?, ?) ORDER BY at_us, id LIMIT ?"
    return q.execute(plain, (cell, *after, PAGE)).fetchall()


def _note(v: Verdict) -> tuple[str, str, float, float, float, float, int | None, str]:
    return (v.guardrail, v.kind, v.e_value, v.fail_bound, v.pass_e_value, v.pass_bound, v.missing, v.detail)
