"""Beginning what a run proposes: what is looked at again, who is alone, and a kill after every write with the same end as without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.rebalance import RebalanceRun, StandingApproval
from fleetctl.domain.release import Release
from fleetctl.errors import LeaseHeld, PlanStale
from fleetctl.rebalance.hold import left, within
from fleetctl.usecases.rebalance_apply import begin_run, keep_lease, save, settle, take_lease, withdraw
from tests.cases.planning_fleet import ANA
from tests.fakes.clock import START
from tests.fakes.store import MemoryStore
from tests.unit.test_rebalance import BO, WIDE, World

CLASSES = ("batch", "online", "realtime")


def once(w: World, approval: StandingApproval, fleet: Fleet | None = None) -> tuple[str, ...]:
    """One run as the command makes it, without pools to make; returns what it began."""
    settle(w.store, w.store, w.clock.now())
    found = w.propose(within(replace(WIDE, dwell=timedelta(0)), approval))
    if save(found, w.fleet, w.ports, approval) is None:
        return ()
    return begin_run(found, fleet or w.fleet, w.ports, approval).run.begun


def test_an_approval_that_was_withdrawn_while_pools_were_made_begins_nothing() -> None:
    w = World()
    approval = w.approval()
    found = w.propose(within(WIDE, approval))
    save(found, w.fleet, w.ports, approval)
    withdraw(approval.id, w.store, w.store, BO, START)
    with pytest.raises(PlanStale, match="withdrawn"):
        begin_run(found, w.fleet, w.ports, approval)
    assert w.store.cells() == ()
    assert w.store.all(RebalanceRun) == ()


def test_a_fleet_that_changed_while_pools_were_made_begins_nothing() -> None:
    w = World()
    approval = w.approval()
    with pytest.raises(PlanStale, match="has changed since"):
        once(w, approval, replace(w.fleet, serial=w.fleet.serial + 1))
    assert w.store.cells() == ()


def test_a_lease_that_ran_out_is_taken_again_only_where_nobody_had_it() -> None:
    w = World()
    w.store = MemoryStore(w.clock.now)
    lease = take_lease(w.store, "a", lambda _: False)
    assert keep_lease(w.store, lease).token == lease.token
    w.clock.advance(timedelta(hours=3))
    again = keep_lease(w.store, lease)
    assert again.token == lease.token + 1
    w.clock.advance(timedelta(hours=3))
    other = take_lease(w.store, "b", lambda _: False)
    with pytest.raises(LeaseHeld, match="another one began"):
        keep_lease(w.store, again)
    w.store.release(other)
    with pytest.raises(LeaseHeld, match="another one began"):
        keep_lease(w.store, again)
    assert take_lease(w.store, "c", lambda _: False).holder == "c", "the refused run holds nobody up"


class Killed(BaseException):
    """The process died."""


class Dying(MemoryStore):
    """Dies before its write number `dies_at`."""

    dies_at = -1
    writes = 0

    def _count(self) -> None:
        self.writes += 1
        if self.writes == self.dies_at:
            raise Killed

    def put(self, id_: str, value: object) -> None:
        self._count()
        super().put(id_, value)

    def start(self, rollout, events) -> None:  # type: ignore[no-untyped-def]
        self._count()
        super().start(rollout, events)

    def order(self, c, order) -> None:  # type: ignore[no-untyped-def]
        self._count()
        super().order(c, order)

    def append(self, events) -> None:  # type: ignore[no-untyped-def]
        self._count()
        super().append(events)


def dying(make: Callable[[], World]) -> World:
    """A world whose store can die."""
    w = make()
    store = Dying()
    vars(store).update(vars(w.store))
    w.store, w.ports = store, replace(w.ports, store=store, records=store)
    return w


def forward() -> World:
    return World()


def back() -> World:
    w = World(amd="140")
    w.done("c0")
    w.done("c1")
    return w


@pytest.mark.parametrize("make", [forward, back])
def test_killed_before_any_write_and_run_again_begins_each_cell_once_and_no_more_than_allowed(make: Callable[[], World]) -> None:
    died = 0
    for at in range(1, 40):
        w = dying(make)
        approval = w.approval(moves=2, classes=CLASSES)
        store = w.store
        assert isinstance(store, Dying)
        before = len(list(store.events(None, 0)))
        store.writes, store.dies_at = 0, at
        try:
            once(w, approval)
        except Killed:
            died += 1
        finished = store.writes < at
        store.dies_at = -1
        assert () in [once(w, approval) for _ in range(4)], "once all that is allowed has begun, runs begin nothing"
        moved = [c for c in store.cells() if begun(w, c)]
        assert len(moved) == 2, (at, moved)
        (counted, _) = left(within(WIDE, approval), store.all(RebalanceRun), 48, w.clock.now())
        assert counted == 0
        assert not any(r.open for r in store.all(RebalanceRun))
        assert any(e.kind == "rebalance.run" for e in list(store.events(None, 0))[before:])
        if finished:
            break
    else:
        raise AssertionError("a run has more writes than this test kills")
    assert died >= 5


def test_a_cell_that_somebody_has_begun_anew_while_pools_were_made_is_not_sent_home() -> None:
    w = back()
    approval = w.approval(moves=2, classes=CLASSES)
    proposal = w.propose(within(WIDE, approval))
    assert set(proposal.home) == {"c0", "c1"}
    r = w.store.load(CellId("c0"))
    assert r is not None
    w.store.start(replace(r, plan=PlanId("p-new"), ended="", step=0, direction="forward"), ())
    done = begin_run(proposal, w.fleet, w.ports, approval)
    assert done.home == ("c1",)
    fresh = w.store.load(CellId("c0"))
    assert fresh is not None
    assert fresh.orders == ()


def begun(w: World, cell: CellId) -> bool:
    """Tell whether a run began something with this cell; and that it did so once."""
    r = w.store.load(cell)
    assert r is not None
    homes = [o for o in r.orders if o.kind == "fallback"]
    starts = [e for e in w.store.events(cell, 0) if e.kind == "rollout.start"]
    assert len(homes) <= 1
    assert len(starts) <= 1
    return bool(homes) or (r.plan != "p-old" and not r.ended)


def test_nobody_goes_home_to_a_pool_that_was_given_back() -> None:
    w = World(amd="140")
    w.done("c0")
    asked = Release(pool=PoolId("nvidia-lab"), kind="handoff", hosts=(), role="source", asked_by=ANA, at=START)
    w.store.put("nvidia-lab", asked)
    assert [s.order for s in w.propose().run.shifts] == ["home"], "asking alone gives nothing back"
    w.store.put("nvidia-lab", replace(asked, step="handed_over"))
    found = w.propose()
    assert "c0" not in {s.cell for s in found.run.shifts}
    assert "rebalance.no_home" in {h.reason.code for h in found.run.held if h.cell == "c0"}


def test_a_wave_is_begun_and_the_next_run_begins_the_next() -> None:
    w = World()
    w.fleet = replace(w.fleet, policy=replace(w.fleet.policy, wave_cells=1))
    approval = w.approval(moves=3, classes=CLASSES)
    seen = [once(w, approval) for _ in range(4)]
    assert [len(s) for s in seen] == [1, 1, 1, 0]
    assert len({c for s in seen for c in s}) == 3
    assert len(w.store.all(Plan)) == 3
