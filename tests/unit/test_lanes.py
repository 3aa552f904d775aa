"""Lanes of evidence: who can be judged on what, what fits where traffic is too low, and that no lane promises what cannot arrive."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.adapters.routers.route import STREAM_TIMEOUT_S
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.power import planned_fail, planned_requests
from fleetctl.domain.evidence import SETTLE_S, Verdict
from fleetctl.domain.fleet import Connection, Fleet, Policy
from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import LanePlan, StepNeed
from fleetctl.domain.workload import Guardrail, GuardrailSpec, Lane, ShadowSpec, Traffic, Workload
from fleetctl.planning.evidence_need import LANE_LIMIT_HOURS, Baseline, Costs, baseline_of, probed_of, step_needs
from fleetctl.planning.lanes import Asking, Given, assign_lanes, make_groups
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import ANA, cell, lab_fleet, lab_policy, plan_of, pool, workload
from tests.fakes.simulated_evidence import Setting, looks

COSTS = Costs(passes=planned_requests, fails=planned_fail)
EQUAL = {"kind": "emulated", "log_sd": "0.25", "revision": "a1b2", "image_digest": "sha256:77"}


def traffic(per_s: float, trough: float = 0.0) -> Traffic:
    return Traffic(requests_per_s=per_s, trough_per_s=trough, input_tokens=200.0, output_tokens=16.0)


def zipf(count: int, head_per_s: float = 60.0) -> Fleet:
    """Cells whose traffic falls as 1 / rank; every fourth family of eight shares revision and image; a few may be copied."""
    works: list[Workload] = []
    for i in range(count):
        family = i % 40
        serving = EQUAL | {"revision": f"r{family}"} if family % 2 == 0 else {"log_sd": "0.6"}
        shadow = ShadowSpec(sample_per_s=2.0) if i % 25 == 3 else None
        works.append(workload(f"w{i}", traffic=traffic(head_per_s / (i + 1) ** 1.6), serving=serving, shadow=shadow))
    cells = tuple(cell(f"c{i}", f"w{i}") for i in range(count))
    vms = -(-count // 8)
    pools = (
        pool("nvidia-lab", "nvidia", "lab-nvidia", count=vms, limit=vms),
        pool("mi300x-lab", "amd", "lab-mi300x", count=0, limit=vms, by="lab"),
    )
    return lab_fleet(workloads=tuple(works), cells=cells, pools=pools, policy=lab_policy(wave_cells=8))


def asking(fleet: Fleet) -> tuple[Asking, ...]:
    works = {w.id: w for w in fleet.workloads}
    return tuple(
        Asking(cell=c, workload=works[c.workload], baseline=baseline_of(works[c.workload], {}), source_sku="lab-nvidia")
        for c in fleet.cells
    )


def lanes(fleet: Fleet) -> dict[CellId, Given]:
    return assign_lanes(asking(fleet), fleet.policy, COSTS)


def test_400_cells_with_zipf_traffic_get_their_lanes_in_10_s_and_none_a_pass_below_its_n() -> None:
    fleet = zipf(400)
    began = time.process_time()
    found = lanes(fleet)
    assert time.process_time() - began < 10
    works = {w.id: w for w in fleet.workloads}
    rate = {c.id: works[c.workload].traffic.requests_per_s for c in fleet.cells}
    kinds = Counter(g.plan.fits for g in found.values())
    assert set(kinds) == {"own", "pooled", "replay", "accepted", "stay"}, kinds
    for id_, given in found.items():
        judged = rate[id_] if given.plan.kind == "own" else sum(rate[c] for c in given.plan.group)
        if given.plan.kind in ("own", "pooled"):
            for step in given.steps:
                for n in step.requests.values():
                    assert judged * step.weight_bp / 10_000 * LANE_LIMIT_HOURS * 3600 >= n
        else:
            assert given.plan.kind == "stay"
            assert given.plan.needed > given.plan.arrive or sum(s.hours for s in given.steps if s.phase != "soak") > LANE_LIMIT_HOURS


def test_the_whole_plan_of_400_cells_says_the_lanes() -> None:
    fleet = zipf(400)
    began = time.process_time()
    plan = plan_of(fleet)
    assert time.process_time() - began < 10
    moving = {o.cell: o.lane for o in plan.outcomes if o.kind == "move"}
    assert {lane.kind for lane in moving.values() if lane is not None} == {"own", "pooled"}
    assert next(c for c in plan.checks if c.name == "lanes").ok
    slow = [o for o in plan.outcomes if o.reason.code == "lane.too_slow"]
    assert slow
    assert all(o.lane is not None and o.lane.kind == "stay" and "canary requests" in o.reason.text for o in slow)
    assert "would fit: " in render_plan(plan, fleet)


@pytest.mark.parametrize("per_s", [0.0005])
def test_a_cell_below_its_n_is_inconclusive_with_the_number_missing_never_a_pass(per_s: float) -> None:
    """72 hours of the traffic of a cell that was refused: too few for any lane but a signature."""
    spec = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)
    state = fresh()
    verdicts: tuple[Verdict, ...] = ()
    for e in looks(Setting(per_s=per_s, share=0.1, errors0=0.0, errors1=0.0, look_s=3600, looks=72), 1):
        state, verdicts = judge(state, e, (spec,))
        assert verdicts[0].kind in ("INCONCLUSIVE", "NO_DATA")
    assert verdicts[1].missing is None or verdicts[1].missing > 50


def one(per_s: float, **work: object) -> LanePlan:
    made = workload("w", traffic=traffic(per_s), **work)  # type: ignore[arg-type]
    fleet = lab_fleet(workloads=(made,), cells=(cell("c", "w"),))
    return lanes(fleet)[CellId("c")].plan


def option(plan: LanePlan, kind: str) -> tuple[bool, float | None, str]:
    found = next(o for o in plan.options if o.kind == kind)
    return found.fits, found.hours, found.text


def test_enough_traffic_is_judged_on_its_own() -> None:
    plan = one(150.0)
    assert (plan.kind, plan.fits, plan.group) == ("own", "own", ())
    assert plan.binding == "latency at 10 %"
    assert plan.arrive > plan.needed > 0


def test_each_lane_that_would_fit_is_named_with_its_hours() -> None:
    copied = one(0.003, shadow=ShadowSpec(sample_per_s=2.0))
    assert (copied.kind, copied.fits) == ("stay", "replay")
    fits, hours, text = option(copied, "replay")
    assert fits
    assert hours is not None
    assert 0 < hours < LANE_LIMIT_HOURS
    assert "recorded prompts" in text
    signed = one(0.02)
    assert (signed.kind, signed.fits) == ("stay", "accepted")
    assert "bake: " in option(signed, "accepted")[2]
    assert one(0.0001).fits == "stay"


def test_equal_cells_of_two_workloads_pool_only_where_revision_and_image_prove_it() -> None:
    works = tuple(workload(f"w{i}", traffic=traffic(0.02), serving=EQUAL) for i in range(4))
    cells = tuple(cell(f"c{i}", f"w{i}") for i in range(4))
    fleet = lab_fleet(workloads=works, cells=cells, policy=lab_policy(wave_cells=4))
    found = lanes(fleet)
    assert {g.plan.kind for g in found.values()} == {"pooled"}
    assert found[CellId("c0")].plan.group == ("c0", "c1", "c2", "c3")
    assert "equal revision, image digest and SKU" in option(found[CellId("c0")].plan, "pooled")[2]
    unlike = replace(works[3], serving=EQUAL | {"revision": "other"})
    assert lanes(replace(fleet, workloads=(*works[:3], unlike)))[CellId("c3")].plan.kind == "stay"
    unknown = replace(works[3], serving={"kind": "emulated", "log_sd": "0.25"})
    assert lanes(replace(fleet, workloads=(*works[:3], unknown)))[CellId("c3")].plan.kind == "stay"


def test_groups_are_at_most_a_wave_and_balanced() -> None:
    works = tuple(workload(f"w{i}", traffic=traffic(1.0 / (i + 1)), serving=EQUAL) for i in range(10))
    fleet = lab_fleet(workloads=works, cells=tuple(cell(f"c{i}", f"w{i}") for i in range(10)))
    groups = make_groups(asking(fleet), 4)
    assert sorted(len(g) for g in groups) == [2, 4, 4]
    sums = [sum(a.workload.traffic.requests_per_s for a in g) for g in groups]
    assert max(sums) < 2 * min(sums)


def test_pooled_cells_move_in_one_wave_with_those_that_lend_them_evidence() -> None:
    works = (
        workload("big", traffic=traffic(150.0), serving=EQUAL),
        workload("small", traffic=traffic(0.01), serving=EQUAL),
        *(workload(f"x{i}", traffic=traffic(150.0)) for i in range(3)),
    )
    names = ("x0", "x1", "big", "x2", "small")
    fleet = lab_fleet(workloads=works, cells=tuple(cell(f"{n}-lab", n) for n in names), policy=lab_policy(wave_cells=2))
    plan = plan_of(fleet)
    kinds = {o.cell: o.lane.kind for o in plan.outcomes if o.lane is not None}
    assert (kinds[CellId("big-lab")], kinds[CellId("small-lab")]) == ("own", "pooled")
    assert any({"big-lab", "small-lab"} == set(w.cells) for w in plan.waves)
    spec = spec_for(plan, fleet, CellId("small-lab"))
    assert (spec.lane.kind, spec.group) == ("pooled", ("big-lab", "small-lab"))
    assert spec_for(plan, fleet, CellId("big-lab")).group == ()
    assert next(c for c in plan.checks if c.name == "lanes").ok


def test_a_signed_acceptance_bakes_longer() -> None:
    lane = Lane(kind="accepted", reason="few requests", actor=ANA, bake=timedelta(hours=12))
    fleet = lab_fleet(workloads=(workload("w", traffic=traffic(0.02)),), cells=(cell("c", "w", lane=lane),))
    spec = spec_for(plan_of(fleet), fleet, CellId("c"))
    bakes = {p.phase: p.bake for p in spec.phases}
    assert bakes["canary"] == bakes["ramp"] == bakes["full"] == timedelta(hours=12)
    assert bakes["soak"] == timedelta(seconds=15)
    given = lanes(fleet)[CellId("c")]
    assert given.plan.kind == "accepted"
    assert all(s.hours >= 12 for s in given.steps if s.phase in ("canary", "ramp", "full"))


def test_what_would_fit_names_share_margin_and_lanes() -> None:
    fleet = lab_fleet(workloads=(workload("w", traffic=traffic(0.04)),), cells=(cell("c", "w"),))
    outcome = plan_of(fleet).outcomes[0]
    assert outcome.reason.code == "lane.too_slow"
    assert outcome.change is not None
    for word in ("Lane `accepted`", "one step of 50 %", "times as wide"):
        assert word in outcome.change


def test_margins_below_what_a_a_allows_are_refused() -> None:
    fleet = lab_fleet(workloads=(workload("w"),), cells=(cell("c", "w"),))
    quiet = Baseline(error_ratio=0.0, log_sd=0.25, origin="measured", least_margins={"latency": 0.2}, least_fail_margins={"latency": 0.1})
    loud = replace(quiet, least_margins={"latency": 0.4})
    from fleetctl.assess import declared, memory_fit
    from fleetctl.catalog import load_catalog
    from fleetctl.domain.canonical import digest
    from fleetctl.planning.make_plan import make_plan
    from tests.cases.planning_fleet import NOW

    def outcome(b: Baseline) -> tuple[str, str, str]:
        plan = make_plan(
            fleet,
            load_catalog(),
            [declared(w, NOW) for w in fleet.workloads],
            (),
            NOW,
            fleet_digest=digest(fleet),
            fit_of=memory_fit,
            baselines={"w": b},
            requests_for=planned_requests,
            fails_for=planned_fail,
        )
        return plan.outcomes[0].kind, plan.outcomes[0].reason.code, render_plan(plan, fleet)

    kind, _, text = outcome(quiet)
    assert kind == "move"
    assert "smallest margin by A/A: latency 20 %" in text
    assert "baseline measured" in text
    kind, code, text = outcome(loud)
    assert (kind, code) == ("infeasible", "margin.below_noise")
    assert "latency margin of 25 %" in text
    assert "fleetctl calibrate c" in " ".join(text.split())


def test_the_plan_prints_what_each_verdict_costs() -> None:
    fleet = lab_fleet(workloads=(workload("w", traffic=traffic(150.0, 30.0)),), cells=(cell("c", "w"),))
    plan = plan_of(fleet)
    canary = next(s for s in plan.waves[0].steps if s.phase == "canary")
    assert canary.binding == "latency"
    assert canary.trough_hours is not None
    assert canary.trough_hours > canary.hours
    for g in canary.guardrails:
        assert g.passes[0] < g.passes[1] < g.half[1]
    text = render_plan(plan, fleet)
    assert "latency*" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_tail_that_is_granted_more_is_planned_with_what_it_is_granted() -> None:
    rungs = (0.1, 0.1, 0.2, 0.2, 0.2)
    made = workload("w", traffic=traffic(150.0), guardrails=(Guardrail("latency"),))
    plain = lab_policy()
    wide = replace(
        plain, steps=tuple(replace(p, guardrails=tuple(replace(g, margin=0.1, rungs=rungs) for g in p.guardrails)) for p in plain.steps)
    )
    tight = replace(plain, steps=tuple(replace(p, guardrails=tuple(replace(g, margin=0.1) for g in p.guardrails)) for p in plain.steps))

    def needed(policy: Policy) -> int:
        fleet = lab_fleet(workloads=(made,), cells=(cell("c", "w"),), policy=policy)
        return lanes(fleet)[CellId("c")].plan.needed

    assert needed(wide) < needed(tight)


@pytest.mark.parametrize("metric", ["ttft", "token_time"])
def test_other_ladders_are_planned_as_ladders(metric: str) -> None:
    as_latency = planned_requests("latency", 0.1, 0.005, 0.6, 0.5)
    assert planned_requests(metric, 0.1, 0.005, 0.6, 0.5) == as_latency
    assert planned_fail(metric, 0.1, 0.005, 0.6, 0.5) == planned_fail("latency", 0.1, 0.005, 0.6, 0.5)


def probed_plan(pairs_per_s: float, per_s: float, *, names: tuple[str, ...] = ("log", "probes"), margin: float = 0.25) -> LanePlan:
    """The lane of a streaming cell whose times are measured by probes."""
    guardrails = (Guardrail("errors"), Guardrail("ttft"))
    made = workload("w", traffic=replace(traffic(per_s), streaming=True), guardrails=guardrails)
    source = Connection(name="probes", kind="probes", settings={"pairs_per_s": f"{pairs_per_s:g}"})
    where = replace(cell("c", "w"), evidence=names)
    at = Asking(cell=where, workload=made, baseline=baseline_of(made, {}), source_sku="lab-nvidia", probed=probed_of(where, (source,)))
    specs = (
        GuardrailSpec(name=guardrails[0], margin=0.05, fail_margin=0.0),
        GuardrailSpec(name=guardrails[1], margin=margin, fail_margin=0.1),
    )
    policy = lab_policy()
    steps = tuple(replace(p, guardrails=specs if p.weight_bp else ()) for p in policy.steps)
    return assign_lanes((at,), replace(policy, steps=steps), COSTS)[CellId("c")].plan


def test_what_probes_measure_comes_at_the_probes_pace_whatever_the_traffic() -> None:
    hours = [option(probed_plan(2.0, per_s), "own")[1] for per_s in (50.0, 200.0, 500.0)]
    assert all(h is not None for h in hours)
    assert max(hours) - min(hours) < 0.01, "ten times the users bring no more pairs"  # type: ignore[operator, type-var]
    slow, fast = option(probed_plan(0.02, 50.0), "own")[1], option(probed_plan(0.2, 50.0), "own")[1]
    assert slow is not None
    assert fast is not None
    assert slow > 5 * fast


def test_too_few_pairs_are_refused_though_users_are_many_and_enough_pairs_carry_a_cell_of_few_users() -> None:
    refused = probed_plan(0.01, 500.0, margin=0.05)
    assert (refused.kind, refused.binding.split(" at ")[0]) == ("stay", "ttft")
    assert refused.needed > refused.arrive > 0
    assert refused.arrive == int(0.01 * LANE_LIMIT_HOURS * 3600), "pairs, not users"
    carried = probed_plan(2.0, 0.03)
    assert carried.kind == "own"
    assert probed_plan(2.0, 0.03, names=("log",)).kind == "stay", "without probes such a cell has too few requests"


def test_a_wave_is_bound_by_what_takes_longest_not_by_the_largest_number_and_the_plan_says_pairs() -> None:
    from fleetctl.views.plan_evidence import evidence_lines

    made = workload("w", traffic=replace(traffic(50.0), streaming=True), guardrails=(Guardrail("errors"), Guardrail("ttft")))
    fleet = lab_fleet(workloads=(made,), cells=(replace(cell("c", "w"), evidence=("log", "probes")),))
    specs = (
        GuardrailSpec(name=Guardrail("errors"), margin=0.005, fail_margin=0.0),
        GuardrailSpec(name=Guardrail("ttft"), margin=0.5, fail_margin=0.1),
    )
    steps = tuple(replace(p, guardrails=specs if p.weight_bp else (), bake=timedelta(0)) for p in fleet.policy.steps)
    source = Connection(name="probes", kind="probes", settings={"pairs_per_s": "0.05"})
    fleet = replace(fleet, policy=replace(fleet.policy, steps=steps), evidence=(source,))
    plan = plan_of(fleet)
    step = next(s for s in plan.waves[0].steps if s.phase == "canary")
    assert step.requests[Guardrail("errors")] > step.requests[Guardrail("ttft")]
    assert step.binding == "ttft"
    ttft = next(g for g in step.guardrails if g.guardrail == "ttft")
    assert step.hours == pytest.approx(ttft.passes[1] / 0.05 / 3600, rel=0.3)
    assert "in pairs of probes, whatever the traffic: ttft 0.05/s" in "\n".join(evidence_lines(plan, fleet, 120, 40))


def needs_of(*guardrails: GuardrailSpec, streaming: bool = False, **serving: str) -> tuple[StepNeed, ...]:
    """What a cell's steps with weight need, at 50 requests a second."""
    names = tuple(g.name for g in guardrails)
    made = workload("w", traffic=replace(traffic(50.0), streaming=streaming), guardrails=names)
    made = replace(made, serving={**made.serving, **serving})
    policy = lab_policy()
    steps = tuple(replace(p, bake=timedelta(0), guardrails=guardrails if p.weight_bp else ()) for p in policy.steps)
    quick = replace(policy, steps=steps, warm_up=timedelta(0))
    return tuple(s for s in step_needs(cell("c", "w"), made, quick, baseline_of(made, {}), COSTS) if s.requests)


def test_a_pass_on_errors_of_streams_waits_for_the_slowest_of_them() -> None:
    errors = GuardrailSpec(name=Guardrail("errors"), margin=0.05, fail_margin=0.0)
    for plain, streams in zip(needs_of(errors), needs_of(errors, streaming=True), strict=True):
        assert streams.hours - plain.hours == pytest.approx(SETTLE_S / 3600, abs=1e-5)
    assert STREAM_TIMEOUT_S + 15 == SETTLE_S


def test_shares_are_planned_with_their_own_base_rate() -> None:
    misses = GuardrailSpec(name=Guardrail("slo_misses"), margin=0.02, fail_margin=0.0)
    slow = GuardrailSpec(name=Guardrail("model_slow_a"), margin=0.2, fail_margin=0.1)
    assumed = needs_of(misses)[0].guardrails[0]
    declared = needs_of(misses, rate_slo_misses="0.05", error_ratio="0.001", log_sd="0.5")[0].guardrails[0]
    assert (assumed.error_ratio, assumed.origin) == (0.0, "assumed"), "as rare as errors"
    assert (declared.error_ratio, declared.origin) == (0.05, "declared")
    assert declared.passes[1] > 2 * assumed.passes[1]
    assert needs_of(slow)[0].guardrails[0].error_ratio == 0.1, "what is above a p90"
    errors = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)
    assert needs_of(errors, rate_errors="0.4", error_ratio="0.001", log_sd="0.5")[0].guardrails[0].error_ratio == 0.001
