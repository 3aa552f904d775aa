"""Evidence named per cell in the fleet file: what it gives, and every mistake before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.planning.evidence_need import gating_of, phases_for, probed_of, with_probes
from fleetctl.usecases.evidence import Combined, CounterEvidence
from fleetctl.wiring.evidence import EvidenceMaker
from tests.fakes.clock import FakeClock
from tests.fakes.evidence import FakeEvidence

TEXT = """\
name: small
lineage: 3f0c2b9e-7d41-4c55-9a5e-1b6f2a7d8e90
routers:
  edge: {kind: haproxy, settings: {url: "http://127.0.0.1:9000"}}
evidence:
  asked: {kind: probes, settings: {pairs_per_s: 2, via: endpoints}}
  pages: {kind: scrape, settings: {every: 1s, canary_version: 0.20.2, canary_gpus: "10.0.0.9:5000"}}
  prom:
    kind: prometheus
    settings: {url: "http://127.0.0.1:9090", counter.failed_orders: "shop_failed_total / shop_orders_total"}
pools:
  green: {vendor: nvidia, sku: lab-nvidia, region: lab, count: 2, limit: 2}
  red: {vendor: amd, sku: lab-mi300x, region: lab, count: 0, limit: 2, provisioned_by: lab}
workloads:
  chat:
    model: {name: m, parameters_billion: 1, precision: bf16, context_tokens: 4096}
    engine: vllm
    engine_version: 0.33.0
    class: online
    traffic: {requests_per_s: 5, input_tokens: 10, output_tokens: 10, streaming: true}
    guardrails: [errors, ttft, token_time, nll, counter_failed_orders]
cells:
  chat-lab:
    workload: chat
    region: lab
    source: green
    target: red
    router: {name: edge, baseline_endpoints: ["10.0.0.1:8000"], canary_endpoints: ["10.0.0.9:8000"]}
    evidence: [log, asked, pages, prom]
"""


def mistakes(old: str, new: str) -> str:
    assert old in TEXT
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(TEXT.replace(old, new), file="f.yaml")
    return " ".join(caught.value.details)


def test_the_file_names_sources_and_cells_name_which_they_use() -> None:
    fleet = parse_fleet(TEXT, file="f.yaml")
    assert [(e.name, e.kind) for e in fleet.evidence] == [("asked", "probes"), ("pages", "scrape"), ("prom", "prometheus")]
    assert fleet.cells[0].evidence == ("log", "asked", "pages", "prom")
    plain = parse_fleet(
        TEXT.replace("    evidence: [log, asked, pages, prom]\n", "").replace(", ttft, token_time, nll, counter_failed_orders", ""),
        file="f",
    )
    assert plain.cells[0].evidence == ("log",)
    canary = next(s for s in fleet.policy.steps if s.phase == "canary")
    margins = {str(g.name): (g.margin, g.fail_margin) for g in canary.guardrails}
    assert margins["ttft"] == margins["latency"] == (0.25, 0.10)
    assert margins["counter_failed_orders"] == margins["errors"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[log, asked, pages, prom]", "[log, aksed, pages, prom]", "no evidence is named 'aksed' (did you mean 'asked'?)"),
        ("[log, asked, pages, prom]", "[]", "must name at least one source"),
        ("[log, asked, pages, prom]", "[log, asked, pages, prom, log]", "stands here twice"),
        ("kind: probes", "kind: probse", "must be probes, replay, scrape, prometheus, logs, recording, not 'probse'"),
        ("pairs_per_s: 2", "pairs_per_sec: 2", "unknown key 'pairs_per_sec'"),
        ("pairs_per_s: 2", "pairs_per_s: 0", "is not from 0.01 to 100"),
        ("pairs_per_s: 2", "pairs_per_s: many", "is no number"),
        ("via: endpoints", "via: pigeon", "must be router, endpoints"),
        ("every: 1s", "every: 9h", "is not from 100ms to 1h"),
        ("canary_version: 0.20.2", "canary_engine: vlm", "must be vllm, sglang, tgi, triton, llamacpp"),
        ('url: "http://127.0.0.1:9090", ', "", "url is missing"),
        ("shop_failed_total / shop_orders_total", "shop_failed_total", "events_series / all_series"),
        ("counter.failed_orders", "counter.Failed-Orders", "no name of a counter"),
        ("[log, asked, pages, prom]", "[log, pages, prom]", "buckets can show that ttft is worse and no percentage"),
        ("[log, asked, pages, prom]", "[log, pages, prom]", "judged on nll, which none of log, pages, prom tells"),
        ("[log, asked, pages, prom]", "[log]", "judged on token_time, which none of log tells"),
        ("[log, asked, pages, prom]", "[log, asked]", "no source of this cell has a setting counter.failed_orders"),
        ("counter_failed_orders]", "speed]", "is not a guardrail"),
        ("counter_failed_orders]", "errors_prmo]", "'prmo' is no source of this cell beside the first (did you mean 'prom'?)"),
        ("counter_failed_orders]", "finish_lenght]", "no engine ends answers with 'lenght' (did you mean 'length'?)"),
        ("counter_failed_orders]", "slo_misses]", "no latency was promised: declare slo.latency"),
        ("counter_failed_orders]", "quality]", "no answers are compared: declare shadow"),
        ("[log, asked, pages, prom]", "[log, pages, prom]", "judged on nll, which none of"),
        ("  asked: {kind: probes", "  log: {kind: probes", "log is the routers' own"),
    ],
)
def test_every_mistake_is_refused_with_its_place(old: str, new: str, said: str) -> None:
    assert said in mistakes(old, new)


def test_a_guardrail_that_every_step_leaves_out_is_refused() -> None:
    steps = "policy:\n  steps:\n    - {phase: canary, weight: 10%, guardrails: {errors: {margin: 1 points}, ttft: {margin: 10%}}}\n"
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(TEXT + steps, file="f.yaml")
    said = " ".join(caught.value.details)
    assert "no step judges nll" in said
    assert "no step judges ttft" not in said


def test_finish_reasons_and_slo_misses_need_somebody_who_tells_them() -> None:
    finish = TEXT.replace("errors, ttft, token_time, nll, counter_failed_orders", "errors, finish_length").replace("log, asked,", "log,")
    misses = TEXT.replace("errors, ttft, token_time, nll, counter_failed_orders", "errors, slo_misses").replace(
        "log, asked, pages,", "log,"
    )
    misses = misses.replace("    class: online\n", "    class: online\n    slo: {latency: 2s}\n").replace("[log, prom]", "[log]")
    for text, said in ((finish, "tells finish reasons"), (misses, "tells the time of whole answers")):
        with pytest.raises(ConfigInvalid) as caught:
            parse_fleet(text, file="f.yaml")
        assert said in " ".join(caught.value.details)
    plain = misses.replace("streaming: true", "streaming: false")
    assert "slo_misses" in parse_fleet(plain, file="f.yaml").workloads[0].guardrails


@pytest.mark.parametrize("named", [False, True])
def test_errors_of_probes_are_judged_beside_errors_and_waited_for_only_where_they_are_named(named: bool) -> None:
    text = TEXT.replace("nll, counter_failed_orders", "nll, errors_asked") if named else TEXT
    fleet = parse_fleet(text, file="f.yaml")
    before = phases_for(fleet.policy, fleet.workloads[0])
    after = with_probes(before, probed_of(fleet.cells[0], fleet.evidence))
    for then, now in zip(before, after, strict=True):
        errors = [g for g in then.guardrails if g.name == "errors" and g.judged]
        own = [g for g in now.guardrails if g.name == "errors_asked" and g.judged]
        assert [(g.margin, g.fail_margin <= max(e.fail_margin, e.margin)) for g, e in zip(own, errors, strict=True)] == [
            (e.margin, True) for e in errors
        ]
        assert gating_of(now) == gating_of(then)
        assert all(g.needs_pass is named for g in own)
    assert with_probes(before, None) == before


def test_quality_is_not_judged_at_steps_where_nobody_compares_answers() -> None:
    text = TEXT.replace("nll, counter_failed_orders", "nll, quality").replace("    engine: vllm\n", "    engine: vllm\n    shadow: {}\n")
    fleet = parse_fleet(text, file="f.yaml")
    steps = phases_for(fleet.policy, fleet.workloads[0])
    found = [g.judged for p in steps if p.weight_bp for g in p.guardrails if g.name == "quality"]
    assert found
    assert not any(found), "nobody counts mismatches there, and none counted is none that passed"


def test_buckets_alone_are_enough_where_nobody_waits_for_a_pass() -> None:
    text = TEXT.replace("[log, asked, pages, prom]", "[log, pages, prom]").replace(", nll,", ",")
    assert (
        parse_fleet(text + "    lane: {kind: accepted, reason: low traffic, actor: ana}\n", file="f.yaml").cells[0].evidence[1] == "pages"
    )


def _maker(folder: Path, text: str = TEXT) -> EvidenceMaker:
    fleet = parse_fleet(text, file="f.yaml")
    clock = FakeClock()
    log = FakeEvidence(clock.now)

    def pin(c: CellId, arm: Arm) -> dict[str, str]:
        return {"x-fleetctl-pin": f"secret:{arm}"}

    return EvidenceMaker(lambda: fleet, lambda _: log, pin, workspace=folder, folder=lambda: folder / "evidence", now=clock.now)


def test_sources_are_made_once_and_combined(tmp_path: Path) -> None:
    maker = _maker(tmp_path)
    source = maker.of(CellId("chat-lab"))
    assert isinstance(source, Combined)
    assert maker.of(CellId("chat-lab")) is source
    assert list(source._sources) == ["log", "asked", "pages", "prom"]
    assert isinstance(source._sources["pages"], CounterEvidence)
    assert not (tmp_path / "evidence").exists(), "nothing is written before it is needed"


def test_pages_and_targets_know_engine_version_vendor_and_what_is_needed(tmp_path: Path) -> None:
    maker = _maker(tmp_path)
    fleet = parse_fleet(TEXT, file="f.yaml")
    rows = maker._targets(fleet.cells[0], fleet.evidence[1])
    assert rows == [
        ("baseline", "10.0.0.1:8000", "vllm", "0.33.0", ()),
        ("canary", "10.0.0.9:8000", "vllm", "0.20.2", ()),
        ("canary", "10.0.0.9:5000", "amd_exporter", "", ()),
    ]
    leading = parse_fleet(TEXT.replace("[log, asked, pages, prom]", "[pages, asked, prom]"), file="f.yaml")
    assert maker._targets(leading.cells[0], leading.evidence[1])[0][4] == ("requests_total", "errors_total")


def test_a_counter_that_is_no_series_is_refused_when_the_source_is_made(tmp_path: Path) -> None:
    maker = _maker(tmp_path, TEXT.replace("shop_failed_total / ", "shop_failed_total) or vector(1 / "))
    with pytest.raises(ConfigInvalid) as e:
        maker.of(CellId("chat-lab"))
    assert e.value.code == "config.evidence"


def test_probes_go_through_the_router_pinned_or_to_the_replicas(tmp_path: Path) -> None:
    maker = _maker(tmp_path)
    cell = parse_fleet(TEXT, file="f.yaml").cells[0]
    (direct,) = maker._sides(cell, "canary", {"via": "endpoints"})
    assert (direct.host, direct.port, direct.path, direct.server_header) == ("10.0.0.9", 8000, "", "")
    (pinned,) = maker._sides(cell, "canary", {})
    assert (pinned.host, pinned.port, pinned.path) == ("127.0.0.1", 9000, "/chat-lab")
    assert pinned.headers == {"x-fleetctl-pin": "secret:canary"}
    assert pinned.server_starts == "c", "a source server that answers in its place is a canary failure"


def test_doctor_says_per_arm_which_guardrails_the_series_tell() -> None:
    from types import SimpleNamespace

    from fleetctl.cli.commands.doctor import _guardrails_told

    fleet = parse_fleet(TEXT, file="f.yaml")
    app = SimpleNamespace(wiring=SimpleNamespace(fleet=fleet))
    told = {("baseline", "attempts"), ("baseline", "ttft"), ("baseline", "time_per_output_token_seconds"), ("baseline", "nll")}
    found = _guardrails_told(app, fleet.cells[0], told)  # type: ignore[arg-type]
    assert (found.state, found.detail) == ("ok", "baseline errors ttft token_time nll, canary nothing (from log, asked, pages, prom)")
    wanting = _guardrails_told(app, fleet.cells[0], told - {("baseline", "ttft")})  # type: ignore[arg-type]
    assert wanting.state == "warn"
    assert "not told of the baseline: ttft" in wanting.detail
