"""Rebalancing: what moves within limits, in both directions; what holds a cell; what a standing approval allows; nothing begun twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from fleetctl.catalog import load_catalog
from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet, FreezeWindow
from fleetctl.domain.ids import CellId, HostId, PlanId, PoolId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval, Plan
from fleetctl.domain.pool import Host
from fleetctl.domain.rebalance import Limits, RebalanceRun, StandingApproval
from fleetctl.domain.rollout import Ended
from fleetctl.errors import LeaseHeld, PlanStale
from fleetctl.rebalance.hold import left, within
from fleetctl.rebalance.standing import Measured
from fleetctl.usecases.capacity import PoolHosts
from fleetctl.usecases.migrate import approved_plan, begin
from fleetctl.usecases.plan import PlanPorts
from fleetctl.usecases.rebalance import LIMIT, Proposal, propose
from fleetctl.usecases.rebalance_apply import begin_run, save, sign, standing_approval, take_lease, withdraw
from fleetctl.views.rebalance import render_run
from tests.cases.planning_fleet import ANA, cell, lab_fleet, lab_policy, plan_of, pool, workload
from tests.fakes.clock import START, FakeClock
from tests.fakes.rollouts import rollout
from tests.fakes.small import KnownCapacity
from tests.fakes.store import MemoryStore

WIDE = Limits(moves=100, share=1.0)
BO = Actor(kind="person", name="bo@example.com")
DAY = timedelta(days=1)


class World:
    """A fleet of full VMs: sixteen replicas of 1 GPU fill two; MI300X at 40 USD/h, NVIDIA at 98."""

    def __init__(self, cells: int = 3, *, amd: str = "40", nvidia: str = "98.32", **changes: object) -> None:
        works = tuple(workload(f"w{i}", replicas=16, klass=("batch", "online", "realtime")[i % 3]) for i in range(cells))
        self.fleet = lab_fleet(
            pools=(
                pool("nvidia-lab", "nvidia", "lab-nvidia", count=2 * cells, limit=2 * cells + 3, by="lab", price=nvidia),
                pool("amd", "amd", "lab-mi300x", count=0, limit=2 * cells, by="lab", price=amd),
            ),
            workloads=works,
            cells=tuple(cell(f"c{i}", f"w{i}") for i in range(cells)),
            policy=lab_policy(approvals=1, wave_cells=100),
            **changes,
        )
        self.store, self.clock = MemoryStore(), FakeClock()
        self.ports = PlanPorts(
            store=self.store, records=self.store, clock=self.clock, capacity=KnownCapacity({"lab-mi300x": 9, "lab-nvidia": 9}), actor=ANA
        )

    def propose(self, limits: Limits = WIDE, fleet: Fleet | None = None, catalog: Catalog | None = None, **seen: Measured) -> Proposal:
        measured = {CellId(name): m for name, m in seen.items()}
        return propose(fleet or self.fleet, self.ports, catalog or load_catalog(), limits, measured)

    def done(self, name: str, ended: Ended = "complete", age: timedelta = 30 * DAY, **spec: object) -> None:
        """A cell whose rollout has ended, so long ago."""
        plan = replace(plan_of(self.fleet), id=PlanId("p-old"))
        self.store.put(plan.id, plan)
        r = rollout(CellId(name), plan=PlanId("p-old"))
        old = replace(r, ended=ended, settled_at=self.clock.now() - age, spec=replace(r.spec, target=PoolId("amd"), **spec))  # type: ignore[arg-type]
        self.store.start(replace(old, ended=""), ())
        lease = self.store.acquire(name, "t", timedelta(seconds=9))
        self.store.record(lease, replace(old, ended=""), old, (), timedelta(hours=1))  # type: ignore[arg-type]

    def made(self, count: int) -> None:
        """VMs of the target that a provision made."""
        hosts = tuple(Host(id=HostId(f"a{n}"), pool=PoolId("amd"), address=f"10.0.0.{n}") for n in range(count))
        self.store.put("amd", PoolHosts(pool=PoolId("amd"), hosts=hosts))

    def approval(self, **changes: object) -> StandingApproval:
        terms = StandingApproval(
            id="", lineage=self.fleet.lineage, moves=5, window=7 * DAY, share=1.0, classes=("batch", "online"), until="2031-01-01"
        )
        made, _ = sign(replace(terms, **changes), self.fleet, self.store, self.store, ANA, self.clock.now())  # type: ignore[arg-type]
        return made


def targets(p: Proposal) -> dict[str, str]:
    return {s.cell: s.target for s in p.run.shifts}


def test_what_is_cheaper_elsewhere_moves_and_nothing_is_saved() -> None:
    w = World()
    found = w.propose()
    assert targets(found) == {"c0": "amd", "c1": "amd", "c2": "amd"}
    assert found.run.cost_then.amount == Decimal(240)
    assert all(s.order == "migrate" and s.to == "amd" for s in found.run.shifts)
    assert w.store.newest(Plan) is None
    assert w.store.newest(RebalanceRun) is None


def test_a_limit_of_moves_takes_those_that_save_most() -> None:
    w = World()
    works = (*w.fleet.workloads[:2], replace(w.fleet.workloads[2], replicas=32))
    fleet = replace(w.fleet, workloads=works, pools=(replace(w.fleet.pools[0], count=8), replace(w.fleet.pools[1], limit=8)))
    found = w.propose(replace(WIDE, moves=1), fleet)
    assert targets(found) == {"c2": "amd"}
    assert found.run.unlimited == 3
    assert {h.cell: h.reason.code for h in found.run.held} == {"c0": LIMIT, "c1": LIMIT}


def test_a_share_of_the_gpus_limits_too() -> None:
    assert len(World().propose(replace(WIDE, share=0.34)).run.shifts) == 1


def test_classes_outside_the_limits_stay() -> None:
    found = World().propose(replace(WIDE, classes=("batch",)))
    assert targets(found) == {"c0": "amd"}
    assert {h.reason.code for h in found.run.held} == {"rebalance.class"}


def test_savings_too_small_for_the_disruption_move_nothing() -> None:
    found = World().propose(replace(WIDE, min_saving_usd=8.0))
    assert found.plan is None
    assert found.run.shifts == ()
    assert "is under 8 USD/h a replica" in found.run.notes[0]


def test_a_cell_goes_home_where_its_source_has_become_cheaper_and_stays_where_not() -> None:
    cheap = World(amd="40")
    cheap.done("c0")
    assert "c0" not in targets(cheap.propose())
    dear = World(amd="140")
    dear.done("c0")
    found = dear.propose()
    (shift,) = found.run.shifts
    assert (shift.cell, shift.source, shift.target, shift.order, shift.to) == ("c0", "amd", "nvidia-lab", "home", "nvidia")
    assert found.home == ("c0",)
    assert found.plan is not None
    assert [w.cells for w in found.plan.waves] == []
    assert found.plan.outcomes[0].reason.code == "rebalance.return"
    assert {o.workload for o in found.plan.outcomes} == {"w0", "w1", "w2"}


def test_a_cell_declared_on_amd_goes_to_nvidia_by_the_ordinary_path() -> None:
    w = World(1, amd="140")
    pools = (replace(w.fleet.pools[0], count=0), replace(w.fleet.pools[1], count=2))
    fleet = replace(w.fleet, pools=pools, cells=(replace(w.fleet.cells[0], source=PoolId("amd")),))
    (shift,) = w.propose(fleet=fleet).run.shifts
    assert (shift.target, shift.order, shift.to) == ("nvidia-lab", "migrate", "nvidia")


@pytest.mark.parametrize(
    ("ended", "age", "code"),
    [
        ("complete", 3 * DAY, "rebalance.dwell"),
        ("aborted", 3 * DAY, "rebalance.dwell"),
        ("rolled_back", 300 * DAY, "rebalance.failed"),
        ("lost_evidence", 300 * DAY, "rebalance.failed"),
    ],
)
def test_what_moved_lately_or_failed_stays(ended: Ended, age: timedelta, code: str) -> None:
    w = World(amd="140" if ended == "complete" else "40")
    w.done("c0", ended, age)
    found = w.propose()
    assert "c0" not in targets(found)
    assert [h.reason.code for h in found.run.held if h.cell == "c0"] == [code]


def test_a_pinned_cell_is_left_to_an_ordinary_plan() -> None:
    w = World()
    fleet = replace(w.fleet, cells=(replace(w.fleet.cells[0], target=PoolId("amd")), *w.fleet.cells[1:]))
    found = w.propose(fleet=fleet)
    assert set(targets(found)) == {"c1", "c2"}
    assert [h.reason.code for h in found.run.held] == ["rebalance.pinned"]


def test_what_a_plan_under_way_moves_in_a_later_wave_is_left_to_it() -> None:
    w = World()
    w.fleet = replace(w.fleet, policy=replace(w.fleet.policy, wave_cells=1))
    plan = plan_of(w.fleet)
    assert len(plan.waves) == 3
    first = plan.waves[0].cells[0]
    w.store.put(plan.id, plan)
    begin(plan, w.fleet, (first,), "complete", w.store, w.clock, ANA)
    found = w.propose()
    assert targets(found) == {}
    assert {h.reason.code for h in found.run.held} == {"rebalance.planned"}
    assert len(found.run.held) == 2
    w.store.put("r1", replace(found.run, id="r1", plan=plan.id))
    assert set(targets(w.propose())) == {"c0", "c1", "c2"} - {first}, "a run's own later waves are not held up"


def test_where_nothing_is_to_be_had_nothing_is_planned() -> None:
    w = World()
    w.ports = replace(w.ports, capacity=KnownCapacity({"lab-mi300x": 0, "lab-nvidia": 9}))
    assert w.propose().run.shifts == ()


def test_measured_demand_scales_replicas_and_a_small_difference_does_not() -> None:
    w = World(1)
    w.fleet = replace(w.fleet, pools=(w.fleet.pools[0], replace(w.fleet.pools[1], limit=4)))
    more = w.propose(c0=Measured(requests_per_s=300.0))
    assert more.run.shifts[0].target_replicas == 32
    assert "x 2.00" in more.run.notes[0]
    same = w.propose(c0=Measured(requests_per_s=160.0))
    assert same.run.shifts[0].target_replicas == 16
    assert same.run.notes == ()


def test_a_cell_that_misses_its_slo_on_the_target_is_counted_with_more_replicas_there() -> None:
    w = World(1, amd="70", nvidia="98.32")
    w.done("c0")
    assert w.propose().run.shifts == ()
    slow = w.propose(c0=Measured(p95_ms=4000.0))
    assert targets(slow) == {"c0": "nvidia-lab"}
    assert "misses its SLO" in slow.run.notes[0]


def test_a_small_cell_that_has_moved_is_not_sent_back_to_vms_that_are_held_for_it() -> None:
    """Its two replicas are what kept a second VM there: that VM looks free while it is held, and is not."""
    w = World(2, amd="40")
    small = (replace(w.fleet.workloads[0], replicas=2), replace(w.fleet.workloads[1], replicas=1))
    pools = (replace(w.fleet.pools[0], count=2, limit=2), w.fleet.pools[1])
    w.fleet = replace(w.fleet, workloads=small, pools=pools)
    batch = replace(WIDE, classes=("batch",))
    assert targets(w.propose(batch)) == {"c0": "amd"}
    w.done("c0")
    w.made(2)
    found = w.propose(batch)
    assert targets(found) == {}
    assert found.run.cost_now.amount == Decimal("178.32")


def test_to_and_fro_never_adds_a_replica() -> None:
    """Three replicas at 0.9 of the speed are four there; back home they are three again."""
    w = World(1, amd="140")
    slower = replace(w.fleet.workloads[0], replicas=3)
    w.fleet = replace(w.fleet, workloads=(slower,))
    w.done("c0")
    w.made(2)
    plan = w.store.get(Plan, "p-old")
    assert plan is not None
    moved = replace(plan.outcomes[0], kind="move", target=PoolId("amd"), target_replicas=4)
    w.store.put("p-old", replace(plan, outcomes=(moved,)))
    (shift,) = w.propose().run.shifts
    assert (shift.replicas, shift.target_replicas) == (4, 3)


def test_a_run_begins_under_a_standing_approval_and_again_begins_nothing() -> None:
    w = World()
    approval = w.approval(moves=1)
    limits = within(WIDE, approval)
    first = w.propose(limits)
    plan = save(first, w.fleet, w.ports, approval)
    assert plan is not None
    begun = begin_run(first, w.fleet, w.ports, approval)
    assert len(begun.cells) == 1
    assert approved_plan(w.store, w.fleet, None).id == plan.id
    assert [a.note for a in w.store.all(Approval)] == [f"under standing approval {approval.id}"]
    again = w.propose(limits)
    assert again.run.shifts == ()
    assert left(limits, w.store.all(RebalanceRun), 48, w.clock.now())[0] == 0
    kinds = [e.kind for e in w.store.events(None, 0)]
    assert kinds == ["standing.signed", "plan.made", "plan.approved", "rebalance.run"]
    assert left(limits, w.store.all(RebalanceRun), 48, w.clock.now() + 8 * DAY)[0] == 1


def test_a_return_is_an_order_that_the_next_tick_obeys() -> None:
    w = World(amd="140")
    w.done("c0")
    approval = w.approval(classes=("batch",))
    found = w.propose(within(WIDE, approval))
    save(found, w.fleet, w.ports, approval)
    begun = begin_run(found, w.fleet, w.ports, approval)
    r = w.store.load(CellId("c0"))
    assert begun.home == ("c0",)
    assert r is not None
    assert [(o.kind, o.actor.kind, o.actor.via) for o in r.orders] == [("fallback", "schedule", "timer")]


def test_the_envelope_narrows_and_ends() -> None:
    w = World()
    approval = w.approval(moves=2, share=0.05, classes=("batch",), until="2026-12-31", window=14 * DAY)
    narrow = within(WIDE, approval)
    assert (narrow.moves, narrow.share, narrow.classes, narrow.window) == (2, 0.05, ("batch",), 14 * DAY)
    assert standing_approval(w.store, w.fleet, "", datetime(2026, 12, 31, tzinfo=START.tzinfo)).id == approval.id
    for fleet, at in ((w.fleet, datetime(2027, 1, 1, tzinfo=START.tzinfo)), (replace(w.fleet, lineage="other"), START)):
        with pytest.raises(PlanStale, match=r"ended on 2026-12-31|another fleet"):
            standing_approval(w.store, fleet, approval.id, at)
    withdraw(approval.id, w.store, w.store, BO, START)
    with pytest.raises(PlanStale, match="withdrawn"):
        standing_approval(w.store, w.fleet, "", START)


def test_two_people_sign_the_same_terms() -> None:
    w = World()
    fleet = replace(w.fleet, policy=replace(w.fleet.policy, approvals=2))
    approval = w.approval()
    with pytest.raises(PlanStale, match="1 of 2 people"):
        standing_approval(w.store, fleet, "", START)
    again, more = sign(replace(approval, signed=()), fleet, w.store, w.store, BO, START)
    assert (again.id, more) == (approval.id, 0)
    assert standing_approval(w.store, fleet, "", START).signed[1][0] == BO


def test_one_run_at_a_time_and_a_dead_one_holds_nobody_up() -> None:
    w = World()
    take_lease(w.store, "a", lambda _: False)
    with pytest.raises(LeaseHeld, match="a is rebalancing"):
        take_lease(w.store, "b", lambda _: False)
    assert take_lease(w.store, "b", lambda holder: holder == "a").holder == "b"


def test_payback_counts_both_sides_to_the_end_of_the_soak_as_the_plan_does() -> None:
    found = World(cells=1).propose()
    (shift,) = found.run.shifts
    assert found.plan is not None
    assert found.plan.calendar is not None
    (moved,) = [o for o in found.plan.outcomes if o.kind == "move"]
    assert moved.cost_then is not None
    assert moved.hours is not None
    assert shift.saving_usd_per_hour is not None
    hours = (found.plan.calendar.end - found.plan.calendar.start).total_seconds() / 3600
    assert hours > moved.hours, "the soak takes time"
    assert shift.payback_hours == pytest.approx(float(moved.cost_then.amount) * hours / float(shift.saving_usd_per_hour.amount), abs=0.06)


def test_back_to_nvidia_is_said_of_cells_on_amd_alone() -> None:
    run = World(cells=1).propose().run
    shifts = run.shifts

    def said(source: str | None, to: str) -> str:
        return render_run(replace(run, shifts=(replace(shifts[0], vendor=source, to=to),)), dry=True)  # type: ignore[arg-type]

    assert shifts[0].vendor == "nvidia"
    assert "moves: 1 to AMD" in said("nvidia", "amd")
    assert "moves: 1 from NVIDIA to NVIDIA" in said("nvidia", "nvidia")
    assert "moves: 1 back to NVIDIA" in said("amd", "nvidia")
    assert "moves: 1 back to NVIDIA" in said(None, "nvidia")


def test_the_rows_the_rest_and_the_bill_add_up_and_each_is_named() -> None:
    """Thirteen GPUs a cell: 39 fill four of the six VMs and most of a fifth, so the bill changes by more than the shares."""
    w = World()
    run = w.propose(fleet=replace(w.fleet, workloads=tuple(replace(v, replicas=13) for v in w.fleet.workloads))).run
    text = render_run(run, dry=True)
    said = " ".join(text.split())
    change = run.cost_then.amount - run.cost_now.amount
    rows = [Decimal(line.split()[4]) for line in text.splitlines() if " migrate " in line]
    assert len(rows) == 3
    shares, rest = (Decimal(said.split(words)[0].split()[-1]) for words in (" by their share of GPUs", " since VMs come and go whole"))
    assert sum(rows) == shares
    assert rest != 0
    assert shares + rest == change
    assert f"{change:+,.2f} an hour in all" in said
    assert f"{change:+,.2f} an hour ({change * 730:+,.0f} in a month of 730 h)" in said
    assert run.on_top is not None
    assert f"once: {run.on_top.amount:,.2f} USD on top of today's bill" in said


def test_the_time_that_a_freeze_holds_a_move_is_in_its_payback() -> None:
    w = World(cells=1)
    free = w.propose().run
    window = FreezeWindow(name="fair", start=START + timedelta(seconds=30), end=START + timedelta(days=10))
    frozen = w.propose(fleet=replace(w.fleet, policy=replace(w.fleet.policy, freeze=(window,)))).run
    (a,), (b,) = free.shifts, frozen.shifts
    assert a.payback_hours is not None
    assert b.payback_hours is not None
    assert b.cell == a.cell
    saving, there = a.saving_usd_per_hour, Decimal(80)
    assert saving is not None
    assert b.payback_hours == pytest.approx(float(there * 240 / saving.amount), rel=0.01)
    assert b.payback_hours > 100 * a.payback_hours
    assert free.earned_at is not None
    assert frozen.earned_at is not None
    assert frozen.earned_at - free.earned_at > timedelta(days=10)
