"""Paths between regions, ends of capacity, cooling, the cap on AMD, egress: each binds, each says what would change it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from fleetctl.domain.fleet import Connection, Fleet, NetworkPath
from fleetctl.domain.plan import Outcome
from fleetctl.domain.workload import Slo, Traffic
from fleetctl.planning.options import PlanOptions
from tests.cases.planning_fleet import NOW, cell, lab_fleet, lab_policy, plan_of, pool, workload

WAY = NetworkPath(one="us-east-1", other="eastus2", round_trip_ms=12.0, is_private=True)
TRAFFIC = Traffic(requests_per_s=150.0, input_tokens=1000.0, output_tokens=200.0, streaming=True)


def fleet_of(*paths: NetworkPath, klass: str = "online", latency_ms: float = 2000.0, **changes: object) -> Fleet:
    """One cell of two VMs' GPUs in AWS that may be served from Azure."""
    work = workload("a", replicas=2, accelerators_per_replica=8, klass=klass, slo=Slo(latency_ms=latency_ms), traffic=TRAFFIC)  # type: ignore[arg-type]
    values: dict[str, object] = {
        "pools": (
            pool("n", "nvidia", "p5.48xlarge", region="us-east-1", price="55.04"),
            pool("m", "amd", "Standard_ND96isr_MI300X_v5", region="eastus2", count=0, limit=4, by="azure", price="8"),
        ),
        "workloads": (work,),
        "cells": (cell("a-us", "a", region="us-east-1", source="n", regions=("eastus2",)),),
        "paths": paths,
    }
    return lab_fleet(**(values | changes))


def only(fleet: Fleet) -> Outcome:
    (outcome,) = plan_of(fleet).outcomes
    return outcome


@pytest.mark.parametrize(
    ("fleet", "code"),
    [
        (fleet_of(), "path.none"),
        (fleet_of(WAY), "move.cheaper"),
        (fleet_of(replace(WAY, one="eastus2", other="us-east-1")), "move.cheaper"),
        (fleet_of(WAY, latency_ms=40.0), "path.round_trip"),
        (fleet_of(WAY, latency_ms=40.0, klass="batch"), "move.cheaper"),
        (fleet_of(replace(WAY, is_private=False)), "move.cheaper"),
        (fleet_of(replace(WAY, is_private=False), routers=(Connection(name="lab", kind="alb"),)), "path.public"),
        (fleet_of(WAY, routers=(Connection(name="lab", kind="alb"),)), "move.cheaper"),
    ],
)
def test_a_move_between_clouds_needs_a_path_that_is_near_and_where_asked_private(fleet: Fleet, code: str) -> None:
    outcome = only(fleet)
    assert outcome.reason.code == code
    assert outcome.kind == ("move" if code == "move.cheaper" else "infeasible")
    assert outcome.change is None if outcome.kind == "move" else outcome.change


def test_regions_of_one_cloud_need_no_path() -> None:
    pools = (pool("n", "nvidia", "Standard_ND96isr_H100_v5", region="us-east-1", price="90"), fleet_of().pools[1])
    assert only(fleet_of(pools=pools)).kind == "move"


def test_egress_counts_like_the_moves_own_cost_and_the_checker_agrees() -> None:
    free, dear = plan_of(fleet_of(WAY)), plan_of(fleet_of(replace(WAY, egress_usd_per_gb=0.09)))
    per_hour = 150 * 3600 * (1000 * 4 + 200 * 250) / 1e9 * 0.09
    assert free.certificate is not None
    assert dear.certificate is not None
    assert float(dear.certificate.moving.amount - free.certificate.moving.amount) == pytest.approx(per_hour, abs=0.02)
    assert only(fleet_of(replace(WAY, egress_usd_per_gb=99.0))).reason.code == "price.dearer"


@pytest.mark.parametrize("per_gb", [0.0, 0.09, 1.5])
def test_the_price_that_would_change_a_stay_is_that_at_which_it_changes(per_gb: float) -> None:
    """Egress does not fall with the price of a VM, so it is no part of what scales."""

    def at(price: float) -> Outcome:
        pools = (fleet_of().pools[0], replace(fleet_of().pools[1], price_usd_per_hour=Decimal(f"{price:.2f}")))
        return only(fleet_of(replace(WAY, egress_usd_per_gb=per_gb), pools=pools))

    stays = at(90.0)
    assert stays.reason.code == "price.dearer"
    even = float((stays.change or "").split("It pays below ")[1].split()[0])
    assert at(even - 0.02).kind == "move"
    assert at(even + 0.02).kind == "stay"


def test_where_egress_alone_costs_as_much_no_price_is_promised() -> None:
    outcome = only(fleet_of(replace(WAY, egress_usd_per_gb=99.0)))
    assert "at no price of a VM" in (outcome.change or "")


@pytest.mark.parametrize(("ends", "code"), [("", "move.cheaper"), ("2027-02-27", "ends.target"), ("2027-02-28", "move.cheaper")])
def test_a_targets_capacity_must_outlast_the_horizon(ends: str, code: str) -> None:
    fleet = fleet_of(WAY)
    assert only(replace(fleet, pools=(fleet.pools[0], replace(fleet.pools[1], ends=ends)))).reason.code == code


def test_a_source_that_ends_before_soak_leaves_no_way_home() -> None:
    fleet = fleet_of(WAY)
    steps = tuple(replace(s, bake=timedelta(days=7)) if s.phase == "soak" else s for s in lab_policy().steps)
    fleet = replace(fleet, policy=replace(fleet.policy, steps=steps))
    week = (NOW + timedelta(days=6)).date().isoformat()
    outcome = only(replace(fleet, pools=(replace(fleet.pools[0], ends=week), fleet.pools[1])))
    assert (outcome.kind, outcome.reason.code) == ("infeasible", "ends.source")
    longer = (NOW + timedelta(days=8)).date().isoformat()
    assert only(replace(fleet, pools=(replace(fleet.pools[0], ends=longer), fleet.pools[1]))).kind == "move"


def test_liquid_has_no_place_where_air_cools() -> None:
    fleet = fleet_of(WAY)
    wet = replace(fleet, pools=(fleet.pools[0], replace(fleet.pools[1], sku="BM.GPU.MI355X.8")))
    wet = replace(wet, paths=(WAY,))
    dry = replace(wet, policy=replace(wet.policy, cooling={"eastus2": "air"}))
    assert only(wet).kind == "move"
    assert (only(dry).kind, only(dry).reason.code) == ("infeasible", "cooling")


def test_the_share_of_amd_is_capped_while_both_sides_run() -> None:
    works = tuple(workload(f"w{i}", accelerators_per_replica=8) for i in range(4))
    pools = (
        pool("n", "nvidia", "lab-nvidia", count=4, limit=4),
        pool("m", "amd", "lab-mi300x", count=0, limit=4, by="x", price="10"),
    )
    fleet = lab_fleet(workloads=works, cells=tuple(cell(f"c{i}", f"w{i}", source="n") for i in range(4)), pools=pools)
    for share, moves in ((0.25, 1), (0.5, 2), (1.0, 4), (0.0, 0)):
        plan = plan_of(replace(fleet, policy=replace(fleet.policy, target_share=share)))
        assert sum(o.kind == "move" for o in plan.outcomes) == moves
        assert {o.reason.code for o in plan.outcomes if o.kind != "move"} <= {"limit.target_share"}


def test_every_barrier_is_checked_by_the_checker_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule switched off where cells are placed, the checker refuses the plan."""
    from fleetctl.errors import FleetctlError
    from fleetctl.planning.barriers import Barriers

    monkeypatch.setattr(Barriers, "against", lambda *_: None)
    fleet = fleet_of(WAY)
    late = replace(fleet, pools=(fleet.pools[0], replace(fleet.pools[1], ends="2026-12-31")))
    for broken in (fleet_of(), fleet_of(WAY, latency_ms=40.0), late):
        with pytest.raises(FleetctlError) as caught:
            plan_of(broken)
        assert caught.value.code == "plan.refused"
        assert "barred" in caught.value.details[0]


def test_asked_for_moves_keep_the_barriers() -> None:
    (outcome,) = plan_of(fleet_of(), options=PlanOptions(allow_dearer=True)).outcomes
    assert outcome.reason.code == "path.none"
