"""Fleets that are wrong, contradict themselves or cannot fit: rows are named, limits that conflict too, and a plan is never refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet, read_fleet
from fleetctl.planning.options import PlanOptions
from fleetctl.views.plan import render_plan
from tests.cases.fleet_lines import fleet_lines
from tests.cases.generated_fleet import Shape, generated_fleet
from tests.cases.planning_fleet import plan_of

COMPANY = (Path(__file__).resolve().parents[2] / "inventory" / "two-clouds" / "fleet.yaml").read_text("utf-8")
PINNED = re.sub(r"(  [a-z-]+-eastus2: \{workload: [a-z-]+, region: eastus2,)", r"\1 target: mi300x-eastus2,", COMPANY)


SPEED = "engine: vllm, serving: {{target_speed: {}}}, replicas: 6,"


def with_(old: str, new: str, text: str = COMPANY) -> str:
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (with_("price_usd_per_hour: 39.50", "price_usd_per_hour: 0"), "price_usd_per_hour: must be above 0"),
        (with_("price_usd_per_hour: 39.50", "price_usd_per_hour: .nan"), "must be a number"),
        (with_("count: 7, limit: 7", "count: 7, limit: 3"), "7 is above the limit of 3"),
        (with_("until: 2027-05-31", "until: 2027-02-31"), "is no day of the calendar"),
        (with_("price_usd_per_hour: 82.00", "price_usd_per_hour: 82.00, ends: 2027-02-31"), "is no day of the calendar"),
        (with_("count: 7, limit: 7", "count: 1, limit: 7"), "its cells hold 46"),
        (with_("horizon: 180d", "horizon: 0s"), "must be at least 1s"),
        (with_("power_kw: {eastus2: 180", "power_kw: {eastus2: 0"), "must be above 0"),
        (with_("power_kw: {eastus2: 180", "power_kw: {eastus: 180"), "no pool is in a region named 'eastus' (did you mean 'eastus2'?)"),
        (with_("cooling: {eastus2: air", "cooling: {estus2: air"), "no pool is in a region named 'estus2' (did you mean 'eastus2'?)"),
        (with_("eastus2: 180", "atlantis: 180"), "no pool is in a region named 'atlantis'; pools are in eastus2, swedencentral"),
        (with_("count: 4, hourly", "count: 9999, hourly"), "9999 is above the limit of 8 of pool 'p5-us-east-1'"),
        (with_("end: 2027-01-04T08:00:00Z", "end: 9999-12-31T23:59:59Z"), "must end by 2999; to move nothing: lane `stay`"),
        (with_("paths:\n", "paths:\n  - {between: [eastus2, us-east-1], round_trip: 9ms}\n"), "stands in row 1 already"),
        *(
            (
                with_("engine: vllm, replicas: 6,", f"engine: vllm, serving: {{target_speed: {odd}}}, replicas: 6,"),
                "must be a number above 0",
            )
            for odd in ("0", "-1", ".nan", ".inf", "fast")
        ),
    ],
)
def test_what_is_wrong_is_an_error_that_names_the_row(text: str, said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        plan_of(parse_fleet(text, file="fleet.yaml"))
    assert any(said in d for d in caught.value.details), caught.value.details


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PINNED, "policy.power_kw.eastus2: 180;"),
        (with_("eastus2: 180", "eastus2: 90", PINNED), "policy.power_kw.eastus2: 90;"),
        (with_("count: 0, limit: 12", "count: 0, limit: 0", PINNED), "pools.mi300x-eastus2.limit: 0 VMs of 8 GPUs;"),
        (with_("target_share: 70%", "target_share: 1%", PINNED), "policy.target_share: at most 2.44 GPUs of AMD;"),
        (with_("wave_cells: 6", "wave_cells: 6\n  budget_usd_per_hour: 2100", PINNED), "policy.budget_usd_per_hour: 2100;"),
    ],
)
def test_what_cannot_fit_names_the_lines_that_conflict(text: str, line: str) -> None:
    fleet = parse_fleet(text, file="fleet.yaml")
    plan = plan_of(fleet)
    (bad,) = [c for c in plan.checks if c.name == "conflict"]
    assert not bad.ok
    assert line in bad.detail
    assert "cells.frontier-lab-eastus2.target" in bad.detail
    assert all(len(x) <= 80 for x in render_plan(plan, fleet).splitlines())


@pytest.mark.parametrize(
    "text",
    [
        with_("price_usd_per_hour: 39.50", "price_usd_per_hour: 1e-30"),
        with_("requests_per_s: 60", "requests_per_s: 0"),
        with_("horizon: 180d", "horizon: 1s"),
        with_("requests_per_s: 60", "requests_per_s: 1e300"),
        with_("wave_cells: 6", "wave_cells: 6\n  budget_usd_per_hour: 1"),
        with_("eastus2: 180", "eastus2: 1e308"),
        with_("until: 2027-05-31", "until: 2020-01-01"),
        COMPANY + '  - {scope: {skus: ["*"]}, spend: 100000 USD, discount: 99%, until: 2027-05-31}\n',
        COMPANY.replace("slo: {", "slo: {ttft: 1ms, "),
        with_("end: 2027-01-04T08:00:00Z", "end: 2999-01-04T08:00:00Z"),
    ],
)
@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(allow_dearer=True)])
def test_what_is_odd_is_planned_checked_and_shown_within_80_columns(text: str, options: PlanOptions) -> None:
    fleet = parse_fleet(text, file="fleet.yaml")
    plan = plan_of(fleet, options=options)
    assert all(len(x) <= 80 for x in render_plan(plan, fleet).splitlines())
    assert {c.name for c in plan.checks if not c.ok} == ({"limits today"} if "budget_usd_per_hour: 1\n" in text else set())


def test_a_byte_order_mark_before_a_fleet_is_nothing(tmp_path: Path) -> None:
    lines = "".join(f"{line}\n" for line in fleet_lines(generated_fleet(Shape(workloads=3, regions=1))))
    plain, marked = tmp_path / "plain.jsonl", tmp_path / "marked.jsonl"
    plain.write_text(lines, "utf-8")
    marked.write_text(lines, "utf-8-sig")
    assert read_fleet(plain) == read_fleet(marked)
    (tmp_path / "fleet.yaml").write_text(COMPANY, "utf-8-sig")
    assert read_fleet(tmp_path / "fleet.yaml").name == "two-clouds"
