"""A store that an earlier release wrote is read, verified and gone on with by this one."""

from __future__ import annotations

import dataclasses
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.adapters.store.status import status_rows
from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import Approval
from fleetctl.ports.state import Lease

FROZEN = sorted(Path(__file__).parent.glob("store_format_*.sql"))
CHAT = CellId("chat-lab")


@pytest.mark.parametrize("dump", FROZEN, ids=lambda p: p.stem)
def test_frozen_store_goes_on(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    db = sqlite3.connect(path)
    db.executescript(dump.read_text())
    db.close()
    store = SqliteStore(path, create=False)
    assert store.verify() == []
    before = store.load(CHAT)
    assert before is not None
    assert (before.phase, before.weight_bp, [o.kind for o in before.orders]) == ("canary", 1000, ["pause"])
    assert [e.text for e in store.events(CHAT, 0)] == ["started", "canary at 10 %"]
    assert [e.kind for e in store.events(None, 0)] == ["audit.anchor"]
    assert next(iter(store.rows(CHAT, None))).arms["canary"].attempts == 100
    approval = store.newest(Approval)
    assert approval is not None
    assert approval.note == "yes"
    lease = store.acquire(CHAT, "b@host:2", timedelta(seconds=20))
    assert isinstance(lease, Lease)
    assert lease.token == 2
    assert store.record(lease, before, dataclasses.replace(before, paused=True, orders=()), (), timedelta(0)) is None
    assert status_rows(path)[0].paused
    assert store.verify() == []
    store.close()


def test_there_is_a_frozen_store() -> None:
    assert next(p.name for p in FROZEN) == "store_format_1.sql"
