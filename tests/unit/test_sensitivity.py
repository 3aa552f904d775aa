"""Slower and faster AMD, each price book: which cells flip, in text, in the report, and escaped."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.report import ReportData
from fleetctl.domain.sensitivity import Sensitivity
from fleetctl.usecases.plan import PlanPorts, plan
from fleetctl.usecases.sensitivity import sensitivity
from fleetctl.views.plan_sensitivity import render_sensitivity
from fleetctl.views.report import render_report
from fleetctl.views.report_sensitivity import sensitivity_section
from tests.cases.planning_fleet import ANA, NOW, cell, lab_fleet, pool, workload
from tests.fakes.clock import FakeClock
from tests.fakes.small import KnownCapacity
from tests.fakes.store import MemoryStore


def fleet_of(price: str) -> Fleet:
    """Ten replicas of one GPU whose AMD price decides; real SKUs, so that the factor counts."""
    pools = (
        pool("n", "nvidia", "Standard_ND96isr_H200_v5", region="eastus2", count=2, limit=2, price="80"),
        pool("m", "amd", "Standard_ND96isr_MI300X_v5", region="eastus2", count=0, limit=9, by="azure", price=price),
    )
    work = workload("big", replicas=8, accelerators_per_replica=2, serving={"target_speed": "0.8"})
    return lab_fleet(pools=pools, workloads=(work,), cells=(cell("big-eastus2", "big", region="eastus2", source="n"),))


def ports(store: MemoryStore) -> PlanPorts:
    return PlanPorts(store=store, records=store, clock=FakeClock(), capacity=KnownCapacity({}), actor=ANA)


def test_what_flips_with_speed_and_with_the_book() -> None:
    store = MemoryStore()
    fleet = fleet_of("52")  # 3 VMs at 0.8 x: 156 against 160 today; at 0.72 x 12 replicas still take 3 VMs; by list it costs more
    made = plan(fleet, ports(store))
    assert made.outcomes[0].kind == "move"
    cheap = replace(load_catalog(), price_book_id="owned-2026")
    found = sensitivity(fleet, made, ports(store), books={"list": load_catalog(), "owned": cheap})
    assert [c.name for c in found.cases] == ["as planned", "AMD -10%", "AMD +10%", "prices: list", "prices: owned"]
    assert found.cases[0].flips == 0
    assert found.cases[0].cost_then == made.cost_then
    assert found.cases[-1].price_book_id == "owned-2026"
    assert store.get(Sensitivity, made.id) == found == decode(Sensitivity, canonical(found))
    assert sum(c.flips for c in found.cases) == sum(t != f.told[0] for f in found.flips for t in f.told)
    assert [c.by_book for c in found.cases] == [None, None, None, 2, 0], "no row of its own: that case says list prices"
    assert "fleet file: owned 0 of 2" in " ".join(render_sensitivity(found).split())
    assert "fleet file: owned 0 of 2" in sensitivity_section(found)


def test_a_slower_target_flips_a_cell_and_both_views_show_it() -> None:
    store = MemoryStore()
    fleet = fleet_of("79")  # 10 replicas on 20 GPUs: 2.5 VMs, 3 whole ones; dearer in every case but a faster one
    fleet = replace(fleet, workloads=(replace(fleet.workloads[0], serving={"target_speed": "1.0"}),))
    made = plan(fleet, ports(store))
    assert made.outcomes[0].kind == "move"
    found = sensitivity(fleet, made, ports(store))
    assert [(f.cell, f.told) for f in found.flips] == [("big-eastus2", ("move", "stay", "move", "move"))]
    text = render_sensitivity(found)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "1 cell flip" in text
    page = render_report(ReportData(made_at=NOW, fleet=fleet, plan=made, sensitivity=found))
    assert 'id="sensitivity"' in page
    assert page.count('class="bar bill"') == 4 + 1
    assert "<script" not in page


def test_the_own_prices_of_the_file_give_way_to_the_book() -> None:
    fleet = fleet_of("0.50")
    store = MemoryStore()
    made = plan(fleet, ports(store))
    found = sensitivity(fleet, made, ports(store), save=False)
    by_list = next(c for c in found.cases if c.name == "prices: list")
    assert by_list.cost_now.amount != made.cost_now.amount
    assert store.get(Sensitivity, made.id) is None
    bare = replace(fleet, pools=tuple(replace(p, price_usd_per_hour=None) for p in fleet.pools))
    names = [c.name for c in sensitivity(bare, plan(bare, ports(store)), ports(store)).cases]
    assert names == ["as planned", "AMD -10%", "AMD +10%"]


def test_nothing_worked_out_and_hostile_names() -> None:
    assert "fleetctl plan --sensitivity" in sensitivity_section(None)
    store = MemoryStore()
    fleet = fleet_of("79")
    made = plan(fleet, ports(store))
    found = sensitivity(fleet, made, ports(store), books={"<img src=x>": replace(load_catalog(), price_book_id="x")})
    section = sensitivity_section(found)
    assert "<img" not in section
    assert "&lt;img" in section
