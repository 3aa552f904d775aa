"""A cell whose cap was lifted has no baseline to be judged by: that its target fails, or cannot be seen, is told all the same."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order
from fleetctl.rollout.lift import BLIND, FAILING, LOST
from tests.rollouts import CELL
from tests.simulator import SOURCE, Simulation, quick


def lifted() -> Simulation:
    """Return a cell whose source died at its canary step, and of which two people sent everybody to the target."""
    s = Simulation(of=replace(quick(), on_source_loss="lift_after_two_signatures"))
    s.begin()
    s.run(120, lambda: s.bp() > 0 and s.rollout().settled_at is not None)
    s.ready.share[SOURCE] = 0.0
    for name in ("bob", "eve"):
        s.store.order(CELL, Order(kind="lift", actor=Actor(kind="person", name=name), at=s.clock.now()))
    s.look_now()
    s.run(20, lambda: s.bp() == 10_000)
    s.run(5, lambda: False)
    assert (s.bp(), s.rollout().hold_reason) == (10_000, LOST)
    return s


def told(s: Simulation, cause: str) -> list[str]:
    return [n.text for n in s.notices.sent if n.kind == "notify.page" and n.data["cause"] == cause]


def test_a_target_that_fails_is_paged_once_with_no_way_home_and_it_stays_until_it_is_well() -> None:
    s = lifted()
    s.failing = 0.8
    s.run(20, lambda: bool(told(s, FAILING)))
    (text,) = told(s, FAILING)
    assert "fails" in text
    assert "no way home while nvidia-lab answers nothing" in text
    assert f"fleetctl fallback {CELL}" in text
    assert s.rollout().hold_reason == FAILING
    s.failing = 0.3
    s.run(20, lambda: False)
    assert (len(told(s, FAILING)), s.rollout().hold_reason) == (1, FAILING), "half well is not well"
    s.failing = 0.0
    s.run(20, lambda: s.rollout().hold_reason == LOST)
    assert s.rollout().hold_reason == LOST
    assert s.bp() == 10_000, "nobody is moved: there is nowhere to go"


def test_a_hard_fault_is_paged_by_itself() -> None:
    s = lifted()
    read, fault = s.evidence.read, ("GPU 3 of mi300x-lab-1: uncorrectable memory error",)
    s.evidence.read = lambda c, since: replace(read(c, since), faults=fault)  # type: ignore[method-assign]
    s.run(10, lambda: bool(told(s, FAILING)))
    (text,) = told(s, FAILING)
    assert "uncorrectable memory error" in text
    assert "no way home" in text


def test_a_target_that_nobody_sees_is_paged_once() -> None:
    s = lifted()
    s.evidence.down = True
    s.run(10, lambda: bool(told(s, BLIND)))
    s.run(10, lambda: False)
    assert len(told(s, BLIND)) == 1
    s.evidence.down = False
    s.run(10, lambda: s.rollout().hold_reason == LOST)
    assert s.rollout().hold_reason == LOST


def test_a_healthy_one_is_quiet_and_comes_home_when_its_source_is_back() -> None:
    s = lifted()
    s.run(60, lambda: False)
    assert (told(s, FAILING), told(s, BLIND)) == ([], [])
    s.ready.share[SOURCE] = 1.0
    s.store.order(CELL, Order(kind="fallback", actor=Actor(kind="person", name="ada"), at=s.clock.now()))
    s.look_now()
    s.run(10, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("fell_back", 0)
