"""Coming home needs the router alone; what it did is reconciled when the store is back."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.cli.commands.fallback import _code as exit_code
from fleetctl.cli.commands.fallback import _line as command_line
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import HOME_TOKEN_STEP, Returned, WayHome
from fleetctl.domain.ids import CellId, PoolId, Token, WorkloadId
from fleetctl.domain.split import Applied, Readiness, Split, Stale
from fleetctl.errors import EXIT_DONE, EXIT_PENDING, TrafficNotApplied, UnsafeFallback
from fleetctl.ports.traffic import Router
from fleetctl.usecases.home import PARALLEL, HomePorts, cut_streams, fallback, go_on, is_open, return_home, silent
from fleetctl.usecases.home_choice import Failure, readable
from fleetctl.usecases.home_reconcile import Reconciled, catch_up, reconcile
from tests.fakes.clock import FakeClock
from tests.fakes.home import MemoryWaysHome
from tests.fakes.router import FakeRouter, Target
from tests.fakes.store import MemoryStore
from tests.rollouts import PERSON, T0, rollout

CELLS = (CellId("chat-lab"), CellId("summary-lab"))
SOURCE = PoolId("nvidia-lab")


class SourceProber:
    """A prober that says what a test wants of the source."""

    def __init__(self, ready: int) -> None:
        self.answers, self.age_s = ready, 0.1

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=self.answers, total=2, age_s=self.age_s)


class Home:
    """A router with two cells on the target, and everything around it."""

    def __init__(self, ready: int = 2) -> None:
        self.target = Target(CELLS)
        self.writer = FakeRouter(dict.fromkeys(CELLS, SOURCE), target=self.target)
        for c in CELLS:
            self.writer.fence(c, Token(7))
            self.writer.set(Split(cell=c, target_bp=5000, cap_bp=9000, token=Token(7), lease_until=T0 + timedelta(minutes=3)))
        self.ways, self.clock, self.store = MemoryWaysHome(), FakeClock(), MemoryStore()
        for c in CELLS:
            self.ways.write(way(c))
        self.prober = SourceProber(ready)
        self.ports = HomePorts(
            router=lambda w: FakeRouter({w.cell: w.source}, target=self.target),
            prober=lambda _: self.prober,
            ways=self.ways,
            clock=self.clock,
            store=lambda: self.store,
        )


def way(c: CellId) -> WayHome:
    return WayHome(
        fleet="lab",
        cell=c,
        workload=WorkloadId(c.removesuffix("-lab")),
        region="lab",
        tenant="",
        klass="online",
        router=Connection(name="edge", kind="haproxy"),
        source=SOURCE,
        cap_bp=10_000,
        paper=("echo",),
        made_at=T0,
    )


def test_home_is_zero_at_the_router_with_a_token_far_above_the_floor() -> None:
    home = Home()
    done = return_home(way(CELLS[0]), home.ports, PERSON)
    assert home.target.splits[CELLS[0]].target_bp == 0
    assert home.target.splits[CELLS[0]].token == 7 + HOME_TOKEN_STEP == done.token
    assert (done.was_bp, done.source_proven) == (5000, True)
    assert home.target.splits[CELLS[1]].target_bp == 5000


def test_a_live_controller_finds_itself_stale_after_it() -> None:
    home = Home()
    return_home(way(CELLS[0]), home.ports, PERSON)
    again = Split(cell=CELLS[0], target_bp=9000, cap_bp=9000, token=Token(7), lease_until=T0)
    assert isinstance(home.writer.set(again), Stale)
    assert isinstance(home.writer.fence(CELLS[0], Token(8)), Stale)
    assert home.target.splits[CELLS[0]].target_bp == 0


def test_a_source_that_does_not_answer_is_refused_unless_a_person_says_so() -> None:
    home = Home(ready=0)
    with pytest.raises(UnsafeFallback) as refused:
        return_home(way(CELLS[0]), home.ports, PERSON)
    assert refused.value.code == "fallback.unproven"
    assert home.target.splits[CELLS[0]].target_bp == 5000
    done = return_home(way(CELLS[0]), home.ports, PERSON, unproven=True)
    assert (home.target.splits[CELLS[0]].target_bp, done.source_proven) == (0, False)


@pytest.mark.parametrize("bp", [0, 5_000])
def test_copies_for_the_shadow_stop_once_customers_are_home_and_a_router_that_keeps_them_is_said(bp: int) -> None:
    home, shown = Home(), list[int]()
    home.store.down = True
    home.writer.set(Split(cell=CELLS[0], target_bp=bp, cap_bp=9000, token=Token(7), lease_until=T0))

    def hush(w: WayHome) -> None:
        shown.append(home.target.splits[w.cell].target_bp)

    def refuses(w: WayHome) -> None:
        raise TrafficNotApplied("traffic.not_shown", "it has no tee.")

    (found,) = fallback((way(CELLS[0]),), replace(home.ports, hush=hush), PERSON)
    assert isinstance(found, Returned)
    assert shown, "asked"
    assert set(shown) == {0}, "never before they are home"
    assert "copies" not in found.reported
    (found,) = fallback((way(CELLS[0]),), replace(home.ports, hush=refuses), PERSON)
    assert isinstance(found, Returned)
    assert "copies for the shadow of chat-lab may go on: it has no tee." in found.reported


def test_it_works_with_the_store_down_and_is_reconciled_after() -> None:
    home = Home()
    home.store.start(rollout(), ())
    home.store.down = True
    results = fallback(tuple(way(c) for c in CELLS), home.ports, PERSON)
    assert all(isinstance(r, Returned) for r in results)
    assert all(s.target_bp == 0 for s in home.target.splits.values())
    assert reconcile(home.ports).cells == ()
    assert len(home.ways.marked()) == 2
    home.store.down = False
    assert reconcile(home.ports) == Reconciled(cells=CELLS)
    assert home.ways.marked() == ()
    loaded = home.store.load(CELLS[0])
    assert loaded is not None
    assert [o.kind for o in loaded.orders] == ["fallback"]
    lease = home.store.acquire(CELLS[0], "someone", timedelta(seconds=5))
    assert getattr(lease, "token", 0) > 7 + HOME_TOKEN_STEP
    assert [e.kind for e in home.store.events(CELLS[0], 0)][-1] == "fallback.returned"


def test_one_cell_that_fails_does_not_hold_up_the_others() -> None:
    home = Home()
    stranger = way(CellId("elsewhere"))
    results = fallback((stranger, way(CELLS[1])), home.ports, PERSON)
    assert isinstance(results[0], Failure)
    assert results[0].error.code == "traffic.unknown_cell"
    assert isinstance(results[1], Returned)
    assert home.target.splits[CELLS[1]].target_bp == 0


def test_routers_take_turns_and_the_answers_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    home, asked = Home(), list[str]()
    ways = tuple(replace(way(CellId(f"cell-{n}")), router=Connection(name=name, kind="haproxy")) for n, name in enumerate("aaabbc"))

    def router(w: WayHome) -> FakeRouter:
        asked.append(w.cell)
        return FakeRouter({w.cell: w.source}, target=Target((w.cell,)))

    monkeypatch.setattr("fleetctl.usecases.home.ASKED", 1)
    results = fallback(ways, replace(home.ports, router=router), PERSON)
    assert asked[:6] == ["cell-0", "cell-3", "cell-5", "cell-1", "cell-4", "cell-2"]
    assert [r.cell for r in results] == [w.cell for w in ways]


def test_sources_that_hang_keep_nobody_from_home_and_routers_are_told_a_few_at_a_time() -> None:
    """The last of 241 cells comes home while all others still wait for their sources; then all do, at most 48 at a router at a time."""
    ways = tuple(way(CellId(f"cell-{n}")) for n in range(241))
    last, target = ways[-1].cell, Target(tuple(w.cell for w in ways))
    for w in ways:
        target.splits[w.cell] = Split(cell=w.cell, target_bp=5000, cap_bp=9000, token=Token(7), lease_until=T0)
    is_home, busy, most, lock = threading.Event(), 0, 0, threading.Lock()

    class Hangs(SourceProber):
        def ready(self, pool: PoolId, c: CellId) -> Readiness:
            if c != last and not is_home.wait(30):
                raise AssertionError("whoever waits for a source that hangs keeps others from home")
            return super().ready(pool, c)

    class Counting(FakeRouter):
        def set(self, split: Split) -> Applied | Stale:
            nonlocal busy, most
            with lock:
                busy += 1
                most = max(most, busy)
            done = super().set(split)
            with lock:
                busy -= 1
            if split.cell == last:
                is_home.set()
            return done

    home = Home()
    ports = replace(home.ports, prober=lambda _: Hangs(2), router=lambda w: Counting({w.cell: w.source}, target=target))
    results = fallback(ways, ports, PERSON)
    assert all(isinstance(r, Returned) and r.is_home for r in results)
    assert most <= PARALLEL


def test_a_cell_that_is_home_already_is_left_alone() -> None:
    home = Home()
    return_home(way(CELLS[0]), home.ports, PERSON)
    before = home.target.splits[CELLS[0]]
    assert return_home(way(CELLS[0]), home.ports, PERSON).was_bp == 0
    assert home.target.splits[CELLS[0]] == before


class Contended(FakeRouter):
    """Another writer fences between our read and our fence, so many times."""

    def __init__(self, times: int, target: Target) -> None:
        super().__init__({CELLS[0]: SOURCE}, target=target)
        self.times = times

    def fence(self, c: CellId, token: Token) -> Split | Stale:
        if self.times:
            self.times -= 1
            FakeRouter({c: SOURCE}, target=self.target).fence(c, Token(token + 1))
        return super().fence(c, token)


@pytest.mark.parametrize(("times", "home"), [(1, True), (2, True), (3, False)])
def test_a_contended_router_is_tried_again_and_then_said_so(times: int, home: bool) -> None:
    world = Home()
    ports = HomePorts(
        router=lambda _: Contended(times, world.target),
        prober=world.ports.prober,
        ways=world.ways,
        clock=world.clock,
        store=world.ports.store,
    )
    if home:
        assert return_home(way(CELLS[0]), ports, PERSON).was_bp == 5000
    else:
        with pytest.raises(TrafficNotApplied) as refused:
            return_home(way(CELLS[0]), ports, PERSON)
        assert refused.value.code == "traffic.contended"
    assert (world.target.splits[CELLS[0]].target_bp == 0) is home


def test_what_the_router_reports_is_passed_on() -> None:
    home = Home()

    class Reporting(FakeRouter):
        def set(self, s: Split) -> Applied | Stale:
            self.report = "start-up file: no space left"
            return super().set(s)

    ports = HomePorts(
        router=lambda w: Reporting({w.cell: w.source}, target=home.target),
        prober=home.ports.prober,
        ways=home.ways,
        clock=home.clock,
        store=home.ports.store,
    )
    assert return_home(way(CELLS[0]), ports, PERSON).reported == "start-up file: no space left"


@pytest.mark.parametrize("was_bp", [5_000, 0])
def test_a_weight_of_0_that_nothing_shows_to_be_gone_by_is_not_called_home_and_the_command_fails(was_bp: int) -> None:
    home = Home()
    late = "gateway edge has not said that it has seen the weights that stand"
    if not was_bp:
        home.writer.set(replace(home.target.splits[CELLS[0]], target_bp=0))
    home.store.start(rollout(), ())

    def router(w: WayHome) -> Router:
        made = FakeRouter({w.cell: w.source}, target=home.target)
        made.unseen = late if w.cell == CELLS[0] else ""
        return made

    ports = replace(home.ports, router=router)
    ways = [way(c) for c in CELLS[:2]]
    results = fallback(ways, ports, PERSON)
    first, second = results
    assert isinstance(first, Returned)
    assert (home.target.splits[CELLS[0]].target_bp, first.unseen, first.is_home) == (0, late, False)
    assert isinstance(second, Returned)
    assert second.is_home
    assert (command_line(first), exit_code(results)) == (
        f"cell/{CELLS[0]} NOT PROVEN HOME: {'50 % -> ' if was_bp else ''}0 % is set, but {late}; the same command again looks again",
        EXIT_PENDING,
    )
    assert is_open(first)
    results = go_on(ways, results, home.ports, PERSON)
    assert exit_code(results) == EXIT_DONE, "the gateway has said it since"


def test_a_way_home_that_was_tampered_with_does_not_stop_the_others() -> None:
    class Tampered(MemoryWaysHome):
        def read(self, c: CellId) -> WayHome:
            if c == CELLS[0]:
                raise UnsafeFallback("fallback.tampered", f"the way home of {c} was changed.")
            return super().read(c)

    ways = Tampered()
    for c in CELLS:
        ways.write(way(c))
    good, bad = readable(ways)
    assert [w.cell for w in good] == ["summary-lab"]
    assert [f.cell for f in bad] == ["chat-lab"]


def at_zero(home: Home, c: CellId) -> None:
    home.writer.set(Split(cell=c, target_bp=0, cap_bp=9000, token=Token(7), lease_until=T0))


@pytest.mark.parametrize("store_down", [False, True])
def test_a_rollout_before_its_first_step_is_ended_too(store_down: bool) -> None:
    home = Home()
    at_zero(home, CELLS[0])
    home.store.start(rollout(), ())
    home.store.down = store_down
    results = fallback((way(CELLS[0]),), home.ports, PERSON)
    assert isinstance(results[0], Returned)
    assert isinstance(home.writer.fence(CELLS[0], Token(8)), Stale), "its controller could still raise it"
    home.store.down = False
    assert reconcile(home.ports) == Reconciled(cells=(CELLS[0],))
    loaded = home.store.load(CELLS[0])
    assert loaded is not None
    assert [o.kind for o in loaded.orders] == ["fallback"]
    before = home.target.splits[CELLS[0]]
    home.store.down = True
    fallback((way(CELLS[0]),), home.ports, PERSON)
    fallback((way(CELLS[0]),), home.ports, PERSON)
    assert len(home.ways.marked()) == 1
    assert home.target.splits[CELLS[0]].token == before.token + HOME_TOKEN_STEP


def test_a_cell_at_zero_that_nobody_moves_is_left_alone() -> None:
    home = Home()
    at_zero(home, CELLS[0])
    before = home.target.splits[CELLS[0]]
    fallback((way(CELLS[0]),), home.ports, PERSON)
    assert home.target.splits[CELLS[0]] == before
    assert home.ways.marked() == ()


def test_a_finished_cell_whose_weight_somebody_took_home_is_fenced_and_ends_by_a_persons_word() -> None:
    home = Home()
    at_zero(home, CELLS[0])
    home.store.start(replace(rollout(), ended="complete", weight_bp=10_000, hold_reason="foreign_write"), ())
    fallback((way(CELLS[0]),), home.ports, PERSON)
    assert reconcile(home.ports) == Reconciled(cells=(CELLS[0],))
    loaded = home.store.load(CELLS[0])
    assert loaded is not None
    assert [o.kind for o in loaded.orders] == ["fallback"]


@pytest.mark.parametrize("ended", ["", "complete"])
@pytest.mark.parametrize("bp", [0, 5000])
def test_a_store_from_a_backup_takes_over_the_routers_token(bp: int, ended: str) -> None:
    """So too where a finished cell was taken home by the printed page alone: nothing else would ever end that rollout."""
    home = Home()
    if not bp:
        at_zero(home, CELLS[0])
    home.store.start(replace(rollout(), hold_reason="stale", ended=ended), ())  # type: ignore[arg-type]
    assert catch_up(tuple(way(c) for c in CELLS), home.ports, PERSON) == (CELLS[0],)
    lease = home.store.acquire(CELLS[0], "ticker", timedelta(seconds=5))
    assert getattr(lease, "token", 0) == 8
    loaded = home.store.load(CELLS[0])
    assert loaded is not None
    assert [o.kind for o in loaded.orders] == (["resume"] if bp else ["fallback"])
    assert home.target.splits[CELLS[0]].target_bp == bp


def test_a_mark_that_cannot_be_written_does_not_make_it_not_home(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()

    def full(*_: object) -> None:
        raise UnsafeFallback("fallback.unwritable", "the disk is full.")

    monkeypatch.setattr(home.ways, "mark", full)
    done = fallback((way(CELLS[0]),), home.ports, PERSON)[0]
    assert isinstance(done, Returned)
    assert "the disk is full" in done.reported
    assert home.target.splits[CELLS[0]].target_bp == 0


def test_a_cell_goes_as_far_as_its_source_can_take_it_and_on_as_that_warms_up() -> None:
    home = Home(ready=1)
    ways = (way(CELLS[0]),)
    home.writer.set(Split(cell=CELLS[0], target_bp=9000, cap_bp=9000, token=Token(7), lease_until=T0))
    results = fallback(ways, home.ports, PERSON)
    done = results[0]
    assert isinstance(done, Returned)
    assert (done.was_bp, done.left_bp, done.ready, done.total) == (9000, 5000, 1, 2)
    split = home.target.splits[CELLS[0]]
    assert (split.target_bp, split.lease_until - home.clock.now()) == (5000, timedelta(seconds=180)), "its lease runs on while it waits"
    assert go_on(ways, results, home.ports, PERSON) == (replace(done, reported=""),), "no more than what answers"
    home.prober.answers = 0
    assert go_on(ways, results, home.ports, PERSON) == results, "a source that dies meanwhile takes nobody, and what is home stays"
    assert home.target.splits[CELLS[0]].target_bp == 5000
    home.prober.answers = 2
    (whole,) = go_on(ways, results, home.ports, PERSON)
    assert isinstance(whole, Returned)
    assert (whole.was_bp, whole.left_bp, whole.token) == (9000, 0, done.token)
    assert isinstance(home.writer.fence(CELLS[0], Token(8)), Stale)
    assert len(home.ways.marked()) == 1


def test_a_completion_that_is_older_than_a_minute_proves_nothing() -> None:
    home = Home(ready=2)
    for age, is_proof in ((60.0, True), (60.1, False)):
        home.prober.age_s = age
        result = fallback((way(CELLS[0 if is_proof else 1]),), home.ports, PERSON)[0]
        assert isinstance(result, Returned if is_proof else Failure)
    assert home.target.splits[CELLS[1]].target_bp == 5000


def test_a_person_may_go_all_the_way_though_part_of_the_source_is_silent() -> None:
    home = Home(ready=1)
    done = return_home(way(CELLS[0]), home.ports, PERSON, unproven=True)
    assert (done.left_bp, done.source_proven, home.target.splits[CELLS[0]].target_bp) == (0, False, 0)


def test_streams_are_ended_only_of_cells_that_are_home_and_a_router_that_cannot_says_so() -> None:
    home = Home()
    ways = tuple(way(c) for c in CELLS)
    cut: list[CellId] = []

    def end(w: WayHome) -> int:
        cut.append(w.cell)
        return 3

    results = (*fallback(ways[:1], home.ports, PERSON), Failure(cell=CELLS[1], error=TrafficNotApplied("traffic.router_down", "down")))
    assert cut_streams(ways, results, replace(home.ports, cut=end)) == {CELLS[0]: 3}
    assert cut == [CELLS[0]]
    refused = cut_streams(ways, results, home.ports)[CELLS[0]]
    assert isinstance(refused, TrafficNotApplied)
    assert refused.code == "traffic.cannot_cut"


def test_a_router_that_accepts_and_does_not_act_is_not_home() -> None:
    home = Home()

    class Lying(FakeRouter):
        def set(self, s: Split) -> Applied | Stale:
            return Applied(split=s)

    ports = replace(home.ports, router=lambda w: Lying({w.cell: w.source}, target=home.target))
    (failed,) = fallback((way(CELLS[0]),), ports, PERSON)
    assert isinstance(failed, Failure)
    assert failed.error.code == "traffic.not_shown"
    assert "still shows 50 %" in failed.error.message
    assert "--paper" in failed.error.hint
    assert home.ways.marked() == (), "nothing is told to the store as done"


def test_a_torn_mark_costs_no_result_and_is_written_anew_where_its_cell_is_asked_home() -> None:
    home = Home()
    for c in CELLS:
        at_zero(home, c)
    home.store.down = True
    ways = tuple(way(c) for c in CELLS)
    fallback(ways, home.ports, PERSON)
    home.ways.torn, home.ways.marks_read = {CELLS[0]}, []
    before = dict(home.target.splits)
    results = fallback(ways, home.ports, PERSON)
    assert all(isinstance(r, Returned) for r in results)
    assert home.ways.marks_read == list(CELLS), "read once each, however many cells were at zero"
    assert home.target.splits[CELLS[0]].token > before[CELLS[0]].token, "who can tell whether it was fenced?"
    assert home.target.splits[CELLS[1]] == before[CELLS[1]]
    home.store.down, home.ways.torn = False, {CELLS[1]}
    found = reconcile(home.ports)
    assert (found.cells, [f.cell for f in found.failed], found.why_not) == ((CELLS[0],), [CELLS[1]], "")
    assert home.ways.marked() == (CELLS[1],)


def test_a_mark_that_cannot_be_forgotten_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home()
    fallback(tuple(way(c) for c in CELLS), home.ports, PERSON)
    forget = home.ways.clear_mark

    def clear(c: CellId) -> None:
        if c == CELLS[0]:
            raise UnsafeFallback("fallback.unwritable", "the disk is read-only.")
        forget(c)

    monkeypatch.setattr(home.ways, "clear_mark", clear)
    found = reconcile(home.ports)
    assert (found.cells, [f.cell for f in found.failed]) == ((CELLS[1],), [CELLS[0]])


def test_a_source_is_silent_where_no_completion_answers_or_its_prober_fails_in_any_way() -> None:
    home = Home(ready=1)

    def prober(w: WayHome) -> SourceProber:
        if w.cell == CELLS[1]:
            raise RuntimeError("what nobody expected")
        return home.prober

    ports, ways = replace(home.ports, prober=prober), tuple(way(c) for c in CELLS)
    assert silent(ways, ports) == {CELLS[1]}
    home.prober.answers = 0
    assert silent(ways, ports) == set(CELLS)
