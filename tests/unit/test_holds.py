"""Other hands: the source's minimum is pinned while a cell moves and given back once, whatever is killed; a foreign write holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from fleetctl.adapters.deadline import Patience
from fleetctl.adapters.hands import JoinedHands
from fleetctl.adapters.hands.patient import Patient
from fleetctl.domain.holds import Pin, Standing, pin_id, wanted_minimum
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.domain.rollout import Order
from fleetctl.domain.split import Split
from fleetctl.errors import InventoryFailed
from fleetctl.ports.state import Lease
from fleetctl.usecases.holds import KeptHolds, said_of
from fleetctl.usecases.migrate import Driver
from fleetctl.usecases.tick import TickSettings
from tests.fakes.hands import FakeHands
from tests.rollouts import CELL, PERSON, spec
from tests.simulator import SOURCE, TARGET, Simulation

OTHER = CellId("code-lab")


class Killed(BaseException):
    """The process is gone."""


def world(cells: tuple[CellId, ...] = (CELL,), *, shadow: bool = False, **more: object) -> tuple[Simulation, FakeHands]:
    """Return a migration whose source is sized by an autoscaler that keeps 2 to 10, with 8 there now."""
    s = Simulation(cells, of=replace(spec(bake_s=2.0, shadow=shadow), warm_up=timedelta(seconds=1)), rate_per_s=60)
    hands = FakeHands(of={"asg": SOURCE}, minimum={"asg": 2}, **more)  # type: ignore[arg-type]
    restart(s, hands)
    return s, hands


def restart(s: Simulation, hands: FakeHands) -> None:
    """Begin a new process: it knows what the store knows."""
    s.holds = KeptHolds(hands, s.store, s.clock, "a")  # type: ignore[assignment]


def kinds(s: Simulation, c: CellId = CELL) -> list[str]:
    return [e.kind for e in s.store.events(c, 0) if e.kind.startswith(("hold", "hands"))]


def pages(s: Simulation) -> list[str]:
    return [n.text for n in s.notices.sent if n.kind == "notify.page"]


def released(s: Simulation) -> list[str]:
    """Give the source back, as `fleetctl release` does; return what was said."""
    return [said.kind for _, said in s.holds.release(SOURCE)]


def test_a_migration_pins_what_is_there_and_keeps_it_until_the_pool_is_released() -> None:
    s, hands = world()
    s.begin()
    s.run(60, lambda: s.bp() > 0)
    assert hands.minimum == {"asg": 8}, "8 machines are there: nobody may take one"
    s.run(600, lambda: bool(s.rollout().ended))
    swept(s)
    assert (s.rollout().ended, hands.minimum) == ("complete", {"asg": 8}), "the way home is held though all is moved"
    assert kinds(s) == ["hands.found", "hold.pinned"]
    assert f"{SOURCE} is held as the way home until: fleetctl release {SOURCE}" in [n.text for n in s.notices.sent][-1]
    restart(s, hands)
    assert released(s) == ["hold.restored"]
    assert hands.writes == [("asg", 2, 8), ("asg", 8, 2)]
    assert released(s) == []
    swept(s)
    assert len(hands.writes) == 2


def test_a_complete_cell_that_comes_home_gives_it_back_and_a_second_migration_pins_once_more() -> None:
    s, hands = world()
    s.begin()
    s.run(600, lambda: bool(s.rollout().ended))
    s.store.order(CELL, Order(kind="fallback", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.run(60, lambda: s.rollout().ended == "fell_back")
    assert (s.bp(), hands.minimum) == (0, {"asg": 2})
    s.begin()
    s.run(600, lambda: s.rollout().ended == "complete")
    assert hands.writes == [("asg", 2, 8), ("asg", 8, 2), ("asg", 2, 8)]
    assert released(s) == ["hold.restored"]


def test_a_second_migration_of_a_complete_cell_does_not_pin_twice() -> None:
    s, hands = world()
    s.begin()
    s.run(600, lambda: bool(s.rollout().ended))
    s.begin()
    s.run(60, lambda: s.bp() > 0)
    swept(s)
    assert (hands.writes, kinds(s).count("hold.pinned")) == ([("asg", 2, 8)], 1)
    assert released(s) == [], "a cell moves: nobody gives the minimum back under it"
    assert hands.minimum == {"asg": 8}


def test_of_a_complete_cell_and_one_that_came_home_the_complete_one_keeps_it() -> None:
    s, hands = world((CELL, OTHER))
    s.begin()
    s.run(60, lambda: all(s.rollout(c).phase == "canary" for c in s.cells))
    s.store.order(OTHER, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(600, lambda: bool(s.rollout(CELL).ended and s.rollout(OTHER).ended))
    swept(s)
    assert (s.rollout(CELL).ended, hands.minimum) == ("complete", {"asg": 8})
    assert released(s) == ["hold.restored"]


@pytest.mark.parametrize("stays", [{"part": "x-tier free of chat"}, {"cap_bp": 5_000}])
def test_a_split_that_stays_gives_it_back_when_it_is_complete(stays: dict[str, Any]) -> None:
    s, hands = world()
    s.spec = replace(s.spec, **stays)
    s.begin()
    s.run(600, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, hands.minimum) == ("complete", {"asg": 2})
    assert s.target.splits[CELL].lease_until - s.clock.now() > timedelta(days=365), "nobody renews it now: no guard takes it home"


@pytest.mark.crash
@pytest.mark.parametrize("how", ["before", "after", "silent"])
def test_a_release_that_is_killed_or_meets_a_silent_owner_is_finished_by_the_next_ticker(how: str) -> None:
    s, hands = world()
    s.begin()
    s.run(600, lambda: bool(s.rollout().ended))

    def kill(when: str) -> None:
        if when == how:
            hands.on_write = lambda _: None
            raise Killed

    hands.on_write, hands.silent = kill, how == "silent"
    if how == "silent":
        assert released(s) == ["hold.not_restored"]
    else:
        with pytest.raises(Killed):
            released(s)
    hands.silent = False
    s.clock.advance(timedelta(seconds=30))
    restart(s, hands)
    swept(s)
    assert (hands.minimum, hands.writes) == ({"asg": 2}, [("asg", 2, 8), ("asg", 8, 2)])


def test_a_record_of_an_older_release_in_any_open_state_is_given_back() -> None:
    s, hands = world()
    s.begin()
    s.run(600, lambda: bool(s.rollout().ended))
    id_ = pin_id(SOURCE, "asg")
    pin = s.store.get(Pin, id_)
    assert pin is not None
    for state in ("pinning", "pinned", "restoring"):
        hands.minimum["asg"] = 8
        s.store.put(id_, replace(pin, state=state))
        assert released(s) == ["hold.restored"]
        assert hands.minimum == {"asg": 2}


@pytest.mark.parametrize("how", ["abort", "rollback", "fallback", "fail"])
def test_going_home_asks_no_owner(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s, _ = world()
    s.begin()
    s.at("ramp")
    asked: list[CellId] = []

    def note(*given: object) -> str:
        asked.append(CELL)
        return ""

    monkeypatch.setattr(s.holds, "watch", note)
    monkeypatch.setattr(s.holds, "writer", note)
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=s.bp() + 100)
    before = s.bp()
    if how == "fail":
        s.failing = 0.9
        for _ in range(120):
            asked.clear()
            s.serve(0.5)
            s.tick_once()
            if s.rollout().latched is not None:
                break
    else:
        s.store.order(CELL, Order(kind=how, actor=PERSON, at=s.clock.now()))  # type: ignore[arg-type]
        s.look_now()
        s.tick_once()
    assert s.bp() < before
    assert asked == []


@pytest.mark.parametrize("how", ["abort", "fallback", "fail"])
def test_a_migration_that_goes_home_gives_it_back_too(how: str) -> None:
    s, hands = world()
    s.begin()
    s.at("canary")
    assert hands.minimum == {"asg": 8}
    if how == "fail":
        s.failing = 0.9
    else:
        s.store.order(CELL, Order(kind=how, actor=PERSON, at=s.clock.now()))  # type: ignore[arg-type]
    s.run(120, lambda: bool(s.rollout().ended))
    assert s.rollout().ended in ("aborted", "fell_back", "rolled_back")
    assert (hands.minimum, len(hands.writes)) == ({"asg": 2}, 2)


def test_of_two_cells_on_one_pool_the_last_one_gives_it_back() -> None:
    s, hands = world((CELL, OTHER))
    s.begin()
    s.run(60, lambda: all(s.rollout(c).phase == "canary" for c in s.cells))
    assert hands.writes == [("asg", 2, 8)]
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: bool(s.rollout(CELL).ended))
    assert hands.minimum == {"asg": 8}, "the other one still moves"
    s.store.order(OTHER, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: bool(s.rollout(OTHER).ended))
    assert (hands.minimum, len(hands.writes)) == ({"asg": 2}, 2)


def live_through(s: Simulation, hands: FakeHands, kill_at: dict[int, str], *, home: bool = False) -> None:
    """Run to the end; the process is killed before or after the writes of these numbers, and another one goes on."""
    seen = [0]

    def on_write(when: str) -> None:
        seen[0] += when == "before"
        if kill_at.get(seen[0]) == when:
            kill_at.pop(seen[0])
            raise Killed

    hands.on_write = on_write
    for _ in range(2_000):
        try:
            s.serve(0.5)
            s.tick_once()
        except Killed:
            s.clock.advance(timedelta(seconds=16))  # the leases of the dead
            restart(s, hands)
        if s.rollout().ended:
            return
        if home and s.bp() > 0 and s.rollout().direction == "forward":
            s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    raise AssertionError(f"never ended: {s.rollout().phase} {s.rollout().hold_reason}")


@pytest.mark.crash
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", [1, 2])
def test_killed_around_the_call_it_is_recorded_before_and_given_back_once(which: int, when: str) -> None:
    s, hands = world()
    s.begin()
    live_through(s, hands, {which: when}, home=True)
    pin = s.store.get(Pin, pin_id(SOURCE, "asg"))
    assert pin is not None
    assert (pin.was, pin.to, pin.state, hands.minimum) == (2, 8, "restored", {"asg": 2})
    assert hands.writes == [("asg", 2, 8), ("asg", 8, 2)], "each once, though the process was killed"
    assert s.rollout().ended == "aborted"


@pytest.mark.crash
def test_killed_at_any_put_of_the_record_the_minimum_comes_home() -> None:
    for which, is_put in product(range(1, 5), (False, True)):
        s, hands = world()
        put, left = s.store.put, [which]

        def killed_put(id_: str, value: object, put=put, left=left, is_put=is_put) -> None:  # type: ignore[no-untyped-def]
            left[0] -= isinstance(value, Pin)
            if left[0] == 0 and isinstance(value, Pin) and not is_put:
                left[0] -= 1
                raise Killed
            put(id_, value)
            if left[0] == 0 and isinstance(value, Pin):
                left[0] -= 1
                raise Killed

        s.store.put = killed_put  # type: ignore[method-assign]
        s.begin()
        live_through(s, hands, {}, home=True)
        swept(s)
        assert hands.minimum == {"asg": 2}, (which, is_put)
        assert hands.writes == [("asg", 2, 8), ("asg", 8, 2)], (which, is_put)
        assert left[0] < 0


def swept(s: Simulation) -> None:
    """Let a ticker look for what was left pinned."""
    driver = Driver(ports=s.ports(), settings=TickSettings(holder="a"), on_tick=lambda _: None)
    driver.step()
    driver.step()


@pytest.mark.crash
def test_an_owner_that_is_silent_at_the_end_is_asked_again_until_it_has_its_minimum_back() -> None:
    s, hands = world()
    s.begin()
    s.at("canary")
    hands.silent = True
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "aborted", "nothing keeps a cell from home"
    assert "hold.not_restored" in kinds(s)
    restart(s, hands)  # killed meanwhile
    swept(s)
    assert hands.minimum == {"asg": 8}
    hands.silent = False
    s.clock.advance(timedelta(seconds=30))
    swept(s)
    assert (hands.minimum, len(hands.writes)) == ({"asg": 2}, 2)
    swept(s)
    assert len(hands.writes) == 2
    assert kinds(s)[-1] == "hold.restored"


def test_what_somebody_else_set_meanwhile_is_left_at_the_end() -> None:
    s, hands = world()
    s.begin()
    s.at("canary")
    hands.minimum["asg"] = 9  # its owner wants more: no harm to us
    s.run(40)
    assert s.rollout().foreign == ""
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: bool(s.rollout().ended))
    assert (hands.minimum, len(hands.writes)) == ({"asg": 9}, 1)
    assert kinds(s)[-1] == "hold.left"


@pytest.mark.parametrize(("theirs", "state"), [(5, "left"), (2, "restored")])
def test_what_somebody_set_between_look_and_give_back_is_left_and_not_said_to_be_restored(theirs: int, state: str) -> None:
    s, hands = world()
    s.begin()
    s.at("canary")

    def write(when: str) -> None:
        hands.minimum["asg"] = theirs

    hands.on_write = write
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: bool(s.rollout().ended))
    pin = s.store.get(Pin, pin_id(SOURCE, "asg"))
    assert pin is not None
    assert (pin.state, hands.minimum, kinds(s)[-1]) == (state, {"asg": theirs}, f"hold.{state}")


def test_without_the_right_to_pin_it_is_said_before_anything_moves_and_nobody_is_held() -> None:
    s, hands = world(refuses=True)
    s.begin()
    s.at("canary")
    said = [e.text for e in s.store.events(CELL, 0) if e.kind == "hold.gap"]
    assert len(said) == 1
    assert "cannot be pinned at 8: no right to write" in said[0]
    assert [n.text for n in s.notices.sent if n.kind == "notify.warning"] == [f"{CELL}: {said[0]}"]
    assert hands.minimum == {"asg": 2}
    s.run(600, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, hands.writes) == ("complete", [])


def test_an_owner_that_cannot_be_read_is_a_gap_in_preflight() -> None:
    s, hands = world(silent=True)
    s.begin()
    s.at("canary")
    assert kinds(s) == ["hands.gap", "hands.gap"]
    assert hands.writes == []


@pytest.mark.parametrize("is_set", [False, True])
def test_a_pin_whose_call_failed_is_tried_again_until_it_stands_and_said_once(is_set: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A throttled call, or one whose answer was lost though it was done, costs no migration its hold."""
    monkeypatch.setattr("fleetctl.usecases.holds.EVERY", timedelta(seconds=3))
    s, hands = world()
    failed: list[str] = []

    def throttle(when: str) -> None:
        if when == ("after" if is_set else "before") and len(failed) < 3:
            failed.append(when)
            raise InventoryFailed("inventory.fake", "Throttling: Rate exceeded")

    hands.on_write = throttle
    s.begin()
    s.run(60, lambda: s.bp() > 0)
    s.run(10)
    pin = s.store.get(Pin, pin_id(SOURCE, "asg"))
    assert pin is not None
    assert (pin.state, hands.minimum, len(failed)) == ("pinned", {"asg": 8}, 1 if is_set else 3)
    assert kinds(s) == ["hands.found", "hold.gap", "hold.pinned"]
    assert s.rollout().foreign == "", "nobody else wrote: no person is needed"
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: bool(s.rollout().ended))
    assert hands.minimum == {"asg": 2}


def test_who_owns_pool_and_route_is_found_in_preflight() -> None:
    s, _ = world(gitops=("Argo CD serving/h100",), route_owner="Flux apps")
    s.begin()
    s.at("canary")
    said = [e.text for e in s.store.events(CELL, 0) if e.kind == "hands.found"]
    assert f"pool {SOURCE} is sized by scaler asg: 8 machines, minimum 2 to 10" in said
    assert f"pool {SOURCE} belongs to Argo CD serving/h100: what it applies overwrites ours" in said
    assert f"route of {CELL} belongs to Flux apps: what it applies overwrites ours" in said


def test_a_minimum_that_is_taken_holds_names_the_writer_pages_once_and_is_put_back_three_times_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fleetctl.usecases.holds.EVERY", timedelta(seconds=3))
    s, hands = world(gitops=("Terraform states/prod.tfstate",))
    s.begin()
    s.at("canary")
    hands.last_writer = "argocd-controller"
    before = len(hands.writes)
    for _ in range(8):
        hands.minimum["asg"] = 2
        s.run(4)
    assert (s.rollout().hold_reason, s.rollout().phase) == ("foreign_write", "canary")
    assert len(hands.writes) - before == 3
    assert len(pages(s)) == 1
    assert "argocd-controller set the minimum of scaler asg to 2, where 8 is held for chat-lab" in pages(s)[0]
    assert sum(k == "hold.given_up" for k in kinds(s)) == 1
    hands.minimum["asg"] = 8
    s.run(10)
    assert (s.rollout().phase, s.rollout().hold_reason) == ("canary", "foreign_write"), "a person decides, not time"
    s.store.order(CELL, Order(kind="resume", actor=PERSON, at=s.clock.now()))
    s.run(100, lambda: s.rollout().phase == "ramp")
    assert s.rollout().foreign == ""
    hands.minimum["asg"] = 2
    s.run(6)
    assert len(pages(s)) == 2, "after a person's word a new write is a new matter"


def test_where_nobody_tells_the_writer_its_gitops_owner_is_named() -> None:
    s, hands = world(gitops=("Terraform prod.tfstate",))
    s.begin()
    s.at("canary")
    hands.minimum["asg"] = 3
    s.run(33, lambda: s.rollout().hold_reason == "foreign_write")
    assert "somebody else (it belongs to Terraform prod.tfstate) set the minimum of scaler asg to 3" in pages(s)[0]


def test_a_weight_that_a_tool_puts_back_each_time_is_set_back_three_times_at_most_and_the_tool_is_named() -> None:
    s, hands = world()
    s.begin()
    s.at("canary")
    hands.last_writer = "kustomize-controller"
    ours = s.bp()
    s.target.applied.clear()
    for _ in range(30):
        if s.bp() == ours:
            s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=3_300)
        s.run(2)
        assert s.rollout().phase == "canary"
    lowered = [a for a in s.target.applied if a.target_bp == ours]
    assert len(lowered) == 3
    assert (s.rollout().hold_reason, s.rollout().foreign_writes) == ("foreign_write", 3)
    assert pages(s) == [f"{CELL}: kustomize-controller set 33 % where 10 % was; resume or abort it"]
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(30, lambda: bool(s.rollout().ended))
    assert (s.bp(), s.rollout().ended) == (0, "aborted"), "going home is never counted"


@pytest.mark.parametrize("phase", ["preflight", "shadow"])
def test_a_weight_that_a_tool_sets_before_anybody_moved_is_theirs_though_no_lease_stands_at_0(phase: str) -> None:
    s, hands = world(shadow=True)
    s.begin()
    if phase == "preflight":
        s.ready.share[TARGET] = 0.5  # it waits there
        s.run(20)
    else:
        s.at("shadow")
    assert s.rollout().phase == phase
    assert s.target.splits[CELL].lease_until < s.clock.now(), "nobody ever set one"
    hands.last_writer = "kustomize-controller"
    for _ in range(30):
        if s.bp() == 0:
            s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=5_000, cap_bp=10_000)
        s.run(2)
    assert (s.rollout().foreign, s.rollout().foreign_writes) == ("kustomize-controller set 50 % where 0 % was", 3)
    assert pages(s) == [f"{CELL}: kustomize-controller set 50 % where 0 % was; resume or abort it"]
    s.run(200, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("lost_evidence", 0), "nobody judges what they do there: it is not left so"


def test_a_persons_rollback_is_obeyed_though_somebody_else_wrote() -> None:
    s, hands = world()
    s.begin()
    s.at("ramp")
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=2_000)
    s.run(3)
    assert s.rollout().hold_reason == "foreign_write"
    s.store.order(CELL, Order(kind="rollback", actor=PERSON, at=s.clock.now()))
    s.run(5)
    assert (s.rollout().phase, s.bp(), s.rollout().foreign) == ("canary", 1_000, "")
    assert hands.minimum == {"asg": 8}


def test_a_raise_of_ours_that_was_killed_before_it_was_recorded_is_no_foreign_write_but_only_once() -> None:
    s, _ = world()
    s.begin()
    s.at("canary")
    following = s.spec.phases[s.rollout().step + 1].weight_bp
    s.store.order(CELL, Order(kind="pause", actor=PERSON, at=s.clock.now()))
    s.run(3)
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=following)
    s.run(5)
    assert (s.rollout().foreign, pages(s)) == ("", [])
    for _ in range(6):
        s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=following)
        s.run(5)
    assert s.rollout().hold_reason == "foreign_write"
    assert s.rollout().foreign_writes == 3
    assert len(pages(s)) == 1


def test_what_is_pinned_is_never_above_the_owners_maximum_nor_below_its_minimum() -> None:
    assert wanted_minimum(2, 10, 8, 0) == 8
    assert wanted_minimum(2, 10, 3, 16) == 10
    assert wanted_minimum(5, None, 3, 4) == 5
    assert wanted_minimum(2, 1, 8, 8) == 2


def test_a_gap_is_said_with_its_source_and_reason() -> None:
    (said,) = said_of((Gap(scope="pool h100", reason="no answer", source="aws"),))
    assert (said.kind, said.text) == ("hands.gap", "pool h100: not known who else writes it (aws): no answer")


def test_a_writer_that_lost_its_lease_writes_nothing() -> None:
    s, hands = world()
    s.begin()
    holds = s.holds
    hands.on_write = lambda _: None
    renew = s.store.renew

    def stopped(lease, ttl):  # type: ignore[no-untyped-def]
        s.clock.advance(timedelta(seconds=60))  # SIGSTOP between the record and the call
        return renew(lease, ttl)

    s.store.renew = stopped  # type: ignore[method-assign]
    with pytest.raises(Exception, match="somebody else is at the minimum"):
        holds.pin(SOURCE, 0, Token(1), CELL)
    assert hands.writes == []
    s.store.renew = renew  # type: ignore[method-assign]
    holds.pin(SOURCE, 0, Token(2), CELL)
    assert hands.writes == [("asg", 2, 8)]
    assert holds.restore(PoolId("other"), Token(2), CELL) == ()


class Hanging:
    """An owner of a pool whose API, from a moment on, takes a call and never answers it."""

    def __init__(self) -> None:
        self.of = FakeHands(of={"asg": SOURCE}, minimum={"asg": 2})
        self.hangs, self.ends, self.asked = False, threading.Event(), 0

    def _answer(self) -> FakeHands:
        if self.hangs:
            self.asked += 1
            self.ends.wait(60)
        return self.of

    def find(self) -> tuple[Owner | Gap, ...]:
        return self._answer().of_pool(SOURCE)

    def standing(self, ref: str) -> Standing:
        return self._answer().standing(SOURCE, ref)

    def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
        return self._answer().set_minimum(SOURCE, ref, was, to)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    found = Hanging()
    yield found
    found.ends.set()


def hung_world(scaler: Hanging, cells: int = 5) -> Simulation:
    s, _ = world(tuple(CellId(f"cell-{n}") for n in range(cells)))
    s.rate_per_s = 60
    patient = Patient(scaler, "AWS", Patience(0.1, 3_600.0))
    s.holds = KeptHolds(JoinedHands({SOURCE: [patient]}, lambda _: (), {}), s.store, s.clock, "a")  # type: ignore[assignment]
    s.begin()
    return s


def test_an_api_that_hangs_while_cells_move_is_waited_for_once_and_every_cell_goes_on(hanging: Hanging) -> None:
    s = hung_world(hanging)
    s.run(60, lambda: all(s.bp(c) > 0 for c in s.cells))
    assert hanging.of.minimum == {"asg": 8}
    hanging.hangs = True
    s.run(31, lambda: all(s.rollout(c).phase == "ramp" for c in s.cells))
    swept(s)
    assert [s.rollout(c).hold_reason for c in s.cells] == [""] * 5
    assert hanging.asked == 1, "one place is waited for once, not once per cell and look"
    for c in s.cells:
        s.store.order(c, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(30, lambda: all(s.rollout(c).ended for c in s.cells))
    assert {s.rollout(c).ended for c in s.cells} == {"aborted"}
    assert hanging.asked == 1


def test_cells_whose_owner_hangs_before_they_begin_wait_twenty_seconds_and_then_begin_without_a_hold(hanging: Hanging) -> None:
    hanging.hangs = True
    s = hung_world(hanging, 3)
    began = s.clock.now()
    s.run(15)
    assert {s.rollout(c).phase for c in s.cells} == {"preflight"}
    assert all(not kinds(s, c) for c in s.cells), "nothing is recorded yet"
    s.run(60, lambda: all(s.bp(c) > 0 for c in s.cells))
    assert s.clock.now() - began >= timedelta(seconds=20)
    assert all("hands.gap" in kinds(s, c) for c in s.cells)
    assert hanging.asked == 1


def test_a_sweep_stops_at_an_owner_that_is_slow_and_begins_behind_it_the_next_time() -> None:
    s, hands = world()
    hands.silent = True
    for n in range(4):
        pin = Pin(pool=PoolId(f"p{n}"), ref="asg", name="x", was=2, to=8, cells=(CELL,), at=s.clock.now(), state="pinned")
        s.store.put(pin_id(pin.pool, pin.ref), pin)
    asked: list[PoolId] = []

    def slow(pool: PoolId, ref: str) -> Standing:
        asked.append(pool)
        s.clock.advance(timedelta(seconds=3))
        raise InventoryFailed("hold.silent", "no answer")

    hands.standing = slow  # type: ignore[method-assign]
    for _ in range(4):
        s.holds.sweep()
    assert asked == ["p0", "p1", "p2", "p3"]


def finished(weight_bp: int = 10_000, **more: Any) -> tuple[Simulation, FakeHands]:
    """Return a cell that is complete, at its last weight for good, its source held as the way home."""
    s, hands = world(**more)
    if weight_bp < 10_000:
        phases = tuple(replace(p, weight_bp=min(p.weight_bp, weight_bp)) for p in s.spec.phases)
        s.spec = replace(s.spec, cap_bp=weight_bp, phases=phases)
    s.begin()
    s.holds.pin(SOURCE, 0, Token(1), CELL)
    forever = s.clock.now() + timedelta(days=36_500)
    lease = s.store.acquire(CELL, "a", timedelta(seconds=5))
    assert isinstance(lease, Lease)
    at_last = replace(s.rollout(), step=len(s.spec.phases) - 1, weight_bp=weight_bp, settled_at=s.clock.now())
    s.store.record(lease, s.rollout(), replace(at_last, ended="complete", step_done=True), (), timedelta(minutes=5))
    s.target.splits[CELL] = Split(cell=CELL, target_bp=weight_bp, cap_bp=weight_bp, token=Token(0), lease_until=forever)
    return s, hands


def looked(s: Simulation) -> None:
    """Let five minutes pass and everybody who is due be looked at."""
    s.clock.advance(timedelta(minutes=5))
    for _ in range(6):
        s.tick_once()
        s.clock.advance(timedelta(seconds=1))


def test_a_finished_cell_whose_weight_somebody_lowers_is_held_names_the_writer_pages_once_and_a_person_brings_it_back() -> None:
    s, hands = finished()
    looked(s)
    assert pages(s) == []
    hands.last_writer = "kustomize-controller"
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=4_000)
    for _ in range(4):
        looked(s)
    assert pages(s) == [f"{CELL}: kustomize-controller set 40 % where 100 % was; resume or abort it"]
    assert (s.rollout().ended, s.rollout().hold_reason, s.bp()) == ("complete", "foreign_write", 4_000), "nobody more is sent by itself"
    assert [e.text for e in s.store.events(CELL, 0) if e.kind == "rollout.hold"][-1].startswith("kustomize-controller set 40 %")
    s.store.order(CELL, Order(kind="resume", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.run(200, lambda: s.rollout().ended == "complete" and s.bp() == 10_000)
    assert (s.rollout().hold_reason, s.bp(), hands.minimum) == ("", 10_000, {"asg": 8})
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=0)
    looked(s)
    assert len(pages(s)) == 2, "after a person's word a new write is a new matter"
    s.store.order(CELL, Order(kind="fallback", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.run(60, lambda: s.rollout().ended == "fell_back")
    assert (s.bp(), hands.minimum) == (0, {"asg": 2})


def test_a_finished_splits_cap_is_set_back_three_times_at_most() -> None:
    s, _ = finished(5_000)
    for _ in range(5):
        s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=9_000, cap_bp=9_000)
        looked(s)
    assert [a.target_bp for a in s.target.applied] == [5_000] * 3
    assert len(pages(s)) == 1


def test_the_way_home_of_a_finished_cell_is_watched_until_its_pool_is_released() -> None:
    s, hands = finished(gitops=("Terraform prod.tfstate",))
    for _ in range(5):
        hands.minimum["asg"] = 1
        looked(s)
    assert len(pages(s)) == 1
    assert "it belongs to Terraform prod.tfstate) set the minimum of scaler asg to 1, where 8 is held for chat-lab" in pages(s)[0]
    assert [w for w in hands.writes if w[1:] == (1, 8)] == [("asg", 1, 8)] * 3
    assert s.rollout().hold_reason == "foreign_write"
    s.store.order(CELL, Order(kind="resume", actor=PERSON, at=s.clock.now()))
    s.look_now()
    hands.minimum["asg"] = 8
    s.run(200, lambda: s.rollout().ended == "complete")
    assert released(s) == ["hold.restored"]
    hands.minimum["asg"] = 0
    looked(s)
    assert len(pages(s)) == 1, "released: it is the owner's again"
