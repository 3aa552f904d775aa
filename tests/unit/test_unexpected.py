"""A defect of one source, router or owner is one cell's matter: the cells behind it go on, and everybody can read what it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.domain.fleet import Phase
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order, Rollout
from fleetctl.errors import RowUnreadable
from fleetctl.usecases.migrate import Driver
from fleetctl.usecases.tick import TickPorts, TickSettings
from fleetctl.usecases.unexpected import UNEXPECTED, as_error
from tests.rollouts import CELL, PERSON, rollout
from tests.simulator import Simulation, quick

BAD, GOOD = CellId("bad-lab"), CELL


class Broken:
    """A port that does with every call what no contract names, for one cell."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            raise self._error

        return call


class OneBroken(Simulation):
    """Two cells of which the first has a broken port."""

    def __init__(self, port: str, error: BaseException) -> None:
        super().__init__((BAD, GOOD), of=quick(), rate_per_s=60)
        self.port, self.error = port, error
        self.is_broken = False

    def ports(self) -> TickPorts:
        made = super().ports()
        if not self.is_broken:
            return made
        right = getattr(made, self.port)
        if callable(right):
            broken: Any = {self.port: lambda c: Broken(self.error) if c == BAD else right(c)}
        else:
            broken = {self.port: Broken(self.error)}
        return replace(made, **broken)

    def broken_in(self, phase: Phase, until: Phase = "complete") -> OneBroken:
        self.begin(until)
        self.run(120, lambda: all(self.rollout(c).phase == phase and self.rollout(c).settled_at is not None for c in self.cells))
        self.is_broken = self.may_break = True
        return self

    def odd(self, c: CellId) -> list[str]:
        return [e.text for e in self.store.events(c, 0) if e.kind == UNEXPECTED]


def test_a_source_of_evidence_that_breaks_is_lost_evidence_of_its_cell_alone() -> None:
    s = OneBroken("evidence", KeyError("latency\x1b[2J")).broken_in("canary")
    s.run(5)
    assert s.rollout(BAD).hold_reason == "evidence.lost"
    assert "the evidence source cannot be read (the evidence source did what nobody foresaw: KeyError" in s.results[-2].why
    assert [t.isprintable() and "KeyError" in t for t in s.odd(BAD)] == [True], "one event, however often it happens"
    s.run(200, lambda: bool(s.rollout(GOOD).ended) and bool(s.rollout(BAD).ended))
    assert (s.rollout(BAD).ended, s.bp(BAD)) == ("lost_evidence", 0)
    assert (s.rollout(GOOD).ended, s.bp(GOOD), s.odd(GOOD)) == ("complete", 10_000, [])
    assert [n.text for n in s.notices.sent if n.kind == "notify.page"] == [f"{BAD} is home: lost evidence"]


def test_a_router_that_breaks_holds_its_cell_and_pages_once_and_its_orders_wait() -> None:
    s = OneBroken("router", ZeroDivisionError("share")).broken_in("canary")
    s.store.order(BAD, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(10)
    assert s.rollout(BAD).hold_reason == UNEXPECTED
    pages = [n.text for n in s.notices.sent if n.kind == "notify.page"]
    assert pages == [f"{BAD}: a tick of {BAD} did what nobody foresaw: ZeroDivisionError: share"]
    s.run(60, lambda: s.rollout(GOOD).phase != "canary")
    assert s.rollout(GOOD).phase == "ramp", "the cell behind it goes on"
    s.is_broken = False
    s.run(10, lambda: bool(s.rollout(BAD).ended))
    assert (s.rollout(BAD).ended, s.bp(BAD)) == ("aborted", 0)


@pytest.mark.parametrize("port", ["holds", "notices"])
def test_an_owner_that_breaks_keeps_nobody_from_going_home(port: str) -> None:
    s = OneBroken(port, TypeError("owner")).broken_in("ramp", "ramp")
    s.failing = 0.6
    s.run(60, lambda: all(s.bp(c) == 0 for c in s.cells))
    assert [s.bp(c) for c in s.cells] == [0, 0]
    assert all(s.rollout(c).latched is not None for c in s.cells)


def test_what_ends_the_process_goes_through() -> None:
    s = OneBroken("evidence", KeyboardInterrupt()).broken_in("canary")
    with pytest.raises(KeyboardInterrupt):
        s.run(5)


def test_a_sweep_that_breaks_ends_no_tick_and_is_told_once() -> None:
    s = OneBroken("holds", TypeError("owner"))
    s.begin()
    s.is_broken = s.may_break = True
    driver = Driver(ports=s.ports(), settings=TickSettings(holder="d", ttl=timedelta(seconds=5)), on_tick=lambda _: None)
    for _ in range(3):
        s.clock.advance(timedelta(seconds=11))
        assert driver.step() == 2
    fleet = [e for e in s.store.events(None, 0) if e.kind == UNEXPECTED]
    assert [e.data["error"] for e in fleet] == ["TypeError"]


def test_a_cell_whose_row_cannot_be_read_is_its_own_matter_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    s = OneBroken("holds", TypeError("owner"))
    s.begin()
    load = s.store.load

    def unreadable(c: CellId) -> Rollout | None:
        if c == BAD:
            raise RowUnreadable("store.unreachable", "the rollout of it cannot be read.")
        return load(c)

    monkeypatch.setattr(s.store, "load", unreadable)
    ticked: list[tuple[CellId, str]] = []
    driver = Driver(
        ports=s.ports(), settings=TickSettings(holder="d", ttl=timedelta(seconds=5)), on_tick=lambda t: ticked.append((t.cell, t.kind))
    )
    for _ in range(4):
        s.clock.advance(timedelta(seconds=11))
        driver.step()
    assert dict(ticked) == {BAD: "failed", GOOD: "ticked"}
    assert len([t for t in ticked if t[0] == GOOD]) == 4
    pages = [e for e in s.notices.sent if e.kind == "notify.page" and e.cell == BAD]
    assert [f"fleetctl fallback {BAD}" in e.text for e in pages] == [True]
    monkeypatch.setattr(s.store, "load", load)
    s.clock.advance(timedelta(seconds=11))
    driver.step()
    assert ticked[-2:] in ([(BAD, "ticked"), (GOOD, "ticked")], [(GOOD, "ticked"), (BAD, "ticked")])


def test_a_row_that_is_no_rollout_is_said_to_be_one_row_of_the_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    for c in (BAD, GOOD):
        store.start(replace(rollout(), cell=c), ())
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute("UPDATE rollout SET body = '{}' WHERE cell = ?", (BAD,))
    with pytest.raises(RowUnreadable):
        store.load(BAD)
    assert store.load(GOOD) == replace(rollout(), cell=GOOD)


def test_its_words_are_cut_and_harmless() -> None:
    made = as_error("a source", ValueError("\x1b]0;x" + "y" * 5_000))
    assert made.code == UNEXPECTED
    assert made.message.isprintable()
    assert len(made.message) < 300
    assert as_error("a source", ValueError()).message == "a source did what nobody foresaw: ValueError"
