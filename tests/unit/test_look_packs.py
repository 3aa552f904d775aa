"""Looks are packed when there are many, and are all there as they were: for whoever reads meanwhile, and for a replay to the last digit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters import needs
from fleetctl.adapters.store import looks
from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.adapters.store.status import status_rows
from fleetctl.analysis.judge import fresh
from fleetctl.analysis.looks import replay
from fleetctl.domain.canonical import canonical
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.ids import CellId, PlanId
from fleetctl.domain.rollout import Rollout
from fleetctl.errors import StoreUnavailable
from tests.fakes.rollouts import keep_look
from tests.rollouts import CELL
from tests.simulator import quick
from tests.unit.test_look_log import Watched

OTHER = CellId("other-lab")


@pytest.fixture(scope="module")
def watched() -> Watched:
    """A cell that stays at a step for a few minutes, looked at every second."""
    s = Watched(of=quick(step_deadline=timedelta(hours=9)), rate_per_s=12.0)
    s.spec = replace(s.spec, phases=tuple(replace(p, bake=timedelta(seconds=110)) if p.phase == "canary" else p for p in s.spec.phases))
    s.begin()
    s.run(260)
    return s


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "store.db")
    yield made
    made.close()


def filled(store: SqliteStore, rows: list[LookRow]) -> SqliteStore:
    store.start(Rollout(cell=CELL, plan=PlanId("p1"), spec=quick(), judge=fresh()), ())
    for row in rows:
        keep_look(store, row)
        keep_look(store, replace(row, cell=OTHER, why="another cell's"))
    return store


def sizes(store: SqliteStore) -> tuple[int, int]:
    """Return packs, and looks that are not packed."""
    with store._db.read() as q:
        packs, plain = (q.execute(f"SELECT count(*) FROM {t} WHERE cell = ?", (CELL,)).fetchone()[0] for t in ("look_pack", "look"))
    return packs, plain


def test_packed_looks_are_all_there_and_replay_alike(store: SqliteStore, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "PACK", 40)
    monkeypatch.setattr(looks, "KEEP", 20)
    rows = watched.rows()
    filled(store, rows)
    packs, plain = sizes(store)
    assert packs >= 3
    assert 20 <= plain < 40 + 20
    assert list(store.rows(CELL, None)) == rows
    assert [r.state for r in replay(store.rows(CELL, None))] == watched.states
    for i in (0, 39, 40, 41, len(rows) - 2):
        assert list(store.rows(CELL, rows[i].at)) == [r for r in rows if r.at > rows[i].at]
    assert {r.why for r in store.rows(OTHER, None)} == {"another cell's"}
    newest = next(r for r in status_rows(Path(store.path)) if r.cell == CELL)
    assert newest.looked_at == rows[-1].at


def test_whoever_reads_while_looks_are_packed_misses_none_and_sees_none_twice(
    store: SqliteStore, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "PACK", 40)
    monkeypatch.setattr(looks, "PAGE", 7)
    rows = watched.rows()
    filled(store, rows)
    second, seen = SqliteStore(store.path), []
    monkeypatch.setattr(looks, "KEEP", 1)
    for row in store.rows(CELL, None):
        seen.append(row)
        if len(seen) % 10 == 0:
            with second._db.write() as q:
                looks.pack_looks(q, CELL)
    second.close()
    assert sizes(store)[0] >= 4
    assert seen == rows


def test_a_pack_that_is_damaged_is_named(store: SqliteStore, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "PACK", 40)
    monkeypatch.setattr(looks, "KEEP", 1)
    filled(store, watched.rows()[:120])
    with store._db.write() as q:
        q.execute("UPDATE look_pack SET body = x'00ff' WHERE cell = ?", (CELL,))
    with pytest.raises(StoreUnavailable, match="packed looks"):
        list(store.rows(CELL, None))


def test_a_packed_look_takes_less_than_a_tenth(store: SqliteStore, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure of docs/explanation/durability.md."""
    monkeypatch.setattr(looks, "PACK", 150)
    monkeypatch.setattr(looks, "KEEP", 1)
    rows = [r for r in watched.rows() if r.seen is not None]
    filled(store, rows)
    with store._db.read() as q:
        packed, n = q.execute("SELECT sum(length(body)), sum(looks) FROM look_pack WHERE cell = ?", (CELL,)).fetchone()
    plain = sum(len(canonical(r)) for r in rows) / len(rows)
    print(f"a look: {plain:.0f} bytes, packed {packed / n:.0f}")
    assert n >= 150
    assert plain < 4_000
    assert packed / n < plain / 8


def test_a_store_that_has_grown_for_long_is_told_to_a_person(store: SqliteStore, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(store, watched.rows()[:3])
    assert needs.store(Path(store.path)).state == "ok"
    monkeypatch.setattr(needs, "MOST_STORE", 1)
    found = needs.store(Path(store.path))
    assert (found.state, "archive the store" in found.mend) == ("warn", True)
