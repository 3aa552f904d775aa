"""Commitments by scope: what they cover follows the VMs, saves no cash before they end, and the checker counts the same."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Commitment, Scope
from fleetctl.domain.units import Money
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.example import EXAMPLE_LINEAGE, fleet_text
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.planning.check_facts import covered_usd
from fleetctl.planning.cover import covered
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import cell, lab_fleet, plan_of, pool, workload

H100, MI300X, P5 = "Standard_ND96isr_H100_v5", "Standard_ND96isr_MI300X_v5", "p5.48xlarge"


def usd(amount: str) -> Money:
    return Money(amount=Decimal(amount))


def azure(*commitments: Commitment, amd_price: str = "80", cells: int = 2) -> Fleet:
    """Cells of one whole H100 VM each, and an MI300X pool of the same cloud beside them; a move saves a fifth."""
    works = tuple(workload(f"w{i}", accelerators_per_replica=8, serving={"target_speed": "1.0"}) for i in range(cells))
    pools = (
        pool("h", "nvidia", H100, region="eastus2", count=cells, limit=cells, price="100"),
        pool("m", "amd", MI300X, region="eastus2", count=0, limit=cells, by="azure", price=amd_price),
    )
    listed = tuple(cell(f"c{i}", f"w{i}", region="eastus2", source="h") for i in range(cells))
    return replace(lab_fleet(pools=pools, workloads=works, cells=listed), commitments=commitments)


def saving(spend: str, discount: float = 0.5, **scope: Any) -> Commitment:
    return Commitment(pool=PoolId(""), count=0, hourly=usd(spend), until="2027-06-30", scope=Scope(**scope), discount=discount, name="plan")


def reserved(count: int, hourly: str = "60", of: str = "", **scope: Any) -> Commitment:
    return Commitment(pool=PoolId(""), count=count, hourly=usd(hourly), until="2027-06-30", scope=Scope(**scope), of=of)


def moves(plan: Plan) -> int:
    return sum(o.kind == "move" for o in plan.outcomes)


def after(plan: Plan) -> tuple[Decimal, Decimal]:
    line = next(c for c in plan.cash if c.name == "commitments")
    assert line.now is not None
    assert line.then is not None
    return line.now.amount, line.then.amount


def test_a_savings_plan_of_the_cloud_follows_its_vms_to_amd() -> None:
    """50 USD an hour buy 100 USD of any Azure VM: one of two H100 today; then 100 of the 160 USD of two MI300X."""
    plan = plan_of(azure(saving("50", clouds=("azure",))))
    assert moves(plan) == 2
    assert after(plan) == (Decimal("150.00"), Decimal("110.00"))
    assert plan.certificate is not None
    assert plan.certificate.covered == usd("100.00")


def test_one_for_instances_stays_with_them_and_keeps_what_it_pays_for() -> None:
    for commitment in (saving("50", skus=("Standard_ND*_H100_v5",)), reserved(1, skus=(H100,), regions=("eastus2",))):
        plan = plan_of(azure(commitment))
        assert moves(plan) == 1  # the other's VM is paid for until 2027-06-30
        assert after(plan)[1] == commitment.hourly.amount + 80
    assert moves(plan_of(azure(reserved(2, skus=(H100,))))) == 0
    assert moves(plan_of(azure(replace(reserved(2, skus=(H100,)), until="2026-01-01")))) == 2
    assert moves(plan_of(azure(reserved(2, skus=(H100,), regions=("westeurope",))))) == 2
    assert moves(plan_of(azure(reserved(2, pools=(PoolId("h"),))))) == 0


def test_size_flexibility_counts_by_accelerators() -> None:
    """16 one-GPU VMs reserved are two of eight GPUs; without flexibility each pays for one VM, whatever its size."""
    small = "Standard_NC40ads_H100_v5"
    assert moves(plan_of(azure(reserved(16, hourly="9", of=small, skus=("Standard_N*_H100_v5",))))) == 0
    assert moves(plan_of(azure(reserved(8, hourly="9", of=small, skus=("Standard_N*_H100_v5",))))) == 1


def test_a_commitment_that_does_not_fit_anything_changes_nothing_but_the_bill() -> None:
    plan, plain = plan_of(azure(saving("40", clouds=("aws",)))), plan_of(azure())
    assert (moves(plan), plan.cost_then, plan.bound) == (moves(plain), plain.cost_then, plain.bound)
    assert after(plan) == (Decimal("240.00"), Decimal("200.00"))


def test_vms_go_before_money_and_the_narrow_scope_before_the_wide_one() -> None:
    fleet = azure(saving("50", clouds=("azure",)), saving("10", 0.9, skus=(H100,)), reserved(1, skus=(H100,)), cells=3)
    plan = plan_of(fleet)
    # today: one H100 reserved, one by the narrow plan (10 USD buy 100), one by the wide one (50 USD buy 100)
    assert after(plan)[0] == Decimal("120.00")
    text = " ".join(render_plan(plan, fleet).split())
    assert "plan: 50.00 USD an hour paid until 2027-06-30, wherever its scope is used" in text
    assert "commitment: 1 VM paid until 2027-06-30" in text
    assert "is paid for by those commitments" in text
    assert all(len(line) <= 80 for line in render_plan(plan, fleet).splitlines())


def test_what_is_covered_is_the_best_use_first() -> None:
    assert covered([[1.0, 2.0]], [3.0], [10.0, 30.0], [5.0, 1.0]) == [1.0, 1.0]
    assert covered([[1.0, 0.0]], [9.0], [10.0, 30.0], [2.0, 1.0]) == [2.0, 0.0]
    assert covered([], [], [10.0], [2.0]) == [0.0]
    assert covered([[1.0]], [2.0], [10.0], [-1.0]) == [0.0]
    assert covered_usd([], {}, {}) == 0.0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{pool: nowhere, count: 1, hourly: 1 USD, until: 2027-01-01}", "no pool is named 'nowhere'"),
        ("{count: 1, hourly: 1 USD, until: 2027-01-01}", "needs either a pool or a scope"),
        ("{scope: {}, count: 1, hourly: 1 USD, until: 2027-01-01}", "names nothing"),
        ("{scope: {clouds: [azure]}, until: 2027-01-01}", "needs count and hourly"),
        ("{scope: {clouds: [azure]}, spend: 5 USD, count: 2, until: 2027-01-01}", "goes with scope and discount alone"),
        ("{scope: {clouds: [azure]}, spend: 5 USD, discount: 100%, until: 2027-01-01}", "must be below 100%"),
        ("{scope: {clouds: [azure]}, spend: 0 USD, until: 2027-01-01}", "must be above 0 and in USD"),
        ("{scope: {clouds: [azure]}, spend: 5 EUR, until: 2027-01-01}", "must be above 0 and in USD"),
        ("{scope: {skus: ['; rm -rf /']}, count: 1, hourly: 1 USD, until: 2027-01-01}", "a SKU or a pattern"),
        ("{scope: {pools: [nowhere]}, count: 1, hourly: 1 USD, until: 2027-01-01}", "no pool is named 'nowhere'"),
        ("{scope: {clouds: [azure]}, count: 1, hourly: 1 USD, discount: 20%, until: 2027-01-01}", "goes with spend alone"),
    ],
)
def test_a_commitment_that_says_nothing_or_too_much_is_an_error_with_its_line(line: str, said: str) -> None:
    head, _, _ = fleet_text("shop", EXAMPLE_LINEAGE).partition("commitments:\n")
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(f"{head}commitments:\n  - {line}\n", file="fleet.yaml")
    assert any(said in d and "commitments" in d for d in caught.value.details), caught.value.details


def test_a_commitment_by_scope_that_keeps_a_cell_is_its_reason_with_its_date_and_what_it_would_save_then() -> None:
    plan = plan_of(azure(reserved(2, skus=(H100,))))
    assert {o.reason.code for o in plan.outcomes} == {"commitment"}
    assert "would save" in plan.outcomes[0].reason.text
    assert "until 2027-06-30" in plan.outcomes[0].reason.text
    assert moves(plan_of(azure(replace(reserved(2, skus=(H100,)), until="2020-01-01")))) == 2


def test_a_commitment_that_pays_for_some_vms_of_the_source_is_named_beside_the_whole_vms() -> None:
    """Two cells fill two of three VMs, two are prepaid: both moves free one VM and open two; without the commitment they free two."""
    speed = {"target_speed": "1.0"}
    works = tuple(workload(f"w{i}", accelerators_per_replica=4, replicas=n, serving=speed) for i, n in enumerate((3, 1)))
    fleet = azure(Commitment(pool=PoolId("h"), count=2, hourly=usd("60"), until="2027-06-30"), cells=3)
    fleet = replace(fleet, workloads=works, cells=fleet.cells[:2])
    plan = plan_of(fleet)
    assert {o.reason.code for o in plan.outcomes} == {"price.whole_vms"}
    for o in plan.outcomes:
        assert "2 VMs of h are paid for until 2027-06-30 (commitment), used or not." in o.reason.text
        assert "plan again once the commitment ends (2027-06-30)" in (o.change or "")
    assert moves(plan_of(replace(fleet, commitments=()))) == 2
