"""Counters of different meaning are not held against one another: each pair of engines, with clients that go away."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.analysis.buckets import BucketTally, scrape_of
from fleetctl.analysis.judge import fresh, judge
from fleetctl.catalog.metrics import load_metrics
from fleetctl.domain.evidence import ARMS, Cursor, Evidence, Thresholds, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.metrics import Series
from fleetctl.domain.records import Scrape
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.usecases.evidence import CounterEvidence

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
TABLE = load_metrics()
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.005, fail_margin=0.0)
COMPLETIONS = {"handler": "/v1/chat/completions", "endpoint": "/v1/chat/completions"}


def one(name: str, value: int, **labels: str) -> Series:
    return Series(name=name, labels={**COMPLETIONS, **labels}, value=value)


Page = Callable[[int, int, int], list[Series]]
"""Of n requests k failed, and the clients of some went away (gone)."""
ENGINES: dict[str, tuple[str, str, Page]] = {
    "vllm by http": (
        "vllm",
        "0.11.0",
        lambda n, k, gone: [one("http_requests_total", n - k, status="2xx"), one("http_requests_total", k, status="5xx")],
    ),
    "vllm by engine": (
        "vllm",
        "0.14.0",
        lambda n, k, gone: [
            one("vllm:request_success_total", n - k - gone, finished_reason="stop"),
            one("vllm:request_success_total", k, finished_reason="error"),
            one("vllm:request_success_total", gone, finished_reason="abort"),
        ],
    ),
    "sglang by http": (
        "sglang",
        "0.5.23",
        lambda n, k, gone: [
            one("sglang:http_responses_total", n - k, status_code="200"),
            one("sglang:http_responses_total", k, status_code="500"),
            one("sglang:num_requests_total", n),
            one("sglang:num_aborted_requests_total", gone),
        ],
    ),
    "sglang by engine": (
        "sglang",
        "0.5.0",
        lambda n, k, gone: [one("sglang:num_requests_total", n), one("sglang:num_aborted_requests_total", gone)],
    ),
    "sglang by transfers": (
        "sglang",
        "0.5.0",
        lambda n, k, gone: [
            one("sglang:num_requests_total", n),
            one("sglang:num_aborted_requests_total", gone),
            one("sglang:num_transfer_failed_reqs_total", k),
        ],
    ),
    "tgi": (
        "tgi",
        "3.3.7",
        lambda n, k, gone: [
            one("tgi_request_count", n),
            one("tgi_request_failure", k, err="generation"),
            one("tgi_request_failure", gone, err="dropped"),
        ],
    ),
    "triton": (
        "triton",
        "2.71.0",
        lambda n, k, gone: [
            one("nv_inference_request_success", n - k - gone),
            one("nv_inference_request_failure", k, reason="BACKEND"),
            one("nv_inference_request_failure", gone, reason="CANCELED"),
        ],
    ),
}
ALIKE = {frozenset({name}) for name in ENGINES if name != "sglang by engine"} | {frozenset({"vllm by http", "sglang by http"})}


def looks(kinds: tuple[str, str], rates: tuple[float, float], *, scrapes: int = 60, each: int = 100) -> tuple[Evidence, Verdict]:
    """Return the last evidence and verdict of arms whose requests fail at these rates, with 3 % of clients that go away."""
    rng, state = random.Random(3), fresh(6, 1)
    thresholds = Thresholds(class_edges=(), latency_ms=(), scales=(), baseline_n=1_000, baseline_error_ratio=0.003, log_sd=0.0)
    tally = BucketTally(CELL, Cursor(position="", since=START, thresholds=thresholds), settle_s=0.0)
    sums = {arm: [0, 0, 0] for arm in ARMS}
    found = []
    for i in range(scrapes):
        at = START + timedelta(seconds=5 * i)
        for arm, kind, rate in zip(ARMS, kinds, rates, strict=True):
            sums[arm][0] += each
            drawn = [rng.random() for _ in range(each)]
            sums[arm][1] += sum(u < rate for u in drawn)
            sums[arm][2] += sum(rate <= u < rate + 0.03 for u in drawn)
            tally.add(page(kind, arm, at, *sums[arm]))
        e = tally.evidence(at)
        state, verdicts = judge(state, e, (ERRORS,))
        found.append((e, verdicts[0]))
    return found[-1]


def page(kind: str, arm: str, at: datetime, n: int, k: int, gone: int) -> Scrape:
    system, version, series = ENGINES[kind]
    return scrape_of(
        TABLE,
        TABLE.read(system, version, series(n, k, gone)),
        system=system,
        version=version,
        needs=("requests_total", "errors_total"),
        cell=CELL,
        arm="baseline" if arm == "baseline" else "canary",
        replica=arm,
        at_ms=round(at.timestamp() * 1_000),
    )


@pytest.mark.parametrize("canary", ENGINES)
@pytest.mark.parametrize("baseline", ENGINES)
def test_clients_that_go_away_are_no_regression_and_unlike_counts_no_verdict(baseline: str, canary: str) -> None:
    e, verdict = looks((baseline, canary), (0.003, 0.003))
    assert verdict.kind != "FAIL"
    if frozenset({baseline, canary}) in ALIKE:
        assert set(e.state.values()) == {"ok"}
        assert all(e.arms[arm].attempts > 1_000 for arm in ARMS)
        return
    assert set(e.state.values()) & {"mislabelled"}
    assert verdict.kind == "PROVIDER_ERROR"
    if "sglang by engine" not in (baseline, canary):
        assert "counted differently: baseline by" in e.detail


@pytest.mark.parametrize("pair", sorted(tuple(sorted(pair)) for pair in ALIKE), ids=" and ".join)
def test_a_target_that_fails_more_is_found_where_counts_are_alike(pair: tuple[str, ...]) -> None:
    baseline, canary = pair * (1 if len(pair) == 2 else 2)
    assert looks((baseline, canary), (0.003, 0.06))[1].kind == "FAIL"


def test_beside_another_source_only_the_unlike_counts_are_left_out() -> None:
    tally = BucketTally(CELL, Cursor(position="", since=START), settle_s=0.0, leads=False)
    for i in range(1, 5):
        at = START + timedelta(seconds=5 * i)
        tally.add(page("vllm by http", "baseline", at, 100 * i, i, 0))
        tally.add(page("tgi", "canary", at, 100 * i, i, 0))
    e = tally.evidence(START + timedelta(seconds=20))
    assert set(e.state.values()) == {"ok"}
    assert [(e.arms[arm].attempts, e.arms[arm].errors) for arm in ARMS] == [(0, 0), (0, 0)]
    assert "counted differently" in e.detail


def test_replicas_of_one_arm_that_count_differently_are_no_sum() -> None:
    tally = BucketTally(CELL, Cursor(position="", since=START), settle_s=0.0)
    for i in range(1, 5):
        at = START + timedelta(seconds=5 * i)
        for arm in ARMS:
            tally.add(page("vllm by http", arm, at, 100 * i, i, 0))
        other = page("vllm by engine", "canary", at, 100 * i, i, 0)
        tally.add(Scrape(cell=CELL, arm="canary", replica="c2", at_ms=other.at_ms, values=other.values))
    e = tally.evidence(START + timedelta(seconds=20))
    assert set(e.state.values()) == {"mislabelled"}
    assert "canary by http and by engine" in e.detail


def test_an_idle_target_whose_http_layer_has_no_series_yet_is_not_mislabelled() -> None:
    tally = BucketTally(CELL, Cursor(position="", since=START), settle_s=0.0)
    for i in range(1, 9):
        at = START + timedelta(seconds=5 * i)
        tally.add(page("vllm by http", "baseline", at, 100 * i, i, 0))
        tally.add(page("vllm by http", "canary", at, 10 * i, 0, 0) if i > 4 else page("vllm by engine", "canary", at, 0, 0, 0))
        e = tally.evidence(at)
        assert e.state == {"baseline": "ok" if i > 1 else "empty", "canary": "ok" if i > 4 else "empty"}
        assert e.arms["canary"].attempts == (10 * i if i > 4 else 0)


@pytest.mark.parametrize("leads", [True, False])
def test_arms_that_count_differently_are_refused_before_a_customer_is_on_the_target(leads: bool) -> None:
    class Pages:
        def newest(self, c: CellId) -> list[Scrape]:
            return [page("vllm by http", "baseline", START, 5_000, 15, 0), page("tgi", "canary", START, 20, 0, 0)]

    source = CounterEvidence(Pages(), now=lambda: START, leads=lambda _: leads)  # type: ignore[arg-type]
    if not leads:
        assert source.freeze(CELL, (1.0,), 100) is not None
        return
    with pytest.raises(ConfigInvalid, match="counted differently: baseline by http; canary by received"):
        source.freeze(CELL, (1.0,), 100)
