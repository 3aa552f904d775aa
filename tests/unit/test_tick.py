"""The tick over fakes with the real judge: good cells arrive, bad ones come home, and nothing is lost on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.analysis.looks import replay
from fleetctl.domain.event import broken_link
from fleetctl.domain.fleet import Phase
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.rollout import Order
from fleetctl.domain.split import Applied, Readiness, Split, Stale
from fleetctl.domain.workload import ShadowSpec
from fleetctl.errors import (
    ConfigInvalid,
    CredentialsMissing,
    EvidenceUnavailable,
    FleetctlError,
    StoreUnavailable,
    TrafficNotApplied,
)
from fleetctl.ports.state import Lease
from fleetctl.usecases.looking import scales_of
from fleetctl.usecases.tick import TickSettings, tick
from tests.fakes.evidence import FakeEvidence
from tests.fakes.router import FakeRouter
from tests.rollouts import CELL, PERSON
from tests.simulator import SOURCE, TARGET, Simulation, quick, tiny

SETTINGS = TickSettings(holder="b", ttl=timedelta(seconds=5))


def test_a_good_cell_arrives_and_its_chain_holds() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"
    assert s.bp() == 10_000
    assert s.target.splits[CELL].lease_until > s.clock.now() + timedelta(days=3650)
    events = tuple(s.store.events(CELL, 0))
    assert broken_link(events) is None
    assert [e.kind for e in events if e.kind == "traffic.set"] == ["traffic.set"] * 4
    assert [a.target_bp for a in s.target.applied if a.target_bp] == sorted(a.target_bp for a in s.target.applied if a.target_bp)


@pytest.mark.parametrize(("slower", "failing"), [(2.0, 0.0), (1.0, 0.2)])
def test_a_bad_cell_comes_home_by_itself(slower: float, failing: float) -> None:
    s = Simulation(of=quick(), slower=slower, failing=failing)
    s.begin()
    s.run(120, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "rolled_back"
    assert s.bp() == 0
    kinds = [e.kind for e in s.store.events(CELL, 0)]
    assert "verdict.fail" in kinds
    assert kinds[-1] == "rollout.rolled_back"
    assert any(n.kind == "notify.page" for n in s.notices.sent)


@pytest.mark.parametrize("phase", ["ramp", "full", "soak"])
def test_a_regression_that_begins_later_is_found_in_every_phase(phase: Phase) -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at(phase)
    s.failing = 0.3
    s.run(60, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0)


def test_it_goes_no_further_than_asked_and_keeps_the_weights_lease_alive() -> None:
    s = Simulation(of=quick())
    s.begin(until="canary")
    s.run(120, lambda: s.rollout().step_done and s.bp() == 1000)
    s.rate_per_s = 2
    s.run(250)
    assert (s.rollout().phase, s.rollout().step_done, s.bp()) == ("canary", True, 1000)
    assert s.target.splits[CELL].lease_until > s.clock.now()


@pytest.mark.crash
def test_a_killed_tick_is_taken_over_after_its_lease_and_ends_in_the_same_state() -> None:
    """Die at every call that a tick makes of an outside thing, once, and go on as somebody else."""

    boundaries = (
        *(("store", name) for name in ("acquire", "record", "release")),
        *(("router", name) for name in ("fence", "set")),
        *(("evidence", name) for name in ("mark", "freeze", "read")),
    )
    for place, name in boundaries:
        for nth, after in itertools.product((1, 2, 4), (False, True)):
            s = Simulation(of=tiny(), rate_per_s=60)
            s.begin()
            thing = {"store": s.store, "router": s._writer, "evidence": s.evidence}[place]
            setattr(thing, name, _dying(getattr(thing, name), nth, after=after))
            for _ in range(300):
                s.serve(0.5)
                try:
                    s.tick_once()
                except Killed:
                    s.clock.advance(timedelta(seconds=6))
                if s.rollout().ended:
                    break
            assert (s.rollout().ended, s.bp()) == ("complete", 10_000), (place, name, nth, after, s.results[-1].why)
            assert broken_link(s.store.events(CELL, 0)) is None
            looks = list(replay(s.store.rows(CELL, None)))
            assert all(r.agrees for r in looks), "no look was lost or kept twice"
            assert looks[-1].state == s.rollout().judge


class Killed(BaseException):
    """The process died here."""


def _dying(real: Callable[..., object], nth: int, *, after: bool) -> Callable[..., object]:
    """Return `real`, which dies once at its nth call: before it did anything, or after it did all of it."""
    calls = itertools.count(1)

    def call(*args: object, **kwargs: object) -> object:
        number = next(calls)
        if number == nth and not after:
            raise Killed
        done = real(*args, **kwargs)
        if number == nth:
            raise Killed
        return done

    return call


def test_two_tickers_never_write_at_once() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("canary")
    lease = s.store.acquire(CELL, "other", timedelta(seconds=5))
    s.clock.advance(timedelta(seconds=1))
    assert tick(CELL, s.ports(), SETTINGS).kind == "held"
    assert isinstance(lease, Lease)
    s.store.release(lease)
    assert tick(CELL, s.ports(), SETTINGS).kind == "ticked"


def test_a_zombie_is_refused_at_the_router_and_in_the_store() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("canary")
    old = s.store.acquire(CELL, "zombie", timedelta(seconds=5))
    token = getattr(old, "token", Token(0))
    s.clock.advance(timedelta(seconds=6))
    s.run(3)
    late = Split(cell=CELL, target_bp=9000, cap_bp=10_000, token=token, lease_until=s.clock.now())
    assert isinstance(FakeRouter({CELL: SOURCE}, target=s.target).set(late), Stale)
    r = s.rollout()
    assert s.store.record(old, r, replace(r, weight_bp=9000), (), timedelta(0)) is not None  # type: ignore[arg-type]
    assert s.rollout().weight_bp == r.weight_bp


def test_after_a_store_free_return_a_live_controller_holds_and_pages_once() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("ramp")
    away = FakeRouter({CELL: SOURCE}, target=s.target)
    token = Token(away.read(CELL).token + HOME_TOKEN_STEP)
    away.fence(CELL, token)
    away.set(replace(away.read(CELL), target_bp=0))
    s.run(30)
    assert s.bp() == 0
    assert s.rollout().hold_reason == "stale"
    pages = [n for n in s.notices.sent if "reconcile" in n.text]
    assert len(pages) == 1
    s.store.raise_token(CELL, token)
    s.store.order(CELL, Order(kind="fallback", actor=PERSON, at=s.clock.now()))
    s.run(10)
    assert (s.bp(), s.rollout().ended) == (0, "fell_back")


def test_the_router_down_holds_and_pages_once_then_goes_on() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("canary")
    s.target.down = True
    s.run(20)
    assert s.rollout().hold_reason == "traffic.router_down"
    assert len([n for n in s.notices.sent if n.kind == "notify.page"]) == 1
    s.target.down = False
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


@pytest.mark.parametrize(
    ("why", "code"),
    [(TrafficNotApplied("traffic.router_down", "not now."), "traffic.router_down"), (RuntimeError("odd"), "tick.unexpected")],
)
def test_a_fail_stands_though_the_router_refuses_in_its_very_tick(why: Exception, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = Simulation(of=quick(), failing=0.0)
    s.may_break = True
    s.begin()
    s.at("ramp")
    s.failing = 0.5
    real, refused = s._writer.set, list[int]()

    def once(wanted: Split) -> Applied | Stale:
        if not refused and wanted.target_bp == 0:
            refused.append(s.bp())
            raise why
        return real(wanted)

    monkeypatch.setattr(s._writer, "set", once)
    s.run(60, lambda: bool(refused))
    r = s.rollout()
    assert (refused, s.bp(), r.direction, r.hold_reason) == ([5_000], 5_000, "home", code)
    assert r.latched is not None
    assert [e.kind for e in s.store.events(CELL, 0)][-2:] == ["verdict.fail", "rollout.hold"]
    looks = list(replay(s.store.rows(CELL, None)))
    assert all(x.agrees for x in looks)
    assert looks[-1].state == r.judge
    s.evidence.down = True  # no later look shows it again
    s.run(3, lambda: s.bp() == 0)
    assert s.bp() == 0, "going home waits for nothing"
    s.run(4, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "rolled_back"
    assert [e.kind for e in s.store.events(CELL, 0)].count("verdict.fail") == 1


def test_orders_given_while_the_router_is_down_are_not_lost() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("ramp")
    s.target.down = True
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(10)
    assert s.rollout().ended == ""
    s.target.down = False
    s.run(10)
    assert (s.bp(), s.rollout().ended) == (0, "aborted")


def test_a_lost_evidence_source_holds_then_goes_home() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("ramp")
    s.evidence.down = True
    began = s.clock.now()
    s.run(200, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "lost_evidence"
    assert timedelta(seconds=119) <= s.clock.now() - began <= timedelta(seconds=130)


def test_many_cells_without_evidence_hold_and_never_move() -> None:
    cells = tuple(CellId(f"cell-{i}") for i in range(8))
    s = Simulation(cells, of=tiny(), rate_per_s=20)
    for _ in range(30):
        s.serve(1.0)
    s.begin(until="ramp")
    s.run(90, lambda: all(s.bp(c) == 5000 and s.rollout(c).settled_at for c in cells))
    s.run(5)
    s.rate_per_s = 0
    before = {c: s.bp(c) for c in cells}
    s.evidence.down = True
    s.run(150)
    assert {c: s.bp(c) for c in cells} == before
    assert all(not s.rollout(c).ended for c in cells)


def test_home_waits_until_the_source_answers() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("ramp")
    s.ready.share[SOURCE] = 0.0
    s.evidence.down = True
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(10)
    assert s.bp() == 5000
    s.ready.share[SOURCE] = 1.0
    s.run(10)
    assert (s.bp(), s.rollout().ended) == (0, "aborted")


def test_a_target_that_is_not_ready_never_gets_a_customer() -> None:
    s = Simulation(of=quick())
    s.ready.share[TARGET] = 0.5
    s.begin()
    s.run(60)
    assert (s.rollout().phase, s.bp()) == ("preflight", 0)


def test_the_source_is_asked_before_a_weight_is_raised() -> None:
    s = Simulation(of=quick())
    s.begin(until="canary")
    s.run(120, lambda: s.rollout().step_done and s.bp() == 1000)
    s.source_failing, s.ready.share[SOURCE] = 1.0, 0.0
    s.run(12)
    s.store.order(CELL, Order(kind="promote", actor=PERSON, at=s.clock.now()))
    s.store.order(CELL, Order(kind="advance", actor=PERSON, at=s.clock.now()))
    s.run(20)
    assert (s.bp(), s.rollout().hold_reason) == (1000, "source.not_ready")


def test_a_persons_promote_is_not_written_down_as_a_pass() -> None:
    s = Simulation(of=quick())
    s.begin(until="canary")
    s.at("canary")
    s.store.order(CELL, Order(kind="promote", actor=PERSON, at=s.clock.now()))
    s.run(3)
    assert s.rollout().step_done
    kinds = [e.kind for e in s.store.events(CELL, 0)]
    assert "order.promote" in kinds
    assert "verdict.pass" not in kinds


def test_one_cell_whose_key_is_gone_does_not_stop_the_ticker() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("canary")

    def no_key(c: CellId) -> FakeRouter:
        raise CredentialsMissing("credentials.missing", "the key cannot be read.")

    ports = replace(s.ports(), router=no_key)
    s.clock.advance(timedelta(seconds=5))
    done = tick(CELL, ports, SETTINGS)
    assert (done.kind, s.rollout().hold_reason) == ("failed", "credentials.missing")
    assert s.bp() == 1000
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_what_the_router_reports_lands_in_the_log() -> None:
    class Reporting(FakeRouter):
        def set(self, s: Split) -> Applied | Stale:
            self.report = "start-up file: no space left"
            return super().set(s)

    s = Simulation(of=quick())
    s.router = lambda _: Reporting({CELL: SOURCE}, target=s.target)
    s.begin()
    s.at("canary")
    assert any(e.kind == "traffic.reported" for e in s.store.events(CELL, 0))


def test_a_store_that_is_down_leaves_traffic_alone() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("canary")
    s.store.down = True
    with pytest.raises(StoreUnavailable):
        s.tick_once(ports=s.ports()) or tick(CELL, s.ports(), SETTINGS)
    assert s.bp() == 1000


def test_every_margin_has_its_scale() -> None:
    assert set(scales_of(quick())) == {1.0, 1.1, 1.25, 1.5}


def test_a_controller_goes_on_after_the_guard_and_a_holder_stopped_before_it_cannot_write() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("ramp")
    before = s.target.splits[CELL]
    s.clock.advance(timedelta(seconds=200))  # nobody ticks: the weight's lease runs out
    assert FakeRouter({CELL: SOURCE}, target=s.target).lapse(s.clock.now()) == (CELL,)
    late = replace(before, lease_until=s.clock.now() + timedelta(seconds=180))
    assert isinstance(FakeRouter({CELL: SOURCE}, target=s.target).set(late), Stale), "its token is one behind the guard's"
    s.look_now()
    s.run(20, until=lambda: s.bp() > 0 and not s.rollout().hold_reason)
    assert (s.bp(), s.rollout().phase, s.rollout().hold_reason) == (1000, "canary", "")
    assert [n.data["cause"] for n in s.notices.sent if n.kind == "notify.page"] == ["guard.home"]


def test_another_writer_whose_weight_is_alive_is_never_taken_for_the_guard() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("ramp")
    other = FakeRouter({CELL: SOURCE}, target=s.target)
    other.fence(CELL, Token(other.read(CELL).token + 1))
    other.set(replace(other.read(CELL), target_bp=0, lease_until=s.clock.now() + timedelta(seconds=180)))
    s.look_now()
    s.run(5)
    assert (s.bp(), s.rollout().hold_reason) == (0, "stale")


def test_what_a_newer_writer_left_outlives_a_router_that_restarts_with_an_older_floor() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("ramp")
    before = s.target.splits[CELL]
    away = FakeRouter({CELL: SOURCE}, target=s.target)
    away.fence(CELL, Token(away.read(CELL).token + HOME_TOKEN_STEP))
    away.set(replace(away.read(CELL), target_bp=0))
    s.run(5)
    s.target.down = True
    s.run(5)
    s.target.down = False
    s.target.splits[CELL] = replace(before, target_bp=0, lease_until=s.clock.now())
    s.run(5)
    assert (s.bp(), s.rollout().hold_reason) == (0, "stale")
    assert len([n for n in s.notices.sent if n.kind == "notify.page"]) == 1


def test_a_router_that_stays_down_does_not_fill_the_trail() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.at("canary")
    looks = len(tuple(s.store.rows(CELL, None)))
    s.target.down = True
    s.run(10)
    assert len(tuple(s.store.rows(CELL, None))) == looks + 1


@pytest.mark.parametrize(("side", "held_by"), [(SOURCE, "source.not_ready"), (TARGET, "target.not_ready")])
def test_a_raise_asks_every_replica_of_both_sides_though_their_answers_are_good(side: PoolId, held_by: str) -> None:
    s = Simulation(of=quick())
    s.begin(until="canary")
    s.run(120, lambda: s.rollout().step_done and s.bp() == 1000)
    s.ready.share[side] = 0.75
    s.store.order(CELL, Order(kind="advance", actor=PERSON, at=s.clock.now()))
    s.run(10)
    assert (s.bp(), s.rollout().hold_reason) == (1000, held_by)
    s.ready.share[side] = 1.0
    s.run(10)
    assert s.bp() > 1000, "it goes on by itself once they answer"


def test_a_weight_that_the_router_lost_waits_for_a_target_that_is_gone() -> None:
    s = Simulation(of=quick())
    s.begin(until="canary")
    s.at("canary")
    s.ready.share[TARGET] = 0.0
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=0, lease_until=s.clock.now())
    s.run(10)
    assert (s.bp(), s.rollout().hold_reason) == (0, "target.not_ready")


def test_an_order_after_the_end_reads_no_evidence() -> None:
    s = Simulation(of=quick())
    s.begin()
    s.run(300, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("complete", 10_000)

    def refuse(_: CellId) -> FakeEvidence:
        raise AssertionError("an order after the end read the log of all that was served since")

    ports = replace(s.ports(), evidence=refuse)
    for kind in ("pause", "resume", "promote"):
        s.store.order(CELL, Order(kind=kind, actor=PERSON, at=s.clock.now()))
        assert tick(CELL, ports, SETTINGS).kind == "ticked"
        assert (s.rollout().ended, s.bp(), s.rollout().orders) == ("complete", 10_000, ())
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    assert tick(CELL, ports, SETTINGS).kind == "ticked"
    assert s.bp() == 0


@pytest.mark.parametrize("why", [TrafficNotApplied, EvidenceUnavailable, ConfigInvalid, CredentialsMissing])
def test_a_shadow_that_cannot_be_stopped_keeps_nobody_from_being_home(why: type[FleetctlError]) -> None:
    s = Simulation(of=quick(shadow=ShadowSpec()))
    s.begin()
    s.at("canary")

    def broken(c: CellId) -> None:
        raise why("traffic.router_down", "the tee does not answer.")

    s.shadow.stop = broken  # type: ignore[method-assign]
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(10)
    assert (s.bp(), s.rollout().ended) == (0, "aborted")
    assert any(e.text == "the tee does not answer." for e in s.store.events(CELL, 0))


def test_a_quiet_night_holds_nobody_up_and_takes_nobody_home() -> None:
    s = Simulation(of=quick())
    s.begin(until="ramp")
    s.at("ramp")
    asked: list[PoolId] = []
    real = s.ready.ready

    def ready(pool: PoolId, c: CellId) -> Readiness:
        asked.append(pool)
        s.evidence.source_at = s.clock.now() if is_at_work else s.evidence.source_at
        return real(pool, c)

    s.ready.ready, is_at_work, s.rate_per_s = ready, True, 0.0  # type: ignore[method-assign]
    s.evidence.source_at = s.clock.now()
    s.run(400)
    assert (s.rollout().ended, s.rollout().hold_reason, s.bp()) == ("", "", 5_000)
    assert 5 <= len(asked) <= 14, "one completion in 30 s shows that the log is written"
    assert set(asked) == {SOURCE}
    assert s.target.splits[CELL].lease_until > s.clock.now(), "the weight's lease is renewed meanwhile"
    is_at_work = False
    s.run(200, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("lost_evidence", 0), "a log that shows not even our own completion is no lull"
