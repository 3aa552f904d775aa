"""A smallest set of lines that conflict: no smaller one does (brute force), and each line of it is needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.catalog import load_catalog
from fleetctl.cli.main import main
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.plan import Fit, Speed
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.planning.candidates import Choice, sites
from fleetctl.planning.conflict import Limit, conflict
from fleetctl.planning.options import PlanOptions
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import cell, lab_fleet, plan_of, pool, workload

FIT = Fit(needed_gib=1.0, available_gib=2.0)
SPEED = Speed(factor=1.0, kind="declared", source="")


def pinned(limit: int, count: int = 4, **policy: object) -> Fleet:
    works = tuple(workload(f"w{i}", accelerators_per_replica=8) for i in range(count))
    pools = (
        pool("n", "nvidia", "lab-nvidia", count=count, limit=count),
        pool("m", "amd", "lab-mi300x", count=0, limit=limit, by="x", price="10"),
    )
    cells = tuple(cell(f"c{i}", f"w{i}", source="n", target=PoolId("m")) for i in range(count))
    fleet = lab_fleet(workloads=works, cells=cells, pools=pools)
    return replace(fleet, policy=replace(fleet.policy, **policy))  # type: ignore[arg-type]


def said(fleet: Fleet) -> str:
    return next((c.detail for c in plan_of(fleet, options=PlanOptions(stages=1)).checks if c.name == "conflict"), "")


def test_the_lines_of_the_fleet_file_are_named() -> None:
    assert said(pinned(4)) == ""
    assert said(pinned(2)).startswith(
        "these lines cannot all hold while both sides are up: pools.m.limit: 2 VMs of 8 GPUs; cells.c0.target (8 GPUs), "
        "cells.c1.target (8 GPUs), cells.c2.target (8 GPUs)."
    )
    assert "policy.target_gpus: 8; cells.c0.target (8 GPUs), cells.c1.target (8 GPUs)." in said(pinned(4, target_gpus=8))
    assert "policy.power_kw.lab: 1;" in said(pinned(4, power_kw={"lab": 1.0}))
    assert "policy.budget_usd_per_hour: 404;" in said(pinned(4, budget_usd_per_hour=404.0))
    text = render_plan(plan_of(pinned(2)), pinned(2))
    assert "FAIL  conflict" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_smallest_of_several_conflicts_is_named() -> None:
    found = said(pinned(3, target_gpus=8))
    assert "target_gpus" in found
    assert found.count("cells.") == 2


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9)), min_size=1, max_size=7),
    st.lists(st.integers(0, 3), min_size=2, max_size=2),
    st.integers(0, 24),
)
def test_no_smaller_set_conflicts_and_every_line_is_needed(loads: list[tuple[int, int]], limits: list[int], cap: int) -> None:
    fleet = lab_fleet(pools=tuple(pool(f"m{i}", "amd", "lab-mi300x", count=0, limit=n, by="x") for i, n in enumerate(limits)))
    places = sites(fleet, load_catalog(), ())
    pins = {CellId(f"c{i}"): Choice(pool=q, replicas=1, gpus=n, padded=n, fit=FIT, speed=SPEED) for i, (q, n) in enumerate(loads)}
    limit = Limit(name="target_gpus", weights=[8.0, 8.0], most=float(cap))

    def conflicts(cells: tuple[CellId, ...]) -> bool:
        held = [sum(pins[c].padded for c in cells if pins[c].pool == q) for q in (0, 1)]
        return any(h > 8 * n for h, n in zip(held, limits, strict=True)) or sum(8 * -(-h // 8) for h in held) > cap

    found = conflict(places, [0.0, 0.0], pins, [limit])
    assert (found is not None) == conflicts(tuple(pins))
    if found is None:
        return
    cells = found[1]
    assert conflicts(cells)
    pool_line = found[0].startswith("pools.")
    if pool_line:  # of one pool no smaller set can exceed the limit
        q = pins[cells[0]].pool
        mine = [c for c in pins if pins[c].pool == q]
        assert not any(sum(pins[c].padded for c in some) > 8 * limits[q] for some in combinations(mine, len(cells) - 1))
    else:
        for gone in cells:
            rest = tuple(c for c in cells if c != gone)
            held = [sum(pins[c].padded for c in rest if pins[c].pool == q) for q in (0, 1)]
            assert sum(8 * -(-h // 8) for h in held) <= cap


def test_bad_rows_are_named_with_their_line() -> None:
    """A price of 0, a quota below what exists: mistakes of the file; a workload without traffic: a blocked cell that says so."""
    text = (
        "name: x\nlineage: 3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90\nworkloads: {}\ncells: {}\npools:\n"
        "  free: {vendor: amd, sku: lab-mi300x, region: lab, count: 0, limit: 1, price_usd_per_hour: 0}\n"
        "  over: {vendor: amd, sku: lab-mi300x, region: lab, count: 3, limit: 1}\n"
    )
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(text, file="fleet.yaml")
    assert [d.split(";")[0] for d in caught.value.details] == [
        "fleet.yaml:6: pools.free.price_usd_per_hour: must be above 0",
        "fleet.yaml:7: pools.over.count: 3 is above the limit of 1",
    ]
    quiet = pinned(4)
    none = replace(quiet.workloads[0].traffic, requests_per_s=0.0)
    quiet = replace(quiet, workloads=(replace(quiet.workloads[0], traffic=none), *quiet.workloads[1:]))
    outcome = plan_of(quiet).outcomes[0]
    assert (outcome.kind, outcome.reason.code) == ("infeasible", "lane.too_slow")
    assert "0 requests/s" in outcome.reason.text


@pytest.mark.parametrize(("limit", "code", "offered"), [(0, 1, False), (1, 1, True), (3, 0, True)])
@pytest.mark.parametrize("how", [(), ("--dry-run",), ("--detailed-exitcode",)])
def test_a_conflict_fails_the_command_and_what_moves_all_the_same_is_offered(
    limit: int, code: int, offered: bool, how: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("inventory/lab-six/fleet.yaml").read_text(encoding="utf-8").replace("count: 0, limit: 3", f"count: 0, limit: {limit}")
    text = text.replace("source: nvidia-lab, router: edge}", "source: nvidia-lab, router: edge, target: mi300x-lab}")
    folder = tmp_path / "inventory" / "fleet"
    folder.mkdir(parents=True)
    (folder / "fleet.yaml").write_text(text, encoding="utf-8")
    try:
        done = main(["-C", str(tmp_path), "plan", *how])
    except SystemExit as e:
        done = int(e.code or 0)
    assert done == (3 if how == ("--detailed-exitcode",) and not code else code)
    said = capsys.readouterr()
    saved = offered and how != ("--dry-run",)
    assert ("Next: fleetctl approve" in said.out) == saved
    assert ("error[plan.conflict]: targets that the fleet file pins cannot all be had." in said.err) == bool(code)
    assert ("these lines cannot all hold while both sides are up" in said.err) == bool(code)
    assert ("or go on without the cells that are blocked: fleetctl approve p" in said.err) == (bool(code) and saved)


def test_a_conflict_for_which_nothing_moves_is_no_plan_to_approve() -> None:
    assert "Next: fleetctl approve" in render_plan(plan_of(pinned(2)), pinned(2)), "two of four move: shown as failed, offered all the same"
    fleet = pinned(0)
    for saved in (True, False):
        text = render_plan(plan_of(fleet), fleet, saved=saved)
        assert "fleetctl approve" not in text
        assert "change one of the lines that conflict" in " ".join(text.splitlines()[-2:])


def test_a_dry_run_offers_nothing_that_was_not_saved() -> None:
    fleet = lab_fleet()
    text = render_plan(plan_of(fleet), fleet, saved=False)
    assert text.splitlines()[-1] == "Nothing was changed, nothing was saved. Next: fleetctl plan"
    assert "fleetctl show" not in text


def test_a_limit_that_today_exceeds_is_named_with_both_figures_and_not_said_to_hold() -> None:
    fleet = lab_fleet()
    fleet = replace(fleet, policy=replace(fleet.policy, budget_usd_per_hour=1.0))
    plan = plan_of(fleet)
    checks = {c.name: c for c in plan.checks}
    today = f"{plan.cost_now.amount:,.2f}"
    assert not checks["limits today"].ok
    assert f"policy.budget_usd_per_hour: {today} today, at most 1.00" in checks["limits today"].detail
    assert "limits hold while both sides run" not in checks["limits"].detail.replace("other limits hold", "")
    assert "today exceeds budget_usd_per_hour" in checks["limits"].detail
