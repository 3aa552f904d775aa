"""An SLO of the first token or of the time per token: only points of the curve that kept it count, and without one nothing moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.assess import declared, memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import digest
from fleetctl.domain.catalog import Catalog, Performance
from fleetctl.domain.fleet import Fleet, NetworkPath
from fleetctl.domain.plan import Outcome
from fleetctl.domain.workload import Slo
from fleetctl.planning.make_plan import make_plan
from fleetctl.planning.slo_limits import keeps
from fleetctl.planning.speed import Speeds
from tests.cases.planning_fleet import NOW, cell, lab_fleet, pool, workload

H200, MI300X = "Standard_ND96isr_H200_v5", "Standard_ND96isr_MI300X_v5"


def fleet_of(slo: Slo, **changes: Any) -> Fleet:
    pools = (
        pool("h", "nvidia", H200, region="eastus2", count=2, limit=2, price="200"),
        pool("m", "amd", MI300X, region="eastus2", count=0, limit=9, by="azure", price="20"),
    )
    w = workload("w", accelerators_per_replica=8, replicas=2, slo=slo, **changes)
    return lab_fleet(pools=pools, workloads=(w,), cells=(cell("c", "w", region="eastus2", source="h"),))


def outcome(fleet: Fleet, *own: Performance) -> Outcome:
    base = load_catalog()
    catalog: Catalog = replace(base, performance=(*base.performance, *own))
    assessments = [declared(w, NOW) for w in fleet.workloads]
    (found,) = make_plan(fleet, catalog, assessments, (), NOW, fleet_digest=digest(fleet), fit_of=memory_fit).outcomes
    return found


def run(gpu: str, tokens: float, ttft: float | None, tpot: float | None = None) -> Performance:
    return Performance(
        gpu=gpu, model="llama-like", precision="bf16", klass="online", tokens_per_s=tokens, kind="own", engine="vllm", source="bench",
        as_of="2026-11-01", ttft_p95_ms=ttft, tpot_p95_ms=tpot,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("slo", "factor"),
    [
        (Slo(latency_ms=2000.0), 0.73),  # as a server
        (Slo(ttft_ms=2000.0), 0.73),
        (Slo(ttft_ms=600.0), 0.38),  # only the interactive point gives the first token in time
        (Slo(tpot_ms=50.0), 0.38),
    ],
)
def test_a_stricter_promise_takes_a_stricter_point_of_the_curve(slo: Slo, factor: float) -> None:
    o = outcome(fleet_of(slo))
    assert o.speed is not None
    assert (round(o.speed.factor, 2), o.speed.kind) == (factor, "derived")


def test_what_no_run_shows_is_blocked_not_guessed() -> None:
    o = outcome(fleet_of(Slo(ttft_ms=300.0, tpot_ms=30.0)))
    assert (o.kind, o.reason.code) == ("infeasible", "slo.first_token")
    assert "the first token within 300 ms and each token within 30 ms" in o.reason.text
    assert o.change is not None
    assert "fleetctl bench" in o.change


def test_the_users_own_runs_show_it_or_do_not() -> None:
    strict = fleet_of(Slo(ttft_ms=300.0))
    both = (run("MI300X", 900.0, 250.0), run("H200 SXM", 1000.0, 200.0))
    o = outcome(strict, *both, run("MI300X", 5000.0, 900.0))
    assert o.speed is not None
    assert (o.kind, o.speed.kind, o.speed.factor) == ("move", "measured", 0.9)  # the faster point missed the first token
    assert outcome(strict, run("MI300X", 900.0, 350.0)).reason.code == "slo.first_token"
    assert outcome(strict, run("MI300X", 900.0, None)).reason.code == "slo.first_token"  # nobody timed it
    assert outcome(fleet_of(Slo(ttft_ms=300.0), serving={"target_speed": "0.9"})).kind == "move"


def test_a_round_trip_must_fit_the_margin_of_the_first_token() -> None:
    base = fleet_of(Slo(latency_ms=9000.0, ttft_ms=500.0))
    pools = (base.pools[0], replace(base.pools[1], region="westeurope"))
    cells = (replace(base.cells[0], regions=("westeurope",)),)
    far = NetworkPath(one="eastus2", other="westeurope", round_trip_ms=180.0, is_private=True)
    fleet = replace(base, pools=pools, cells=cells, paths=(far,))
    o = outcome(fleet)
    assert o.reason.code == "path.round_trip"
    assert "500 ms to the first token" in o.reason.text
    assert outcome(replace(fleet, paths=(replace(far, round_trip_ms=100.0),))).kind == "move"


def test_a_point_that_nobody_timed_keeps_nothing() -> None:
    offline = next(r for r in load_catalog().performance if r.klass == "batch")
    assert keeps(offline, Slo(latency_ms=1.0))
    assert not keeps(offline, Slo(ttft_ms=9e9))
    assert keeps(run("MI300X", 1.0, 10.0, 20.0), Slo(ttft_ms=10.0, tpot_ms=20.0))
    assert not keeps(run("MI300X", 1.0, 10.0, 20.0), Slo(ttft_ms=10.0, tpot_ms=19.0))


def test_a_batch_that_promises_a_first_token_is_no_batch() -> None:
    speeds = Speeds(load_catalog())
    skus = {s.name: s for s in load_catalog().skus}
    strict = workload("w", slo=Slo(ttft_ms=600.0), klass="batch")
    assert speeds(strict, skus[H200], skus[MI300X]).factor < speeds(workload("w", klass="batch"), skus[H200], skus[MI300X]).factor
