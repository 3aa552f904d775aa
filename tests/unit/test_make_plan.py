"""The planner: reasons, waves, money, ids."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from fleetctl.assess import memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import canonical, decode, digest
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.plan import Assessment, Finding, Outcome, Plan, Waiver
from fleetctl.domain.pool import Commitment
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Existing, Guardrail, Lane, Model, Traffic
from fleetctl.errors import UsageError
from fleetctl.planning.evidence_need import NEVER, Baseline, planned_requests
from fleetctl.planning.make_plan import make_plan, plan_id
from fleetctl.planning.options import PlanOptions
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import ANA, NOW, cell, lab_fleet, lab_policy, plan_of, pool, workload
from tests.unit.test_lab_fleet_text import fleet as lab_file

ASKED = PlanOptions(allow_dearer=True)


def only(fleet: Fleet, capacity: tuple[CapacityVerdict, ...] = ()) -> Outcome:
    (outcome,) = plan_of(fleet, capacity).outcomes
    return outcome


def one(**changes: object) -> Fleet:
    """A fleet of one cell; `cell` and `work` are changes of these, the rest of the fleet."""
    cell_changes = changes.pop("cell", {})
    work_changes = changes.pop("work", {})
    assert isinstance(cell_changes, dict)
    assert isinstance(work_changes, dict)
    return lab_fleet(workloads=(workload("chat", **work_changes),), cells=(cell("chat-lab", "chat", **cell_changes),), **changes)


def test_the_lab_moves_all_four_in_two_waves() -> None:
    plan = plan_of(lab_fleet())
    assert {o.kind for o in plan.outcomes} == {"move"}
    assert [w.cells for w in plan.waves] == [("chat-lab", "smollm-lab"), ("stream-lab", "summary-lab")]
    assert (plan.cost_now.amount, plan.cost_then.amount) == (Decimal("196.64"), Decimal("96.00"))
    assert plan.calendar is not None
    hours = (plan.calendar.end - NOW).total_seconds() / 3600
    assert hours < sum(w.hours for w in plan.waves)
    assert float(plan.overlap_cost.amount) == pytest.approx(292.64 * hours, abs=0.01)
    assert plan.overlap_extra is not None
    assert float(plan.overlap_extra.amount) == pytest.approx(96.00 * hours, abs=0.01)
    (spec,) = plan.pools
    assert (spec.pool, spec.count, spec.stack, spec.hold) == ("mi300x-lab", 2, "lab", False)


def test_the_id_is_the_digest_of_all_else() -> None:
    plan = plan_of(lab_fleet())
    assert plan.id == plan_id(plan) == "p" + digest(replace(plan, id=PlanId("")))[:11]
    assert canonical(plan) == canonical(plan_of(lab_fleet()))
    assert plan_of(lab_fleet(serial=2)).id != plan.id
    assert decode(Plan, canonical(plan)) == plan


@pytest.mark.parametrize(
    ("fleet", "kind", "code", "change"),
    [
        (one(cell={"lane": Lane(kind="stay", reason="audited", actor=ANA)}), "stay", "lane.stay", "another lane"),
        (one(work={"route": "stay"}), "stay", "route.stay", "another route"),
        (one(work={"route": "zluda"}), "infeasible", "assess.route.zluda", "another route"),
        (one(pools=(pool("nvidia-lab", "nvidia", "lab-nvidia"),)), "infeasible", "pool.none", "Add an AMD pool"),
        (
            one(pools=(pool("nvidia-lab", "nvidia", "lab-nvidia"), pool("m", "amd", "Standard_ND96isr_MI300X_v5", by="azure"))),
            "infeasible",
            "price.missing",
            "price_usd_per_hour on pool m",
        ),
        (one(pools=(pool("nvidia-lab", "nvidia", "lab-nvidia"), pool("m", "amd", "no-such"))), "infeasible", "catalog.no_sku", "catalogue"),
        (
            one(work={"model": Model(name="x", parameters_billion=405.0, precision="bf16", context_tokens=8192)}),
            "infeasible",
            "fit",
            "More GPUs",
        ),
        (one(work={"accelerators_per_replica": 16}), "infeasible", "fit.gpus", "more GPUs per VM"),
        (
            one(work={"replicas": 17}, pools=(pool("nvidia-lab", "nvidia", "lab-nvidia", count=3, limit=3), lab_fleet().pools[1])),
            "infeasible",
            "pool.limit",
            "Raise the limit",
        ),
        (
            one(work={"traffic": Traffic(requests_per_s=0.001, input_tokens=9.0, output_tokens=9.0)}),
            "infeasible",
            "lane.too_slow",
            "accepted",
        ),
        (
            one(work={"traffic": Traffic(requests_per_s=0.0, input_tokens=9.0, output_tokens=9.0)}),
            "infeasible",
            "lane.too_slow",
            "accepted",
        ),
        (
            one(cell={"source": "m"}, pools=(*lab_fleet().pools, pool("m", "amd", "lab-mi300x"))),
            "stay",
            "vendor.already",
            "Pin",
        ),
    ],
)
def test_each_reason_and_what_would_change_it(fleet: Fleet, kind: str, code: str, change: str) -> None:
    outcome = only(fleet)
    assert (outcome.kind, outcome.reason.code, outcome.target) == (kind, code, None)
    assert outcome.reason.text.endswith(".")
    assert change in (outcome.change or "")
    plan = plan_of(fleet)
    assert plan.waves == ()
    assert plan.pools == ()
    assert plan.cost_then == plan.cost_now
    assert plan.overlap_cost.amount == 0


def test_a_pinned_pool_of_another_region_is_refused() -> None:
    far = pool("far", "amd", "lab-mi300x", region="elsewhere")
    fleet = one(cell={"target": PoolId("far")}, pools=(*lab_fleet().pools, far))
    assert only(fleet).reason.code == "pool.region"


def test_capacity_no_binds_and_unknown_does_not() -> None:
    def answer(kind: str) -> tuple[CapacityVerdict, ...]:
        return (CapacityVerdict(sku="lab-mi300x", region="lab", count=1, priority="regular", kind=kind, reason="stock out"),)  # type: ignore[arg-type]

    refused = only(one(), answer("no"))
    assert (refused.kind, refused.reason.code) == ("infeasible", "capacity.no")
    assert "stock out" in refused.reason.text
    assert only(one(), answer("unknown")).kind == "move"


def test_the_cheapest_pool_that_fits_is_taken_and_the_next_one_when_full() -> None:
    pools = (
        pool("nvidia-lab", "nvidia", "lab-nvidia"),
        pool("dear", "amd", "lab-mi300x", count=0, by="x", price="60"),
        pool("cheap", "amd", "lab-mi300x", count=0, limit=1, by="x", price="12.5"),
    )
    fleet = lab_fleet(
        pools=pools,
        workloads=(workload("a", accelerators_per_replica=8), workload("b", accelerators_per_replica=8)),
        cells=(cell("a-lab", "a"), cell("b-lab", "b")),
    )
    assert sorted(o.target or "" for o in plan_of(fleet).outcomes) == ["cheap", "dear"]


def test_pinned_and_existing_targets() -> None:
    pools = (*lab_fleet().pools, pool("theirs", "amd", "lab-mi300x", count=1))
    pinned = one(cell={"target": PoolId("mi300x-lab")}, pools=pools)
    assert only(pinned).target == "mi300x-lab"
    existing = one(cell={"target": Existing(pool=PoolId("theirs"))}, pools=pools)
    assert only(existing).target == "theirs"
    assert plan_of(existing).pools == ()


def test_a_dearer_move_says_so() -> None:
    pools = (pool("nvidia-lab", "nvidia", "lab-nvidia", price="8"), pool("m", "amd", "lab-mi300x", count=0, by="x", price="80"))
    stays = only(one(pools=pools))
    assert (stays.kind, stays.reason.code, stays.target) == ("stay", "price.dearer", None)
    assert "9.00 USD/h more" in stays.reason.text
    assert "It pays below 8.00 USD per VM and hour (now 80.00)" in (stays.change or "")
    for asked in (only(one(pools=pools, cell={"target": PoolId("m")})), plan_of(one(pools=pools), options=ASKED).outcomes[0]):
        assert (asked.kind, asked.reason.code) == ("move", "move.dearer")
        assert "costs 9.00 USD/h more" in asked.reason.text


def test_an_unpriced_source_is_left_out_and_named_never_counted_as_zero() -> None:
    pools = (pool("nvidia-lab", "nvidia", "p5e.48xlarge"), pool("mi300x-lab", "amd", "lab-mi300x", count=0, by="lab"))
    assert only(one(pools=pools)).reason.code == "price.missing"
    fleet = one(pools=pools, cell={"target": PoolId("mi300x-lab")})
    plan = plan_of(fleet)
    assert plan.outcomes[0].cost_now is None
    assert plan.outcomes[0].reason.code == "move.unpriced"
    check = next(c for c in plan.checks if c.name == "prices")
    assert not check.ok
    assert "nvidia-lab" in check.detail


def test_a_commitment_keeps_its_vms_in_the_bill() -> None:
    paid = Commitment(pool=PoolId("nvidia-lab"), count=1, hourly=Money(amount=Decimal(98)), until="2027-06-30")
    over = replace(paid, until="2026-01-01")
    work = {"replicas": 2}
    pin = {"target": PoolId("mi300x-lab")}
    assert plan_of(one(work=work)).cost_then.amount == Decimal("96.00")
    assert plan_of(one(work=work, commitments=(over,))).cost_then.amount == Decimal("96.00")
    stays = plan_of(one(work=work, commitments=(replace(paid, count=2),)))
    assert (stays.outcomes[0].kind, stays.outcomes[0].reason.code) == ("stay", "commitment")
    assert "paid for until 2027-06-30 (commitment), used or not" in stays.outcomes[0].reason.text
    assert "2027-06-30" in (stays.outcomes[0].change or "")
    assert plan_of(one(work=work, cell=pin, commitments=(paid,))).cost_then.amount == Decimal("194.32")
    fleet = one(work=work, cell=pin, commitments=(paid, over))
    assert render_plan(plan_of(fleet), fleet).count("1 VM of nvidia-lab still paid") == 1


def test_a_waiver_lets_a_finding_pass() -> None:
    fleet = one()
    finding = Finding(rule="kernel.custom", severity="blocking", text="custom CUDA kernel")
    blocked = Assessment(workload=fleet.workloads[0].id, route="native", as_of=NOW, blocking=(finding,))
    waived = replace(blocked, waived=(Waiver(rule="kernel.custom", reason="replaced", actor=ANA),))

    def kind(assessment: Assessment) -> str:
        return make_plan(fleet, load_catalog(), [assessment], (), NOW, fleet_digest=digest(fleet), fit_of=memory_fit).outcomes[0].kind

    assert (kind(blocked), kind(waived)) == ("infeasible", "move")
    nothing = make_plan(fleet, load_catalog(), (), (), NOW, fleet_digest=digest(fleet), fit_of=memory_fit).outcomes[0]
    assert (nothing.kind, nothing.reason.code) == ("stay", "assess.missing")


def test_waves_go_by_class_and_hold_the_policys_size() -> None:
    works = (workload("r", klass="realtime"), workload("b", klass="batch"), workload("o"))
    cells = tuple(cell(f"{w}{i}", w) for w in ("r", "b", "o") for i in range(3))
    plan = plan_of(lab_fleet(workloads=works, cells=cells))
    assert [w.cells for w in plan.waves] == [("b0", "b1"), ("b2",), ("o0", "o1"), ("o2",), ("r0", "r1"), ("r2",)]
    assert [w.index for w in plan.waves] == [1, 2, 3, 4, 5, 6]


def test_steps_of_a_stream_and_of_a_shadowed_workload() -> None:
    fleet = lab_fleet()
    plan = plan_of(fleet)
    stream = spec_for(plan, fleet, CellId("stream-lab"))
    assert all(not g.judged for p in stream.phases for g in p.guardrails if g.name == "latency")
    assert all(g.judged for p in stream.phases for g in p.guardrails if g.name == "errors")
    assert "shadow" not in [p.phase for p in stream.phases]
    smollm = spec_for(plan, fleet, CellId("smollm-lab"))
    assert [p.phase for p in smollm.phases][:3] == ["preflight", "shadow", "canary"]
    assert smollm.shadow is not None
    assert (smollm.lane.kind, smollm.target, smollm.cap_bp) == ("accepted", "mi300x-lab", 10_000)
    assert plan.waves[0].steps[1].positions == 600


def test_no_spec_for_a_cell_that_stays() -> None:
    fleet = one(work={"route": "stay"})
    with pytest.raises(UsageError) as caught:
        spec_for(plan_of(fleet), fleet, CellId("chat-lab"))
    assert caught.value.code == "plan.cell_not_moved"
    with pytest.raises(UsageError):
        spec_for(plan_of(fleet), fleet, CellId("nobody"))


def test_pooled_lane_is_given_where_equal_cells_would_do_and_share_a_wave() -> None:
    slow = workload("s", traffic=Traffic(requests_per_s=0.02, input_tokens=9.0, output_tokens=9.0))
    cells = (cell("s1", "s"), cell("s2", "s"), cell("s3", "s"))
    fleet = lab_fleet(workloads=(slow,), cells=cells, policy=lab_policy(wave_cells=3))
    plan = plan_of(fleet, options=PlanOptions(allow_dearer=True))
    assert {o.lane.kind for o in plan.outcomes if o.lane is not None} == {"pooled"}
    assert plan.waves[0].cells == ("s1", "s2", "s3")
    two_a_wave = plan_of(replace(fleet, policy=lab_policy(wave_cells=2)))
    assert {o.reason.code for o in two_a_wave.outcomes} == {"lane.too_slow"}


def test_a_measured_baseline_is_preferred() -> None:
    fleet = one()
    given = {"chat": Baseline(error_ratio=0.02, log_sd=0.6, origin="measured")}
    plan = make_plan(
        fleet,
        load_catalog(),
        [Assessment(workload=fleet.workloads[0].id, route="native", as_of=NOW)],
        (),
        NOW,
        fleet_digest=digest(fleet),
        fit_of=memory_fit,
        baselines=given,
    )
    assert plan.waves[0].evidence_needed[Guardrail("errors")] > plan_of(fleet).waves[0].evidence_needed[Guardrail("errors")]
    assert "measured for chat" in next(c.detail for c in plan.checks if c.name == "baseline")


@pytest.mark.parametrize(("base", "half", "five"), [(0.001, 1931, 1616), (0.005, 5416, 3836), (0.01, 10056, 6544), (0.02, 18986, 10969)])
def test_planned_requests_for_errors_are_near_the_simulated_ones(base: float, half: int, five: int) -> None:
    assert planned_requests(Guardrail("errors"), 0.005, base, 0.6, 0.5)[1] == pytest.approx(half, rel=0.25)
    assert planned_requests(Guardrail("errors"), 0.005, base, 0.6, 0.05)[1] == pytest.approx(five, rel=0.25)


@pytest.mark.parametrize(("sd", "margin", "p99"), [(0.25, 0.10, 3621), (0.25, 0.20, 1489), (0.6, 0.20, 5198), (0.85, 0.10, 31017)])
def test_planned_requests_for_latency_are_near_the_simulated_ones(sd: float, margin: float, p99: int) -> None:
    assert planned_requests(Guardrail("latency"), margin, 0.005, sd, 0.5)[1] == pytest.approx(p99, rel=0.25)


@pytest.mark.parametrize(
    ("margin", "base", "sd", "share"), [(0.0, 0.1, 0.6, 0.5), (0.5, 0.6, 0.6, 0.5), (0.1, 0.1, 0.6, 0.0), (0.1, 0.1, 0.6, 1.0)]
)
def test_what_can_never_pass_says_never(margin: float, base: float, sd: float, share: float) -> None:
    assert planned_requests(Guardrail("errors"), margin, base, sd, share) == (NEVER, NEVER)
    assert planned_requests(Guardrail("latency"), 0.1, base, 0.0, share) == (NEVER, NEVER)


def test_time_of_a_step_is_evidence_or_bake_whichever_is_longer() -> None:
    long_bake = lab_policy(steps=tuple(replace(s, bake=timedelta(hours=1)) for s in lab_policy().steps))
    assert plan_of(one(policy=long_bake)).waves[0].hours == pytest.approx(6 * 1 + 3 / 3600, abs=0.01)
    slow = one(work={"traffic": Traffic(requests_per_s=1.5, input_tokens=9.0, output_tokens=9.0)})
    step = next(s for s in plan_of(slow).waves[0].steps if s.phase == "ramp")
    assert step.hours == pytest.approx(max(step.requests.values()) / (1.5 * 0.5) / 3600, rel=0.01)


def test_the_labs_own_file_moves_every_cell_since_it_is_pinned() -> None:
    for with_llm in (True, False):
        plan = plan_of(lab_file(with_llm))
        assert {(o.kind, o.target, o.target_replicas == o.replicas) for o in plan.outcomes} == {("move", "mi300x-lab", True)}
        assert [(s.pool, s.count) for s in plan.pools] == [("mi300x-lab", 2)]


@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(most_moves=1, most_gpus=0.5), PlanOptions(most_moves=0)])
def test_a_cell_that_stays_on_one_machine_is_not_billed_a_second_one(options: PlanOptions) -> None:
    """Its two replicas are spread over two machines where it moves; where it is, they stand as they stand."""
    pools = (
        pool("nvidia-lab", "nvidia", "lab-nvidia", count=1, limit=3, by="lab", price="10"),
        pool("amd", "amd", "lab-mi300x", count=0, limit=2, by="lab", price="40"),
    )
    fleet = lab_fleet(pools=pools, workloads=(workload("a", replicas=2),), cells=(cell("a-lab", "a"),))
    plan = plan_of(fleet, options=options)
    assert [o.kind for o in plan.outcomes] == ["stay"]
    assert plan.cost_now == plan.cost_then == Money(amount=Decimal("10.00"))


def test_asked_to_move_at_any_cost_a_cell_stays_only_for_want_of_room_and_nothing_asks_again() -> None:
    """Both cells are dearer on AMD, one VM may exist: one moves, the other names the quota, not the price that it was told to ignore."""
    works = (workload("a", accelerators_per_replica=8), workload("b", accelerators_per_replica=8))
    pools = (
        pool("n", "nvidia", "lab-nvidia", count=2, limit=2, price="10"),
        pool("m", "amd", "lab-mi300x", count=0, limit=1, by="lab", price="90"),
    )
    fleet = lab_fleet(workloads=works, pools=pools, cells=(cell("a1", "a", source="n"), cell("b1", "b", source="n")))
    usual, asked = plan_of(fleet), plan_of(fleet, options=ASKED)
    assert {o.reason.code for o in usual.outcomes} == {"price.dearer"}
    assert all((o.change or "").endswith("or pin its target: it then moves though dearer.") for o in usual.outcomes)
    assert sorted(o.reason.code for o in asked.outcomes) == ["move.dearer", "pool.limit"]
    text = " ".join(render_plan(asked, fleet).split())
    assert text.count("--allow-dearer") == 1
    assert "--allow-dearer: as many cells move as have a place and room, also where staying costs less; so no least cost" in text
    assert "--allow-dearer: as many" not in " ".join(render_plan(usual, fleet).split())
