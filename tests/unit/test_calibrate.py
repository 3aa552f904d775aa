"""A source compared with itself: host effects, the margins they allow, what is refused, and that plans take it from there."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.analysis.calibrate import calibrate, error_spread, latency_margin, latency_spread
from fleetctl.analysis.halves import judged
from fleetctl.domain.calibration import Calibration, Sample
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.evidence import Arm
from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import EvidenceUnavailable, UsageError
from fleetctl.usecases.calibrate import CalibratePorts, calibrate_cell, measured_baselines
from fleetctl.views.calibrate import calibration_text
from tests.cases.planning_fleet import cell, lab_fleet, workload
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore

C = CellId("chat-lab")
AT = datetime(2026, 11, 30, tzinfo=UTC)
START = 1_800_000_000_000


def source(
    n: int = 6000, hosts: int = 4, *, host_sd: float = 0.0, errors: float = 0.01, log_sd: float = 0.4, seed: int = 1, per_s: float = 40.0
) -> tuple[Sample, ...]:
    """Requests of hosts whose latency differs by a factor that each keeps."""
    dice = random.Random(seed)
    factor = [dice.lognormvariate(0, host_sd) for _ in range(hosts)]
    out = []
    for i in range(n):
        h = dice.randrange(hosts)
        failed = dice.random() < errors
        latency = None if failed else 50 * factor[h] * dice.lognormvariate(0, log_sd)
        out.append(Sample(host=f"b{h + 1}", started_ms=START + int(i * 1000 / per_s), failed=failed, latency_ms=latency))
    return tuple(out)


class Given:
    """Samples that a test gives."""

    def __init__(self, *samples: Sample) -> None:
        self.samples = samples

    def recent(self, c: CellId, most: int) -> tuple[Sample, ...]:
        return self.samples[-most:]


def of(samples: tuple[Sample, ...], canary_hosts: int = 2) -> Calibration:
    fleet = lab_fleet(workloads=(workload("chat"),), cells=(cell(C, "chat"),))
    return calibrate(samples, fleet.policy.steps, cell=C, workload=fleet.workloads[0].id, at=AT, canary_hosts=canary_hosts)


def test_hosts_that_are_alike_allow_small_margins_and_never_fail_against_each_other() -> None:
    found = of(source())
    assert found.host_sd < 0.03
    assert found.least_fail_margins["latency"] == pytest.approx(0.05, abs=0.03)
    assert found.least_margins["latency"] == pytest.approx(2 * found.least_fail_margins["latency"])
    assert found.least_margins["errors"] >= found.error_ratio / 2
    assert len(found.halves) == 6
    assert not any(h.failed for h in found.halves)
    assert decode(Calibration, canonical(found)) == found


def test_hosts_that_differ_ask_for_wider_margins_and_smaller_ones_are_refused_by_name() -> None:
    found = of(source(host_sd=0.15, seed=3))
    assert 0.05 < found.host_sd < 0.3
    assert found.least_fail_margins["latency"] > 0.15
    assert any(line.startswith("ramp at 50 %: latency margin 25%") for line in found.refused), found.refused
    text = calibration_text((found,))
    assert "no plan will move this cell" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_spread_is_the_one_that_was_put_in() -> None:
    dice = random.Random(7)
    found = [latency_spread(source(8000, 6, host_sd=0.08, seed=dice.randrange(10**6))) for _ in range(8)]
    assert sorted(found)[4] == pytest.approx(0.08, rel=0.45)
    assert latency_spread(source(6000, 6)) < 0.03
    assert latency_spread(source(hosts=1)) == error_spread(source(hosts=1)) == 0.0


def test_margins_by_hosts() -> None:
    assert latency_margin(0.0, 4, 1) == 0.10
    assert latency_margin(0.0, 4, 4) == 0.05
    assert latency_margin(0.05, 2, 2) == pytest.approx(0.13)


def test_one_host_is_halved_by_requests() -> None:
    found = of(source(hosts=1), canary_hosts=1)
    assert [h.split for h in found.halves] == ["every other request"]
    assert found.least_fail_margins["latency"] == 0.10
    assert "one host: not measured" in calibration_text((found,))


def fleet_and_ports(*samples: Sample) -> tuple[object, CalibratePorts]:
    fleet = lab_fleet(workloads=(workload("chat"),), cells=(cell(C, "chat"),))
    return fleet, CalibratePorts(samples=lambda _: Given(*samples), records=MemoryStore(), clock=FakeClock())


def test_what_was_measured_is_kept_and_plans_take_it() -> None:
    fleet, ports = fleet_and_ports(*source(host_sd=0.15, seed=3))
    found = calibrate_cell(fleet, C, ports)  # type: ignore[arg-type]
    base = measured_baselines(ports.records, fleet)["chat"]  # type: ignore[arg-type]
    assert (base.origin, base.log_sd, base.error_ratio) == ("measured", found.log_sd, found.error_ratio)
    assert base.least_margins == found.least_margins
    newer = replace(found, at=AT.replace(year=2027), least_margins={"latency": 0.1}, least_fail_margins={})
    ports.records.put(C, newer)
    assert measured_baselines(ports.records, fleet)["chat"].least_margins == {"latency": 0.1}  # type: ignore[arg-type]


def test_too_few_requests_and_an_unknown_cell_are_refused() -> None:
    fleet, ports = fleet_and_ports(*source(500))
    with pytest.raises(EvidenceUnavailable, match="2,500 more are needed"):
        calibrate_cell(fleet, C, ports)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no cell is named"):
        calibrate_cell(fleet, CellId("nobody"), ports)  # type: ignore[arg-type]


SPECS = (
    GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0),
    GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.05),
)


@pytest.mark.parametrize(("slower", "failing", "kind"), [(1.0, 0.01, "PASS"), (1.6, 0.01, "FAIL"), (1.0, 0.12, "FAIL")])
def test_cohorts_by_header_are_judged_by_the_same_engine(slower: float, failing: float, kind: str) -> None:
    """Team A's requests against team B's: an A/B test with the judge of a canary."""
    dice = random.Random(5)
    samples = []
    for i in range(12_000):
        team = "b" if dice.random() < 0.5 else "a"
        failed = dice.random() < (failing if team == "b" else 0.01)
        latency = None if failed else 50 * (slower if team == "b" else 1.0) * dice.lognormvariate(0, 0.4)
        samples.append(Sample(host="h", started_ms=START + i * 20, failed=failed, latency_ms=latency, arm_key=team))
    arms: dict[str, Arm] = {"a": "baseline", "b": "canary"}
    found, verdicts = judged(samples, arms, SPECS, cell=C, by="arm_key", split="team a | team b")
    assert found.kind == kind
    assert found.failed == (kind == "FAIL")
    assert verdicts[0].look.canary_n > 3000
    swapped: dict[str, Arm] = {"a": "canary", "b": "baseline"}
    assert not judged(samples, swapped, SPECS, cell=C, by="arm_key")[0].failed


def test_a_cohort_that_nobody_is_in_gives_no_verdict() -> None:
    found, verdicts = judged(source(500), {"x": "baseline", "y": "canary"}, SPECS, cell=C, by="arm_key")
    assert (found.kind, found.looks, verdicts) == ("NO_DATA", 0, ())


def test_contract_and_quality_are_shown_in_80_columns() -> None:
    from fleetctl.analysis.quality import quality_report
    from fleetctl.domain.identity import ContractReport, ContractResult
    from fleetctl.domain.quality import QualitySpec
    from tests.unit.test_quality import made

    broken = ContractResult(call="stream.usage", kind="broken", canary="the stream has no usage \x1b[2J")
    report = ContractReport(cell=C, at=AT, arms="h", results=(ContractResult(call="a", kind="ok"), broken))
    quality = quality_report(made(0.005, 0.0, prompts=30, each=20), QualitySpec(prefill_chunk=256), AT, "m")
    text = calibration_text((), (report,), (quality,))
    assert "stream.usage: canary: the stream has no usage ?[2J" in text
    assert "no weight is raised" in text
    assert "over 256" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("metric", ["ttft", "token_time"])
def test_the_times_of_streams_need_the_margins_of_their_hosts_too(metric: str) -> None:
    narrow = GuardrailSpec(name=Guardrail(metric), margin=0.10, fail_margin=0.05)
    steps = (PhaseSpec(phase="ramp", weight_bp=5_000, bake=timedelta(minutes=1), guardrails=(narrow,)),)
    found = calibrate(source(hosts=4), steps, cell=C, workload=workload("chat").id, at=AT, canary_hosts=1)
    assert found.least_fail_margins[metric] == found.least_fail_margins["latency"] >= 0.10
    assert any(f"{metric} fail_margin 5%, at least" in text for text in found.refused)
