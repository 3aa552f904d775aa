"""Inventory, adapter layer: the last looks at all sources, in one SQLite file of the workspace (0600). Never the store of record.

Facts of a part are one compressed block; a part that was not asked again points to the block of the look before. Losing the file costs a
new scan and nothing else.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.scan import PartScan, Scan
from fleetctl.errors import StoreUnavailable

KEPT = 10
"""Looks that are kept; older ones go."""
FORMAT = 1

_SCHEMA = """
create table if not exists scans (number integer primary key, at text not null) strict;
create table if not exists blocks (id integer primary key, facts blob not null) strict;
create table if not exists parts (
    scan integer not null references scans(number) on delete cascade, source text not null, part text not null, at text not null,
    seconds real not null, gaps text not null, reused integer not null, kept_from text, block integer not null references blocks(id),
    primary key (scan, source, part)
) strict;
"""


class ScanFile:
    """`ScanRecords` in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks: dict[tuple[str, str, str], int] = {}

    def newest(self, back: int = 0) -> Scan | None:
        """Return the newest look, or the one that many before it; None where there is none."""
        if not self._path.exists():
            return None
        with self._open() as db:
            row = db.execute("select number, at from scans order by number desc limit 1 offset ?", (back,)).fetchone()
            if row is None:
                return None
            parts = db.execute(
                "select source, part, at, seconds, gaps, reused, kept_from, block, facts from parts join blocks on blocks.id = block "
                "where scan = ? order by source, part",
                (row[0],),
            )
            return Scan(number=row[0], at=_time(row[1]), parts=tuple(self._part(p) for p in parts))

    def save(self, scan: Scan) -> Scan:
        """Keep a look and return it with its number."""
        with self._open() as db:
            number = db.execute("select coalesce(max(number), 0) + 1 from scans").fetchone()[0]
            db.execute("insert into scans values (?, ?)", (number, scan.at.isoformat()))
            for part in scan.parts:
                block = self._blocks.get((part.source, part.part, part.at.isoformat())) if part.reused else None
                if block is None:
                    block = db.execute("insert into blocks (facts) values (?)", (_packed(part.facts),)).lastrowid
                gaps = json.dumps([[g.scope, g.reason, g.source, g.code, g.mend] for g in part.gaps])
                kept = part.kept_from.isoformat() if part.kept_from else None
                row = (number, part.source, part.part, part.at.isoformat(), part.seconds, gaps, int(part.reused), kept, block)
                db.execute("insert into parts values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            db.execute("delete from scans where number <= ?", (number - KEPT,))
            db.execute("delete from blocks where id not in (select block from parts)")
        return replace(scan, number=number)

    def _part(self, row: Sequence[object]) -> PartScan:
        source, part, at, seconds, gaps, reused, kept, block, facts = row
        self._blocks[str(source), str(part), str(at)] = int(str(block))
        return PartScan(
            source=str(source),
            part=str(part),
            at=_time(at),
            seconds=float(str(seconds)),
            facts=tuple(_unpacked(facts)),
            gaps=tuple(Gap(scope=g[0], reason=g[1], source=g[2], code=g[3], mend=g[4]) for g in json.loads(str(gaps))),
            reused=bool(reused),
            kept_from=_time(kept) if kept else None,
        )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            db = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        except (OSError, sqlite3.Error) as e:
            raise StoreUnavailable("store.scans", f"the scans cannot be kept in {self._path}: {e}.", hint="Run: fleetctl doctor") from e
        try:
            db.executescript("pragma foreign_keys = on;" + _SCHEMA)
            if db.execute("pragma user_version").fetchone()[0] not in (0, FORMAT):
                text = f"{self._path} is of a newer release."
                raise StoreUnavailable("store.scans", text, hint=f"Run: rm {self._path} (it costs a new scan)")
            db.execute(f"pragma user_version = {FORMAT}")
            db.execute("begin immediate")
            yield db
            db.execute("commit")
        except (sqlite3.Error, ValueError, zlib.error) as e:
            hint = f"Run: rm {self._path} (it costs a new scan)"
            raise StoreUnavailable("store.scans", f"the scans in {self._path} cannot be used: {e}.", hint=hint) from e
        finally:
            db.close()


def _packed(facts: tuple[Facts, ...]) -> bytes:
    rows: list[list[object]] = []
    last: tuple[str, str] | None = None
    for f in facts:
        head = (f.source, f.seen_at.isoformat())
        rows.append([f.values] if head == last else [f.values, *head])  # most facts of a part share source and moment
        last = head
    return zlib.compress(json.dumps(rows, separators=(",", ":"), default=dict).encode("utf-8", "replace"), 1)


def _unpacked(data: object) -> Iterator[Facts]:
    if not isinstance(data, bytes):
        raise ValueError("a block of facts is not bytes")
    source, at = "", datetime.min
    for row in json.loads(zlib.decompress(data)):
        if len(row) == 3:
            source, at = row[1], _time(row[2])
        yield Facts(values=row[0], source=source, seen_at=at)


def _time(text: object) -> datetime:
    return datetime.fromisoformat(str(text))
