"""An account's looks are few: many cells behind ALBs take turns, what AWS throws back is asked again, and all of them come home."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.adapters.deadline import Deadline
from fleetctl.adapters.routers.alb.pace import LOOKS, LOOKS_PER_S, Pace, Throttled, pace_of
from fleetctl.adapters.routers.alb.router import LOOK_S, AlbRouter
from fleetctl.adapters.routers.alb.wire import Elb
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import Returned
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, RouterCapabilities, Split, Stale
from fleetctl.errors import TrafficNotApplied
from fleetctl.usecases.guard import guard
from fleetctl.usecases.home import THROWN_BACK_FOR, HomePorts, fallback
from fleetctl.usecases.tick import _look_again
from tests.fakes.clock import FakeClock
from tests.fakes.elb_rules import ARN, RuleClient, free, throttled
from tests.fakes.home import MemoryWaysHome
from tests.fakes.store import MemoryStore
from tests.rollouts import PERSON, rollout
from tests.unit.test_home import SOURCE, SourceProber, way

CELLS = tuple(CellId(f"cell-{n}") for n in range(40))
FAST = 10.0
"""Account, pace and clock run so much faster than AWS' own, so that nobody waits a minute here."""


class Account:
    """Rules of one account behind one bucket for Describe calls, as AWS documents it: 40 of them, 10 come back a second."""

    def __init__(self, cells: tuple[CellId, ...], others_per_s: float = 0.0) -> None:
        self.rules = {c: RuleClient(c) for c in cells}
        self.asked, self.refused = Counter[str](), 0
        self._bucket, self._lock = Pace(40, FAST * (10 - others_per_s)), threading.Lock()

    def client(self, c: CellId) -> Any:
        def call(name: str, **given: Any) -> Any:
            with self._lock:
                self.asked[name] += 1
                if name.startswith("describe"):
                    try:
                        self._bucket._take(1, 0.0)
                    except Throttled:
                        self.refused += 1
                        throttled()
                return getattr(self.rules[c], name)(**given)

        names = ("describe_rules", "describe_tags", "describe_target_group_attributes", "modify_rule", "add_tags")
        return SimpleNamespace(**{name: lambda _name=name, **given: call(_name, **given) for name in names})


def router_of(client: Any, c: CellId, pace: Callable[[str], Pace] = free) -> AlbRouter:
    connection = Connection(name="edge", kind="alb", settings={f"rule.{c}": ARN})
    return AlbRouter(connection, elb=Elb(lambda _: client, f"edge of {c}", pace), sources={c: PoolId("nvidia")})


class QuickClock:
    """A clock that runs FAST."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def now(self) -> datetime:
        return datetime(2026, 12, 1, tzinfo=UTC) + FAST * timedelta(seconds=time.monotonic() - self._began)

    def wait(self, until: datetime, wake: Callable[[], bool]) -> None:
        time.sleep(max(0.0, (until - self.now()).total_seconds() / FAST))


@pytest.mark.parametrize("others_per_s", [0.0, 6.0])
def test_forty_cells_of_one_account_come_home_at_a_time_whatever_others_ask_of_it(others_per_s: float) -> None:
    account, pace, clock = Account(CELLS, others_per_s), Pace(LOOKS, FAST * LOOKS_PER_S), QuickClock()
    for c in CELLS:
        writer = router_of(account.rules[c], c)
        writer.fence(c, Token(7))
        writer.set(Split(cell=c, target_bp=5_000, cap_bp=9_000, token=Token(7), lease_until=clock.now() + timedelta(minutes=3)))
    ports = HomePorts(
        router=lambda w: router_of(account.client(w.cell), w.cell, lambda _: pace),
        prober=lambda _: SourceProber(2),
        ways=MemoryWaysHome(),
        clock=clock,
        store=MemoryStore,
    )
    ways = [replace(way(c), router=Connection(name="edge", kind="alb"), source=SOURCE) for c in CELLS]
    found = fallback(ways, ports, PERSON)
    assert [r.cell for r in found] == list(CELLS)
    assert [r for r in found if not isinstance(r, Returned) or not r.is_home] == []
    for c in CELLS:
        stands = router_of(account.rules[c], c).read(c)
        assert stands.target_bp == 0
        assert isinstance(router_of(account.rules[c], c).fence(c, Token(8)), Stale), "a live controller is stale"
    if not others_per_s:
        assert account.refused == 0, "what we ask is within what AWS gives"


def test_a_guard_sees_all_cells_of_an_account_though_it_cannot_see_them_at_once() -> None:
    cells, clock, ways = CELLS[:3], FakeClock(), MemoryWaysHome()
    for c in cells:
        ways.write(way(c))
    refusals = dict.fromkeys(cells, 2)

    def made(w: Any) -> AlbRouter:
        if refusals[w.cell]:
            refusals[w.cell] -= 1
            raise TrafficNotApplied("traffic.throttled", "Rate exceeded")
        return router_of(RuleClient(w.cell), w.cell)

    ports = HomePorts(router=made, prober=lambda _: SourceProber(2), ways=ways, clock=clock, store=MemoryStore)
    assert [look.kind for look in guard(ports)] == ["quiet"] * 3, "nobody is paged for it"


def test_cells_that_are_thrown_back_for_a_minute_are_given_up_and_the_others_are_home() -> None:
    cells, clock = CELLS[:3], FakeClock()
    never = Account((cells[0],))
    never.rules[cells[0]].fails["describe_rules"] = throttled
    tries = Counter[CellId]()

    def made(w: Any) -> AlbRouter:
        tries[w.cell] += 1
        if w.cell == cells[0]:
            raise TrafficNotApplied("traffic.throttled", "Rate exceeded")
        return router_of(RuleClient(w.cell), w.cell)

    ports = HomePorts(router=made, prober=lambda _: SourceProber(2), ways=MemoryWaysHome(), clock=clock, store=MemoryStore)
    began = clock.now()
    found = fallback([way(c) for c in cells], ports, PERSON)
    assert [isinstance(r, Returned) for r in found] == [False, True, True]
    assert THROWN_BACK_FOR <= clock.now() - began <= THROWN_BACK_FOR + timedelta(seconds=2)
    assert tries[cells[0]] > 30


@pytest.mark.parametrize("call", ["describe_rules", "add_tags", "modify_rule"])
def test_a_call_that_is_thrown_back_twice_is_made_again_and_one_that_always_is_ends_in_time(call: str) -> None:
    c, aws = CELLS[0], RuleClient(CELLS[0])
    router, left = router_of(aws, c), [None, None]

    def twice() -> None:
        if left:
            left.pop()
            throttled()

    router.fence(c, Token(1))
    aws.fails[call] = twice
    split = Split(cell=c, target_bp=1_000, cap_bp=9_000, token=Token(1), lease_until=datetime.now(UTC) + timedelta(minutes=3))
    assert isinstance(router.set(split), Applied)
    assert left == []
    aws.fails[call] = throttled
    began = time.monotonic()
    with pytest.raises(TrafficNotApplied) as refused:
        router.set(replace(split, target_bp=2_000))
    assert refused.value.code == "traffic.throttled"
    assert time.monotonic() - began < 6.0
    aws.fails.clear()
    assert router.read(c).target_bp == 1_000


def test_a_fence_looks_once_and_a_renewal_twice() -> None:
    c, account = CELLS[0], Account(CELLS[:1])
    router = router_of(account.client(c), c)
    router.fence(c, Token(1))
    assert account.asked == {"describe_rules": 1, "describe_tags": 1, "add_tags": 1}
    account.asked.clear()
    router.set(Split(cell=c, target_bp=0, cap_bp=9_000, token=Token(1), lease_until=datetime.now(UTC) + timedelta(minutes=3)))
    assert account.asked == {"describe_rules": 2, "describe_tags": 2, "add_tags": 1}


def test_one_turn_in_time_or_none_and_what_it_does_not_need_comes_back() -> None:
    clock, slept = [0.0], list[float]()

    def sleep(s: float) -> None:
        slept.append(s)
        clock[0] += s

    pace = Pace(4, 2, now=lambda: clock[0], sleep=sleep)
    with pace.turn(4, Deadline()):
        pace.look(Deadline())
    assert slept == []
    for _ in range(3):
        pace.look(Deadline())
    with pace.turn(4, Deadline()):
        assert slept == [2.0]
        for _ in range(4):
            pace.look(Deadline())
    pace.spent()
    for _ in range(3):
        with pytest.raises(Throttled), pace.turn(6, Deadline()):
            raise AssertionError("not begun")
    with pace.turn(4, Deadline()):
        assert slept == [2.0, 2.0], "who was refused took nothing"


def test_one_bucket_for_each_account_and_region() -> None:
    assert pace_of(ARN) is pace_of(ARN.replace("edge", "other"))
    assert pace_of(ARN) is not pace_of(ARN.replace("us-east-1", "us-east-2"))
    assert pace_of(ARN) is not pace_of(ARN.replace(":1:", ":2:"))


@pytest.mark.parametrize(("least_s", "wanted_s", "found_s"), [(0.0, 1, 1), (LOOK_S, 1, LOOK_S), (LOOK_S, 10, 10)])
def test_a_cell_is_looked_at_no_more_often_than_its_router_may_be(least_s: float, wanted_s: float, found_s: float) -> None:
    can = RouterCapabilities(switch_ms=None, streaming=True, mirror=False, fence="single_writer", look_s=least_s)
    ports: Any = SimpleNamespace(
        router=lambda _: SimpleNamespace(capabilities=lambda: can), notices=SimpleNamespace(watches=lambda _: False)
    )
    r = rollout()
    decision: Any = SimpleNamespace(next=r, look_again=timedelta(seconds=wanted_s))
    assert _look_again(decision, r, ports) == timedelta(seconds=found_s)
    assert router_of(RuleClient(CELLS[0]), CELLS[0]).capabilities().look_s == LOOK_S
