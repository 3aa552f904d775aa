"""What users complain of in canary judges, as tests of a whole rollout in memory: named after the complaint in the research."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.analysis.judge import BREAKER, fresh, judge
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.rollout.decide import decide
from fleetctl.rollout.gates import gate
from tests.cases.planning_fleet import plan_of
from tests.fakes.recorder import Recorder, even, lognormal_table
from tests.rollouts import PERSON, T0, all_pass, evidence, seeing, verdict
from tests.simulator import Simulation, tiny
from tests.unit.test_evidence_in_fleet_file import TEXT


def moving() -> Simulation:
    """A good cell at its first step with customers, the step settled."""
    s = Simulation(of=tiny(), rate_per_s=40)
    s.begin()
    return s.at("ramp")


def test_t09_and_t30_silence_holds_the_weight_and_goes_on_by_itself() -> None:
    s = moving()
    s.rate_per_s = 0.0
    s.run(25)
    assert (s.rollout().phase, s.bp(), s.rollout().ended) == ("ramp", 5000, "")
    s.rate_per_s = 40.0
    s.run(240, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"
    assert [n.kind for n in s.notices.sent if "fail" in n.kind] == []


def test_t33_a_series_that_is_not_there_lets_nobody_onto_the_target_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no guardrail needs quantiles: events of a mistyped counter would be none for ever."""
    made = tiny()
    only = replace(
        made, phases=tuple(replace(p, guardrails=tuple(g for g in p.guardrails if g.name == Guardrail("errors"))) for p in made.phases)
    )
    s = Simulation(of=only, rate_per_s=40)

    def freeze(c: CellId, scales: tuple[float, ...], least: int) -> None:
        raise ConfigInvalid("config.series", "Prometheus has no shop_faild_total")

    with monkeypatch.context() as m:
        m.setattr(s.evidence, "freeze", freeze)
        s.begin()
        s.run(60)
        assert (s.rollout().phase, s.bp()) == ("preflight", 0)
        assert "shop_faild_total" in list(s.store.rows(s.cells[0], None))[-1].why
    s.run(60, lambda: s.bp() > 0)
    assert s.bp() > 0, "and goes on once it is right"


def test_t31_no_traffic_is_never_a_regression() -> None:
    s = moving()
    s.rate_per_s = 0.0
    s.run(100)
    assert (s.bp(), s.rollout().ended) == (5000, "")
    assert not any(e.kind == "verdict.fail" for e in s.store.events(s.cells[0], 0))
    s.run(60, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "lost_evidence"


def test_t40_an_outage_of_the_provider_holds_every_cell_and_is_no_regression() -> None:
    cells = tuple(CellId(f"cell-{i}") for i in range(3))
    s = Simulation(cells, of=tiny(), rate_per_s=30)
    for _ in range(15):
        s.serve(1.0)
    s.begin(until="ramp")
    s.run(90, lambda: all(s.bp(c) == 5000 and s.rollout(c).settled_at for c in cells))
    s.evidence.down, s.rate_per_s = True, 0.0
    s.run(130)
    assert {s.bp(c) for c in cells} == {5000}
    assert all(not s.rollout(c).ended for c in cells)
    assert not any(e.kind == "verdict.fail" for c in cells for e in s.store.events(c, 0))
    assert [n.kind for n in s.notices.sent].count("notify.page") == 1, "one page for all cells, not one per cell"
    s.evidence.down, s.rate_per_s = False, 30.0
    s.run(60, lambda: all(not s.rollout(c).hold_reason for c in cells))
    assert all(not s.rollout(c).hold_reason for c in cells), "and it goes on by itself"


@pytest.mark.parametrize(("warm_up_s", "ended"), [(15, "complete"), (0, "rolled_back")])
def test_t29_a_cold_start_inside_the_warm_up_fails_nobody_and_would_without_it(warm_up_s: int, ended: str) -> None:
    s = Simulation(of=replace(tiny(), warm_up=timedelta(seconds=warm_up_s)), rate_per_s=40)
    s.begin()
    s.run(60, lambda: s.bp() > 0)
    s.slower = 2.5
    s.run(10)
    s.slower = 1.0
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == ended


def test_t28_every_look_keeps_values_verdicts_and_the_reason() -> None:
    s = moving().run(3)
    looks = [r.look for r in s.results if r.look is not None and r.look.verdicts]
    assert looks
    for row in looks:
        assert set(row.arms) == {"baseline", "canary"}
        assert {v.guardrail for v in row.verdicts} >= {"all", "errors", "latency"}
        assert row.why
        assert all(v.look.at <= row.at and v.e_value >= 0 for v in row.verdicts)
        assert all(v.look.baseline_n >= v.look.baseline_events >= 0 and 0 <= v.look.share <= 1 for v in row.verdicts)
        assert row.seen is not None, "what the judge needs to say it again"
    s.failing = 0.3
    s.run(60, lambda: bool(s.rollout().ended))
    failed = next(e for e in s.store.events(s.cells[0], 0) if e.kind == "verdict.fail")
    assert failed.text
    assert {"canary_n", "canary_events", "baseline_n", "baseline_events", "share"} <= set(failed.data)
    assert failed.data["canary_events"] > failed.data["baseline_events"]  # type: ignore[operator]


def test_t23_the_clock_of_a_step_starts_when_its_weight_is_seen_served() -> None:
    r = moving().rollout()
    waiting = replace(r, settled_at=None)
    assert not gate(waiting, seeing(T0, 5000, all_pass(), evidence(T0)), T0).open
    before = replace(r, settled_at=T0)
    early = gate(before, seeing(T0, 5000, all_pass(), evidence(T0, baseline=100, canary=100)), T0)
    assert not early.open
    assert "baking" in early.why


def test_t23_no_evidence_begins_before_the_router_shows_the_weight() -> None:
    s = Simulation(of=tiny(), rate_per_s=40)
    s.begin()
    s._writer.hide_sets = True
    s.run(30)
    assert (s.bp(), s.rollout().hold_reason) == (0, "foreign_write"), "a raise that is not shown is a person's matter"
    assert not [row for row in s.store.rows(s.cells[0], None) if row.phase == "ramp" and row.verdicts], "nothing is judged meanwhile"
    s._writer.hide_sets = False
    s.store.order(s.cells[0], Order(kind="resume", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.at("ramp").run(2)
    shown = next(e.at for e in s.store.events(s.cells[0], 0) if e.kind == "rollout.shown" and "50 %" in e.text)
    since = s.rollout().since
    assert since is not None
    assert since.since >= shown
    early = [row for row in s.store.rows(s.cells[0], None) if row.verdicts and row.at < since.since]
    assert all(v.kind != "PASS" for row in early for v in row.verdicts)


def test_t24_a_step_needs_time_and_requests() -> None:
    r = replace(moving().rollout(), settled_at=T0)
    late = T0 + timedelta(hours=1)

    def opens(canary: int, at: object) -> bool:
        return gate(r, seeing(late, 5000, all_pass(late), evidence(late, baseline=canary, canary=canary)), at).open  # type: ignore[arg-type]

    assert [opens(99, late), opens(100, T0), opens(100, late)] == [False, False, True]


def test_t32_only_a_pass_raises_and_only_a_fail_goes_home() -> None:
    r = replace(moving().rollout(), settled_at=T0)
    late = T0 + timedelta(minutes=5)
    targets = {}
    for kind in ("PASS", "FAIL", "INCONCLUSIVE", "NO_DATA", "PROVIDER_ERROR"):
        verdicts = (verdict(kind, "errors", late), verdict(kind, "latency", late))
        decision = decide(r, seeing(late, 5000, verdicts, evidence(late, baseline=500, canary=500)), late)
        targets[kind] = (decision.next.direction, decision.next.step > r.step)
    assert targets["PASS"] == ("forward", True)
    assert targets["FAIL"][0] == "home"
    assert {targets[k] for k in ("INCONCLUSIVE", "NO_DATA", "PROVIDER_ERROR")} == {("forward", False)}


def test_t38_the_loop_is_a_second_while_traffic_moves_and_the_breaker_needs_no_minute() -> None:
    s = Simulation(of=tiny(), failing=0.5, rate_per_s=40)
    s.begin()
    s.run(60, lambda: s.bp() > 0)
    began = s.clock.now()
    s.run(60, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "rolled_back"
    assert s.clock.now() - began <= timedelta(seconds=15)


def test_t38_a_breaker_trips_while_other_guardrails_still_wait() -> None:
    r = Recorder(lognormal_table(0.3))
    r.serve("baseline", even(20, lognormal_table(0.3)))
    r.serve("canary", even(4, lognormal_table(0.3)), 12)
    _, verdicts = judge(fresh(), r.look(1.0), (GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.1),))
    assert (verdicts[0].kind, verdicts[-1].guardrail) == ("FAIL", BREAKER)
    assert verdicts[1].kind == "INCONCLUSIVE"


def test_t25_too_little_traffic_ends_as_inconclusive_with_what_is_missing_and_the_lane_that_would_fit() -> None:
    of = replace(tiny(), step_deadline=timedelta(seconds=20), other_lane="lane replay would fit: 2 recorded prompts/s to both sides")
    s = Simulation(of=of, rate_per_s=40)
    s.begin()
    s.at("ramp")
    s.rate_per_s = 2.0
    s.run(40)
    r = s.rollout()
    assert (r.phase, r.ended, r.hold_reason, s.bp()) == ("ramp", "", "step.inconclusive", 5000)
    why = s.results[-1].why
    assert "INCONCLUSIVE" in why
    assert "canary requests to go" in why
    assert "lane replay would fit" in why
    assert [n.kind for n in s.notices.sent if "INCONCLUSIVE" in n.text] == ["notify.warning"]


@pytest.mark.parametrize(
    ("planned_h", "policy_h", "found_h"), [(2.8, 72, 8.4), (2.8, 5, 5), (0.01, 72, 1), (0.01, 0.5, 0.5), (None, 72, 72)]
)
def test_t35_a_step_that_takes_three_times_what_was_planned_is_a_persons(planned_h: float | None, policy_h: float, found_h: float) -> None:
    fleet = parse_fleet(TEXT, file="f.yaml")
    fleet = replace(fleet, policy=replace(fleet.policy, step_deadline=timedelta(hours=policy_h)))
    plan = plan_of(fleet)
    cell = fleet.cells[0].id
    plan = replace(
        plan, outcomes=tuple(replace(o, kind="move", target=o.target or fleet.pools[1].id, hours=planned_h) for o in plan.outcomes)
    )
    assert spec_for(plan, fleet, cell).step_deadline == timedelta(hours=found_h)
