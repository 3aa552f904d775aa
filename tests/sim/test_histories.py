"""Many made-up histories of a migration, each with its own faults: no promise breaks, and a planted bug is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleetctl.domain.people import Reason
from fleetctl.domain.rollout import Decision, Freeze, Observation, Order, Rollout
from fleetctl.rollout import decide as rules
from fleetctl.usecases import tick as ticks
from fleetctl.usecases.holds import KeptHolds
from tests.fakes.clock import START
from tests.sim.histories import history

pytestmark = pytest.mark.crash  # controllers are killed in their middle, if only made-up ones
SEEDS = 12


def unbroken(first: int, count: int) -> None:
    writes, false = 0, 0
    for seed in range(first, first + count):
        broken, checks, world = history(seed)
        assert broken == [], f"seed {seed}: {broken[:3]}; its story: python -m tests.sim.histories {seed}"
        writes += len(world.written)
        false += len(checks.false_rollbacks)
    assert false <= max(1, round(0.01 * 3 * count)), "P4: at most one migration in a hundred is rolled back though its target is as good"
    assert writes > 5 * count, "histories in which hardly anything moves prove nothing"


def test_no_promise_breaks_in_any_history() -> None:
    unbroken(0, SEEDS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1_000, 2_000, 250))
def test_no_promise_breaks_in_a_thousand_histories(first: int) -> None:
    unbroken(first, 250)


def test_the_sources_minimum_is_held_and_given_back_once_whoever_is_killed() -> None:
    for seed in range(2_000, 2_004):
        broken, _, world = history(seed, kills_holds=True)
        assert broken == [], f"seed {seed}: {broken[:3]}"
        assert len(world.hands.writes) >= 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_sources_minimum_comes_home_in_two_hundred_histories() -> None:
    for seed in range(2_000, 2_200):
        assert history(seed, kills_holds=True)[0] == [], f"seed {seed}"


def test_a_router_without_fencing_takes_stale_writes() -> None:
    assert sum(history(seed, fenced=False)[1].stale_accepted() for seed in (5, 6)) > 0
    assert sum(history(seed)[1].stale_accepted() for seed in (5, 6)) == 0


def _abort_that_leaves_the_weight(before: Callable[..., Rollout]) -> Callable[..., Rollout]:
    def obey(r: Rollout, order: Order, now: object) -> Rollout:
        done = before(r, order, now)
        return replace(done, ended="aborted") if order.kind in ("abort", "fallback") else done

    return obey


def _stays(r: Rollout, seen: Observation) -> Decision:
    why = Reason(code="planted", text="planted")
    return rules._held(r, seen, why, seen.evidence.at if seen.evidence else START, page=False)


PLANTED: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "an abort that leaves the weight": (
        "P1",
        lambda m: m.setattr(rules, "_obey_one", _abort_that_leaves_the_weight(rules._obey_one)),
    ),
    "a FAIL that is not heard": ("P4", lambda m: m.setattr(rules, "_failure", lambda _: None)),
    "a freeze window that is not seen": ("P10", lambda m: m.setattr(ticks, "open_window", lambda *_: Freeze())),
    "a raise that asks nobody": ("P9", lambda m: m.setattr(rules, "_not_ready", lambda *_: None)),
    "lost evidence that is not noticed": ("P7", lambda m: m.setattr(rules, "_lost", lambda *_: "")),
    "a minimum that nobody gives back": ("P6", lambda m: m.setattr(KeptHolds, "_drop", lambda *_: iter(()))),
    "a minimum that is given back too early": ("P6", lambda m: m.setattr(KeptHolds, "_is_home", KeptHolds._is_left)),
    "a minimum that is never pinned": ("P6", lambda m: m.setattr(KeptHolds, "pin", lambda *_: ())),
    "a rollout that never goes home": ("P3", lambda m: m.setattr(rules, "_go_home", _stays)),
}


CAUGHT_FROM = {"a FAIL that is not heard": 8, "lost evidence that is not noticed": 48}
"""The first seed that notices a bug, where that is not an early one: the others are left out here."""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promise, plant = PLANTED[bug]
    plant(monkeypatch)
    for seed in range(CAUGHT_FROM.get(bug, 0), 100):
        if any(b.promise == promise for b in history(seed, wanted=promise)[0]):
            return
    raise AssertionError(f"{bug} was not noticed in any history")
