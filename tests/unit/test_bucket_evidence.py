"""Evidence from scraped counters: what can be told from buckets, and every state of a source that scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf

import numpy as np
import pytest

from fleetctl.analysis.buckets import BucketTally, freeze_edges, scrape_of
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.memory import unpack
from fleetctl.catalog.metrics import load_metrics
from fleetctl.domain.evidence import Arm, Cursor, Verdict, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.domain.metrics import Totals
from fleetctl.domain.records import Scrape
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.lab.engine_metrics import REQUEST_BOUNDS, TOKEN_BOUNDS, TTFT_BOUNDS
from fleetctl.rollout.lost import lost_evidence
from fleetctl.usecases.evidence import CounterEvidence
from tests.rollouts import rollout, seeing

CELL = CellId("chat")
SLO_MS = 2_500.0
"""One of the engine's bounds."""
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
TTFT = GuardrailSpec(name=Guardrail("ttft"), margin=0.25, fail_margin=0.1)
ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.005)
SLO = GuardrailSpec(name=Guardrail("slo_misses"), margin=0.05, fail_margin=0.01)


@dataclass
class Replica:
    """Counters of one replica that only grow."""

    arm: Arm
    name: str
    rng: np.random.Generator
    factor: float = 1.0
    errors: float = 0.0
    requests: int = 0
    failed: int = 0
    ttft: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)

    def serve(self, n: int) -> None:
        bad = int(self.rng.binomial(n, self.errors))
        self.requests += n
        self.failed += bad
        self.ttft += list(self.rng.lognormal(-2.5, 0.6, n - bad) * self.factor)
        self.whole += list(self.rng.lognormal(0.0, 0.6, n - bad) * self.factor)
        self.tokens += list(self.rng.lognormal(-3.5, 0.3, n - bad) * self.factor)

    def scrape(self, at: Instant, **other: object) -> Scrape:
        values = {"requests_total/engine": float(self.requests), "errors_total/engine": float(self.failed)}
        buckets = {
            "ttft_seconds": _cumulative(self.ttft, TTFT_BOUNDS),
            "e2e_seconds": _cumulative(self.whole, REQUEST_BOUNDS),
            "time_per_output_token_seconds/per_request": _cumulative(self.tokens, TOKEN_BOUNDS),
        }
        whole = Scrape(cell=CELL, arm=self.arm, replica=self.name, at_ms=round(at.timestamp() * 1000), values=values, buckets=buckets)
        return replace(whole, **other)  # type: ignore[arg-type]


def _cumulative(seen: list[float], bounds: Iterable[float]) -> Mapping[float, float]:
    ordered = np.sort(np.array(seen))
    return {**{b: float(np.searchsorted(ordered, b, side="right")) for b in bounds}, inf: float(len(ordered))}


class FakeScraper:
    """A Scraper of two replicas per arm, whole in memory."""

    def __init__(self, factor: float = 1.0, errors: float = 0.0) -> None:
        rng = np.random.default_rng(5)
        self.now = START
        self.replicas = [Replica("baseline", "b1", rng), Replica("baseline", "b2", rng)]
        self.replicas += [Replica("canary", "c1", rng, factor, errors), Replica("canary", "c2", rng, factor, errors)]
        self.change: dict[str, dict[str, object]] = {}

    def serve(self, n: int, seconds: int = 5) -> None:
        for r in self.replicas:
            r.serve(n)
        self.now += timedelta(seconds=seconds)

    def scrapes(self, c: CellId, start: Instant, after: Instant | None) -> list[Scrape]:
        return self.newest(c)

    def newest(self, c: CellId) -> list[Scrape]:
        return [r.scrape(self.now, **self.change.get(r.name, {})) for r in self.replicas]

    def query(self, c: CellId) -> str:
        return "memory"


def begun(scraper: FakeScraper) -> tuple[CounterEvidence, Cursor]:
    source = CounterEvidence(scraper, now=lambda: scraper.now, settle_s=10, slo_latency_ms={CELL: SLO_MS})
    scraper.serve(1_000)
    thresholds = source.freeze(CELL, (1.1, 1.25), 1_000)
    assert thresholds is not None
    cursor = replace(source.mark(CELL), thresholds=thresholds)
    assert source.read(CELL, cursor).state == {"baseline": "empty", "canary": "empty"}
    scraper.now += timedelta(seconds=11)
    source.read(CELL, cursor)
    return source, cursor


def run(scraper: FakeScraper, specs: tuple[GuardrailSpec, ...], looks: int = 60, n: int = 50) -> list[tuple[str, str]]:
    source, cursor = begun(scraper)
    state = fresh()
    verdicts: tuple[Verdict, ...] = ()
    for _ in range(looks):
        scraper.serve(n)
        state, verdicts = judge(state, source.read(CELL, cursor), specs)
        if verdicts[0].kind == "FAIL":
            break
    return [(v.kind, v.detail) for v in verdicts]


def test_bounds_near_to_the_quantiles_are_chosen_and_only_usable_ones() -> None:
    scraper = FakeScraper()
    scraper.serve(2_000)
    thresholds = freeze_edges(scraper.newest(CELL), (1.1,), 1_000)
    assert thresholds is not None
    ttft = thresholds.quantiles("ttft")
    assert ttft is not None
    assert ttft.edges_only
    assert ttft.rows == ((80.0, 100.0, 250.0, 250.0, 250.0),)
    assert thresholds.quantiles("latency") is not None
    assert thresholds.latency_ms == ()


def test_no_usable_bound_gives_no_ladder_and_the_guardrail_stays_open() -> None:
    scraper = FakeScraper()
    for r in scraper.replicas:
        r.requests = 2_000
        r.ttft = [0.0001] * 2_000
    thresholds = freeze_edges(scraper.newest(CELL), (1.1,), 1_000)
    assert thresholds is not None
    assert thresholds.quantiles("ttft") is None


def test_too_few_requests_freeze_nothing() -> None:
    scraper = FakeScraper()
    scraper.serve(100)
    assert freeze_edges(scraper.newest(CELL), (1.1,), 1_000) is None


def test_a_target_twice_as_slow_is_found_from_buckets() -> None:
    assert run(FakeScraper(factor=2.5), (TTFT,))[0][0] == "FAIL"


def test_equal_arms_never_pass_a_percentage_from_buckets() -> None:
    verdicts = run(FakeScraper(), (TTFT,), looks=40)
    assert verdicts[0][0] == "INCONCLUSIVE"
    assert "buckets" in verdicts[1][1]


def test_shares_in_points_pass_and_fail_from_counters() -> None:
    assert run(FakeScraper(), (ERRORS, SLO))[0][0] == "PASS"
    assert run(FakeScraper(errors=0.05), (ERRORS,))[0][0] == "FAIL"
    assert run(FakeScraper(factor=1.6), (SLO,))[0] == ("FAIL", "failed on slo_misses")


WHERE = [(2_500.0, "PASS"), (2_400.0, "INCONCLUSIVE"), (2_501.0, "INCONCLUSIVE"), (3.6e6, "INCONCLUSIVE")]


@pytest.mark.parametrize(("slo_ms", "kind"), WHERE)
def test_misses_pass_only_where_a_bound_is_the_promised_latency(slo_ms: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two bounds every canary request could miss it and none would be seen to."""
    monkeypatch.setattr("tests.unit.test_bucket_evidence.SLO_MS", slo_ms)
    verdicts = run(FakeScraper(), (ERRORS, SLO))
    assert verdicts[0][0] == kind
    assert kind == "PASS" or "no bound of the buckets is the promised latency" in verdicts[2][1]


def test_requests_that_end_before_counting_begins_are_left_out() -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    scraper.serve(7)
    e = source.read(CELL, cursor)
    assert (e.arms["baseline"].attempts, e.arms["canary"].attempts) == (14, 14)
    assert e.query == "memory"


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"up": False, "trouble": "refused"}, "down"),
        ({"is_nan": True}, "nan"),
        ({"trouble": "ttft_seconds of vllm is in no family"}, "mislabelled"),
        ({"reset": True}, "reset"),
        ({"values": {"requests_total/engine": 1.0, "errors_total/engine": 0.0}}, "reset"),
    ],
)
@pytest.mark.parametrize("replica", ["b2", "c1"])
def test_one_bad_replica_is_a_state_of_its_arm(replica: str, change: dict[str, object], state: str) -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    scraper.serve(20)
    source.read(CELL, cursor)
    scraper.change[replica] = change
    scraper.serve(20)
    e = source.read(CELL, cursor)
    bad, good = ("baseline", "canary") if replica.startswith("b") else ("canary", "baseline")
    assert (e.state[bad], e.state[good]) == (state, "ok")  # type: ignore[index]
    _, verdicts = judge(fresh(), e, (ERRORS,))
    assert verdicts[0].kind == "PROVIDER_ERROR"


def test_no_new_scrape_is_stale_and_no_request_is_empty() -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    scraper.now += timedelta(seconds=5)
    assert source.read(CELL, cursor).state == {"baseline": "empty", "canary": "empty"}
    scraper.serve(20)
    tally = BucketTally(CELL, cursor, settle_s=10)
    for s in source._scraper.newest(CELL):
        tally.add(s)
    later = scraper.now + timedelta(seconds=60)
    assert set(tally.evidence(later).state.values()) == {"stale"}


def test_both_arms_on_one_replica_are_refused() -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    scraper.replicas[2].name = "b1"
    scraper.serve(20)
    assert set(source.read(CELL, cursor).state.values()) == {"same_series"}


def test_arms_measured_by_different_statistics_are_not_compared() -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    for name in ("c1", "c2"):
        replica = next(r for r in scraper.replicas if r.name == name)
        scraper.change[name] = {
            "buckets": {"time_per_output_token_seconds/per_request_with_prefill": _cumulative(replica.tokens, TOKEN_BOUNDS)}
        }
    scraper.serve(20)
    e = source.read(CELL, cursor)
    assert ladder_key(1.0, "token_time") not in e.arms["canary"].ladders
    assert e.arms["canary"].timed_of.get("token_time", 0) == 0


@pytest.mark.parametrize(
    ("before", "now", "fault"),
    [
        ({"gpu_health": 1.0}, {"gpu_health": 0.0}, "unhealthy"),
        ({"gpu_ecc_uncorrected_total/rows": 1.0}, {"gpu_ecc_uncorrected_total/rows": 2.0}, "ECC"),
        ({"gpu_xid/last_code": 13.0}, {"gpu_xid/last_code": 79.0}, "XID 79"),
        ({"gpu_xid/last_code": 0.0}, {"gpu_xid/last_code": 13.0}, ""),
        ({"gpu_health": 1.0}, {}, ""),
    ],
)
def test_a_hard_fault_of_the_canarys_gpu_trips_the_breaker(before: dict[str, float], now: dict[str, float], fault: str) -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    for s, values in ((0, before), (1, now)):
        at = scraper.now + timedelta(seconds=s)
        tally = source._kept[CELL][cursor].tally
        tally.add(Scrape(cell=CELL, arm="canary", replica="gpu c1:5000", at_ms=round(at.timestamp() * 1000), values=values))
    scraper.serve(20)
    e = source.read(CELL, cursor)
    _, verdicts = judge(fresh(), e, (ERRORS,))
    if fault:
        assert fault in " ".join(e.faults)
        assert [v.kind for v in verdicts if v.guardrail == "breaker"] == ["FAIL"]
    else:
        assert e.faults == ()
        assert verdicts[0].kind != "FAIL"


def gpu(at: Instant, **values: float) -> Scrape:
    named = {key.replace("__", "/"): value for key, value in values.items()}
    return Scrape(cell=CELL, arm="canary", replica="gpu c1:5000", at_ms=round(at.timestamp() * 1000), values=named)


@pytest.mark.parametrize(
    ("at_the_mark", "later", "fault"),
    [
        ({"gpu_ecc_uncorrected_total__rows": 1.0}, [{"gpu_ecc_uncorrected_total__rows": 2.0}], "ECC"),
        ({"gpu_xid__last_code": 0.0}, [{"gpu_xid__last_code": 79.0}], "XID 79"),
        ({"gpu_health": 1.0}, [{"gpu_xid__last_code": 79.0}], "XID 79"),
        ({"gpu_health": 1.0}, [{"gpu_health": 0.0}, {"gpu_health": 1.0}], "unhealthy"),
        ({"gpu_xid__last_code": 0.0}, [{"gpu_xid__last_code": 79.0}, {"gpu_xid__last_code": 13.0}], "XID 79"),
        ({"gpu_health": 1.0}, [{"gpu_ecc_uncorrected_total__rows": 4.0}, {"gpu_ecc_uncorrected_total__rows": 5.0}], "ECC"),
        ({"gpu_ecc_uncorrected_total__since_load": 9.0}, [{"gpu_ecc_uncorrected_total__since_load": n} for n in (0.0, 1.0)], "ECC"),
        ({"gpu_health": 1.0}, [{"gpu_ecc_uncorrected_total__rows": 4.0}], ""),
        ({"gpu_health": 1.0}, [{"gpu_xid__last_afid": 79.0}], ""),
        ({"gpu_ecc_uncorrected_total__rows": 4.0}, [{"gpu_ecc_uncorrected_total__rows": 4.0}], ""),
        ({}, [{"gpu_xid__last_code": 79.0, "gpu_ecc_uncorrected_total__rows": 4.0}], ""),
    ],
)
def test_a_fault_since_the_mark_counts_whenever_the_first_scrape_comes_and_whatever_follows(
    at_the_mark: dict[str, float], later: list[dict[str, float]], fault: str
) -> None:
    scraper = FakeScraper()
    scraper.newest = lambda c: [gpu(scraper.now, **at_the_mark)]  # type: ignore[method-assign]
    cursor = CounterEvidence(scraper, now=lambda: scraper.now).mark(CELL)
    cursor = replace(cursor, since=cursor.since + timedelta(minutes=5))  # warm-up
    for process in range(2):  # scrapes of the settle time, and a process that sees the later ones alone
        tally = BucketTally(CELL, cursor, settle_s=30)
        for i, values in enumerate(later):
            tally.add(gpu(cursor.since + timedelta(seconds=1 + i + 60 * process), **values))
        found = " ".join(tally.evidence(cursor.since + timedelta(minutes=2)).faults)
        assert fault in found if fault else found == ""


def test_a_fault_of_a_gpu_that_both_arms_are_read_from_is_no_verdict_on_the_target() -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    for s, health in ((0, 1.0), (1, 0.0)):
        scrape = gpu(scraper.now + timedelta(seconds=s), gpu_health=health)
        for arm in ("baseline", "canary"):
            source._kept[CELL][cursor].tally.add(replace(scrape, arm=arm))
    e = source.read(CELL, cursor)
    assert e.faults
    state, verdicts = judge(fresh(), e, (ERRORS,))
    assert verdicts[0].kind == "PROVIDER_ERROR"
    assert [(v.kind, v.guardrail) for v in verdicts if "not told apart" in v.detail] == [("INCONCLUSIVE", "breaker")]
    assert unpack(state).failed == ""


def test_a_needed_series_that_is_not_there_is_trouble_with_its_name_in_that_version() -> None:
    table = load_metrics()
    totals = Totals(values={"requests_total/engine": 1.0}, unknown=("vllm:new_ttft_seconds",))
    made = scrape_of(
        table,
        totals,
        system="vllm",
        version="0.33.0",
        needs=("requests_total", "ttft_seconds"),
        cell=CELL,
        arm="canary",
        replica="c1",
        at_ms=1,
    )
    assert "vllm:time_to_first_token_seconds" in made.trouble
    assert "vllm:new_ttft_seconds" in made.trouble


def test_an_unknown_series_or_a_replica_on_both_arms_is_refused_before_a_customer_is_on_the_target() -> None:
    scraper = FakeScraper()
    scraper.serve(2_000)
    source = CounterEvidence(scraper, now=lambda: scraper.now)
    scraper.change["c1"] = {"trouble": "ttft_seconds of vllm 0.33.0 is vllm:time_to_first_token_seconds"}
    with pytest.raises(ConfigInvalid, match="canary c1: ttft_seconds of vllm") as e:
        source.freeze(CELL, (1.1,), 1_000)
    assert e.value.code == "config.series"
    scraper.change.clear()
    scraper.replicas[2].name = "b1"
    with pytest.raises(ConfigInvalid, match="both arms are read from b1"):
        source.freeze(CELL, (1.1,), 1_000)


def test_a_target_whose_engines_tell_numbers_and_answer_nobody_is_stale_with_the_other_arms_requests_missed() -> None:
    scraper = FakeScraper()
    source, cursor = begun(scraper)
    scraper.serve(50)
    seen = source.read(CELL, cursor)
    assert (seen.state["canary"], dict(seen.missed)) == ("ok", {"baseline": 0, "canary": 0})
    for _ in range(8):
        for r in scraper.replicas[:2]:
            r.serve(50)
        scraper.now += timedelta(seconds=5)
        seen = source.read(CELL, cursor)
    assert seen.state == {"baseline": "ok", "canary": "stale"}
    assert dict(seen.missed) == {"baseline": 0, "canary": 800}
    settled = seen.at - timedelta(minutes=5)
    moving = replace(rollout(), settled_at=settled, since=cursor, weight_bp=5_000)
    assert lost_evidence(moving, seeing(seen.at, 5_000, (), seen), seen.at) == "canary is stale though about 800 of its requests were due"
    scraper.serve(1)
    assert source.read(CELL, cursor).missed["canary"] == 0


class Stepping(FakeScraper):
    """Engines that count the gaps between tokens alone: all running requests are held up together by each prefill, on both arms alike."""

    def newest(self, c: CellId) -> list[Scrape]:
        pages = super().newest(c)
        gaps = {"time_per_output_token_seconds/per_request": "time_per_output_token_seconds/per_step"}
        return [replace(s, buckets={gaps.get(k, k): v for k, v in s.buckets.items()}) for s in pages]


def test_gaps_between_tokens_are_no_requests_and_judge_nothing() -> None:
    scraper = Stepping()
    source, cursor = begun(scraper)
    assert cursor.thresholds is not None
    assert cursor.thresholds.quantiles("ttft") is not None
    assert cursor.thresholds.quantiles("token_time") is None
    scraper.serve(500)
    e = source.read(CELL, cursor)
    assert not any(key.startswith("token_time@") for c in e.arms.values() for key in c.ladders)
    assert e.arms["canary"].timed_for("token_time") == 0
    assert "token_time is not told: engines count the gaps between tokens" in e.detail
