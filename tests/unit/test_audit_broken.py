"""A broken audit chain is reported with its cell, its link and what to do; reading it changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.cli.main import cli
from fleetctl.domain.event import Event
from tests.rollouts import CELL, PERSON, T0, rollout


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of a workspace with three events of one cell."""
    path = tmp_path / ".fleetctl/store.db"
    path.parent.mkdir(mode=0o700)
    store = SqliteStore(path)
    store.start(rollout(), ())
    store.append(tuple(Event(at=T0, kind="order.pause", actor=PERSON, text=f"text {n}", cell=CELL) for n in range(3)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))
    return path


def test_audit_verify_names_what_cannot_be_read_and_says_how_much_is_left(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("DROP TRIGGER event_is_never_changed")
        db.execute("UPDATE event SET body = '{}' WHERE chain = ? AND seq = 2", (CELL,))
    done = CliRunner().invoke(cli, ["audit", "verify"])
    assert done.exit_code == 1
    assert f"{CELL}: link 2" in done.stdout
    assert "fleetctl doctor --bundle" in done.stdout


def test_audit_verify_names_the_broken_link_and_the_next_command(file: Path) -> None:
    assert CliRunner().invoke(cli, ["audit", "verify"]).exit_code == 0
    with sqlite3.connect(file) as db:
        db.execute("DROP TRIGGER event_is_never_changed")
        db.execute("UPDATE event SET body = replace(body, 'text 1', 'text X') WHERE chain = ?", (CELL,))
    before = file.read_bytes()
    done = CliRunner().invoke(cli, ["audit", "verify"])
    assert done.exit_code == 1
    assert f"{CELL}: link 2 was edited" in done.stdout
    assert "fleetctl doctor --bundle" in done.stdout
    assert file.read_bytes() == before, "looking changes nothing"
    assert SqliteStore(file).load(CELL) == rollout(), "what the cell does is not changed by it"
