"""What users complain of in canary judges, as tests of the sources: what empty, aborted, mistyped and impossible mean."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.prometheus.client import PrometheusApi
from fleetctl.adapters.prometheus.scrapes import OwnCounter, PrometheusScraper, Target
from fleetctl.adapters.routers.evidence import RouterLogEvidence
from fleetctl.analysis.buckets import BucketTally
from fleetctl.analysis.judge import fresh, judge
from fleetctl.catalog.metrics import load_metrics
from fleetctl.domain.evidence import ARMS, Cursor, Evidence
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Scrape
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.evidence_sources import check_evidence
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.formats.quantities import parse_share_bp
from fleetctl.rollout.gates import gate
from fleetctl.usecases.evidence import Combined, CounterEvidence
from tests.fakes.json_double import JsonDouble
from tests.rollouts import T0, all_pass, evidence, rollout, seeing
from tests.unit.test_evidence_in_fleet_file import TEXT

CHAT = CellId("chat")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=55)
ERRORS = (GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0),)


def line(i: int, arm: str, **changes: object) -> str:
    base: dict[str, object] = {
        "c": "chat", "a": arm, "srv": "c1" if arm == "canary" else "b1", "st": 200, "ts": "--", "t0": round(NOW.timestamp() * 1000) + i,
        "ta": 52, "tr": 50, "b": 900, "pt": 40, "ct": 16, "cc": 8, "bp": 5000, "p": "-", "rc": "0",
    }  # fmt: skip
    return json.dumps(base | changes, separators=(",", ":"))


def read(folder: Path, lines: list[str]) -> Evidence:
    folder.mkdir(exist_ok=True)
    (folder / "haproxy-1.log").write_text("".join(f"{text}\n" for text in lines))
    return RouterLogEvidence(folder, now=lambda: NOW + timedelta(seconds=1)).read(CHAT, Cursor(position="0:0", since=NOW))


def test_t05_and_t10_no_error_lines_are_zero_errors_and_no_lines_are_no_data(tmp_path: Path) -> None:
    both = read(tmp_path / "a", [line(i, arm) for i in range(40) for arm in ("baseline", "canary")])
    assert {arm: (c.attempts, c.errors) for arm, c in both.arms.items()} == {"baseline": (40, 0), "canary": (40, 0)}
    assert set(both.state.values()) == {"ok"}
    alone = read(tmp_path / "b", [line(i, "baseline") for i in range(40)])
    assert alone.state == {"baseline": "ok", "canary": "empty"}
    assert judge(fresh(), alone, ERRORS)[1][0].kind == "NO_DATA"


def test_t08_an_empty_answer_is_a_verdict_that_names_the_arm_and_no_crash(tmp_path: Path) -> None:
    e = read(tmp_path / "log", [])
    verdicts = judge(fresh(), e, ERRORS)[1]
    assert {v.kind for v in verdicts} == {"NO_DATA"}
    assert verdicts[0].detail == "baseline empty, canary empty"
    assert e.query.startswith(f"lines of chat in {tmp_path / 'log'}, from 0:0, started since 2026-01-01T12:00:00")


def prometheus(up: dict[str, str], series: list[dict[str, object]]) -> JsonDouble:
    """A Prometheus that holds these raw samples."""

    def answer(query: dict[str, list[str]], headers: dict[str, str]) -> object:
        asked = query["query"][0]
        if asked.startswith("up{"):
            rows = [{"metric": {"instance": name}, "value": [0, value]} for name, value in up.items()]
            return {"status": "success", "data": {"resultType": "vector", "result": rows}}
        return {"status": "success", "data": {"resultType": "matrix", "result": series}}

    return JsonDouble({"/api/v1/query": answer})


def counters(url: str) -> CounterEvidence:
    targets = tuple(
        Target(arm=arm, instance=f"{arm[0]}:1", system="tgi", version="3.3.6", needs=("requests_total", "errors_total")) for arm in ARMS
    )
    scraper = PrometheusScraper(PrometheusApi(url, timeout_s=5, tries=1), {CHAT: targets}, load_metrics(), now=lambda: LATER)
    return CounterEvidence(scraper, now=lambda: LATER, settle_s=0.1)


def samples(name: str, instance: str, values: tuple[int, int], **labels: str) -> dict[str, object]:
    start = NOW.timestamp()
    return {
        "metric": {"__name__": name, "instance": instance, **labels},
        "values": [[start + 2, str(values[0])], [start + 50, str(values[1])]],
    }


def test_t08_an_empty_vector_of_prometheus_is_a_verdict_with_its_query() -> None:
    double = prometheus({"b:1": "1", "c:1": "1"}, [])
    try:
        e = counters(double.url).read(CHAT, Cursor(position="", since=NOW))
    finally:
        double.close()
    verdicts = judge(fresh(), e, ERRORS)[1]
    assert verdicts[0].kind == "NO_DATA"
    assert 'instance=~"' in e.query


def test_t10_an_error_family_that_is_absent_beside_requests_is_no_error_and_one_without_requests_is_no_data() -> None:
    requests = [samples("tgi_request_count", f"{arm}:1", (10, 210)) for arm in "bc"]
    double = prometheus({"b:1": "1", "c:1": "1"}, requests)
    try:
        e = counters(double.url).read(CHAT, Cursor(position="", since=NOW))
    finally:
        double.close()
    assert {arm: (c.attempts, c.errors) for arm, c in e.arms.items()} == {"baseline": (200, 0), "canary": (200, 0)}
    assert set(e.state.values()) == {"ok"}


def test_a_counter_of_ones_own_that_is_no_finite_number_is_left_out_and_stops_nothing() -> None:
    bad = [samples("shop_orders_total", "s:1", (10, 20), arm=arm) for arm in ARMS]
    for trace in bad:
        trace["values"] = [[NOW.timestamp() + 2, "+Inf"], [NOW.timestamp() + 3, "NaN"], [NOW.timestamp() + 4, "7"]]
    double = prometheus({}, bad)
    try:
        own = (OwnCounter(name="failed", events="shop_orders_total", of="shop_orders_total"),)
        api = PrometheusApi(double.url, timeout_s=5, tries=1)
        scraper = PrometheusScraper(api, {CHAT: ()}, load_metrics(), now=lambda: LATER, own=own)
        e = CounterEvidence(scraper, now=lambda: LATER, settle_s=0.1).read(CHAT, Cursor(position="", since=NOW))
    finally:
        double.close()
    assert e.arms["canary"].shares["counter_failed"] == (0, 0)


def test_t33_a_series_that_is_not_there_is_told_though_another_source_has_too_few_requests_yet() -> None:
    class Short:
        def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> None:
            return None

    class Wrong:
        def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> None:
            raise ConfigInvalid("config.series", "no such series")

    with pytest.raises(ConfigInvalid):
        Combined({"log": Short(), "prom": Wrong()}).freeze(CHAT, (1.0,), 100)  # type: ignore[dict-item]


@pytest.mark.parametrize(("events", "known"), [("shop_failed_total", True), ("shop_faild_total", False)])
def test_t33_a_mistyped_counter_of_ones_own_is_refused_and_never_a_zero(events: str, known: bool) -> None:
    """Its events would always be 0 on both arms, and always pass."""
    of = [{**samples("shop_orders_total", "s:1", (10, 2_010), arm=arm)} for arm in ARMS]

    def answer(query: dict[str, list[str]], headers: dict[str, str]) -> object:
        asked = query["query"][0]
        if asked.startswith("up{"):
            rows: list[object] = []
        elif asked.startswith("count("):
            rows = [{"metric": {}, "value": [0, "2"]}] if asked == "count(shop_failed_total)" else []
        else:
            rows = list(of) if asked.startswith("shop_orders_total") else []
        return {"status": "success", "data": {"resultType": "matrix", "result": rows}}

    double = JsonDouble({"/api/v1/query": answer})
    try:
        own = (OwnCounter(name="failed", events=events, of="shop_orders_total"),)
        api = PrometheusApi(double.url, timeout_s=5, tries=1)
        source = CounterEvidence(
            PrometheusScraper(api, {CHAT: ()}, load_metrics(), now=lambda: NOW + timedelta(seconds=55), own=own),
            now=lambda: NOW + timedelta(seconds=55),
            settle_s=0.1,
        )
        if known:
            source.freeze(CHAT, (1.0,), 100)
            return
        with pytest.raises(ConfigInvalid) as caught:
            source.freeze(CHAT, (1.0,), 100)
    finally:
        double.close()
    assert "Prometheus has no shop_faild_total: mistyped, or never written" in caught.value.message


def test_t07_arms_that_are_read_from_one_replica_are_refused_before_the_first_step() -> None:
    same = tuple(Target(arm=arm, instance="b:1", system="tgi", version="3.3.6", needs=()) for arm in ARMS)
    double = prometheus({"b:1": "1"}, [samples("tgi_request_count", "b:1", (10, 210))])
    try:
        scraper = PrometheusScraper(PrometheusApi(double.url, timeout_s=5, tries=1), {CHAT: same}, load_metrics(), now=lambda: LATER)
        source = CounterEvidence(scraper, now=lambda: LATER, settle_s=0.1)
        tally = BucketTally(CHAT, Cursor(position="", since=NOW), settle_s=0.1)
        for arm in ARMS:
            tally.add(
                Scrape(cell=CHAT, arm=arm, replica="b:1", at_ms=round(NOW.timestamp() * 1000) + 2000, values={"requests_total/e": 5.0})
            )
        with pytest.raises(ConfigInvalid) as caught:
            source.freeze(CHAT, (1.0,), 100)
    finally:
        double.close()
    assert caught.value.code == "config.series"
    assert set(tally.evidence(LATER).state.values()) == {"same_series"}


@pytest.mark.parametrize(
    ("baseline", "canary"),
    [
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("localhost:8000", "127.0.0.1:8000"),
        ("[::1]:8000", "localhost:08000"),
        ("GPU1:8000", "gpu1:8000"),
        ("[::1]:8000", "[0:0:0:0:0:0:0:1]:8000"),
        ("10.0.0.1:8000", "[::ffff:10.0.0.1]:8000"),
        ("10.0.0.1:8000", "10.1:8000"),
        ("10.0.0.1:8000", "010.0.0.1:8000"),
    ],
)
def test_t07_one_replica_under_two_spellings_is_refused_in_the_file(baseline: str, canary: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(TEXT.replace("10.0.0.1:8000", baseline).replace("10.0.0.9:8000", canary), file="f.yaml")
    assert any(said in " ".join(caught.value.details) for said in ("stands on both sides", "neither an IP address nor"))


def test_t13_what_the_client_ended_counts_neither_as_good_nor_as_failed(tmp_path: Path) -> None:
    gone = [line(100 + i, "canary", st=-1, ts=ts, ta=-1) for i, ts in enumerate(("CR", "CH", "CD"))]
    e = read(tmp_path / "log", [*(line(i, arm) for i in range(20) for arm in ("baseline", "canary")), *gone])
    assert (e.arms["canary"].attempts, e.arms["canary"].errors) == (20, 0)


def test_t27_a_share_that_cannot_be_served_never_advances() -> None:
    settled = replace(rollout(), step=1, settled_at=T0, weight_bp=1000)
    late = T0 + timedelta(hours=1)
    for baseline, canary in ((0, 2000), (2000, 2000), (4000, 0)):  # one replica: all, half or nothing, never the 10 % that were set
        opened = gate(settled, seeing(late, 1000, all_pass(late), evidence(late, baseline=baseline, canary=canary)), late)
        assert not opened.open
        assert "is not the 10.0% that was set" in opened.why
    assert gate(settled, seeing(late, 1000, all_pass(late), evidence(late, baseline=9000, canary=1000)), late).open


def test_t27_a_share_finer_than_a_router_can_serve_is_refused_in_the_file() -> None:
    for text in ("0.005%", "12.345%", "0.5bp", "101%", "10"):
        with pytest.raises(ValueError, match="must be"):
            parse_share_bp(text)
    assert [parse_share_bp(text) for text in ("0.01%", "1bp", "100%")] == [1, 1, 10_000]


@pytest.mark.parametrize("name", ["erors", "latncy", "ttft_ms", "counter_", "errors_Probes"])
def test_t33_a_mistyped_guardrail_is_refused_before_anything_starts(name: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_fleet(TEXT.replace("nll, counter_failed_orders", name), file="f.yaml")
    assert "is not a guardrail" in " ".join(caught.value.details)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("promethus", {}, "did you mean 'prometheus'"),
        ("scrape", {"evry": "5s"}, "did you mean 'every'"),
        ("scrape", {"counter.orders": "orders_total"}, "events_series / all_series"),
        ("prometheus", {}, "url is missing"),
        ("scrape", {"baseline_engine": "vlm"}, "must be"),
    ],
)
def test_t33_a_mistyped_source_is_refused_before_anything_starts(kind: str, settings: dict[str, str], said: str) -> None:
    assert any(said in text for _, text in check_evidence(kind, settings, {}))
