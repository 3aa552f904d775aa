"""The plan of the example fleet as a person sees it, 80 columns; regenerate by hand and read the difference."""

from __future__ import annotations

from pathlib import Path

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.plan import Plan
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.workload import Lane, Model, Traffic
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import ANA, cell, lab_fleet, plan_of, workload

DATA = Path(__file__).parent / "data"


def text_of(plan: Plan, fleet: Fleet) -> str:
    """Return the plan's text with other ids: the real ones change with every row of the catalogue."""
    text = render_plan(plan, fleet).replace(plan.id, "p0123456789a")
    return text.replace(plan.price_book_id, "list-2026-07-20-01234567")


def test_the_labs_plan() -> None:
    fleet = lab_fleet()
    assert text_of(plan_of(fleet), fleet) == (DATA / "plan_lab.txt").read_text("utf-8")


def test_a_plan_with_blocked_and_staying_cells() -> None:
    big = Model(name="big", parameters_billion=405.0, precision="bf16", context_tokens=32768, layers=126, kv_heads=8, head_dim=128)
    slow = Traffic(requests_per_s=0.002, input_tokens=900.0, output_tokens=100.0)
    fleet = lab_fleet(
        workloads=(*lab_fleet().workloads, workload("frontier", model=big, accelerators_per_replica=4), workload("memo", traffic=slow)),
        cells=(
            *lab_fleet().cells,
            cell("frontier-lab", "frontier"),
            cell("memo-lab", "memo"),
            cell("chat-eu", "chat", lane=Lane(kind="stay", reason="contract until 2027", actor=ANA)),
        ),
        policy=lab_fleet().policy,
    )
    capacity = (CapacityVerdict(sku="lab-mi300x", region="lab", count=2, priority="regular", kind="yes", reason=""),)
    assert text_of(plan_of(fleet, capacity), fleet) == (DATA / "plan_blocked.txt").read_text("utf-8")


def test_hostile_names_cannot_move_the_cursor() -> None:
    lane = Lane(kind="accepted", reason="\x1b[2Jall good\u202e\nCash", actor=ANA)
    fleet = lab_fleet(cells=(cell("chat-lab", "chat", lane=lane),))
    text = render_plan(plan_of(fleet), fleet)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "?[2Jall good??Cash" in text
