"""Cohorts: some requests of a cell go first, and a split that stays, from the fleet file to plan, waves, rebalance and routers."""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import ValuesView
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.routers.envoy.config import EnvoyConfig
from fleetctl.adapters.routers.envoy.config import render as render_envoy
from fleetctl.adapters.routers.haproxy.config import RouterConfig, render
from fleetctl.adapters.routers.route import CellRoute, problems
from fleetctl.domain.canonical import decode, digest, plain
from fleetctl.domain.fleet import Connection, Fleet
from fleetctl.domain.home import Wanted, WayHome
from fleetctl.domain.ids import CellId, PlanId, PoolId, WorkloadId
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.workload import AffinityKey, Cohort, Lane
from fleetctl.errors import ConfigInvalid, UnsafeFallback
from fleetctl.formats.fleet_convert import to_fleet
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.fleet_schema import CellShape, FleetShape
from fleetctl.formats.yaml_source import read_yaml
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.rollout.decide import decide
from fleetctl.usecases.home_choice import choose
from fleetctl.views.plan import render_plan
from tests.cases.planning_fleet import ANA, lab_fleet, plan_of
from tests.rollouts import JUDGE_STATE, T0, all_pass, evidence, seeing
from tests.unit.test_fleet_file import SMALL, mistakes

FREE = """\
  chat-free:
    workload: chat-free
    region: lab
    source: green
    router: edge
    cohort: {of: chat-lab, header: X-Tier, values: [free, internal]}
"""
WORK = """\
  chat-free:
    model: {name: m, parameters_billion: 1, precision: bf16, context_tokens: 4096}
    engine: vllm
    class: online
    traffic: {requests_per_s: 1, input_tokens: 10, output_tokens: 10}
cells:
"""
TEXT = SMALL.replace("cells:\n", WORK) + FREE


def test_a_cohort_is_a_cell_that_goes_before_the_one_whose_requests_it_takes() -> None:
    fleet = parse_fleet(TEXT, file="f.yaml")
    cohort = fleet.cell(CellId("chat-free")).cohort
    assert cohort == Cohort(of=CellId("chat-lab"), header="x-tier", values=("free", "internal"))
    assert fleet.workload(WorkloadId("chat")).after == ("chat-free",)
    assert decode(Fleet, plain(fleet)) == fleet
    assert digest(parse_fleet(SMALL, file="f.yaml")) != digest(fleet)


def test_cohorts_are_looked_for_once_however_many_workloads_there_are() -> None:
    """At 100,000 workloads a walk over all cells for each of them is hours."""
    walks = 0

    class Cells(UserDict[str, CellShape]):
        def values(self) -> ValuesView[CellShape]:
            nonlocal walks
            walks += 1
            return super().values()

    document = read_yaml(TEXT).value
    shape = FleetShape.model_validate(document)
    for n in range(20):
        shape.workloads[f"w{n}"] = shape.workloads["chat"]
    to_fleet(shape.model_copy(update={"cells": Cells(shape.cells)}), 1)
    assert walks <= 3


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("of: chat-lab", "of: chat-lob", "there is no cell 'chat-lob'"),
        ("of: chat-lab", "of: chat-free", "is a cohort itself"),
        ("values: [free, internal]", "values: [free, free]", "'free' is in cohort 'chat-free' already"),
        ("values: [free, internal]", "values: []", "at least 1 item"),
        ("values: [free, internal]", 'values: ["free\\" }\\n"]', "is not a cohort's value"),
        ("values: [free, internal]", 'values: ["a b"]', "is not a cohort's value"),
        ("header: X-Tier", 'header: "x tier"', "is not a header's"),
        ("header: X-Tier, ", "", "name a header or a cookie, one of the two"),
        ("header: X-Tier", "header: X-Tier, cookie: tier", "name a header or a cookie, one of the two"),
        ("workload: chat-free", "workload: chat", "a cohort is a workload of its own"),
        ("traffic: {requests_per_s: 1,", "after: [chat]\n    traffic: {requests_per_s: 1,", "a cohort goes first"),
    ],
)
def test_every_mistake_about_a_cohort_is_named_with_its_line(was: str, now: str, said: str) -> None:
    text = TEXT.replace(was, now)
    assert text != TEXT
    found = mistakes(text)
    assert any(said in m for m in found), found
    assert all(m.startswith("f.yaml:") for m in found)


@pytest.mark.parametrize(
    ("kind", "by_header", "by_cookie"),
    [
        ("haproxy", "", ""),
        ("envoy", "", ""),
        ("alb", "", "(alb) cannot tell a cookie's value: let your gateway set a header"),
        ("httproute", "", "(httproute) cannot tell a cookie's value: let your gateway set a header"),
        ("queue", "(queue) gives out jobs, which have no header", "(queue) gives out jobs, which have no cookie"),
        ("sqs", "(sqs) gives out jobs, which have no header", "(sqs) gives out jobs, which have no cookie"),
    ],
)
def test_what_a_kind_of_router_cannot_tell_is_refused_before_any_plan(kind: str, by_header: str, by_cookie: str) -> None:
    for key, said in (("header: X-Tier", by_header), ("cookie: tier", by_cookie)):
        text = TEXT.replace("edge: {kind: haproxy}", f"edge: {{kind: {kind}}}").replace("header: X-Tier", key)
        about = [m for m in (mistakes(text) if said else may_be_wrong(text)) if "cohort" in m]
        assert (len(about), all(said in m for m in about)) == (bool(said), True), (key, about)


def may_be_wrong(text: str) -> tuple[str, ...]:
    try:
        parse_fleet(text, file="f.yaml")
    except ConfigInvalid as e:
        return e.details
    return ()


def test_a_cohort_by_cookie_reads_back_and_is_told_in_the_plan() -> None:
    fleet = parse_fleet(TEXT.replace("header: X-Tier", "cookie: tier"), file="f.yaml")
    cohort = fleet.cell(CellId("chat-free")).cohort
    assert cohort == Cohort(of=CellId("chat-lab"), cookie="tier", values=("free", "internal"))
    assert cohort.key == "cookie tier"
    assert decode(Fleet, plain(fleet)) == fleet


def test_a_cohort_behind_another_router_or_of_another_model_is_refused() -> None:
    found = mistakes(
        TEXT.replace("edge: {kind: haproxy}", "edge: {kind: haproxy}\n  two: {kind: haproxy}").replace(
            "edge\n    cohort", "two\n    cohort"
        )
    )
    assert any("behind router 'edge', this one behind 'two'" in m for m in found)
    other = mistakes(TEXT.replace("chat-free:\n    model: {name: m,", "chat-free:\n    model: {name: other,"))
    assert any("serves 'm', this one 'other'" in m for m in other)


def planned(*, stays: bool) -> Fleet:
    """Return a lab in which `stream` is a cohort of `chat`, whose rest moves later or stays."""
    made = lab_fleet()
    cohort = Cohort(of=CellId("chat-lab"), header="x-tier", values=("free", "internal"))
    lane = Lane(kind="stay", reason="enterprise customers stay on NVIDIA", actor=ANA)
    cells = {c.id: replace(c, wave=0) for c in made.cells if c.id in ("chat-lab", "summary-lab")}
    cells[CellId("summary-lab")] = replace(cells[CellId("summary-lab")], cohort=cohort, target=PoolId("mi300x-lab"))
    if stays:
        cells[CellId("chat-lab")] = replace(cells[CellId("chat-lab")], lane=lane)
    works = tuple(
        replace(w, after=(WorkloadId("summary"),)) if w.id == "chat" else w for w in made.workloads if w.id in ("chat", "summary")
    )
    return replace(made, cells=tuple(cells.values()), workloads=works)


def test_the_plan_moves_the_cohort_in_an_earlier_wave_and_says_so() -> None:
    fleet = planned(stays=False)
    plan = plan_of(fleet)
    wave = {c: w.index for w in plan.waves for c in w.cells}
    assert wave[CellId("summary-lab")] < wave[CellId("chat-lab")]
    (said,) = (c.detail for c in plan.checks if c.name == "cohorts")
    assert said == "chat-lab: summary-lab (x-tier: free internal) first; the rest moves after them"
    assert "Cohorts: chat-lab: summary-lab (x-tier: free internal) first" in " ".join(render_plan(plan, fleet).split())


def test_a_split_that_stays_is_the_plans_end_and_is_no_reason_to_rebalance() -> None:
    fleet = planned(stays=True)
    plan = plan_of(fleet)
    kinds = {o.cell: o.kind for o in plan.outcomes}
    assert kinds == {"chat-lab": "stay", "summary-lab": "move"}
    (said,) = (c.detail for c in plan.checks if c.name == "cohorts")
    assert said.endswith("the rest stays on nvidia-lab: a split that stays")
    assert "a split that stays" in " ".join(render_plan(plan, fleet).split())
    cells = tuple(replace(c, source=fleet.pools[1].id, target=None) if c.cohort is not None else c for c in fleet.cells)
    pools = tuple(replace(p, count=max(p.count, 1)) for p in fleet.pools)
    there = replace(fleet, cells=cells, pools=pools)
    again = plan_of(there)
    assert {o.cell: o.kind for o in again.outcomes}[CellId("chat-lab")] == "stay", "the rest is not drawn after its cohort"


def test_its_rollout_and_so_the_status_say_which_requests_are_there() -> None:
    fleet = planned(stays=True)
    of = spec_for(plan_of(fleet), fleet, CellId("summary-lab"))
    assert of.part == "x-tier free internal of chat-lab"
    last = Rollout(cell=CellId("summary-lab"), plan=PlanId("p0123456789a"), spec=of, judge=JUDGE_STATE, step=len(of.phases) - 1)
    last = replace(last, weight_bp=10_000, settled_at=T0, until="complete")
    d = decide(last, seeing(T0, 10_000, all_pass(), evidence(T0, baseline=1, canary=999)), T0 + timedelta(hours=1))
    assert (d.next.ended, d.why.text) == ("complete", "all of summary-lab (x-tier free internal of chat-lab) is on mi300x-lab")


def test_the_name_of_the_whole_brings_its_cohorts_home_too() -> None:
    free = replace(way_home(), cell=CellId("chat-free"), workload=WorkloadId("chat-free"), part_of=("chat-lab", "chat"))
    other = replace(way_home(), cell=CellId("code-lab"), workload=WorkloadId("code"))
    for name in ("chat", "chat-lab", "chat-free"):
        assert [w.cell for w in choose((free, other), Wanted(names=(name,))).ways] == ["chat-free"], name
    with pytest.raises(UnsafeFallback):
        choose((free, other), Wanted(names=("chat-lob",)))


def way_home() -> WayHome:
    return WayHome(
        fleet="f",
        cell=CellId("a"),
        workload=WorkloadId("a"),
        region="lab",
        tenant="",
        klass="online",
        router=Connection(name="edge", kind="haproxy"),
        source=PoolId("nvidia-lab"),
        cap_bp=10_000,
        paper=(),
        made_at=T0,
    )


def routes() -> tuple[CellRoute, ...]:
    part = Cohort(of=CellId("chat"), header="x-tier", values=tuple(f"tier-{n}" for n in range(40)))
    made = CellRoute(cell=CellId("chat"), model="m", baseline=("10.0.0.1:80",), canary=("10.0.0.2:80",))
    return (made, replace(made, cell=CellId("chat-free"), part=part, affinity=AffinityKey(kind="header", name="x-c")))


def test_haproxys_lines_stay_short_enough_and_stand_before_the_weight_is_read(tmp_path: Path) -> None:
    text = render(RouterConfig(cells=routes(), port=80, socket=tmp_path / "s", map_folder=tmp_path))
    lines = [line for line in text.splitlines() if "str(chat-free)" in line]
    assert len(lines) == 3
    assert all(len(line) < 2_048 and len(line.split()) < 60 for line in lines)
    assert text.index(lines[-1]) < text.index("set-var(txn.bp) var(txn.c)")
    plain_text = render(RouterConfig(cells=routes()[:1], port=80, socket=tmp_path / "s", map_folder=tmp_path))
    assert "set-var(txn.c) str(" not in plain_text


def test_envoys_cohort_comes_before_the_cell_whose_requests_it_takes(tmp_path: Path) -> None:
    made = json.loads(
        render_envoy(EnvoyConfig(cells=routes(), port=80, admin_port=81, folder=tmp_path, log=tmp_path / "log", pin_key="0" * 16))
    )
    manager = made["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    found = [(r["name"], r["match"]) for r in manager["route_config"]["virtual_hosts"][0]["routes"]]
    first = next(i for i, (name, m) in enumerate(found) if name == "chat-free" and m.get("prefix") == "/chat/")
    assert first < next(i for i, (name, m) in enumerate(found) if name == "chat")
    ours = [m for name, m in found if name == "chat-free" and m.get("prefix") == "/chat/"]
    assert all(any("tier-39" in h["string_match"].get("safe_regex", {}).get("regex", "") for h in m["headers"]) for m in ours)


@pytest.mark.parametrize(
    "part",
    [
        Cohort(of=CellId("chat-free"), header="x", values=("a",)),
        Cohort(of=CellId("a b"), header="x", values=("a",)),
        Cohort(of=CellId("chat"), header="x\ny", values=("a",)),
        Cohort(of=CellId("chat"), header="#x", values=("a",)),
        Cohort(of=CellId("chat"), header="$HOME", values=("a",)),
        Cohort(of=CellId("chat"), header="x", values=()),
        Cohort(of=CellId("chat"), values=("a",)),
        Cohort(of=CellId("chat"), header="x", cookie="y", values=("a",)),
        Cohort(of=CellId("chat"), cookie="y=z; a", values=("a",)),
        Cohort(of=CellId("chat"), header="x", values=("a } { always_true",)),
        Cohort(of=CellId("chat"), header="x", values=('a"', "b\n")),
    ],
)
def test_what_no_router_could_be_told_safely_is_refused(part: Cohort) -> None:
    assert list(problems(replace(routes()[1], part=part)))
    assert list(problems(routes()[1])) == []
