"""What only the SQLite store owes: its file, its errors, its migrations, its status rows, and finding what was tampered with."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.filesystems import network_filesystem
from fleetctl.adapters.store import database, schema
from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.adapters.store.status import status_rows
from fleetctl.domain.canonical import canonical
from fleetctl.domain.ids import Token
from fleetctl.errors import StoreUnavailable
from fleetctl.ports.state import Lease
from tests.fakes.clock import START
from tests.fakes.rollouts import ANN, CHAT, SUMMARY, event, keep_look, look, order, rollout

LONG = timedelta(minutes=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w" / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path)
    yield made
    made.close()


def raw(path: Path, *statements: str) -> None:
    """Change the file behind the store's back, triggers and all."""
    db = sqlite3.connect(path, isolation_level=None)
    for name, table in (("changed", "event"), ("deleted", "event"), ("goes_to_the_end", "event")):
        db.execute(f"DROP TRIGGER IF EXISTS {table}_is_never_{name}")
        db.execute(f"DROP TRIGGER IF EXISTS {table}_{name}")
    for s in statements:
        db.execute(s)
    db.close()


def code_of(path: Path, create: bool = True) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        SqliteStore(path, create=create).close()
    assert str(path) in caught.value.message
    return caught.value.code


def test_file_and_folder_are_ours_alone(store: SqliteStore, path: Path) -> None:
    store.append([event()])
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for name in os.listdir(path.parent):
        assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o600, name
    os.chmod(path, 0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_wal_and_full_sync(store: SqliteStore) -> None:
    with store._db.read() as q:
        assert q.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert q.execute("PRAGMA synchronous").fetchone() == (2,)
        names = [r[0] for r in q.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0")]
    assert [n for n in names if not n.startswith("sqlite_")] == []


def test_missing_damaged_and_newer_files_are_named(path: Path) -> None:
    assert code_of(path, create=False) == "store.unreachable"
    assert not path.exists()
    path.parent.mkdir()
    path.write_bytes(b"this is no database at all " * 100)
    assert code_of(path) == "store.unreachable"
    path.unlink()
    SqliteStore(path).close()
    raw(path, f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    assert code_of(path) == "store.newer"


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "w").write_text("a file where a folder belongs")
    assert code_of(tmp_path / "w" / "store.db") == "store.unreachable"


def test_file_taken_away_while_open(store: SqliteStore, path: Path) -> None:
    store.append([event()])
    path.rename(path.with_suffix(".gone"))
    with pytest.raises(StoreUnavailable, match=r"store\.unreachable"):
        store.append([event()])
    path.write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.load(CHAT)


def test_full_disk_keeps_what_was_there(store: SqliteStore) -> None:
    store.append([event(text="kept")])
    with store._db.write() as q:
        pages = q.execute("PRAGMA page_count").fetchone()[0]
        q.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreUnavailable) as caught:
        store.append([event(text="x" * 200_000), event(text="y" * 200_000)])
    assert caught.value.code == "store.full"
    assert [e.text for e in store.events(CHAT, 0)] == ["kept"]
    with store._db.write() as q:
        q.execute("PRAGMA max_page_count = 1000000")
    store.append([event(text="after")])
    assert [e.seq for e in store.events(CHAT, 0)] == [1, 2]
    assert store.verify() == []


def test_writer_that_never_ends_is_named(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    second = SqliteStore(path)
    with store._db.write(), pytest.raises(StoreUnavailable, match="another process"):
        second.append([event()])
    second.append([event()])
    second.close()


def test_older_file_is_migrated_forward(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = SqliteStore(path)
    first.start(rollout(), (event(),))
    first.close()
    monkeypatch.setattr(database, "MIGRATIONS", (*schema.MIGRATIONS, "ALTER TABLE rollout ADD COLUMN note TEXT NOT NULL DEFAULT 'n';"))
    second = SqliteStore(path)
    assert second.load(CHAT) == rollout()
    with second._db.read() as q:
        assert q.execute("SELECT note FROM rollout").fetchone() == ("n",)
        assert q.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS) + 1,)
    second.close()


def test_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(path).close()
    monkeypatch.setattr(database, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE extra (a TEXT) STRICT; DROP TABLE nowhere;"))
    assert code_of(path) == "store.unreachable"
    monkeypatch.undo()
    back = SqliteStore(path)
    with back._db.read() as q:
        assert q.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'extra'").fetchone() == (0,)
    back.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{}'",
        "DELETE FROM event",
        "INSERT OR REPLACE INTO event SELECT chain, seq, prev, hash, '{}' FROM event WHERE seq = 1",
        "INSERT INTO event SELECT chain, seq + 9, prev, hash, body FROM event WHERE seq = 2",
        "UPDATE lease SET token = token - 1",
        "DELETE FROM lease",
    ],
)
def test_file_itself_refuses_to_forget(store: SqliteStore, path: Path, statement: str) -> None:
    store.append([event(), event()])
    store.raise_token(CHAT, Token(5))
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    db.close()
    assert store.verify() == []


@pytest.mark.parametrize(
    ("statement", "seq", "what"),
    [
        ("UPDATE event SET body = replace(body, 'text 2', 'text X') WHERE chain = 'chat-lab' AND seq = 2", 2, "was edited"),
        ("DELETE FROM event WHERE chain = 'chat-lab' AND seq = 2", 2, "is missing"),
        ("UPDATE event SET seq = CASE seq WHEN 1 THEN -1 ELSE seq END WHERE seq = 99", 0, ""),
        ("DELETE FROM event WHERE chain = 'chat-lab' AND seq = 4", 4, "ends at 3"),
        ("UPDATE event SET body = '{' WHERE chain = 'chat-lab' AND seq = 3", 3, "cannot be read"),
        ("UPDATE event SET hash = prev WHERE chain = 'chat-lab' AND seq = 1", 1, "was edited"),
    ],
)
def test_verify_finds_what_was_tampered_with(store: SqliteStore, path: Path, statement: str, seq: int, what: str) -> None:
    store.append([event(text=f"text {n}") for n in range(1, 5)] + [event(SUMMARY)])
    raw(path, statement)
    found = store.verify()
    if not seq:
        assert found == []
        return
    assert [(c, s) for c, s, _ in found] == [(CHAT, seq)]
    assert what in found[0][2]


def test_events_that_changed_places_are_found(store: SqliteStore, path: Path) -> None:
    store.append([event(text=f"text {n}") for n in range(1, 5)])
    raw(
        path,
        "CREATE TABLE t AS SELECT * FROM event",
        "DELETE FROM event WHERE seq IN (2, 3)",
        "INSERT INTO event SELECT chain, 5 - seq, prev, hash, body FROM t WHERE seq IN (2, 3)",
    )
    assert [(c, s) for c, s, _ in store.verify()] == [(CHAT, 2)]


def test_chain_written_anew_is_found_by_its_anchor(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    store.append([event(text="the truth"), event(text="all of it")])
    assert store.anchor_heads(START, ANN) is not None
    forged = SqliteStore(tmp_path / "forged.db")
    forged.append([event(text="a tale"), event(text="all of it")])
    assert forged.verify() == []
    forged.close()
    raw(
        path,
        f"ATTACH '{tmp_path / 'forged.db'}' AS forged",
        "DELETE FROM event WHERE chain = 'chat-lab'",
        "DELETE FROM head WHERE chain = 'chat-lab'",
        "INSERT INTO event SELECT * FROM forged.event",
    )
    assert [(c, s) for c, s, _ in store.verify()] == [(CHAT, 2)]
    raw(path, "DELETE FROM event WHERE chain = 'chat-lab'", "DELETE FROM head WHERE chain = 'chat-lab'")
    found = store.verify()
    assert len(found) == 1
    assert "is missing" in found[0][2]


def test_rollout_of_a_newer_release_or_damaged_is_named(store: SqliteStore, path: Path) -> None:
    store.start(rollout(), ())
    raw(path, "UPDATE rollout SET format_version = 99")
    with pytest.raises(StoreUnavailable) as caught:
        store.load(CHAT)
    assert caught.value.code == "store.newer"
    raw(path, "UPDATE rollout SET format_version = 1, body = '{}'")
    with pytest.raises(StoreUnavailable) as caught:
        store.load(CHAT)
    assert caught.value.code == "store.unreachable"


def test_status_rows_tell_a_cell_without_its_rollout(store: SqliteStore, path: Path) -> None:
    before = rollout()
    store.start(before, ())
    store.start(rollout(SUMMARY), ())
    keep_look(store, look(seconds=1))
    keep_look(store, look(seconds=2))
    lease = store.acquire(CHAT, "a@host:1", LONG)
    assert isinstance(lease, Lease)
    after = dataclasses.replace(before, step=1, weight_bp=500, paused=True, hold_reason="paused by ann")
    assert store.record(lease, before, after, (), LONG) is None
    store.order(CHAT, order("resume"))
    lease = store.acquire(CHAT, "b@host:2", LONG)
    assert isinstance(lease, Lease)
    chat, summary = status_rows(path)
    assert (chat.cell, chat.plan, chat.phase, chat.step, chat.steps) == (CHAT, "p1", "canary", 1, 3)
    assert (chat.weight_bp, chat.want_bp, chat.until, chat.ended, chat.paused) == (500, 1000, "soak", "", True)
    assert (chat.hold_reason, chat.look, chat.served_bp, chat.orders) == ("paused by ann", "look at 2 s", 990, 1)
    assert chat.looked_at == START + timedelta(seconds=2)
    assert (chat.holder, chat.token, chat.due_in_s <= 0) == ("b@host:2", 4, True)
    assert chat.verdict == "errors INCONCLUSIVE"
    assert (chat.verdicts[0].pass_e_value, chat.verdicts[0].missing) == (4.0, 120)
    assert (summary.cell, summary.looked_at, summary.verdicts, summary.holder, summary.paused) == (SUMMARY, None, (), "", False)
    assert store.status_rows()[1]._replace(due_in_s=0) == summary._replace(due_in_s=0)


def test_status_shows_no_look_of_a_rollout_before(store: SqliteStore) -> None:
    first = rollout()
    store.start(first, ())
    keep_look(store, look())
    lease = store.acquire(CHAT, "a@host:1", LONG)
    assert isinstance(lease, Lease)
    assert store.record(lease, first, dataclasses.replace(first, ended="aborted"), (), LONG) is None
    assert store.status_rows()[0].look == "look at 0 s"
    store.start(rollout(attempt=2), ())
    assert store.status_rows()[0].look == ""


def test_status_reader_imports_no_domain_value() -> None:
    code = (
        "import sys, fleetctl.adapters.store.status; print(*sorted(m for m in sys.modules if '.' in m or m in ('dataclasses', 'logging')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "fleetctl.adapters.store.status" in loaded
    assert [m for m in loaded if m.startswith(("fleetctl.domain", "fleetctl.ports"))] == []
    assert not {"dataclasses", "logging", "asyncio", "decimal"} & set(loaded)


def test_network_filesystem_is_told_by_the_longest_mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nserver:/x /mnt/a\\040b nfs4 rw 0 0\ntmpfs /mnt/a\\040b/local tmpfs rw 0 0\n")
    real_open = open
    monkeypatch.setattr("builtins.open", lambda p, *a, **k: real_open(mounts if p == "/proc/self/mounts" else p, *a, **k))
    assert network_filesystem("/mnt/a b/w/store.db") == "nfs4"
    assert network_filesystem("/mnt/a b/local/store.db") is None
    assert network_filesystem("/mnt/ax/store.db") is None


def test_half_written_transaction_leaves_nothing(store: SqliteStore) -> None:
    before = rollout()
    store.start(before, ())
    lease = store.acquire(CHAT, "a@host:1", LONG)
    assert isinstance(lease, Lease)
    bad = dataclasses.replace(event(), data={"nan": float("nan")})
    with pytest.raises(ValueError, match="canonical"):
        store.record(lease, before, dataclasses.replace(before, step=1), (event(), bad), LONG, look())
    assert store.load(CHAT) == before
    assert list(store.rows(CHAT, None)) == []
    assert list(store.events(CHAT, 0)) == []
    assert canonical(before) == canonical(store.load(CHAT))
