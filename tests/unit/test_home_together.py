"""Many cells of one router go home in a few exchanges, each as if it had been alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.domain.home import HOME_TOKEN_STEP, Returned, WayHome
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Readiness, Split
from fleetctl.errors import FleetctlError, TrafficNotApplied
from fleetctl.usecases.home import HomePorts, fallback
from fleetctl.usecases.home_choice import Failure
from tests.fakes.clock import FakeClock
from tests.fakes.home import MemoryWaysHome
from tests.fakes.router import FakeRouter
from tests.fakes.store import MemoryStore
from tests.fakes.together import FakeTogether
from tests.rollouts import PERSON, T0
from tests.unit.test_home import SOURCE, SourceProber
from tests.unit.test_home import way as way_of

CELLS = tuple(CellId(f"cell-{n:02d}") for n in range(20))


class Edge:
    """A router with twenty cells on the target; `alone` are those that it was asked about alone."""

    def __init__(self) -> None:
        self.writer = FakeRouter(dict.fromkeys(CELLS, SOURCE))
        self.splits = self.writer.target.splits
        for c in CELLS:
            self.splits[c] = Split(cell=c, target_bp=5000, cap_bp=9000, token=Token(7), lease_until=T0 + timedelta(minutes=3))
        self.together = FakeTogether(self.writer)
        self.ways, self.clock = MemoryWaysHome(), FakeClock()
        self.alone: list[CellId] = []
        self.groups: list[int] = []
        self.ports = HomePorts(
            router=self._router,
            prober=lambda _: SourceProber(2),
            ways=self.ways,
            clock=self.clock,
            store=MemoryStore,
            together=self._group,
        )

    def _router(self, w: WayHome) -> FakeRouter:
        self.alone.append(w.cell)
        return FakeRouter({w.cell: w.source}, target=self.writer.target)

    def _group(self, group: object) -> FakeTogether:
        self.groups.append(len(group))  # type: ignore[arg-type]
        return self.together

    def home(self, *cells: CellId) -> tuple[Returned | Failure, ...]:
        return fallback([way_of(c) for c in cells or CELLS], self.ports, PERSON)

    def weights(self) -> set[int]:
        return {s.target_bp for s in self.splits.values()}


def test_twenty_cells_are_a_few_exchanges_each_fenced_at_zero_and_marked() -> None:
    edge = Edge()
    results = edge.home()
    assert all(isinstance(r, Returned) and (r.was_bp, r.left_bp, r.token) == (5000, 0, 7 + HOME_TOKEN_STEP) for r in results)
    assert [r.cell for r in results] == list(CELLS)
    assert edge.weights() == {0}
    assert {s.token for s in edge.splits.values()} == {7 + HOME_TOKEN_STEP}
    assert edge.ways.marked() == CELLS
    assert edge.alone == []
    names = [name for name, _ in edge.together.exchanges]
    assert edge.together.exchanges[0] == ("read", len(CELLS))
    assert sum(n for name, n in edge.together.exchanges if name == "set") == len(CELLS)
    assert len(names) < len(CELLS)
    again = edge.writer.fence(CELLS[0], Token(8))
    assert not isinstance(again, Split), "a live controller finds itself stale"


def test_one_cell_alone_goes_as_ever() -> None:
    edge = Edge()
    assert isinstance(edge.home(CELLS[3])[0], Returned)
    assert (edge.groups, edge.together.exchanges, set(edge.alone)) == ([], [], {CELLS[3]})


def test_a_source_that_is_silent_or_in_part_there_binds_its_own_cell_only() -> None:
    edge = Edge()
    some = {CELLS[0]: SourceProber(0), CELLS[1]: SourceProber(1)}
    edge.ports = replace(edge.ports, prober=lambda w: some.get(w.cell, SourceProber(2)))
    silent, half, *whole = edge.home()
    assert isinstance(silent, Failure)
    assert silent.error.code == "fallback.unproven"
    assert isinstance(half, Returned)
    assert (half.left_bp, edge.splits[CELLS[1]].target_bp) == (5000, 5000)
    assert edge.splits[CELLS[1]].lease_until > T0 + timedelta(minutes=2)
    assert edge.splits[CELLS[0]].token == 7, "what is refused was not even fenced"
    assert {edge.splits[c].target_bp for c in CELLS[2:]} == {0}
    assert all(isinstance(r, Returned) for r in whole)


def test_a_source_that_hangs_keeps_no_other_cell() -> None:
    edge, others = Edge(), threading.Event()

    class Hangs:
        def ready(self, pool: PoolId, c: CellId) -> Readiness:
            assert others.wait(20), "the others are home first"
            return Readiness(pool=pool, cell=c, ready=2, total=2, age_s=0.1)

    def marked(c: CellId, *rest: object) -> None:
        note(c, *rest)  # type: ignore[arg-type]
        if len(edge.ways.marked()) == len(CELLS) - 1:
            others.set()

    note = edge.ways.mark
    edge.ways.mark = marked  # type: ignore[method-assign, assignment]
    edge.ports = replace(edge.ports, prober=lambda w: Hangs() if w.cell == CELLS[0] else SourceProber(2))
    assert all(isinstance(r, Returned) for r in edge.home())
    assert edge.weights() == {0}


def test_a_cell_that_another_writer_fences_meanwhile_goes_alone() -> None:
    edge = Edge()

    def controller() -> None:
        edge.splits[CELLS[5]] = replace(edge.splits[CELLS[5]], token=Token(9 + HOME_TOKEN_STEP))
        edge.together.before_fence = lambda: None

    edge.together.before_fence = controller
    results = edge.home()
    assert all(isinstance(r, Returned) for r in results)
    assert edge.weights() == {0}
    assert set(edge.alone) == {CELLS[5]}
    assert edge.splits[CELLS[5]].token == 9 + 2 * HOME_TOKEN_STEP


@pytest.mark.parametrize("where", ["read", "fence", "set"])
def test_an_exchange_that_cannot_be_understood_is_done_one_by_one(where: str) -> None:
    edge = Edge()
    edge.together.broken[where] = TrafficNotApplied("traffic.not_shown", "19 answers to 20 commands")
    assert all(isinstance(r, Returned) for r in edge.home())
    assert edge.weights() == {0}
    assert set(edge.alone) == set(CELLS)
    assert edge.ways.marked() == CELLS


@pytest.mark.parametrize("where", ["read", "fence", "set"])
def test_a_router_that_is_down_is_not_asked_once_more_for_each_cell(where: str) -> None:
    edge = Edge()
    edge.together.broken[where] = TrafficNotApplied("traffic.router_down", "no answer")
    results = edge.home()
    assert {r.error.code for r in results if isinstance(r, Failure)} == {"traffic.router_down"}
    assert len(results) == len(CELLS)
    assert edge.alone == []
    assert edge.ways.marked() == ()


def test_what_nobody_expected_of_an_exchange_is_told_of_every_cell() -> None:
    edge = Edge()
    edge.together.broken["fence"] = RuntimeError("odd")
    results = edge.home()
    assert {r.error.code for r in results if isinstance(r, Failure)} == {"fallback.unexpected"}
    assert len(results) == len(CELLS)


def test_a_router_that_says_it_did_and_did_not_is_not_believed() -> None:
    edge = Edge()
    edge.together.hide_sets = True
    results = edge.home()
    assert all(isinstance(r, Failure) and r.error.code == "traffic.not_shown" for r in results)
    assert edge.ways.marked() == ()


def test_a_cell_that_the_router_does_not_know_stands_in_no_others_way() -> None:
    edge = Edge()
    stranger = CellId("elsewhere")
    first, *rest = edge.home(stranger, *CELLS)
    assert isinstance(first, Failure)
    assert first.error.code == "traffic.unknown_cell"
    assert all(isinstance(r, Returned) for r in rest)


def test_a_cell_that_was_home_is_told_so_and_nothing_is_written_for_it() -> None:
    edge = Edge()
    edge.splits[CELLS[2]] = replace(edge.splits[CELLS[2]], target_bp=0)
    found = edge.home()[2]
    assert isinstance(found, Returned)
    assert (found.was_bp, found.token) == (0, 7)
    assert edge.weights() == {0}


def test_a_mark_that_cannot_be_written_is_said_and_the_cell_is_home() -> None:
    edge = Edge()

    def full(*_: object) -> None:
        raise FleetctlError("fallback.unwritable", "the disk is full")

    edge.ways.mark = full  # type: ignore[method-assign, assignment]
    results = edge.home()
    assert all(isinstance(r, Returned) and "not noted" in r.reported for r in results)
    assert edge.weights() == {0}
