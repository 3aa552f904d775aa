"""What `decide` does in each phase, and that going home outranks everything."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fleetctl.domain.fleet import Phase
from fleetctl.domain.rollout import Decision, Freeze, Notify, Observation, OrderKind, Rollout, SetSplit, StartShadow, StopShadow
from fleetctl.domain.split import Served
from fleetctl.domain.workload import CheckSpec, Lane
from fleetctl.rollout.decide import decide
from tests.rollouts import PERSON, T0, all_pass, evidence, order, rollout, seeing, spec, split, verdict


class World:
    """A router that shows what it is told, and time that moves one second a tick."""

    def __init__(self, r: Rollout) -> None:
        self.r, self.now, self.bp = r, T0, 0
        self.decisions: list[Decision] = []

    def tick(self, verdicts: tuple[object, ...] | None = None, **more: object) -> Decision:
        of = evidence(self.now, canary=self.bp // 10, baseline=(10_000 - self.bp) // 10) if self.bp else None
        given = all_pass(self.now) if verdicts is None else verdicts
        if "of" in more:
            of = more.pop("of")  # type: ignore[assignment]
        seen: Observation = seeing(self.now, self.bp, given, of, **more)  # type: ignore[arg-type]
        d = decide(self.r, seen, self.now)
        traffic = [e for e in d.effects if isinstance(e, SetSplit)]
        assert len(traffic) <= 1
        for effect in traffic:
            self.bp = effect.target_bp
        self.r = d.next
        self.now += timedelta(seconds=1)
        self.decisions.append(d)
        return d

    def until(self, phase: Phase, limit: int = 400) -> World:
        for _ in range(limit):
            if self.r.phase == phase and self.r.settled_at is not None and self.now > self.r.settled_at:
                return self
            self.tick()
        raise AssertionError(f"never settled in {phase}, still {self.r.phase}: {self.decisions[-1].why}")


def test_a_good_cell_goes_all_the_way() -> None:
    w = World(rollout())
    seen: list[tuple[Phase, int]] = []
    while not w.r.ended:
        w.tick()
        if (w.r.phase, w.bp) not in seen:
            seen.append((w.r.phase, w.bp))
    assert w.r.ended == "complete"
    assert [bp for _, bp in seen if bp] == sorted(bp for _, bp in seen if bp)
    assert seen[-1] == ("complete", 10_000)


def test_it_stops_after_the_phase_it_was_asked_for_and_goes_on_when_asked() -> None:
    w = World(rollout(until="canary")).until("canary")
    for _ in range(30):
        w.tick()
    assert (w.r.phase, w.bp, w.r.step_done) == ("canary", 1000, True)
    w.r = replace(w.r, orders=(replace(order("advance"), until="ramp"),))
    w.until("ramp")
    assert w.bp == 5000


@pytest.mark.parametrize("phase", ["canary", "ramp", "full", "soak"])
def test_a_fail_goes_home_at_once_in_every_weighted_phase_and_latches(phase: Phase) -> None:
    w = World(rollout()).until(phase)
    w.tick((verdict("FAIL", "latency"), verdict("PASS", "errors")))
    assert w.bp == 0
    w.tick()
    assert w.r.ended == "rolled_back"
    assert w.r.latched is not None
    assert any(isinstance(e, Notify) and e.level == "page" for e in w.decisions[-1].effects)
    before = w.bp
    for _ in range(5):
        assert w.tick().effects == ()
    assert w.bp == before == 0


@pytest.mark.parametrize("kind", ["INCONCLUSIVE", "NO_DATA", "PROVIDER_ERROR"])
def test_only_a_pass_raises_the_weight(kind: str) -> None:
    w = World(rollout()).until("canary")
    for _ in range(100):
        w.tick((verdict(kind, "errors"), verdict("PASS", "latency")))  # type: ignore[arg-type]
    assert (w.r.phase, w.bp, w.r.ended) == ("canary", 1000, "")


def test_every_guardrail_must_pass_not_most_of_them() -> None:
    w = World(rollout()).until("canary")
    for _ in range(60):
        w.tick((verdict("PASS", "errors"),))
    assert w.bp == 1000


@pytest.mark.parametrize("kind", ["abort", "fallback"])
@pytest.mark.parametrize("phase", ["preflight", "canary", "ramp", "full", "soak"])
def test_an_order_home_wins_in_every_phase(kind: str, phase: Phase) -> None:
    w = World(rollout()).until(phase)
    w.r = replace(w.r, paused=True, orders=(order("resume"), order(kind), order("promote")))  # type: ignore[arg-type]
    w.tick()
    w.tick()
    assert w.bp == 0
    assert w.r.ended == {"abort": "aborted", "fallback": "fell_back"}[kind]


def test_rollback_goes_one_step_lower_and_restarts_the_evidence() -> None:
    w = World(rollout()).until("ramp")
    since = w.r.since
    w.r = replace(w.r, orders=(order("rollback"),))
    w.tick()
    assert w.bp == 1000
    w.until("canary")
    assert w.r.since != since
    w.r = replace(w.r, orders=(order("rollback"),))
    w.tick()
    w.tick()
    assert (w.bp, w.r.ended) == (0, "aborted")


def test_a_step_back_into_another_phase_is_taken_back_by_migrate_and_not_by_promote() -> None:
    w = World(rollout()).until("ramp")
    w.r = replace(w.r, paused=True, orders=(order("rollback"),))
    w.tick()
    w.until("canary")
    w.r = replace(w.r, orders=(order("promote"),))
    for _ in range(60):
        w.tick()
    assert (w.r.phase, w.bp) == ("canary", 1000)
    w.r = replace(w.r, orders=(replace(order("advance"), until="complete"),))
    w.until("ramp")
    assert w.bp == 5000


@pytest.mark.parametrize(("ready", "stands_bp"), [(0.0, 9500), (0.25, 7500), (0.75, 5000)])
def test_one_step_lower_goes_only_as_far_as_ready_source_capacity(ready: float, stands_bp: int) -> None:
    w = World(rollout()).until("full")
    w.r = replace(w.r, orders=(order("rollback"),))
    for _ in range(3):
        w.tick(source_ready=ready)
    assert (w.bp, w.r.weight_bp, w.r.phase) == (stands_bp, stands_bp, "ramp"), "what is on record is what stands"
    assert w.r.hold_reason == ("source.not_ready" if stands_bp > 5000 else "")
    w.tick(source_ready=1.0)
    assert w.bp == 5000


@pytest.mark.parametrize("ready", [0.0, 0.25])
def test_what_cannot_go_lower_yet_is_judged_as_it_stands(ready: float) -> None:
    """A step back that the source cannot take leaves nobody without a judge: a FAIL latches, lost evidence goes home."""

    def stands() -> World:
        w = World(rollout()).until("full")
        w.r = replace(w.r, orders=(order("rollback"),))
        for _ in range(3):
            w.tick(source_ready=ready)
        assert w.r.settled_at is not None, "its evidence is read"
        return w

    failing = stands()
    failing.tick((verdict("FAIL", "breaker"),), source_ready=ready)
    assert (failing.r.direction, failing.r.latched is not None) == ("home", True)
    blind = stands()
    for _ in range(125):
        blind.tick(of=None, source_ready=ready)
    assert (blind.r.direction, blind.r.home_for) == ("home", "lost_evidence")
    killed = stands()
    before = killed.r
    killed.tick(source_ready=1.0)
    killed.r = before  # the router was set, the record was lost
    killed.tick(source_ready=1.0)
    killed.tick(source_ready=1.0)
    assert (killed.bp, killed.r.phase, killed.r.foreign, killed.r.hold_reason) == (5_000, "ramp", "", "")
    moved = stands()
    moved.bp = 9_900
    moved.tick(source_ready=ready)
    assert moved.r.foreign, "what somebody else raises is still theirs"


@pytest.mark.parametrize("kind", ["fallback", "rollback"])
def test_what_must_stay_for_want_of_source_keeps_its_lease(kind: OrderKind) -> None:
    w = World(rollout()).until("full")
    w.r = replace(w.r, orders=(order(kind),))
    for _ in range(3):
        w.tick(source_ready=0.25)
    assert (w.bp, w.r.ended) == (7_500, "")
    seen = replace(seeing(w.now, w.bp, of=evidence(w.now)), source_ready=0.25)
    assert not any(isinstance(e, SetSplit) for e in decide(w.r, seen, w.now).effects), "its lease has more than half its life"
    seen = replace(seen, split=replace(seen.split, lease_until=w.now + timedelta(seconds=60)))
    assert SetSplit(target_bp=7_500) in decide(w.r, seen, w.now).effects, "a guard would take it for one that nobody watches"


def test_pause_freezes_advance_but_not_a_rollback() -> None:
    w = World(rollout()).until("canary")
    w.r = replace(w.r, orders=(order("pause"),))
    for _ in range(60):
        w.tick()
    assert (w.r.phase, w.bp) == ("canary", 1000)
    w.tick((verdict("FAIL"),))
    assert w.bp == 0


def test_a_freeze_window_binds_advance_but_not_a_rollback() -> None:
    w = World(rollout()).until("canary")
    frozen = Freeze(active=True, name="sale")
    for _ in range(60):
        w.tick(window=frozen)
    assert (w.r.phase, w.bp) == ("canary", 1000)
    w.tick((verdict("FAIL"),), window=frozen)
    assert w.bp == 0


def test_promote_accepts_an_inconclusive_step() -> None:
    w = World(rollout()).until("canary")
    w.r = replace(w.r, orders=(order("promote"),))
    w.tick((verdict("INCONCLUSIVE"),))
    assert w.bp == 5000


def test_promote_ends_no_soak_before_its_time() -> None:
    w = World(rollout()).until("soak")
    ends = w.now + w.r.spec.phases[w.r.step].bake
    w.r = replace(w.r, orders=(order("promote"),))
    while w.r.phase == "soak":
        assert not w.r.step_done
        w.tick((verdict("INCONCLUSIVE"),))
    assert any("soak ends by its time alone" in d.why.text for d in w.decisions)
    assert ends <= w.now <= ends + timedelta(seconds=3)


def test_promote_before_the_router_shows_the_step_is_not_lost() -> None:
    w = World(rollout()).until("preflight")
    while w.r.phase != "canary":
        w.tick()
    assert w.r.settled_at is None
    w.r = replace(w.r, orders=(order("promote"),))
    for _ in range(4):
        w.tick((verdict("INCONCLUSIVE"),))
    assert w.bp == 5000


def test_promote_cannot_raise_what_has_failed() -> None:
    w = World(rollout()).until("canary")
    w.tick((verdict("FAIL"),))
    w.r = replace(w.r, orders=(order("promote"),))
    w.tick()
    w.tick()
    assert (w.bp, w.r.ended) == (0, "rolled_back")


def test_lost_evidence_holds_then_goes_home_after_two_minutes() -> None:
    w = World(rollout()).until("ramp")
    at = w.now
    while w.bp:
        assert w.tick((), of=None).next.phase == "ramp"
        assert w.now - at < timedelta(seconds=125)
    assert w.now - at >= timedelta(seconds=120)
    w.tick((), of=None)
    assert w.r.ended == "lost_evidence"


def test_evidence_that_comes_back_in_time_changes_nothing() -> None:
    w = World(rollout()).until("ramp")
    for _ in range(100):
        w.tick((), of=None)
    w.tick((verdict("INCONCLUSIVE"),))
    for _ in range(100):
        w.tick((), of=None)
    assert w.bp == 5000


def test_three_cells_without_evidence_hold_and_page_once() -> None:
    w = World(rollout()).until("ramp")
    for _ in range(600):
        w.tick((), of=None, providers_lost=3)
    assert w.bp == 5000
    pages = [e for d in w.decisions for e in d.effects if isinstance(e, Notify) and e.level == "page"]
    assert len(pages) == 1


@pytest.mark.parametrize("state", ["nan", "down", "mislabelled", "same_series", "reset"])
def test_a_broken_series_is_no_evidence(state: str) -> None:
    w = World(rollout()).until("canary")
    for _ in range(130):
        w.tick(of=evidence(w.now, state=state))  # type: ignore[arg-type]
    assert (w.bp, w.r.ended) == (0, "lost_evidence")


def test_home_waits_for_a_source_that_does_not_answer() -> None:
    w = World(rollout()).until("ramp")
    for _ in range(10):
        w.tick((verdict("FAIL"),), source_ready=0.0)
    assert (w.bp, w.r.ended) == (5000, "")
    pages = [e for d in w.decisions for e in d.effects if isinstance(e, Notify) and e.level == "page"]
    assert len(pages) == 1
    w.tick((), source_ready=0.7)
    assert w.bp == 3000
    w.tick((), source_ready=1.0)
    assert w.bp == 0


def test_preflight_needs_both_sides_and_the_baselines_quantiles() -> None:
    for more in ({"source_ready": 0.5}, {"target_ready": 0.5}, {"source_ready": None}):
        w = World(rollout())
        for _ in range(10):
            w.tick(**more)
        assert (w.r.phase, w.bp) == ("preflight", 0)
    w = World(rollout())
    for _ in range(10):
        w.tick(mark=replace(seeing(T0, 0).mark or pytest.fail("no mark"), thresholds=None))
    assert w.r.phase == "preflight"


def test_the_shadow_gate_asks_the_quality_verdict() -> None:
    w = World(rollout(spec(shadow=True))).until("shadow")
    for _ in range(20):
        w.tick((verdict("INCONCLUSIVE", "quality"),))
    phases = [w.r.phase]
    w.tick((verdict("PASS", "quality"),))
    assert [*phases, w.r.phase] == ["shadow", "canary"]


@pytest.mark.parametrize(
    "how", ["pass", "promoted", "paused", "no further", "freeze", "source not ready", "target not ready", "check missing"]
)
def test_copies_stop_with_their_verdict_whether_it_goes_on_at_once_or_not(how: str) -> None:
    w = World(rollout(spec(shadow=True), until="shadow" if how == "no further" else "complete")).until("shadow")
    d = w.tick((verdict("INCONCLUSIVE", "quality"),))
    assert [type(e) for e in d.effects] == [StartShadow]
    if how in ("paused", "promoted"):
        w.r = replace(w.r, orders=(order("pause" if how == "paused" else "promote"),))
    more: dict[str, object] = {}
    if how == "freeze":
        more["window"] = Freeze(active=True, name="weekend")
    if how.endswith("not ready"):
        more[f"{how.split()[0]}_ready"] = 0.5
    if how == "check missing":
        w.r = replace(w.r, spec=replace(w.r.spec, checks=(CheckSpec(name="answers", is_auto=False),)))
    d = w.tick((verdict("INCONCLUSIVE" if how == "promoted" else "PASS", "quality"),), **more)
    assert w.r.phase == ("canary" if how in ("pass", "promoted") else "shadow")
    assert [e for e in d.effects if isinstance(e, (StartShadow, StopShadow))] == [StopShadow()]
    for _ in range(5):
        assert not any(isinstance(e, StartShadow) for e in w.tick((verdict("PASS", "quality"),), **more).effects)


def test_a_failed_shadow_never_serves_a_customer() -> None:
    w = World(rollout(spec(shadow=True))).until("shadow")
    w.tick((verdict("FAIL", "quality"),))
    w.tick()
    assert w.r.ended == "rolled_back"
    assert all(not isinstance(e, SetSplit) for d in w.decisions for e in d.effects)


def test_the_accepted_lane_advances_without_pass_but_not_without_requests_or_past_a_fail() -> None:
    lane = Lane(kind="accepted", reason="too little traffic", actor=PERSON)
    w = World(rollout(spec(lane=lane))).until("canary")
    for _ in range(30):
        w.tick((verdict("INCONCLUSIVE"),), of=evidence(w.now, canary=0, baseline=40))
    assert w.bp == 1000
    for _ in range(30):
        w.tick((verdict("INCONCLUSIVE"),))
    assert w.bp > 1000
    w.tick((verdict("FAIL", "breaker"),))
    assert w.bp == 0


def test_a_weight_that_does_not_show_in_what_is_served_does_not_advance() -> None:
    w = World(rollout()).until("canary")
    for _ in range(60):
        w.tick(of=evidence(w.now, canary=0, baseline=5000))
    assert w.bp == 1000
    assert "is not the" in w.decisions[-1].why.text


def test_the_weights_lease_is_renewed_at_half_its_life_and_only_then() -> None:
    w = World(rollout()).until("canary")
    d = decide(w.r, seeing(w.now, 1000, (verdict("INCONCLUSIVE"),), evidence(w.now)), w.now)
    assert not [e for e in d.effects if isinstance(e, SetSplit)]
    later: datetime = w.now + timedelta(seconds=100)
    seen = replace(seeing(later, 1000, (verdict("INCONCLUSIVE"),), evidence(later)), split=seeing(w.now, 1000).split)
    assert [e for e in decide(w.r, seen, later).effects if isinstance(e, SetSplit)] == [SetSplit(target_bp=1000)]


def test_after_a_guard_took_the_weight_home_customers_come_back_a_few_at_a_time() -> None:
    w = World(rollout()).until("ramp")
    w.bp = 0
    lapsed = replace(seeing(w.now, 0), split=replace(split(0, w.now), lease_until=w.now), evidence=evidence(w.now))
    d = decide(w.r, lapsed, w.now)
    assert [e for e in d.effects if isinstance(e, SetSplit)] == [SetSplit(target_bp=1000)]
    assert (d.next.phase, d.next.settled_at, d.next.shown) == ("canary", None, ())
    pages = [e for e in d.effects if isinstance(e, Notify)]
    assert [(p.level, p.cause) for p in pages] == [("page", "guard.home")]
    assert "took 50 % home" in pages[0].text
    assert not [e for e in decide(d.next, lapsed, w.now).effects if isinstance(e, Notify)], "once"


@pytest.mark.parametrize("hindered", ["source", "freeze", "foreign", "blind"])
def test_what_a_guard_did_is_told_once_whatever_else_holds_the_cell(hindered: str) -> None:
    w = World(rollout()).until("ramp")
    seen = replace(seeing(w.now, 0), split=replace(split(0, w.now), lease_until=w.now), evidence=evidence(w.now))
    r = replace(w.r, foreign="kubectl set 0 %") if hindered == "foreign" else w.r
    seen = {
        "source": replace(seen, source_ready=0.5),
        "freeze": replace(seen, window=Freeze(active=True, name="sales")),
        "foreign": seen,
        "blind": replace(seen, mark=None),
    }[hindered]
    told = 0
    for _ in range(5):
        d = decide(r, seen, w.now)
        told += sum(isinstance(e, Notify) and e.cause == "guard.home" for e in d.effects)
        r = d.next
    assert told == 1


def test_a_weight_that_somebody_else_lowered_is_held_paged_once_and_raised_only_by_order() -> None:
    w = World(rollout()).until("ramp")
    w.bp = 0
    for _ in range(20):
        assert not [e for e in w.tick().effects if isinstance(e, SetSplit)]
    assert (w.bp, w.r.hold_reason) == (0, "foreign_write")
    pages = [e for d in w.decisions for e in d.effects if isinstance(e, Notify) and e.level == "page"]
    assert len(pages) == 1
    w.r = replace(w.r, orders=(order("resume"),))
    w.tick()
    assert w.bp == 5000


def test_a_weight_is_not_raised_above_a_source_that_does_not_answer() -> None:
    w = World(rollout(until="canary")).until("canary")
    for _ in range(20):
        w.tick()
    w.r = replace(w.r, orders=(order("advance"),))
    for _ in range(20):
        w.tick(source_ready=0.0)
    assert (w.bp, w.r.hold_reason) == (1000, "source.not_ready")
    w.tick(source_ready=1.0)
    assert w.bp == 5000


def test_the_accepted_lane_does_not_advance_on_a_stale_canary_or_a_cut_log() -> None:
    lane = Lane(kind="accepted", reason="too little traffic", actor=PERSON)
    w = World(rollout(spec(lane=lane))).until("canary")
    for _ in range(30):
        w.tick((verdict("NO_DATA"),), of=evidence(w.now, state="stale", baseline_state="ok"))
    assert w.bp == 1000
    for _ in range(125):
        w.tick((verdict("PROVIDER_ERROR"),), of=evidence(w.now, state="reset"))
    assert (w.bp, w.r.ended) == (0, "lost_evidence")


def test_a_completed_cell_can_still_be_ordered_home() -> None:
    w = World(rollout())
    while not w.r.ended:
        w.tick()
    w.r = replace(w.r, orders=(order("fallback"),))
    w.tick()
    w.tick()
    assert (w.bp, w.r.ended) == (0, "fell_back")


def test_a_step_that_outlives_its_deadline_asks_for_a_person() -> None:
    w = World(rollout(replace(spec(), step_deadline=timedelta(seconds=50)))).until("canary")
    for _ in range(80):
        w.tick((verdict("INCONCLUSIVE"),))
    assert w.r.hold_reason == "step.inconclusive"
    assert w.bp == 1000


def test_a_weight_above_the_steps_own_is_lowered_before_anything_else() -> None:
    w = World(rollout()).until("preflight")
    w.bp = 1000
    d = w.tick((), of=None)
    assert [e for e in d.effects if isinstance(e, SetSplit)] == [SetSplit(target_bp=0)]


def test_a_weight_that_the_router_lost_is_not_raised_again_without_evidence() -> None:
    w = World(rollout()).until("ramp")
    w.bp = 0
    w.r = replace(w.r, settled_at=None)
    for _ in range(5):
        assert not [e for e in w.tick((), of=None, mark=None).effects if isinstance(e, SetSplit)]
    assert w.r.hold_reason == "evidence.lost"
    w.tick()
    assert w.bp == 5000


def test_the_guardrail_that_failed_is_named_beside_the_whole() -> None:
    w = World(rollout()).until("canary")
    w.tick((verdict("FAIL", "all"), verdict("PASS", "errors"), verdict("FAIL", "latency")))
    assert w.r.latched is not None
    assert w.r.latched.guardrail == "latency"


def test_the_whole_must_pass_too_where_the_weight_rises_on_evidence() -> None:
    w = World(rollout()).until("canary")
    for _ in range(60):
        w.tick((verdict("INCONCLUSIVE", "all"), *all_pass(w.now)))
    assert w.bp == 1000


def test_a_step_whose_evidence_has_no_beginning_is_not_begun_and_goes_home() -> None:
    lane = Lane(kind="accepted", reason="too little traffic", actor=PERSON)
    w = World(rollout(spec(lane=lane))).until("canary")
    while w.bp == 1000:
        w.tick((verdict("INCONCLUSIVE"),))
    old = w.r.since
    assert (w.bp, w.r.settled_at) == (5000, None)
    at = w.now
    while w.bp:
        w.tick((), of=None, mark=None)
        assert w.r.settled_at is None, "the step before's evidence would be judged as this one's"
        assert w.now - at < timedelta(seconds=125)
    assert (w.r.direction, w.r.home_for, w.r.since) == ("home", "lost_evidence", old)


def test_a_preflight_without_an_evidence_source_waits_for_it() -> None:
    w = World(rollout(spec(lane=Lane(kind="accepted", reason="too little traffic", actor=PERSON))))
    for _ in range(10):
        w.tick((), of=None, mark=None)
    assert (w.r.phase, w.r.settled_at, w.r.hold_reason) == ("preflight", None, "evidence.lost")
    w.until("canary")


def test_a_promotion_outlives_a_freeze_window_and_ends_with_its_step() -> None:
    w = World(rollout()).until("canary")
    w.r = replace(w.r, orders=(order("promote"),))
    for _ in range(5):
        w.tick((verdict("INCONCLUSIVE"),), window=Freeze(active=True, name="sale"))
    assert (w.bp, w.r.hold_reason) == (1000, "freeze")
    w.tick((verdict("INCONCLUSIVE"),))
    assert w.bp == 5000
    for _ in range(60):
        w.tick((verdict("INCONCLUSIVE"),))
    assert (w.r.phase, w.bp) == ("ramp", 5000)


def test_a_bake_longer_than_the_deadline_is_not_inconclusive() -> None:
    w = World(rollout(replace(spec(bake_s=100.0), step_deadline=timedelta(seconds=50)))).until("canary")
    for _ in range(90):
        w.tick()
        assert w.r.hold_reason != "step.inconclusive"


def test_what_a_newer_writer_left_is_held_until_a_person_says_so() -> None:
    w = World(rollout()).until("ramp")
    w.r, w.bp = replace(w.r, hold_reason="stale"), 0
    lapsed = replace(split(0, w.now), lease_until=w.now - timedelta(seconds=1))
    for _ in range(10):
        seen = replace(seeing(w.now, 0, all_pass(w.now), evidence(w.now)), split=lapsed)
        d = decide(w.r, seen, w.now)
        assert d.effects == ()
        w.r = d.next
    assert w.r.hold_reason == "stale"
    w.r = replace(w.r, paused=True, orders=(order("resume"),))
    d = decide(w.r, replace(seeing(w.now, 0), split=lapsed), w.now)
    assert [e for e in d.effects if isinstance(e, SetSplit)] == [SetSplit(target_bp=1000)]
    assert d.next.paused, "reconciling thaws nothing"


@pytest.mark.parametrize(("kind", "bp", "end"), [("resume", 10_000, "complete"), ("fallback", 0, "fell_back")])
def test_a_finished_cell_that_a_newer_writer_moved_comes_to_an_end_once_reconciled(kind: OrderKind, bp: int, end: str) -> None:
    r = replace(World(rollout()).until("complete").r, ended="complete", hold_reason="stale", orders=(order(kind),))
    for _ in range(2):
        r = decide(r, seeing(T0, bp), T0).next
    assert (r.ended, r.hold_reason == "stale") == (end, False)


def test_a_weight_that_the_router_lost_is_not_raised_above_a_source_that_does_not_answer() -> None:
    w = World(rollout()).until("ramp")
    lapsed = replace(split(0, w.now), lease_until=w.now)
    d = decide(w.r, replace(seeing(w.now, 0, source_ready=0.5), split=lapsed, evidence=evidence(w.now)), w.now)
    assert not [e for e in d.effects if isinstance(e, SetSplit)]
    assert d.next.hold_reason == "source.not_ready"


def test_a_cell_that_waits_for_a_person_is_looked_at_as_at_any_step() -> None:
    """It may wait for weeks: a look a second would be ten times the store."""
    made = spec()
    made = replace(made, phases=tuple(replace(p, bake=timedelta(hours=1)) for p in made.phases))
    step = next(i for i, p in enumerate(made.phases) if p.phase == "canary")
    bp = made.phases[step].weight_bp
    r = replace(rollout(made), step=step, settled_at=T0, weight_bp=bp)
    late = T0 + timedelta(hours=2)
    passed = seeing(late, bp, all_pass(late), evidence(late, baseline=9000, canary=1000))
    paused = decide(replace(r, paused=True), passed, late)
    frozen = decide(r, replace(passed, window=Freeze(active=True, name="xmas", until=late)), late)
    waiting = decide(replace(r, deadline=T0), seeing(late, bp, (), evidence(late, baseline=90, canary=10)), late)
    assert [d.why.code for d in (paused, frozen, waiting)] == ["paused", "freeze", "step.inconclusive"]
    assert {d.look_again for d in (paused, frozen, waiting)} == {timedelta(seconds=5)}


def test_a_cell_that_may_be_failing_is_looked_at_every_second() -> None:
    made = spec(bake_s=86_400.0)
    for phase, calm_s in (("canary", 5), ("soak", 60)):
        step = next(i for i, p in enumerate(made.phases) if p.phase == phase)
        r = replace(rollout(made), step=step, settled_at=T0, weight_bp=made.phases[step].weight_bp)
        for e_value, wanted in ((1.9, calm_s), (2.1, 1)):
            verdicts = (replace(verdict("INCONCLUSIVE", "all"), e_value=e_value),)
            shown = evidence(T0 + timedelta(minutes=1), baseline=10_000 - r.weight_bp, canary=r.weight_bp)
            shown = replace(shown, served_bp=r.weight_bp)
            seen = seeing(T0 + timedelta(minutes=1), r.weight_bp, verdicts, shown)
            assert decide(r, seen, T0 + timedelta(minutes=1)).look_again == timedelta(seconds=wanted)


@pytest.mark.parametrize(("answered", "after_s", "ends"), [(12, 10, False), (40, 10, True), (12, 31, True)])
def test_at_100_percent_it_says_for_how_many_customers_it_waits_and_how_long(answered: int, after_s: int, ends: bool) -> None:
    r = replace(rollout(), settled_at=T0, weight_bp=10_000)
    step = next(i for i, p in enumerate(r.spec.phases) if p.phase == "complete")
    late = T0 + timedelta(seconds=after_s)
    e = evidence(late, baseline=0, canary=answered)
    seen = seeing(late, 10_000, (), e, served=Served(baseline=0, canary=answered, last_canary_start=late))
    d = decide(replace(r, step=step), seen, late)
    assert bool(d.next.ended) is ends
    if not ends:
        assert "12 of 40 customers so far, 20 s more at most" in d.why.text
