"""Notices of clouds in a rollout: customers are off a target before its deadline, nobody more leaves a source that ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Literal

import pytest

from fleetctl.domain.event import broken_link
from fleetctl.domain.fleet import Phase
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import Order
from fleetctl.rollout.decide import decide
from fleetctl.rollout.notices import LOOK, SOURCE, TARGET, leaving, notice_text
from tests.rollouts import CELL, PERSON, T0, rollout, seeing
from tests.simulator import SOURCE as FROM
from tests.simulator import TARGET as TO
from tests.simulator import Simulation, quick, tiny


def _signal(s: Simulation, pool: PoolId, seconds: float = 30, severity: Literal["warning", "critical"] = "critical") -> Signal:
    now = s.clock.now()
    return Signal(
        subject=f"{pool}-1",
        kind="azure.preempt",
        severity=severity,
        seen_at=now,
        deadline=now + timedelta(seconds=seconds),
        source="t",
        pool=pool,
    )


def _given(s: Simulation, pool: PoolId, *, seconds: float = 30) -> Signal:
    signal = _signal(s, pool, seconds)
    s.signals.given = {pool: [signal]}
    return signal


def _pages(s: Simulation, words: str) -> list[str]:
    return [n.text for n in s.notices.sent if n.kind == "notify.page" and words in n.text]


@pytest.mark.parametrize("phase", ["ramp", "soak"])
def test_customers_are_off_the_target_before_its_deadline_and_come_back_step_by_step(phase: Phase) -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.signals.given = {}
    s.begin()
    s.at(phase)
    was = s.bp()
    signal = _given(s, TO)
    s.run(30, lambda: s.bp() == 0)
    assert s.bp() == 0
    assert signal.deadline is not None
    assert s.clock.now() < signal.deadline - timedelta(seconds=20), "time is left to drain"
    assert (s.rollout().ended, s.rollout().hold_reason) == ("", TARGET)
    s.run(10)
    assert s.bp() == 0, "nobody is sent there while the notice stands"
    (page,) = _pages(s, "goes in")
    assert f"taking {was / 100:g} % home" in page
    s.signals.given = {TO: []}
    s.ready.share[TO] = 0.5
    s.run(20)
    assert s.bp() == 0, "nor while its replicas do not all answer"
    s.ready.share[TO] = 1.0
    before = len(s.target.applied)
    s.run(400, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("complete", 10_000)
    raised = [a.target_bp for a in s.target.applied[before:] if a.target_bp]
    assert raised[0] == 5000, "it begins again at the first step with customers"
    assert broken_link(s.store.events(CELL, 0)) is None


def test_a_cell_in_soak_is_looked_at_often_enough_for_a_spot_notice() -> None:
    long = tiny()
    long = replace(long, phases=tuple(replace(p, bake=timedelta(hours=2)) if p.phase == "soak" else p for p in long.phases))
    s = Simulation(of=long, rate_per_s=60)
    s.begin()
    s.at("soak")
    s.signals.given = {}
    s.serve(61)
    s.tick_once()
    assert s.store.due(1) == ()
    s.clock.advance(LOOK)
    assert s.store.due(1) == (CELL,)


def test_what_only_warns_moves_nobody() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.begin()
    s.at("ramp")
    s.signals.given = {TO: [_signal(s, TO, severity="warning")]}
    s.run(400, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_only_as_many_go_home_as_the_source_answers_for() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.signals.given = {}
    s.begin()
    s.at("full")
    s.source_failing = 1.0
    s.run(2)
    s.ready.share[FROM] = 0.5
    _given(s, TO)
    s.run(3)
    assert s.bp() == 5000
    assert s.target.splits[CELL].lease_until > s.clock.now()
    s.ready.share[FROM] = 1.0
    s.run(10, lambda: s.bp() == 0)
    assert s.bp() == 0


def test_nobody_more_leaves_a_source_that_ends_and_a_regression_still_goes_home() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.signals.given = {}
    s.begin()
    s.at("ramp")
    _given(s, FROM, seconds=7200)
    s.run(40)
    assert (s.rollout().phase, s.bp(), s.rollout().hold_reason) == ("ramp", 5000, SOURCE)
    assert len(_pages(s, "source: nvidia-lab-1")) == 1
    assert s.target.splits[CELL].lease_until > s.clock.now(), "the weight is still held"
    s.failing = 0.5
    s.run(60, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0)


def test_a_source_that_recovers_lets_it_go_on() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.begin()
    s.at("ramp")
    _given(s, FROM)
    s.run(10)
    assert s.rollout().hold_reason == SOURCE
    s.signals.given = {}
    s.run(200, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_a_paused_cell_does_not_come_back_by_itself() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.begin()
    s.at("ramp")
    _given(s, TO)
    s.run(10)
    s.store.order(CELL, Order(kind="pause", actor=PERSON, at=s.clock.now()))
    s.signals.given = {}
    s.run(10)
    assert (s.bp(), s.rollout().paused) == (0, True)
    s.store.order(CELL, Order(kind="resume", actor=PERSON, at=s.clock.now()))
    s.run(60, lambda: s.bp() > 0)
    assert s.bp() == 5000


def test_an_abort_wins_over_a_notice() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.begin()
    s.at("ramp")
    _given(s, TO)
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(20, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("aborted", 0)


def test_a_notice_before_the_first_customer_keeps_everybody_where_they_are() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.begin()
    _given(s, TO)
    s.run(20)
    assert s.bp() == 0
    s.signals.given = {}
    s.run(400, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_the_most_urgent_notice_of_the_pool_counts() -> None:
    late = Signal(subject="a", kind="k", severity="critical", seen_at=T0, deadline=T0 + timedelta(hours=2), pool="p")
    soon, now = replace(late, subject="b", deadline=T0 + timedelta(minutes=1)), replace(late, subject="c", deadline=None)
    assert leaving((late, soon), PoolId("p")) == soon
    assert leaving((late, soon, now), PoolId("p")) == now
    assert leaving((replace(soon, severity="warning"),), PoolId("p")) is None
    assert leaving((soon,), PoolId("q")) is None
    assert notice_text(soon, T0) == "b of p goes in 60 s, at 12:01:00 UTC (k)"
    assert notice_text(soon, T0 + timedelta(hours=1)) == "b of p goes now (k)"
    assert notice_text(late, T0) == "a of p goes at 2026-11-30 14:00 UTC (k)"
    assert notice_text(now, T0) == "c of p goes at once (k)"


def test_a_rollout_that_went_home_obeys_no_notice() -> None:
    signal = Signal(subject="a", kind="k", severity="critical", seen_at=T0, pool="mi300x-lab")
    done = decide(replace(rollout(), ended="aborted", weight_bp=0), seeing(T0, 0, signals=(signal,)), T0)
    assert (done.next.ended, done.effects) == ("aborted", ())


def test_what_the_source_could_not_take_goes_home_once_it_can_though_the_notice_has_gone_with_its_machine() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.signals.given = {}
    s.begin()
    s.at("ramp")
    s.source_failing, s.ready.share[FROM] = 1.0, 0.75
    _given(s, TO)
    s.run(15, lambda: s.bp() == 2500)
    assert s.bp() == 2500
    s.source_failing, s.ready.share[FROM], s.ready.share[TO] = 0.0, 1.0, 0.0
    s.signals.given = {}
    s.run(15)
    assert s.bp() == 0


def test_whatever_overwrites_the_hold_goes_on_at_the_first_step() -> None:
    s = Simulation(of=quick(), rate_per_s=60)
    s.signals.given = {}
    s.begin()
    s.at("ramp")
    _given(s, TO)
    s.run(15, lambda: s.bp() == 0)
    s.target.down = True
    s.run(3)
    s.signals.given = {}
    s.target.down = False
    before = len(s.target.applied)
    s.run(30, lambda: s.bp() > 0)
    assert next(a.target_bp for a in s.target.applied[before:] if a.target_bp) == 1000


def test_a_killed_way_off_the_target_is_no_foreign_write() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    s.signals.given = {}
    s.begin()
    s.at("ramp")
    _given(s, TO)
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=0)  # set, and killed before it was recorded
    s.run(5)
    assert (s.bp(), s.rollout().hold_reason) == (0, TARGET)
    assert _pages(s, "somebody else") == []


def _complete(s: Simulation) -> None:
    s.signals.given = {}
    s.begin()
    s.run(400, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("complete", 10_000)


def test_a_finished_cell_whose_target_ends_goes_home_while_the_source_stands_and_begins_again() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    _complete(s)
    signal = _given(s, TO)
    s.run(30, lambda: s.bp() == 0)
    assert s.bp() == 0
    assert signal.deadline is not None
    assert s.clock.now() < signal.deadline - timedelta(seconds=20), "time is left to drain"
    assert (s.rollout().ended, s.rollout().hold_reason) == ("", TARGET)
    assert len(_pages(s, "100 % home")) == 1
    before = len(s.target.applied)
    s.signals.given = {TO: []}
    s.run(400, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("complete", 10_000)
    assert next(a.target_bp for a in s.target.applied[before:] if a.target_bp) == 5000
    assert broken_link(s.store.events(CELL, 0)) is None


def test_a_split_that_stays_holds_its_sources_minimum_again_before_anybody_goes_back_to_a_target_that_came_back() -> None:
    s = Simulation(of=replace(tiny(), part="pilot"), rate_per_s=60)
    _complete(s)
    assert s.holds.needed[FROM] == set(), "a split that stays gives it back at its end"
    _given(s, TO)
    s.run(30, lambda: s.bp() == 0)
    assert s.bp() == 0
    s.signals.given = {TO: []}
    s.run(400, lambda: s.bp() > 0)
    assert 0 < s.bp() < 10_000
    assert s.holds.needed[FROM] == {CELL}, "it is the way home again"
    s.run(400, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.holds.needed[FROM]) == ("complete", set())


def test_a_finished_cell_without_a_source_stays_and_pages_once() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    _complete(s)
    s.ready.share[FROM] = 0.0
    _given(s, TO, seconds=120)
    s.run(40)
    assert (s.rollout().ended, s.bp()) == ("complete", 10_000)
    assert len(_pages(s, "the source does not answer")) == 1
    s.signals.given = {TO: []}
    s.run(20)
    assert (s.rollout().ended, s.rollout().hold_reason) == ("complete", "")
    _given(s, TO)
    s.run(20)
    assert len(_pages(s, "the source does not answer")) == 2, "the next notice is told again"


def test_a_finished_cell_is_neither_fenced_nor_told_of_without_a_notice() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    _complete(s)
    token, heads, applied = s.target.splits[CELL].token, len(tuple(s.store.events(CELL, 0))), len(s.target.applied)
    _given(s, FROM)
    s.run(60)
    assert (s.target.splits[CELL].token, len(tuple(s.store.events(CELL, 0))), len(s.target.applied)) == (token, heads, applied)
    s.signals.given = None
    s.run(20)
    s.clock.advance(timedelta(minutes=4))
    assert s.store.due(1) == (), "nobody tells of it: what others write there is looked for once in five minutes"


def test_a_person_s_order_for_a_finished_cell_goes_before_a_notice() -> None:
    s = Simulation(of=tiny(), rate_per_s=60)
    _complete(s)
    _given(s, TO, seconds=300)
    s.store.order(CELL, Order(kind="fallback", actor=PERSON, at=s.clock.now()))
    s.run(30, lambda: bool(s.rollout().ended) and s.bp() == 0)
    assert (s.rollout().ended, s.bp()) == ("fell_back", 0)
