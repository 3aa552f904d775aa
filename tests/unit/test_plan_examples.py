"""The example fleets read well at 80 columns: every section in its order, every outcome with its reason, no plan that a check refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.catalog import load_catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.formats.fleet_file import read_fleet
from fleetctl.planning.placement import hourly
from fleetctl.views.plan import render_plan
from tests.cases.generated_fleet import Shape, generated_fleet
from tests.cases.planning_fleet import plan_of

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = (
    "Plan ",
    "Cash (",
    "cells: ",
    "Cross-cloud paths",
    "Calendar",
    "Evidence lane",
    "Checks: ",
    "Who must approve",
    "Nothing was changed. Next: fleetctl approve ",
)


def example(name: str) -> Fleet:
    return read_fleet(ROOT / "inventory" / name / "fleet.yaml")


@pytest.mark.parametrize(
    ("made", "workloads"),
    [
        pytest.param(lambda: example("lab-six"), 6, id="lab-six"),
        pytest.param(lambda: example("two-clouds"), 40, id="two-clouds"),
        pytest.param(lambda: generated_fleet(Shape(workloads=60)), 60, id="generated"),
        pytest.param(lambda: generated_fleet(Shape(workloads=10_000)), 10_000, id="generated-10000", marks=pytest.mark.slow),
    ],
)
def test_every_section_stands_in_its_order(made: Callable[[], Fleet], workloads: int) -> None:
    fleet = made()
    assert len(fleet.workloads) == workloads
    plan = plan_of(fleet)
    lines = render_plan(plan, fleet).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert len(lines) <= 260
    text = "\n".join(lines)
    places = [text.find(s.replace("Cross-cloud paths", "Paths between" if plan.paths else s)) for s in SECTIONS]
    assert -1 not in places
    assert places == sorted(places)
    assert all(c.ok for c in plan.checks), [c for c in plan.checks if not c.ok]
    assert all(o.reason.code and (o.kind == "move" or o.change) for o in plan.outcomes)


def test_the_company_of_two_clouds_shows_every_kind_of_reason() -> None:
    fleet = example("two-clouds")
    codes = {o.reason.code for o in plan_of(fleet).outcomes}
    assert {"move.cheaper", "price.dearer", "residency", "licence", "lane.too_slow", "lane.stay", "route.stay", "limit.power_kw"} <= codes


def test_the_six_show_move_stay_and_blocked() -> None:
    outcomes = {str(o.workload): (o.kind, o.reason.code) for o in plan_of(example("lab-six")).outcomes}
    assert outcomes["frontier"] == ("infeasible", "fit")
    assert outcomes["memo"] == ("infeasible", "lane.too_slow")
    assert outcomes["kernels"] == ("infeasible", "licence")
    assert {outcomes[w][0] for w in ("chat", "summaries", "assistant")} == {"move"}


def test_what_whole_vms_would_cost_is_vms_times_prices_and_the_move_itself() -> None:
    fleet, catalog = example("two-clouds"), load_catalog()
    found = [o for o in plan_of(fleet).outcomes if o.reason.code == "price.whole_vms"]
    assert len(found) >= 3
    for o in found:
        said = re.search(r"frees (\S+) of (\S+) and opens (\S+) of (\S+) for (\d+) GPUs?: ([\d,.]+) USD/h more", o.reason.text)
        assert said is not None, o.reason.text
        freed, opened = (0 if n == "none" else int(n) for n in said.group(1, 3))
        source, target = (hourly(fleet.pool(PoolId(n)), catalog) for n in said.group(2, 4))
        assert source is not None
        assert target is not None
        vms = float(opened * target.amount - freed * source.amount)
        move = float(said[6].replace(",", "")) - vms
        share = float(target.amount) * int(said[5]) / 8
        assert 0 < move < 0.1 * share, "both sides for about seven days of the 180 in which it has to pay"


def test_what_binds_is_named_where_capacity_ends_and_where_replicas_stand_on_two_vms() -> None:
    found = {str(o.workload): o.reason for o in plan_of(example("two-clouds")).outcomes}
    assert found["code-tests"].code == "limit.power_kw"
    assert "capacity that ends waits for no release" in found["code-tests"].text
    assert "keeps two VMs" in found["eu-translate"].text
    six = example("lab-six")
    short = replace(six, policy=replace(six.policy, budget_usd_per_hour=310.0))
    assert "must stand on two VMs there" in next(o.reason.text for o in plan_of(short).outcomes if o.workload == "chat")
