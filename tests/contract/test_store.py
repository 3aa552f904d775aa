"""The contract of Store, Records and Trail, on the memory fake and on SQLite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.domain.event import GENESIS, broken_link
from fleetctl.domain.ids import PlanId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval
from fleetctl.domain.provision import Drill
from fleetctl.domain.rollout import Rollout
from fleetctl.errors import LeaseHeld
from fleetctl.ports.state import Held, Lease, Lost, Records, Store, Trail
from tests.fakes.clock import START, FakeClock
from tests.fakes.rollouts import ANN, CHAT, SUMMARY, event, keep_look, look, order, rollout
from tests.fakes.store import MemoryStore

LONG, NONE = timedelta(minutes=5), timedelta(0)
AnyStore = SqliteStore | MemoryStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    made: AnyStore = MemoryStore(FakeClock().now) if request.param == "memory" else SqliteStore(tmp_path / "w" / "store.db")
    yield made
    made.close()


def held(store: Store, scope: str = CHAT, ttl: timedelta = LONG, holder: str = "a@host:1") -> Lease:
    lease = store.acquire(scope, holder, ttl)
    assert isinstance(lease, Lease)
    return lease


def test_fits_the_ports(store: AnyStore) -> None:
    ports: tuple[Store, Records, Trail] = (store, store, store)
    assert all(ports)


def test_lease_has_one_holder_and_a_new_token_each_time(store: AnyStore) -> None:
    first = held(store)
    other = store.acquire(CHAT, "b@host:2", LONG)
    assert isinstance(other, Held)
    assert (other.holder, other.until) == ("a@host:1", first.until)
    assert isinstance(store.acquire(CHAT, "a@host:1", LONG), Held)
    store.release(first)
    second = held(store, holder="b@host:2")
    assert second.token == first.token + 1
    assert held(store, "fleet").token == 1


def test_expired_lease_can_be_taken_and_its_holder_has_lost(store: AnyStore) -> None:
    old = held(store, ttl=NONE)
    new = held(store, holder="b@host:2")
    assert new.token == old.token + 1
    assert store.renew(old, LONG) == Lost(scope=CHAT, seen=new.token)
    store.release(old)
    assert isinstance(store.acquire(CHAT, "c@host:3", LONG), Held)


def test_renew_keeps_the_token_and_refuses_an_expired_or_released_lease(store: AnyStore) -> None:
    lease = held(store)
    longer = store.renew(lease, timedelta(hours=1))
    assert isinstance(longer, Lease)
    assert longer.token == lease.token
    assert longer.until > lease.until
    gone = store.renew(longer, NONE)
    assert isinstance(gone, Lease)
    assert isinstance(store.renew(gone, LONG), Lost)
    again = held(store)
    store.release(again)
    assert isinstance(store.renew(again, LONG), Lost)


def test_raise_token_ends_leases_below_and_never_lowers(store: AnyStore) -> None:
    lease = held(store)
    store.raise_token(CHAT, Token(2**20))
    assert store.renew(lease, LONG) == Lost(scope=CHAT, seen=Token(2**20))
    store.raise_token(CHAT, Token(5))
    assert held(store).token == 2**20 + 1
    store.raise_token("fresh", Token(7))
    assert held(store, "fresh").token == 8


def test_rollout_comes_back_as_it_was_started(store: AnyStore) -> None:
    assert store.load(CHAT) is None
    made = rollout()
    store.start(made, (event(),))
    assert store.load(CHAT) == made
    assert store.cells() == (CHAT,)
    assert [e.text for e in store.events(CHAT, 0)] == ["hello"]


def test_second_start_needs_the_first_to_have_ended(store: AnyStore) -> None:
    first = rollout()
    store.start(first, ())
    with pytest.raises(LeaseHeld) as caught:
        store.start(rollout(plan=PlanId("p2")), (event(text="never"),))
    assert caught.value.code == "lease.active"
    assert list(store.events(CHAT, 0)) == []
    ended = dataclasses.replace(first, ended="rolled_back")
    assert store.record(held(store), first, ended, (), LONG) is None
    store.order(CHAT, order("promote"))
    store.start(rollout(plan=PlanId("p2"), attempt=2, orders=(order("advance"),)), ())
    now = store.load(CHAT)
    assert now is not None
    assert (now.plan, now.attempt) == ("p2", 2)
    assert [o.kind for o in now.orders] == ["advance"], "an order for the rollout before must not reach this one"
    assert [r.ended for r in store.history(CHAT)] == ["rolled_back", ""]


def test_record_writes_rollout_and_events_and_frees_the_lease(store: AnyStore) -> None:
    before = rollout()
    store.start(before, (event(text="one"),))
    after = dataclasses.replace(before, step=1, weight_bp=1000)
    lease = held(store)
    assert store.record(lease, before, after, (event(text="two"), event(None, text="fleet"), event(text="three")), LONG) is None
    assert store.load(CHAT) == after
    assert [(e.seq, e.text) for e in store.events(CHAT, 0)] == [(1, "one"), (2, "two"), (3, "three")]
    assert [(e.seq, e.text) for e in store.events(None, 0)] == [(1, "fleet")]
    assert [e.seq for e in store.events(CHAT, 2)] == [3]
    assert held(store).token == lease.token + 1
    assert store.due(10) == ()


@pytest.mark.parametrize("how", ["taken", "raised", "recorded"])
def test_record_with_a_token_that_moved_writes_nothing(store: AnyStore, how: str) -> None:
    before = rollout()
    store.start(before, ())
    lease = held(store, ttl=NONE)
    if how == "taken":
        held(store, holder="b@host:2")
    elif how == "raised":
        store.raise_token(CHAT, Token(99))
    else:
        assert store.record(lease, before, before, (), LONG) is None
    lost = store.record(lease, before, dataclasses.replace(before, step=2), (event(),), LONG)
    assert isinstance(lost, Lost)
    assert lost.seen >= lease.token
    assert store.load(CHAT) == before
    assert list(store.events(CHAT, 0)) == []


def test_expired_lease_that_nobody_took_still_records(store: AnyStore) -> None:
    before = rollout()
    store.start(before, ())
    after = dataclasses.replace(before, paused=True)
    assert store.record(held(store, ttl=NONE), before, after, (), LONG) is None
    assert store.load(CHAT) == after


def test_orders_are_loaded_until_recorded_away(store: AnyStore) -> None:
    store.start(rollout(), ())
    same = order("pause")
    for o in (same, same, order("promote", "why")):
        store.order(CHAT, o)
    before = store.load(CHAT)
    assert before is not None
    assert [o.kind for o in before.orders] == ["pause", "pause", "promote"]
    after = dataclasses.replace(before, orders=before.orders[1:], paused=True)
    assert store.record(held(store), before, after, (), LONG) is None
    left = store.load(CHAT)
    assert left == after


def test_order_makes_due_at_once_also_when_it_came_during_a_tick(store: AnyStore) -> None:
    before = rollout()
    store.start(before, ())
    assert store.record(held(store), before, before, (), LONG) is None
    assert store.due(10) == ()
    store.order(CHAT, order("pause"))
    assert store.due(10) == (CHAT,)
    seen = store.load(CHAT)
    assert seen is not None
    lease = held(store)
    assert store.due(10) == (), "somebody holds it"
    store.order(CHAT, order("fallback"))
    assert store.record(lease, seen, dataclasses.replace(seen, orders=()), (), LONG) is None
    assert store.due(10) == (CHAT,), "the second order waits for a tick of its own"
    left = store.load(CHAT)
    assert left is not None
    assert [o.kind for o in left.orders] == ["fallback"]


def test_due_is_oldest_first_and_bounded(store: AnyStore) -> None:
    first, second = rollout(SUMMARY), rollout(CHAT)
    store.start(first, ())
    store.start(second, ())
    assert store.record(held(store, SUMMARY), first, first, (), NONE) is None
    assert set(store.due(10)) == {CHAT, SUMMARY}
    assert len(store.due(1)) == 1
    assert store.record(held(store, SUMMARY), first, first, (), timedelta.max) is None
    assert store.due(10) == (CHAT,)


def test_chains_hold_and_anchors_name_their_heads(store: AnyStore) -> None:
    store.append([event(text=str(n)) for n in range(3)] + [event(SUMMARY)] + [event(None)])
    anchor = store.anchor_heads(START, Actor(kind="schedule", name="sweep", via="timer"))
    assert anchor is not None
    chat = list(store.events(CHAT, 0))
    assert broken_link(chat) is None
    assert chat[0].prev == GENESIS
    assert anchor.data[CHAT] == f"3:{chat[-1].hash}"
    assert set(anchor.data) == {CHAT, SUMMARY}
    assert store.anchor_heads(START, ANN) is None, "nothing moved since"
    store.append([event(SUMMARY)])
    again = store.anchor_heads(START, ANN)
    assert again is not None
    assert set(again.data) == {SUMMARY}
    assert store.verify() == []


def test_events_before_the_cursor_are_left_out_over_pages(store: AnyStore) -> None:
    store.append([event(text=str(n)) for n in range(1203)])
    assert [e.seq for e in store.events(CHAT, 0)] == list(range(1, 1204))
    assert [e.text for e in store.events(CHAT, 1200)] == ["1200", "1201", "1202"]
    assert list(store.events(CHAT, 1203)) == []


def test_records_are_kept_by_kind_and_id(store: AnyStore) -> None:
    def made(note: str) -> Approval:
        return Approval(plan=PlanId("p1"), plan_digest=GENESIS, actor=ANN, at=START, note=note)

    drill = Drill(at=START, actor=ANN, ms_to_zero=7.5, ok=True)
    assert store.newest(Approval) is None
    assert store.get(Approval, "a") is None
    for id_, note in (("a", "1"), ("b", "2"), ("a", "3")):
        store.put(id_, made(note))
    store.put("a", drill)
    assert store.get(Approval, "a") == made("3")
    assert store.get(Approval, "b") == made("2")
    assert store.get(Drill, "a") == drill
    assert [a.note for a in store.all(Approval)] == ["2", "3"]
    newest = store.newest(Approval)
    assert newest is not None
    assert newest.note == "3"


def test_looks_come_back_in_order_after_since(store: AnyStore) -> None:
    for seconds in (3, 1, 2):
        keep_look(store, look(seconds=seconds))
    keep_look(store, look(SUMMARY, seconds=9))
    assert [r.why for r in store.rows(CHAT, None)] == ["look at 1 s", "look at 2 s", "look at 3 s"]
    assert next(iter(store.rows(CHAT, START + timedelta(seconds=2)))) == look(seconds=3)
    assert list(store.rows(CHAT, START + timedelta(seconds=3))) == []


def test_a_look_is_kept_with_what_came_of_it_or_not_at_all(store: AnyStore) -> None:
    before = rollout()
    store.start(before, ())
    lease = held(store)
    store.raise_token(CHAT, Token(lease.token + 5))
    after = dataclasses.replace(before, step=1)
    assert isinstance(store.record(lease, before, after, (event(),), LONG, look()), Lost)
    assert (list(store.rows(CHAT, None)), list(store.events(CHAT, 0)), store.load(CHAT)) == ([], [], before)
    assert store.record(held(store), before, after, (event(),), LONG, look()) is None
    assert list(store.rows(CHAT, None)) == [look()]
    assert (len(list(store.events(CHAT, 0))), store.load(CHAT)) == (1, after)


def test_big_judge_state_comes_back_exact(store: AnyStore) -> None:
    made: Rollout = rollout()
    made = dataclasses.replace(made, judge=dataclasses.replace(made.judge, numbers=bytes(range(256)) * 40))
    store.start(made, ())
    back = store.load(CHAT)
    assert back is not None
    assert back.judge.numbers == bytes(range(256)) * 40


def test_a_rollout_that_went_home_is_due_only_while_an_order_waits(store: AnyStore) -> None:
    first = rollout()
    store.start(first, ())
    ended = dataclasses.replace(first, ended="aborted")
    assert store.record(held(store), first, ended, (), NONE) is None
    assert store.due(10) == (), "it would be taken and given back for ever"
    store.order(CHAT, order("fallback"))
    assert store.due(10) == (CHAT,)


def test_a_complete_rollout_is_due_when_it_is_to_be_looked_at(store: AnyStore) -> None:
    first = rollout()
    store.start(first, ())
    ended = dataclasses.replace(first, ended="complete")
    assert store.record(held(store), first, ended, (), NONE) is None
    assert store.due(10) == (CHAT,), "its target may tell of its end"
    assert store.record(held(store), ended, ended, (), timedelta(hours=1)) is None
    assert store.due(10) == ()


def test_a_dead_holder_is_evicted_once_and_a_new_one_is_not(store: AnyStore) -> None:
    first = held(store)
    seen = store.acquire(CHAT, "b@host:2", LONG)
    assert isinstance(seen, Held)
    store.evict(seen)
    second = held(store, holder="b@host:2")
    assert second.token == first.token + 1
    store.evict(seen)
    assert isinstance(store.acquire(CHAT, "c@host:3", LONG), Held)
