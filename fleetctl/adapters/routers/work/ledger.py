"""Traffic, adapter layer: a queue in one SQLite file that splits itself: jobs, who took them, and what came of them. Never runs a job.

A job belongs to a side by its bucket, hash(key) mod 10,000, as a request does. Which side may take it is decided in the transaction that
takes it, by the share that stands then: so no job is taken for the target after a share of 0 was written. A job whose consumer neither
finished it nor renewed its hold in time is free again; what comes of it is taken once, from whoever holds it. A try that was lost so is a
failure of the side that had it, once per job and side: so consumers that die on the target show, and a poison job that nobody survives
counts once. What the target lost is the source's from then on, as long as the source takes any, and is not dead before the source has
tried it too. One that has been tried too often is dead. The file is one machine's: SQLite's locks hold on a local disk alone.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.filesystems import network_filesystem
from fleetctl.adapters.routers.marks import Mark
from fleetctl.adapters.routers.work.board import Posted
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.jobs import PoisonJob
from fleetctl.domain.split import Served
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import TrafficNotApplied

BUSY_S = 4.0
ASK_S = (0.001, 0.004)
"""How long a call waits for others that write, and how often it asks whether they are done."""
_TABLES = """
CREATE TABLE IF NOT EXISTS splits (cell TEXT PRIMARY KEY, bp INTEGER NOT NULL, cap_bp INTEGER NOT NULL, token INTEGER NOT NULL,
  lease_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (id TEXT NOT NULL, cell TEXT NOT NULL, bucket INTEGER NOT NULL, body BLOB NOT NULL, state TEXT NOT NULL,
  arm TEXT NOT NULL DEFAULT '', worker TEXT NOT NULL DEFAULT '', taken_ms INTEGER NOT NULL DEFAULT 0, until_ms INTEGER NOT NULL DEFAULT 0,
  tries INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER NOT NULL DEFAULT 0, ok INTEGER NOT NULL DEFAULT 0, told INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (cell, id));
CREATE INDEX IF NOT EXISTS jobs_in_order ON jobs (cell, state);
CREATE INDEX IF NOT EXISTS jobs_untold ON jobs (state) WHERE told = 0;
CREATE TABLE IF NOT EXISTS lost (cell TEXT NOT NULL, id TEXT NOT NULL, arm TEXT NOT NULL, taken_ms INTEGER NOT NULL,
  until_ms INTEGER NOT NULL, told INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (cell, id, arm));
CREATE TABLE IF NOT EXISTS takes (cell TEXT NOT NULL, arm TEXT NOT NULL, at_ms INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS takes_at ON takes (cell, at_ms);
CREATE TABLE IF NOT EXISTS holds (cell TEXT NOT NULL, id TEXT NOT NULL, tries INTEGER NOT NULL, arm TEXT NOT NULL,
  taken_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL, PRIMARY KEY (cell, id));
CREATE INDEX IF NOT EXISTS holds_until ON holds (cell, until_ms);
"""

_LOST = "EXISTS (SELECT 1 FROM lost WHERE lost.cell = jobs.cell AND lost.id = jobs.id AND lost.arm = '{}')"
_SIDE = {"canary": f"bucket < ? AND NOT {_LOST.format('canary')}", "baseline": f"(bucket >= ? OR {_LOST.format('canary')})"}
_REVIVE = f"UPDATE jobs SET state = 'waiting' WHERE cell = ? AND state = 'dead' AND arm = 'canary' AND NOT {_LOST.format('baseline')}"  # noqa: S608
"""What a side may take while both take any, and what only the target has lost, however often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that a consumer holds.

    Args:
        claim: proves who holds it; until: after this instant it is free again, unless its hold was renewed.
    """

    id: str
    cell: CellId
    body: bytes
    arm: Arm
    claim: str
    until: Instant


Hand = Literal["given", "held", "ended", "dead"]
"""What a consumer may do with a job of another queue: work at it; leave it, another works at it or is to; nothing, its result is known;
leave it, it was tried too often."""


def bucket_of(key: str) -> int:
    """Return the bucket of a job's key, 0 to 9,999; the same for ever."""
    return zlib.crc32(key.encode()) % FULL_BP


class Ledger:
    """One file of work.

    Args:
        path: of the SQLite file, made where it is missing (0600).
        log: file to which the end of each job is written as a line of JSON, as a router's log is: the evidence. None: nobody reads it.
        hold_s: how long a consumer may hold a job without renewing; most_tries: after so many that were lost a job is dead.

    Raises:
        TrafficNotApplied: traffic.router_down, the file lies on a network file system or cannot be used.
    """

    compares: Literal["target", "single_writer"] = "target"
    keeps_change = False

    def __init__(
        self,
        path: Path,
        *,
        log: Path | None = None,
        hold_s: float = 300.0,
        most_tries: int = 3,
        now: Callable[[], Instant] = lambda: datetime.now(UTC),
    ) -> None:
        self._path, self._log = path, log
        self._hold_ms, self._most_tries = round(hold_s * 1_000), most_tries
        self._now = now
        if (kind := network_filesystem(str(path))) is not None:
            text = f"the queue {path} cannot be used: it lies on a network file system ({kind}), where SQLite's locks cannot be trusted."
            raise TrafficNotApplied("traffic.router_down", text, hint="Keep it on a local disk, its consumers on that machine.")
        with self._open() as db:
            db.executescript(_TABLES)
        self._tell_if_possible()

    # the board ------------------------------------------------------------------------------------------------------------------

    def add_cell(self, c: CellId) -> None:
        """Let a cell be split, everything on the source; does nothing where it is already."""
        with self._open() as db:
            db.execute("INSERT OR IGNORE INTO splits VALUES (?, 0, 0, 0, 0)", (c,))

    def read(self, c: CellId, deadline: Deadline | None = None) -> Posted:
        """Return what stands. Raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell)."""
        with self._open(deadline) as db:
            row = db.execute("SELECT bp, cap_bp, token, lease_ms FROM splits WHERE cell = ?", (c,)).fetchone()
        if row is None:
            raise TrafficNotApplied("traffic.unknown_cell", f"the queue {self._path} has no cell {c}.", hint="Run: fleetctl inventory")
        return Posted(bp=row[0], mark=Mark(cap_bp=row[1], token=row[2], lease_ms=row[3]))

    def post(self, c: CellId, floor: int, new: Posted, deadline: Deadline | None = None) -> bool:
        """Write it where the token that stands is `floor`, in one transaction."""
        with self._open(deadline) as db:
            done = db.execute(
                "UPDATE splits SET bp = ?, cap_bp = ?, token = ?, lease_ms = ? WHERE cell = ? AND token = ?",
                (new.bp, new.mark.cap_bp, new.mark.token, new.mark.lease_ms, c, floor),
            )
            return done.rowcount == 1

    def fence(self, c: CellId, floor: int, token: int, deadline: Deadline | None = None) -> bool:
        """Write the token alone where the one that stands is `floor`, in one transaction."""
        with self._open(deadline) as db:
            return db.execute("UPDATE splits SET token = ? WHERE cell = ? AND token = ?", (token, c, floor)).rowcount == 1

    def taken(self, c: CellId, since: Instant, deadline: Deadline | None = None) -> Served:
        """Count jobs that were begun since then, by the side that took them."""
        with self._open(deadline) as db:
            rows = db.execute(
                "SELECT arm, count(*), max(at_ms) FROM takes WHERE cell = ? AND at_ms >= ? GROUP BY arm", (c, _ms(since))
            ).fetchall()
        counts = {arm: (n, last) for arm, n, last in rows}
        canary, last = counts.get("canary", (0, 0))
        return Served(
            baseline=counts.get("baseline", (0, 0))[0],
            canary=canary,
            last_canary_start=datetime.fromtimestamp(last / 1_000, UTC) if canary else None,
        )

    def open_jobs(self, c: CellId, deadline: Deadline | None = None, *, on_target: bool) -> int:
        """Count the jobs that a side is working at."""
        with self._open(deadline) as db:
            found = db.execute(
                "SELECT count(*) FROM jobs WHERE cell = ? AND state = 'taken' AND arm = ?", (c, "canary" if on_target else "baseline")
            ).fetchone()
        return int(found[0])

    def held(self, c: CellId, deadline: Deadline | None = None, *, on_target: bool) -> int:
        """Count the jobs of another queue that a side's consumers hold."""
        with self._open(deadline) as db:
            found = db.execute(
                "SELECT count(*) FROM holds WHERE cell = ? AND arm = ? AND until_ms > ?",
                (c, "canary" if on_target else "baseline", _ms(self._now())),
            ).fetchone()
        return int(found[0])

    # the work -------------------------------------------------------------------------------------------------------------------

    def put(self, c: CellId, id_: str, body: bytes, key: str = "") -> bool:
        """Add a job; False where its id is there already. `key`: what keeps jobs together on one side, else the id."""
        with self._open() as db:
            done = db.execute(
                "INSERT OR IGNORE INTO jobs (id, cell, bucket, body, state) VALUES (?, ?, ?, ?, 'waiting')",
                (id_, c, bucket_of(key or id_), body),
            )
            return done.rowcount == 1

    def take(self, c: CellId, arm: Arm, worker: str) -> Job | None:
        """Give the oldest job that this side may take now, held for its worker; None where there is none.

        Raises:
            TrafficNotApplied: traffic.router_down where the file cannot be read in time.
        """
        now = _ms(self._now())
        with self._open() as db:
            self._free(db, c, now)
            bp = (db.execute("SELECT bp FROM splits WHERE cell = ?", (c,)).fetchone() or (0,))[0]
            bp = bp if isinstance(bp, int) else 0
            is_closed = bp == (0 if arm == "canary" else FULL_BP)  # a side without a share looks at no job
            if arm == "baseline" and not is_closed:
                db.execute(_REVIVE, (c,))
            side = "bucket < ?" if bp == FULL_BP else _SIDE[arm]
            wanted = f"SELECT id, body, tries FROM jobs WHERE cell = ? AND state = 'waiting' AND {side} ORDER BY rowid LIMIT 1"  # noqa: S608
            row = None if is_closed else db.execute(wanted, (c, bp)).fetchone()
            if row is None:
                return None
            until = now + self._hold_ms
            claim = f"{worker}#{row[2] + 1}"
            db.execute(
                "UPDATE jobs SET state = 'taken', arm = ?, worker = ?, taken_ms = ?, until_ms = ?, tries = tries + 1"
                " WHERE cell = ? AND id = ?",
                (arm, claim, now, until, c, row[0]),
            )
            db.execute("INSERT INTO takes VALUES (?, ?, ?)", (c, arm, now))
        return Job(id=row[0], cell=c, body=row[1], arm=arm, claim=claim, until=datetime.fromtimestamp(until / 1_000, UTC))

    def renew(self, job: Job) -> bool:
        """Hold a job for `hold_s` from now on, call it well before a hold ends; False where its consumer no longer holds it: stop then.

        Raises:
            TrafficNotApplied: traffic.router_down.
        """
        now = _ms(self._now())
        with self._open() as db:
            done = db.execute(
                "UPDATE jobs SET until_ms = ? WHERE cell = ? AND id = ? AND state = 'taken' AND worker = ? AND until_ms > ?",
                (now + self._hold_ms, job.cell, job.id, job.claim, now),
            )
            return done.rowcount == 1

    def finish(self, job: Job, *, ok: bool) -> bool:
        """Take what came of a job; False where its consumer no longer holds it (then it was or will be done by another)."""
        now = _ms(self._now())
        with self._open() as db:
            done = db.execute(
                "UPDATE jobs SET state = 'ended', ended_ms = ?, ok = ?"
                " WHERE cell = ? AND id = ? AND state = 'taken' AND worker = ? AND until_ms > ?",
                (now, int(ok), job.cell, job.id, job.claim, now),
            )
            counted = done.rowcount == 1
        if counted:
            self._tell_if_possible()
        return counted

    def note(self, c: CellId, id_: str, arm: Arm, *, ok: bool, taken: Instant) -> bool:
        """Take what came of a job of another queue; False where that is known already: then it does not count again."""
        row = (id_, c, bucket_of(id_), arm, _ms(taken), _ms(self._now()), int(ok))
        with self._open() as db:
            done = db.execute(
                "INSERT OR IGNORE INTO jobs (id, cell, bucket, body, state, arm, taken_ms, ended_ms, ok)"
                " VALUES (?, ?, ?, x'', 'ended', ?, ?, ?, ?)",
                row,
            )
            db.execute("DELETE FROM holds WHERE cell = ? AND id = ?", (c, id_))
            counted = done.rowcount == 1
        if counted:
            self._tell_if_possible()
        return counted

    def hand(self, c: CellId, id_: str, arm: Arm, taken: Instant, *, hold_s: float, most_tries: int, is_alone: bool = False) -> Hand:
        """Hand a job of another queue to a consumer, held for `hold_s` unless renewed; one lost `most_tries` times is never handed again.

        Args:
            is_alone: the other side takes nothing; else what the target lost is the source's.

        Raises:
            TrafficNotApplied: traffic.router_down; then it was not handed out.
        """
        now = _ms(self._now())
        with self._open() as db:
            lost = _lapse(db, c, now)
            found = _hand(db, c, id_, arm, now, most_tries, is_alone=is_alone)
            if found == "given":
                db.execute(
                    "INSERT INTO holds (cell, id, tries, arm, taken_ms, until_ms) VALUES (?, ?, 1, ?, ?, ?) ON CONFLICT (cell, id)"
                    " DO UPDATE SET tries = tries + 1, arm = excluded.arm, taken_ms = excluded.taken_ms, until_ms = excluded.until_ms",
                    (c, id_, arm, _ms(taken), now + round(hold_s * 1_000)),
                )
        if lost:
            self._tell_if_possible()
        return found

    def hold(self, c: CellId, id_: str, taken: Instant, *, hold_s: float) -> bool:
        """Hold a job of another queue for `hold_s` from now on; False where the one who took it then no longer holds it.

        Raises:
            TrafficNotApplied: traffic.router_down.
        """
        now = _ms(self._now())
        with self._open() as db:
            done = db.execute(
                "UPDATE holds SET until_ms = ? WHERE cell = ? AND id = ? AND taken_ms = ? AND until_ms > ?",
                (now + round(hold_s * 1_000), c, id_, _ms(taken), now),
            )
            return done.rowcount == 1

    def lapse(self, c: CellId) -> None:
        """Count the tries at jobs of another queue that were lost since, also of those that never come again; raises TrafficNotApplied."""
        with self._open() as db:
            lost = _lapse(db, c, _ms(self._now()))
        if lost:
            self._tell_if_possible()

    def counts(self, c: CellId) -> dict[str, int]:
        """Return how many jobs wait, are taken, have ended well or badly, and are dead."""
        with self._open() as db:
            self._free(db, c, _ms(self._now()))
            rows = db.execute("SELECT state, ok, count(*) FROM jobs WHERE cell = ? GROUP BY state, ok", (c,)).fetchall()
        found = dict.fromkeys(("waiting", "taken", "good", "bad", "dead"), 0)
        for state, ok, n in rows:
            found[("good" if ok else "bad") if state == "ended" else state] += n
        return found

    def dead(self, c: CellId, most: int = 1_000) -> tuple[PoisonJob, ...]:
        """Return the jobs that were lost too often to be tried again, the newest first, at most `most`."""
        with self._open() as db:
            self._free(db, c, _ms(self._now()))
            rows = db.execute(
                "SELECT id, arm, tries, ended_ms FROM jobs WHERE cell = ? AND state = 'dead' ORDER BY ended_ms DESC LIMIT ?", (c, most)
            ).fetchall()
        return tuple(PoisonJob(id=i, arm=arm, tries=tries, at=datetime.fromtimestamp(at / 1_000, UTC)) for i, arm, tries, at in rows)

    def tell(self) -> int:
        """Write to the log what has ended and is not there yet; return how many lines. After a crash the next one does it."""
        if self._log is None:
            return 0
        with self._open() as db:
            # the oldest first: what a killed process wrote last is among them
            ended = db.execute(
                "SELECT cell, id, arm, ok, taken_ms, ended_ms FROM jobs WHERE told = 0 AND state = 'ended'"
                " ORDER BY ended_ms, rowid LIMIT 1000"
            ).fetchall()
            lost = db.execute("SELECT cell, id, arm, 0, taken_ms, until_ms FROM lost WHERE told = 0 ORDER BY rowid LIMIT 1000").fetchall()
            if not ended and not lost:
                return 0
            self._append([_line(*row) for row in ended] + [_line(row[0], f"{row[1]}/lost/{row[2]}", *row[2:]) for row in lost])
            db.executemany("UPDATE jobs SET told = 1 WHERE cell = ? AND id = ?", [row[:2] for row in ended])
            db.executemany("UPDATE lost SET told = 1 WHERE cell = ? AND id = ? AND arm = ?", [row[:3] for row in lost])
        return len(ended) + len(lost)

    def _tell_if_possible(self) -> None:
        """Tell; a log that cannot be written now holds up neither work nor going home: the next one tells."""
        with suppress(TrafficNotApplied):
            self.tell()

    def _append(self, lines: list[bytes]) -> None:
        """Write what the log does not have yet: one that was killed before it could commit has written the same lines, or some, last."""
        assert self._log is not None  # noqa: S101 - only called where there is one
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            most = sum(map(len, lines))
            text = memoryview(_missing(lines, os.pread(handle, most, max(0, os.fstat(handle).st_size - most))))
            while text:  # a disk that is nearly full takes a part
                text = text[os.write(handle, text) :]
            os.fsync(handle)
        finally:
            os.close(handle)

    def _free(self, db: sqlite3.Connection, c: CellId, now: int) -> None:
        """Free what was held too long; a job that was tried too often is dead, with the side that had it last."""
        db.execute(
            "INSERT OR IGNORE INTO lost (cell, id, arm, taken_ms, until_ms)"
            " SELECT cell, id, arm, taken_ms, until_ms FROM jobs WHERE cell = ? AND state = 'taken' AND until_ms <= ?",
            (c, now),
        )
        db.execute(
            "UPDATE jobs SET state = 'dead', ended_ms = until_ms WHERE cell = ? AND state = 'taken' AND until_ms <= ? AND tries >= ?",
            (c, now, self._most_tries),
        )
        db.execute("UPDATE jobs SET state = 'waiting' WHERE cell = ? AND state = 'taken' AND until_ms <= ?", (c, now))

    @contextmanager
    def _open(self, deadline: Deadline | None = None) -> Iterator[sqlite3.Connection]:
        """Open, begin to write, commit or roll back, close: a killed consumer leaves nothing half done."""
        try:
            if not self._path.exists():
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            with closing(sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = FULL")
                _begin(db, BUSY_S if deadline is None else min(BUSY_S, deadline.left_s()))
                try:
                    yield db
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
                if db.in_transaction:
                    db.execute("COMMIT")
        except (sqlite3.Error, OSError) as e:
            raise TrafficNotApplied(
                "traffic.router_down", f"the queue {self._path} cannot be used: {e}.", hint="Run: fleetctl doctor"
            ) from e


def _begin(db: sqlite3.Connection, wait_s: float) -> None:
    """Begin to write as soon as nobody else does: asked every few ms. SQLite itself asks every 100 ms, and never finds a busy file free.

    Raises:
        sqlite3.OperationalError: not within `wait_s`.
    """
    db.execute("PRAGMA busy_timeout = 0")
    end = time.monotonic() + wait_s
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(random.uniform(*ASK_S))  # noqa: S311 - so that two do not always meet
    db.execute(f"PRAGMA busy_timeout = {round(BUSY_S * 1_000)}")


def _lapse(db: sqlite3.Connection, c: CellId, now: int) -> int:
    """Count as lost what was held too long of another queue; return how much that is."""
    db.execute(
        "INSERT OR IGNORE INTO lost (cell, id, arm, taken_ms, until_ms)"
        " SELECT cell, id, arm, taken_ms, until_ms FROM holds WHERE cell = ? AND until_ms BETWEEN 1 AND ?",
        (c, now),
    )
    return db.execute("UPDATE holds SET until_ms = 0 WHERE cell = ? AND until_ms BETWEEN 1 AND ?", (c, now)).rowcount


def _hand(db: sqlite3.Connection, c: CellId, id_: str, arm: Arm, now: int, most_tries: int, *, is_alone: bool) -> Hand:
    """Tell what may be done with a job of another queue; one that was lost too often, by the source too, is dead from now on."""
    lost = {row[0] for row in db.execute("SELECT arm FROM lost WHERE cell = ? AND id = ?", (c, id_))}
    is_fresh = arm == "baseline" and "baseline" not in lost
    ended = db.execute("SELECT state FROM jobs WHERE cell = ? AND id = ? AND state IN ('ended', 'dead')", (c, id_)).fetchone()
    if ended is not None and ended[0] == "dead" and is_fresh:
        db.execute("DELETE FROM jobs WHERE cell = ? AND id = ?", (c, id_))
        return "given"
    if ended is not None:
        return "dead" if ended[0] == "dead" else "ended"
    tries, until = db.execute("SELECT tries, until_ms FROM holds WHERE cell = ? AND id = ?", (c, id_)).fetchone() or (0, 0)
    if until > now or (arm == "canary" and "canary" in lost and not is_alone):
        return "held"
    if tries < most_tries or is_fresh:
        return "given"
    db.execute(
        "INSERT OR IGNORE INTO jobs (id, cell, bucket, body, state, arm, taken_ms, ended_ms, tries)"
        " SELECT id, cell, ?, x'', 'dead', arm, taken_ms, ?, tries FROM holds WHERE cell = ? AND id = ?",
        (bucket_of(id_), now, c, id_),
    )
    db.execute("DELETE FROM holds WHERE cell = ? AND id = ?", (c, id_))
    return "dead"


def _missing(lines: list[bytes], tail: bytes) -> bytes:
    """Return what is to be written after `tail` so that the log has each line once, and whole; each names its job, so none is another's."""
    whole, _, begun = tail.rpartition(b"\n")
    known = set(whole.split(b"\n"))
    left = [line for line in lines if line[:-1] not in known]
    if not begun:
        return b"".join(left)
    rest = next((line for line in left if line.startswith(begun)), None)
    if rest is None:  # of somebody else, or cut at its front too: it stays what it is, a line that is not whole
        return b"\n" + b"".join(left)
    return rest[len(begun) :] + b"".join(line for line in left if line is not rest)


def _line(cell: str, id_: str, arm: str, ok: int, taken_ms: int, ended_ms: int) -> bytes:
    """Return the end of a try as a router's log has a request, with an id that no other line has."""
    row = {
        "c": cell,
        "a": arm,
        "srv": "c1" if arm == "canary" else "b1",
        "st": 200 if ok else 500,
        "ts": "--",
        "t0": taken_ms,
        "ta": max(0, ended_ms - taken_ms),
        "p": "-",
        "id": id_,
    }
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _ms(at: Instant) -> int:
    return round(at.timestamp() * 1_000)
