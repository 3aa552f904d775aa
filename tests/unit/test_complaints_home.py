"""What users complain of in roll-outs and their way back, as tests: each named after its complaint in the research on other tools."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from itertools import product
from typing import get_args

import pytest

from fleetctl.analysis.judge import fresh
from fleetctl.analysis.looks import replay
from fleetctl.analysis.memory import unpack
from fleetctl.domain.evidence import Cursor, JudgeState, Verdict, VerdictKind
from fleetctl.domain.fleet import FreezeWindow, Phase
from fleetctl.domain.identity import ArmsIdentity
from fleetctl.domain.ids import PlanId
from fleetctl.domain.rollout import Drain, Ended, Notify, Observation, Order, OrderKind, Rollout, SetSplit, Unhold
from fleetctl.domain.split import Split, Stale
from fleetctl.errors import FleetctlError
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.ports.state import Lease
from fleetctl.rollout.decide import decide
from fleetctl.usecases.migrate import retryable
from fleetctl.usecases.tick import TickSettings, open_window, tick
from tests.fakes.router import FakeRouter
from tests.rollouts import CELL, PERSON, T0, all_pass, evidence, rollout, seeing, spec, verdict
from tests.simulator import SOURCE, TARGET, Simulation, quick, tiny
from tests.unit.test_fleet_file import SMALL
from tests.unit.test_identity_rollout import ONE, TellingSimulation

LATE = T0 + timedelta(minutes=5)
ENDED = tuple(e for e in get_args(Ended) if e)
WEIGHTED: tuple[Phase, ...] = ("canary", "ramp", "full", "soak")


def at(phase: Phase, **changes: object) -> Rollout:
    """Return a rollout that stands settled in a phase."""
    r = rollout()
    step = next(i for i, p in enumerate(r.spec.phases) if p.phase == phase)
    kept = {"step": step, "weight_bp": r.spec.phases[step].weight_bp, "settled_at": T0, "deadline": T0 + timedelta(hours=1)}
    return replace(r, **(kept | changes))  # type: ignore[arg-type]


def looked(r: Rollout, *verdicts: Verdict, **more: object) -> Observation:
    """Return a look at which the router serves what it was told."""
    canary = r.weight_bp // 10
    seen = replace(evidence(LATE, baseline=1000 - canary, canary=canary), served_bp=r.weight_bp)
    return seeing(LATE, r.weight_bp, verdicts, seen, **more)


def driven(r: Rollout) -> tuple[Rollout, list[Notify]]:
    """Decide until the end, the router doing what it is told; return the end and what people were told."""
    told: list[Notify] = []
    for _ in range(5):
        d = decide(r, looked(r, *all_pass(LATE)), LATE)
        told += [e for e in d.effects if isinstance(e, Notify)]
        if d.next.ended and d.next.ended != r.ended:
            return d.next, told
        r = d.next
    return r, told


def moved(s: Simulation) -> list[int]:
    """Return every weight that the router was set to."""
    return [e.data["to_bp"] for e in s.store.events(CELL, 0) if e.kind == "traffic.set"]  # type: ignore[misc]


def begun(phase: Phase = "ramp", **changes: float) -> Simulation:
    s = Simulation(of=tiny(), rate_per_s=40, **changes)  # type: ignore[arg-type]
    s.begin()
    return s.at(phase)


def give(s: Simulation, *kinds: OrderKind) -> None:
    for kind in kinds:
        s.store.order(CELL, Order(kind=kind, actor=PERSON, at=s.clock.now()))
    s.look_now()


def test_t14_every_verdict_and_every_human_action_leave_a_step_that_can_go_on_or_home() -> None:
    kinds, actions = get_args(VerdictKind), ("", "promote", "pause", "resume", "rollback", "abort", "fallback")
    found = {}
    for kind, action in product(kinds, actions):
        orders = (Order(kind=action, actor=PERSON, at=LATE),) if action else ()  # type: ignore[arg-type]
        verdicts = (verdict(kind, "errors", LATE), verdict(kind, "latency", LATE))
        r = at("ramp", orders=orders)
        d = decide(r, seeing(LATE, 5000, verdicts, evidence(LATE, baseline=500, canary=500)), LATE)
        way = "home" if d.next.direction == "home" else "on" if d.next.step > r.step else "back" if d.next.step < r.step else "stays"
        found[kind, action] = way
        assert d.next.orders == (), "an order is obeyed once"
        assert d.look_again < timedelta(hours=1), "nothing waits for ever"
    assert all(found[k, a] == "home" for k in kinds for a in ("abort", "fallback"))
    assert all(found["FAIL", a] == "home" for a in actions), "nobody promotes or pauses away a FAIL"
    assert found["INCONCLUSIVE", "promote"] == found["PASS", ""] == found["PASS", "resume"] == "on"
    assert found["INCONCLUSIVE", ""] == found["NO_DATA", ""] == found["PASS", "pause"] == "stays"
    assert all(found[k, "rollback"] == "back" for k in kinds if k != "FAIL")


def test_t15_of_two_controllers_one_acts_and_the_old_one_is_refused() -> None:
    s = begun()
    first = s.store.acquire(CELL, "old", timedelta(seconds=5))
    assert isinstance(first, Lease)
    assert tick(CELL, s.ports(), TickSettings(holder="new", ttl=timedelta(seconds=5))).kind == "held"
    s.clock.advance(timedelta(seconds=6))
    assert tick(CELL, s.ports(), TickSettings(holder="new", ttl=timedelta(seconds=5))).kind == "ticked"
    late = Split(cell=CELL, target_bp=9500, cap_bp=10_000, token=first.token, lease_until=s.clock.now())
    assert isinstance(FakeRouter({CELL: SOURCE}, target=s.target).set(late), Stale)
    assert s.store.record(first, s.rollout(), replace(s.rollout(), weight_bp=9500), (), timedelta(0)) is not None
    assert (s.bp(), s.rollout().weight_bp) == (5000, 5000)


def test_t16_a_step_that_is_taken_again_and_again_begins_once() -> None:
    s = begun()
    for _ in range(40):  # ticks that came to nothing, as after as many crashes
        s.clock.advance(timedelta(seconds=6))
        lease = s.store.acquire(CELL, "dies", timedelta(seconds=5))
        assert isinstance(lease, Lease)
    s.run(2)
    kinds = [(e.kind, e.data.get("step")) for e in s.store.events(CELL, 0) if e.kind in ("rollout.step", "rollout.start")]
    assert len(kinds) == len(set(kinds)), kinds
    shown = [e.text for e in s.store.events(CELL, 0) if e.kind == "rollout.shown"]
    assert len([t for t in shown if "50 %" in t]) == 1


def test_t17_a_rollout_that_went_home_can_be_tried_again_from_every_end() -> None:
    for ended in ENDED:
        s = Simulation(of=tiny())
        s.store.start(replace(rollout(), ended=ended), ())
        if ended == "complete":
            with pytest.raises(FleetctlError, match="nothing to retry"):
                retryable(CELL, s.store)
        else:
            assert retryable(CELL, s.store) == 2, ended
    assert len(ENDED) >= 5
    s = begun(failing=0.5)
    s.run(60, lambda: bool(s.rollout().ended))
    s.failing = 0.0
    s.store.start(Rollout(cell=CELL, plan=PlanId("p1"), spec=s.spec, judge=fresh(), until="complete", attempt=2), ())
    s.look_now()
    s.run(60, lambda: s.bp() > 0).run(5)
    assert (s.bp() > 0, s.rollout().latched, s.rollout().ended) == (True, None, ""), "the FAIL of the first try does not hold the second"


@pytest.mark.parametrize("phase", [*WEIGHTED, "preflight"])
def test_t18_an_abort_wins_over_a_promotion_in_every_phase_and_whatever_else_is_so(phase: Phase) -> None:
    abort, promote = (Order(kind=k, actor=PERSON, at=LATE) for k in ("abort", "promote"))
    for orders, changes in product(
        [(abort,), (promote, abort), (abort, promote)],
        [{}, {"paused": True}, {"step_done": True, "promoted": True}, {"hold_reason": "evidence.lost"}, {"hold_reason": "stale"}],
    ):
        r = at(phase, orders=orders, **changes)  # type: ignore[arg-type]
        d = decide(r, seeing(LATE, r.weight_bp, all_pass(LATE), evidence(LATE)), LATE)
        assert d.next.direction == "home" or d.next.ended == "aborted", (phase, orders, changes)
        assert [e.target_bp for e in d.effects if isinstance(e, SetSplit)] == ([0] if r.weight_bp else [])


def test_t19_a_wait_ends_by_its_deadline_and_says_how_to_go_on() -> None:
    r = at("ramp", deadline=T0 + timedelta(minutes=1))
    late = decide(r, looked(r, verdict("INCONCLUSIVE", "errors", LATE)), LATE)
    assert late.next.hold_reason == "step.inconclusive"
    assert any(isinstance(e, Notify) for e in late.effects)
    out = decide(replace(late.next, orders=(Order(kind="promote", actor=PERSON, at=LATE),)), looked(r), LATE)
    assert out.next.step > r.step or out.next.step_done, "a person can go on"
    s = Simulation(of=replace(tiny(), step_deadline=timedelta(seconds=20)), rate_per_s=40)
    s.ready.share[TARGET] = 0.0  # its replicas never start
    s.begin()
    s.run(60)
    assert (s.bp(), s.rollout().phase) == (0, "preflight")
    assert s.notices.sent, "people are told that the target never came up"
    give(s, "abort")
    s.run(5)
    assert s.rollout().ended == "aborted", "and there is a way out"


@pytest.mark.parametrize(("ready", "floor_bp"), [(1.0, 0), (0.75, 2500), (0.5, 5000), (0.0, 9500)])
def test_t20_going_home_is_only_as_fast_as_the_source_is_ready(ready: float, floor_bp: int) -> None:
    r = at("soak", direction="home", home_for="abort")
    d = decide(r, seeing(LATE, 9500, (), None, source_ready=ready), LATE)
    sets = [e.target_bp for e in d.effects if isinstance(e, SetSplit)]
    assert sets == ([floor_bp] if floor_bp < 9500 else [])
    assert not d.next.ended, "it is not over before everybody is home"
    assert not any(isinstance(e, Unhold) for e in d.effects), "the source is held until then"
    if ready == 0.0:
        assert d.next.hold_reason == "home.source_not_ready"
        again = decide(d.next, seeing(LATE, 9500, (), None, source_ready=1.0), LATE)
        assert [e.target_bp for e in again.effects if isinstance(e, SetSplit)] == [0], "no deadlock: it goes on once the source answers"


def test_t21_the_last_side_that_serves_is_never_drained() -> None:
    failing = (verdict("FAIL", "errors", LATE),)
    d = decide(at("ramp"), seeing(LATE, 5000, failing, evidence(LATE), source_ready=0.0), LATE)
    for _ in range(20):
        assert not any(isinstance(e, Drain | SetSplit) for e in d.effects), "customers stay where somebody answers"
        d = decide(d.next, seeing(LATE, 5000, failing, evidence(LATE), source_ready=0.0), LATE)
    home = decide(d.next, seeing(LATE, 0, (), None), LATE)
    assert any(isinstance(e, Drain) for e in home.effects), "drained once nobody is there"


@pytest.mark.parametrize("ended", [e for e in ENDED if e != "complete"])
def test_t22_nothing_is_written_after_an_end(ended: str) -> None:
    s = begun()
    give(s, "fallback")
    s.run(10, lambda: bool(s.rollout().ended))
    s.store.start(replace(s.rollout(), ended=ended), ())  # type: ignore[arg-type]
    sets = len(moved(s))
    for kind in ("promote", "resume", "advance", "pause", "rollback", "abort", "fallback"):
        give(s, kind)
        s.run(3)
    assert (s.rollout().ended, s.bp(), len(moved(s))) == (ended, 0, sets)


def test_t34_a_gate_that_waits_for_people_never_holds_up_a_way_home() -> None:
    window = FreezeWindow(name="quarter end", start=T0 - timedelta(days=1), end=T0 + timedelta(days=30))
    for changes in ({"paused": True}, {"step_done": True}, {"until": "canary"}, {"hold_reason": "step.inconclusive"}):
        r = at("ramp", **changes)
        more = {"window": open_window((window,), LATE)}
        d = decide(r, seeing(LATE, 5000, (verdict("FAIL", "errors", LATE),), evidence(LATE), **more), LATE)
        assert [e.target_bp for e in d.effects if isinstance(e, SetSplit)] == [0], changes
    s = begun()
    give(s, "pause")
    s.run(5)
    s.failing = 0.5
    s.run(60, lambda: bool(s.rollout().ended))
    assert (s.rollout().ended, s.bp()) == ("rolled_back", 0)
    assert s.rollout().attempt == 1, "a gate that fails begins nothing anew"


@pytest.mark.parametrize("phase", WEIGHTED)
def test_t35_the_deadline_of_a_step_fires_in_each_phase(phase: Phase) -> None:
    r = at(phase, deadline=LATE - timedelta(seconds=1))
    waits = (verdict("INCONCLUSIVE", "errors", LATE), verdict("INCONCLUSIVE", "latency", LATE))
    d = decide(r, looked(r, *waits), LATE)
    assert (d.next.hold_reason, d.next.step) == ("step.inconclusive", r.step)
    assert sum(isinstance(e, Notify) for e in d.effects) == 1
    again = decide(d.next, looked(r, *waits), LATE)
    assert not any(isinstance(e, Notify) for e in again.effects), "told once"


@pytest.mark.parametrize("phase", ["preflight", *WEIGHTED, "complete"])
def test_t36_home_by_one_order_at_any_time_also_after_the_promotion_to_all(phase: Phase) -> None:
    r = at(phase, ended="complete" if phase == "complete" else "", orders=(Order(kind="fallback", actor=PERSON, at=LATE),))
    end, _ = driven(r)
    assert (end.ended, end.weight_bp) == ("fell_back", 0)
    if phase in WEIGHTED:
        watched, _ = driven(at(phase, direction="home", home_for="", latched=verdict("FAIL")))
        assert (watched.ended, watched.weight_bp) == ("rolled_back", 0), "what was promoted is watched until soak is over"


def test_t39_status_has_the_values_and_people_are_told_of_every_end() -> None:
    ways = {"rolled_back": {"latched": verdict("FAIL")}, "lost_evidence": {"home_for": "lost_evidence"}}
    ways |= {"aborted": {"home_for": "abort"}, "fell_back": {"home_for": "fallback"}}
    ends = {name: driven(at("ramp", direction="home", **more)) for name, more in ways.items()}  # type: ignore[arg-type]
    ends["complete"] = driven(at("complete"))
    assert set(ends) == set(ENDED)
    for name, (end, told) in ends.items():
        assert end.ended == name
        assert [n for n in told if CELL in n.text], f"nobody was told of {name}"
    assert {name for name, (_, told) in ends.items() if told[-1].level == "page"} == {"rolled_back", "lost_evidence"}
    s = begun()
    s.failing = 0.5
    s.run(60, lambda: bool(s.rollout().ended))
    (failed,) = [e for e in s.store.events(CELL, 0) if e.kind == "verdict.fail"]
    assert {"canary_n", "canary_events", "baseline_n", "baseline_events"} <= set(failed.data)
    assert s.rollout().hold_reason, "what status shows as the cause"


def replayed_from(s: TellingSimulation, since: Cursor) -> JudgeState:
    """The judge's state from the looks alone that count from a cursor on."""
    rows = list(s.store.rows(CELL, None))
    first = next(i for i, row in enumerate(rows) if row.seen is not None and row.seen.cursor == since)
    return [r.state for r in replay(rows[first:])][-1]


def test_t41_a_step_lower_forgets_the_old_revision_too() -> None:
    s = TellingSimulation(of=quick())
    s.ports()
    s.begin()
    s.at("ramp").run(4)
    before = s.rollout()
    s.store.order(CELL, Order(kind="rollback", actor=PERSON, at=s.clock.now()))
    s.told.canary = s.told.baseline = replace(ONE, weights="w2")
    s.run(15, lambda: s.rollout().settled_at is not None and s.rollout().identity != before.identity)
    memory = unpack(s.rollout().judge)
    assert s.rollout().judge == fresh(memory.steps, memory.guardrails)
    assert s.rollout().phase == "canary"


def test_t41_a_new_revision_of_an_arm_begins_the_evidence_from_nothing() -> None:
    s = TellingSimulation(of=quick())
    s.ports()
    s.begin()
    s.at("canary").run(4)
    before = s.rollout()
    assert before.since is not None
    new = replace(ONE, weights="w2")
    gathered = unpack(before.judge)
    assert gathered.fails
    assert gathered.suddens
    assert gathered.breaker.total > 0
    s.told.canary = s.told.baseline = new
    s.run(15, lambda: s.rollout().since != before.since)
    after = s.rollout()
    assert after.since is not None
    assert after.since.since > before.since.since
    assert after.judge == fresh(gathered.steps, gathered.guardrails), "no process of the old revision survives"
    assert not after.latched
    s.run(15)
    assert replayed_from(s, after.since) == s.rollout().judge, "nor comes back"
    assert isinstance(s.told.arms(CELL), ArmsIdentity)
    r = at("canary", plan=PlanId("p-old"), ended="rolled_back", latched=verdict("FAIL"))
    fresh_one = Rollout(cell=CELL, plan=PlanId("p-new"), spec=spec(), judge=r.judge)
    assert (fresh_one.latched, fresh_one.since, fresh_one.ended) == (None, None, ""), "a failed revision leaves nothing to the next"


def test_t45_a_window_has_a_zone_and_binds_advance_and_never_a_way_home() -> None:
    text = SMALL + "policy:\n  freeze:\n    - {name: fair, start: 2026-11-30T13:00:00+02:00, end: 2026-11-30T09:00:00-04:00}\n"
    (window,) = parse_fleet(text, file="f.yaml").policy.freeze
    assert (window.start.astimezone(UTC).hour, window.end.astimezone(UTC).hour) == (11, 13)
    assert [open_window((window,), window.start + timedelta(seconds=x)).active for x in (-1, 0, 7199, 7200)] == [False, True, True, False]
    seen = {"window": open_window((window,), T0)}
    good = decide(at("ramp"), seeing(LATE, 5000, all_pass(LATE), evidence(LATE, baseline=500, canary=500), **seen), LATE)
    assert good.next.step == at("ramp").step, "frozen"
    bad = decide(at("ramp"), seeing(LATE, 5000, (verdict("FAIL"),), evidence(LATE), **seen), LATE)
    assert [e.target_bp for e in bad.effects if isinstance(e, SetSplit)] == [0]
    ordered = decide(
        at("ramp", orders=(Order(kind="rollback", actor=PERSON, at=LATE),)), seeing(LATE, 5000, (), evidence(LATE), **seen), LATE
    )
    assert ordered.next.weight_bp < 5000 or ordered.next.step < at("ramp").step
