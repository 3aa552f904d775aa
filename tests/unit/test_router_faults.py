"""Routers that take a weight and do something else, as public reports tell of them: each is noticed, and nobody more is sent over.

The data plane is a double: a function from the weight that stands to what customers get.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from tests.fakes.evidence import Served
from tests.rollouts import CELL, PERSON
from tests.simulator import SOURCE, Simulation, quick

Plane = Callable[[int, float], tuple[Arm, bool]]
"""From the weight (bp) and a draw of 0 to 1: who gets a request, and whether the router answers 503 in its place."""


def two_weighted_pools_answer_503(bp: int, draw: float) -> tuple[Arm, bool]:
    """kgateway#11667."""
    return "canary" if draw * 10_000 < bp else "baseline", 0 < bp < 10_000


def all_to_the_first_pool(bp: int, draw: float) -> tuple[Arm, bool]:
    """kthena#1473; the first pool is the target here, which is the worse case."""
    return "canary" if bp else "baseline", False


def weight_0_breaks_its_sibling(bp: int, draw: float) -> tuple[Arm, bool]:
    """ai-gateway#1664."""
    return "canary" if draw * 10_000 < bp else "baseline", bp == 0


def one_hundred_to_0_gives_50_50(bp: int, draw: float) -> tuple[Arm, bool]:
    """seldon-core#4067."""
    share = 5_000 if bp in (0, 10_000) else bp
    return "canary" if draw * 10_000 < share else "baseline", False


def weights_are_silently_ignored(bp: int, draw: float) -> tuple[Arm, bool]:
    """litellm#33329, kserve#5335."""
    return "baseline", False


class Faulty(Simulation):
    """Customers behind a router that is faulty from the first weight on, or from the beginning."""

    plane: Plane

    def serve(self, seconds: float) -> None:
        for i in range(round(self.rate_per_s * seconds)):
            arm, refused = self.plane(self.target.splits[CELL].target_bp, self.random.random())
            at = self.clock.now() + timedelta(seconds=seconds * i / (self.rate_per_s * seconds))
            latency = None if refused else 52 * self.random.lognormvariate(0, 0.25)
            self.evidence.add(Served(cell=CELL, arm=arm, started=at, latency_ms=latency, failed=refused))
            self._writer.record(CELL, "c1" if arm == "canary" else "b1", at)
        self.clock.advance(timedelta(seconds=seconds))


def cookies_hold_whoever_is_there(bp: int, draw: float) -> tuple[Arm, bool]:
    """No fault: an ALB's group stickiness. Who came before the raise keeps his side, so less than the weight is served."""
    return "canary" if draw * 10_000 < bp * (0.3 if 0 < bp < 10_000 else 1) else "baseline", False


def run(plane: Plane, seconds: int = 150, *, by_minute: bool = False) -> Faulty:
    """Run until something holds or ends it, and 5 s on, in which nothing may be said twice."""
    s = Faulty(of=quick(), rate_per_s=10 if by_minute else 80)
    s.plane = plane
    s._writer.minutes = s.clock.now if by_minute else None
    s.begin()

    def is_settled() -> bool:
        r = s.rollout()
        return bool(r.ended) or (r.hold_reason.startswith(("router.", "source.")) and r.hold_reason != "router.both_fail")

    s.run(seconds, is_settled)
    s.run(5)
    return s


@pytest.mark.parametrize("plane", [cookies_hold_whoever_is_there, all_to_the_first_pool])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_raise_behind_cookies_is_no_fault_where_less_than_the_weight_is_served_but_where_it_is_more(plane: Plane, keeps: bool) -> None:
    s = Faulty(of=quick(), rate_per_s=80)
    s.plane, s._writer.keeps = plane, keeps
    s.begin()
    s.run(400, lambda: bool(s.rollout().ended) or s.rollout().hold_reason == "router.share")
    found = s.rollout().ended or s.rollout().hold_reason
    assert found == ("rolled_back" if plane is all_to_the_first_pool else "complete" if keeps else "router.share")


def pages(s: Faulty) -> list[str]:
    return [n.text for n in s.notices.sent if n.kind == "notify.page"]


def test_a_split_that_answers_503_goes_home_at_once() -> None:
    s = run(two_weighted_pools_answer_503)
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0)
    assert [a.target_bp for a in s.target.applied if a.target_bp] == [1000]
    assert pages(s) == [f"{CELL} is home: router: with 10 % on the target, customers of both sides get errors: the split itself fails"]
    began, home = (next(e.at for e in s.store.events(CELL, 0) if e.kind == "traffic.set" and e.data["to_bp"] == bp) for bp in (1000, 0))
    assert home - began < timedelta(seconds=20)


def test_where_many_cells_fail_on_both_sides_nobody_is_moved_and_one_page_is_sent() -> None:
    cells = tuple(CellId(f"cell-{n}") for n in range(5))
    s = Simulation(cells, of=quick(), rate_per_s=60)
    s.begin()
    s.run(90, lambda: all(s.bp(c) == 1_000 and s.rollout(c).settled_at is not None for c in cells))
    s.failing = s.source_failing = 0.9
    s.run(25)
    assert [s.bp(c) for c in cells] == [1_000] * 5
    assert {s.rollout(c).hold_reason for c in cells} == {"router.all_fail"}
    assert [n.text for n in s.notices.sent if n.kind == "notify.page"] == [
        next(n.text for n in s.notices.sent if "what they share is at fault" in n.text)
    ]
    s.failing = s.source_failing = 0.0
    s.run(30)
    assert {s.rollout(c).hold_reason for c in cells} & {"router.all_fail", "router.both_fail"} == set()


def test_a_router_that_sends_everybody_to_the_target_is_taken_home() -> None:
    s = run(all_to_the_first_pool)
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0)
    assert "served share 100.0% is not the 10.0% that was set: the target gets far more than it may" in pages(s)[0]


@pytest.mark.parametrize("share", [4_000, 8_000])
def test_a_router_that_splits_in_its_own_way_is_left_however_it_splits(share: int) -> None:
    s = run(lambda bp, draw: ("canary" if bp and draw * 10_000 < share else "baseline", False))
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0)


def test_a_person_may_promote_past_a_share_that_a_heavy_conversation_explains() -> None:
    s = run(lambda bp, draw: ("canary" if bp and draw * 10_000 < bp + 2_000 * (bp < 5_000) else "baseline", False))
    assert (s.rollout().phase, s.rollout().hold_reason) == ("canary", "router.share")
    s.store.order(CELL, Order(kind="promote", actor=PERSON, at=s.clock.now()))
    s.run(30, lambda: s.rollout().phase == "ramp")
    assert s.rollout().phase == "ramp"


def test_customers_who_get_errors_before_anything_has_moved_hold_the_first_step() -> None:
    s = run(weight_0_breaks_its_sibling)
    assert (s.rollout().phase, s.bp(), s.rollout().hold_reason) == ("preflight", 0, "source.failing")
    assert len(pages(s)) == 1
    assert s.target.applied == []


def test_a_router_that_leaks_at_weight_0_is_noticed_before_the_first_step() -> None:
    s = run(one_hundred_to_0_gives_50_50)
    assert (s.rollout().phase, s.bp(), s.rollout().hold_reason) == ("preflight", 0, "router.leaks")
    assert len(pages(s)) == 1
    assert s.target.applied == []


def test_a_router_that_keeps_half_on_the_source_at_100_percent_is_never_complete() -> None:
    def plane(bp: int, draw: float) -> tuple[Arm, bool]:
        return one_hundred_to_0_gives_50_50(bp, draw) if bp else ("baseline", False)

    s = run(plane, 300)
    assert (s.rollout().phase, s.rollout().ended, s.rollout().hold_reason) == ("complete", "", "router.share")
    assert "the source still answers" in pages(s)[0]


def test_a_router_that_counts_by_the_minute_and_late_is_waited_for_until_its_leak_shows() -> None:
    s = run(one_hundred_to_0_gives_50_50, 400, by_minute=True)
    assert (s.rollout().phase, s.bp(), s.rollout().hold_reason) == ("preflight", 0, "router.leaks")
    assert len(pages(s)) == 1
    assert s.target.applied == []


def test_a_sound_router_that_counts_by_the_minute_costs_a_few_minutes() -> None:
    s = Faulty(of=quick(), rate_per_s=10)
    s.plane = lambda bp, draw: ("canary" if draw * 10_000 < bp else "baseline", False)
    s._writer.minutes = s.clock.now
    began = s.clock.now()
    s.begin()
    s.run(400, lambda: s.bp() > 0)
    assert s.bp() == 1_000
    assert timedelta(minutes=2) <= s.clock.now() - began <= timedelta(minutes=5)


def test_weights_that_are_ignored_hold_the_first_step_and_go_home_since_a_target_that_hangs_looks_the_same() -> None:
    s = Faulty(of=quick(), rate_per_s=80)
    s.plane = weights_are_silently_ignored
    s.begin()
    s.run(90, lambda: s.rollout().hold_reason == "evidence.lost")
    assert (s.rollout().phase, s.bp()) == ("canary", 1000)
    assert "canary is empty though about" in s.results[-1].why
    assert "of its requests were due; home in 120 s" in s.results[-1].why
    s.run(150, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("lost_evidence", 0)
    assert pages(s) == [f"{CELL}: served share 0.0% is not the 10.0% that was set", f"{CELL} is home: lost evidence"]


class Stuck(Faulty):
    """What routes goes on with the weight that it had once it is lowered, until somebody mends it."""

    stuck = True

    def serve(self, seconds: float) -> None:
        self.highest = max(getattr(self, "highest", 0), self.target.splits[CELL].target_bp)
        self.plane = lambda bp, draw: ("canary" if draw * 10_000 < (self.highest if self.stuck else bp) else "baseline", False)
        super().serve(seconds)


def stuck(**changes: object) -> Stuck:
    """Return a cell whose target begins to fail at 10 %, behind a router that shows what it is told and ignores what lowers."""
    s = Stuck(of=quick(), rate_per_s=10 if changes.get("tells") == "counts" else 40)
    is_counted = bool(changes.pop("is_counted", True))
    for name, value in changes.items():
        setattr(s._writer, name, value)
    s._writer.minutes = s.clock.now if changes.get("tells") == "counts" else None
    s.begin()
    s.run(400, lambda: s.bp() == 1_000 and s.rollout().settled_at is not None)
    s._writer.is_counted = is_counted
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.tick_once()
    assert s.bp() == 0, "going home waits for nothing"
    return s


LOWERING_IGNORED: list[dict[str, object]] = [
    {},
    {"tells": "counts"},
    {"tells": "gateway", "is_counted": False, "unseen": "gateway edge has not said that it has seen the weights that stand"},
]


@pytest.mark.parametrize("changes", LOWERING_IGNORED, ids=["read from what routes", "told by counts", "told by a gateway"])
def test_a_router_that_ignores_what_lowers_is_never_called_home_and_people_are_told_once(changes: dict[str, object]) -> None:
    unseen = changes.pop("unseen", "")
    s = stuck(**changes)
    s._writer.unseen = str(unseen)
    s.run(500 if changes.get("tells") == "counts" else 150)
    r = s.rollout()
    assert (r.ended, r.direction, r.hold_reason, s.bp()) == ("", "home", "home.not_proven", 0)
    assert len(pages(s)) == 1
    assert "it is not proven that customers have left the target" in pages(s)[0]
    assert not any("is home" in n.text for n in s.notices.sent)
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=1_000, cap_bp=10_000)
    s.run(10, lambda: s.bp() == 0)
    assert s.bp() == 0, "it is kept at 0"
    s.stuck, s._writer.unseen = False, ""
    s.run(500, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "aborted"
    assert s.notices.sent[-1].text == f"{CELL} is home: aborted"


@pytest.mark.parametrize("tells", ["itself", "gateway", "counts"])
def test_a_sound_router_is_home_once_that_is_shown(tells: str) -> None:
    s = stuck(tells=tells)
    s.stuck = False
    began = s.clock.now()
    s.run(500, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, pages(s)) == ("aborted", [])
    assert s.clock.now() - began <= timedelta(seconds=5 if tells != "counts" else 420)


def test_who_is_taken_home_by_a_guard_after_waiting_for_the_source_is_counted_from_then_on() -> None:
    s = Faulty(of=quick(), rate_per_s=40)
    s.plane = lambda bp, draw: ("canary" if draw * 10_000 < bp else "baseline", False)
    s.begin()
    s.run(100, lambda: s.bp() == 1_000 and s.rollout().settled_at is not None)
    s.ready.share[SOURCE] = 0.0
    s.evidence.down = True  # else good answers of the source are its proof
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.run(200)
    assert (s.bp(), s.rollout().hold_reason) == (1_000, "home.source_not_ready")
    told = len(pages(s))
    s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=0)
    s.run(6, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, len(pages(s))) == ("aborted", told)


def test_a_person_who_has_looked_ends_what_nobody_can_count() -> None:
    s = stuck(tells="counts", is_counted=False)
    s.run(500)
    assert (s.rollout().ended, s.rollout().hold_reason) == ("", "home.not_proven")
    assert "who answers customers cannot be counted" in pages(s)[-1]
    s.store.order(CELL, Order(kind="promote", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.run(3)
    assert s.rollout().ended == "aborted"


@pytest.mark.parametrize("tells", ["gateway", "counts"])
@pytest.mark.parametrize("counted", ["nobody can", "nobody on either side"])
def test_nobody_is_sent_behind_a_router_whose_customers_are_not_counted(tells: str, counted: str) -> None:
    s = Simulation(of=quick(), rate_per_s=40)  # which records none of its customers at the router
    s._writer.tells, s._writer.is_counted = tells, counted != "nobody can"  # type: ignore[assignment]
    s.begin()
    s.run(60)
    assert (s.rollout().phase, s.bp(), s.target.applied) == ("preflight", 0, [])
    assert "counted" in s.results[-1].why


def test_100_percent_that_nobody_is_counted_at_is_not_complete() -> None:
    s = Faulty(of=quick(), rate_per_s=80)
    s.plane = lambda bp, draw: ("canary" if draw * 10_000 < bp else "baseline", False)
    s._writer.tells = "gateway"
    s.begin()
    s.run(300, lambda: s.rollout().phase == "complete")
    s._writer.is_counted = False
    s.run(60)
    assert (s.bp(), s.rollout().ended) == (10_000, "")
    assert "nobody is counted on the target at 100 %" in s.results[-1].why
    s._writer.is_counted = True
    s.run(60, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n < 2 else pytest.mark.slow) for n in range(20)])
def test_a_sound_router_is_never_blamed(seed: int) -> None:
    s = Faulty(of=quick(), seed=seed, rate_per_s=80)
    s.plane = lambda bp, draw: ("canary" if draw * 10_000 < bp else "baseline", False)
    s.begin()
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"
    assert pages(s) == []
