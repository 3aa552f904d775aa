"""Every step, adapters layer: one SQLite file, its transactions, its clock and its errors. Imports the standard library only.

WAL with synchronous FULL: a commit that returned survives a power cut. Each write is one IMMEDIATE transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fleetctl.adapters.filesystems import network_filesystem
from fleetctl.adapters.store.schema import MIGRATIONS
from fleetctl.errors import StoreUnavailable

BUSY_S = 5.0
"""Longest wait for another process's write, seconds."""
NOW_MS = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
"""Epoch milliseconds by this file's clock; `julianday` rather than `unixepoch('subsec')`, which needs SQLite 3.42."""
OLDEST_SQLITE = (3, 37, 0)
"""STRICT tables came with 3.37. Source: SQLite release log."""
LEAST_FREE = 64 * 1024
"""Bytes; SQLite needs 32 kB for the -shm file of a store in WAL mode. Source: SQLite, WAL-mode file format."""


class Database:
    """One open store file; safe for threads of one process.

    Args:
        path: of the file.
        create: False refuses where there is none.

    Raises:
        StoreUnavailable: store.unreachable, store.full, store.newer.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self.path = os.path.abspath(path)
        self._lock = threading.RLock()
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailable(
                "store.unreachable",
                f"the SQLite of this Python is {sqlite3.sqlite_version}; {'.'.join(map(str, OLDEST_SQLITE))} or newer is needed.",
                hint="Run: fleetctl doctor",
            )
        with self._mapped():
            self._prepare_file(create)
            self._db = self._open()
            try:
                self._migrate()
                found = os.stat(self.path)
            except BaseException:
                self._db.close()
                raise
            self._identity = (found.st_dev, found.st_ino)

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._lock:
            self._db.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Give a connection inside one IMMEDIATE transaction: all of it is kept, or nothing."""
        with self._lock, self._mapped():
            self._check_file()
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Give a connection inside one read transaction: all statements see the same moment."""
        with self._lock, self._mapped():
            self._check_file()
            try:
                self._db.execute("BEGIN")
                yield self._db
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _prepare_file(self, create: bool) -> None:
        folder = os.path.dirname(self.path)
        if os.path.exists(self.path):
            found = os.stat(self.path)
            if found.st_mode & 0o077 and found.st_uid == os.geteuid():
                os.chmod(self.path, 0o600)
            return
        if not create:
            raise StoreUnavailable("store.unreachable", f"there is no store at {self.path}.", hint="Run: fleetctl init")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        kind = network_filesystem(self.path)
        if kind is not None:
            import logging

            logging.getLogger("fleetctl.store").warning(
                "the store %s lies on a network filesystem (%s): its locks cannot be trusted; keep it on a local disk", self.path, kind
            )

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            mode = _switch_to_wal(db)
            if mode != "wal":
                text = f"{self.path} cannot be kept in WAL mode (it is {mode!r})."
                raise StoreUnavailable("store.unreachable", text, hint="Move it to a local disk.")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self) -> None:
        if self._version() == len(MIGRATIONS):
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            found = self._version()
            if found > len(MIGRATIONS):
                raise StoreUnavailable(
                    "store.newer",
                    f"{self.path} was written by a newer release (schema {found}; this one knows {len(MIGRATIONS)}).",
                    hint="Upgrade fleetctl.",
                )
            for number in range(found + 1, len(MIGRATIONS) + 1):
                for statement in _statements(MIGRATIONS[number - 1]):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _check_file(self) -> None:
        found = os.stat(self.path)
        if (found.st_dev, found.st_ino) != self._identity:
            raise StoreUnavailable("store.unreachable", f"{self.path} was replaced while it was open.", hint="Run: fleetctl status")

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as e:
            raise mapped(e, self.path) from e
        except OSError as e:
            import errno

            code = "store.full" if e.errno in (errno.ENOSPC, errno.EDQUOT) else "store.unreachable"
            raise StoreUnavailable(code, f"the store {self.path} cannot be used: {e.strerror}.", hint="Run: fleetctl doctor") from e


def _switch_to_wal(db: sqlite3.Connection) -> str:
    """Return the journal mode after the switch, which ignores the busy timeout while another process does the same."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def mapped(e: sqlite3.Error, path: str) -> StoreUnavailable:
    """Return the error of ours that names the same failure."""
    code = getattr(e, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_disk_full(path)):
        return StoreUnavailable("store.full", f"the disk that holds {path} is full.", hint="Free space, then run the same command again.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        text = f"another process has been writing {path} for over {BUSY_S:.0f} s."
    elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        text = f"{path} is damaged or no store ({e})."
    else:
        text = f"the store {path} cannot be used: {e}."
    return StoreUnavailable("store.unreachable", text, hint="Traffic can still be brought home: fleetctl fallback WORKLOAD")


def _is_disk_full(path: str) -> bool:
    """Tell whether no room is left where the store lies: SQLite calls that an I/O error where its -shm file cannot grow."""
    try:
        found = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < LEAST_FREE


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements; a trigger's body keeps its own semicolons."""
    waiting = ""
    for line in script.splitlines(keepends=True):
        waiting += line
        if sqlite3.complete_statement(waiting):
            yield waiting
            waiting = ""
    if waiting.strip():
        raise ValueError(f"a migration ends in the middle of a statement: {waiting.strip()[:60]!r}")
