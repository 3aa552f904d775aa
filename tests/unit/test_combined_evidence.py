"""Several sources of one cell as one: nothing counted twice, the worst state, and each source's own place in its cursor."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.analysis.buckets import BucketTally
from fleetctl.analysis.judge import fresh, judge
from fleetctl.domain.evidence import ARMS, Arm, Counts, Cursor, Evidence, Quantiles, Series, SignalState, Thresholds, ladder_key
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Scrape
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.errors import EvidenceUnavailable
from fleetctl.usecases.evidence import WORST, Combined, Probed, measures, merged

CELL = CellId("chat")
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOG = Counts(attempts=1_000, errors=5, timed=0, cached_tokens=10, prompt_tokens=100)
PROBES = Counts(
    attempts=200,
    errors=2,
    timed_of={"ttft": 198},
    ladders={ladder_key(1.0, "ttft"): (99, 50, 20, 10, 2)},
    shares={"finish_stop": (198, 190)},
)


class Given:
    """A source that answers what it was given."""

    def __init__(self, counts: Counts, state: SignalState = "ok", *, thresholds: Thresholds | None = None, fault: str = "") -> None:
        self.counts, self.state, self.thresholds, self.fault = counts, state, thresholds, fault
        self.asked: list[Cursor] = []
        self.down = False

    def mark(self, c: CellId) -> Cursor:
        return Cursor(position=f"place {self.counts.attempts}", since=AT)

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        return self.thresholds

    def read(self, c: CellId, since: Cursor) -> Evidence:
        if self.down:
            raise EvidenceUnavailable("evidence.down", "gone")
        self.asked.append(since)
        arms = {"baseline": self.counts, "canary": self.counts}
        faults = (self.fault,) if self.fault else ()
        return Evidence(
            cell=c,
            at=AT,
            arms=arms,  # type: ignore[arg-type]
            state={"baseline": "ok", "canary": self.state},
            cursor=since,
            detail="said",
            faults=faults,
            query="asked",
        )

    def describe(self, c: CellId) -> tuple[Series, ...]:
        return (Series(arm="canary", name="attempts", present=True),)


def thresholds(**others: Quantiles) -> Thresholds:
    return Thresholds(
        class_edges=(),
        latency_ms=(),
        scales=(1.0, 1.5),
        baseline_n=300,
        baseline_error_ratio=0.01,
        log_sd=0.0,
        others=tuple(others.items()),
    )


def test_the_first_counts_attempts_and_the_others_add_what_it_does_not_measure() -> None:
    combined = Combined({"log": Given(LOG), "probes": Given(PROBES)})
    e = combined.read(CELL, combined.mark(CELL))
    counts = e.arms["canary"]
    assert (counts.attempts, counts.errors, counts.cached_tokens) == (1_000, 5, 10)
    assert counts.timed_of == {"ttft": 198}
    assert counts.ladders[ladder_key(1.0, "ttft")] == (99, 50, 20, 10, 2)
    assert counts.shares == {"errors_probes": (200, 2), "finish_stop": (198, 190)}
    assert (e.query, e.detail) == ("log: asked | probes: asked", "log: said; probes: said")
    assert measures(e, "canary") == ("ttft",)
    assert [s.name for s in combined.describe(CELL)] == ["log.attempts", "probes.attempts"]


def test_every_source_is_asked_from_its_own_place() -> None:
    log, probes = Given(LOG), Given(PROBES)
    combined = Combined({"log": log, "probes": probes})
    cursor = combined.mark(CELL)
    assert json.loads(cursor.position) == {"log": "place 1000", "probes": "place 200"}
    e = combined.read(CELL, cursor)
    assert (log.asked[0].position, probes.asked[0].position) == ("place 1000", "place 200")
    assert e.cursor == cursor


@pytest.mark.parametrize("state", WORST)
def test_the_worst_state_of_any_source_is_the_arms(state: SignalState) -> None:
    combined = Combined({"log": Given(LOG), "probes": Given(PROBES, state)})
    assert combined.read(CELL, combined.mark(CELL)).state == {"baseline": "ok", "canary": state}
    tolerant = Combined({"log": Given(LOG), "probes": Given(PROBES, state)}, tolerant=["probes"])
    assert tolerant.read(CELL, tolerant.mark(CELL)).state["canary"] == "ok"


def test_one_that_cannot_be_read_is_down_unless_it_is_tolerated_and_without_the_first_there_is_nothing() -> None:
    log, probes = Given(LOG), Given(PROBES)
    states: tuple[tuple[tuple[str, ...], SignalState], ...] = (((), "down"), (("probes",), "ok"))
    for names, state in states:
        combined = Combined({"log": log, "probes": probes}, tolerant=names)
        cursor = combined.mark(CELL)
        probes.down = True
        e = combined.read(CELL, cursor)
        assert e.arms["canary"] == LOG
        assert (e.state, e.led) == (dict.fromkeys(ARMS, state), {} if names else dict.fromkeys(ARMS, "ok"))
        assert ("probes: gone" in e.detail) == (not names)
    log.down = True
    with pytest.raises(EvidenceUnavailable):
        Combined({"log": log, "probes": Given(PROBES)}).read(CELL, Cursor(position="", since=AT))


def test_thresholds_are_those_of_all_and_wait_for_the_last() -> None:
    q = Quantiles(class_edges=(), rows=((1.0, 2.0, 3.0, 4.0, 5.0),), n=200, log_sd=0.3)
    log, probes = Given(LOG, thresholds=thresholds()), Given(PROBES)
    combined = Combined({"log": log, "probes": probes})
    assert combined.freeze(CELL, (1.1,), 1_000) is None
    probes.thresholds = thresholds(ttft=q)
    found = combined.freeze(CELL, (1.1,), 1_000)
    assert found is not None
    assert found.quantiles("ttft") == q
    assert found.quantiles("latency") is None
    exact = replace(thresholds(), latency_ms=q.rows, log_sd=0.3)
    both = Combined(
        {"log": Given(LOG, thresholds=exact), "pages": Given(PROBES, thresholds=thresholds(latency=replace(q, edges_only=True)))}
    )
    kept = both.freeze(CELL, (1.1,), 1_000)
    assert kept is not None
    latency = kept.quantiles("latency")
    assert latency is not None
    assert not latency.edges_only, "exact quantiles go before bounds of buckets"


def test_faults_of_any_source_are_kept() -> None:
    combined = Combined({"log": Given(LOG), "pages": Given(PROBES, fault="c1 GPU is unhealthy")})
    assert combined.read(CELL, combined.mark(CELL)).faults == ("c1 GPU is unhealthy",)


def test_probes_are_kept_going_by_whoever_reads() -> None:
    kept: list[str] = []

    class Probes:
        def keep(self, c: CellId) -> None:
            kept.append(c)

        def query(self, c: CellId) -> str:
            return "paired"

    probed = Probed(Probes(), Given(PROBES, thresholds=thresholds()), least=50)
    cursor = probed.mark(CELL)
    assert probed.freeze(CELL, (1.1,), 1_000) is not None
    assert probed.read(CELL, cursor).query == "paired"
    assert kept == [CELL] * 3
    assert probed.describe(CELL)


@pytest.mark.parametrize("again", [("baseline",), ("canary",), ("baseline", "canary")], ids=" and ".join)
def test_a_tolerated_source_whose_counters_begin_again_is_left_out_and_loses_nothing(again: tuple[Arm, ...]) -> None:
    cursor = Cursor(position="", since=AT)
    pages, state = BucketTally(CELL, cursor, settle_s=0.0, leads=False), fresh(6, 2)
    told = ("errors", "errors_pages")
    specs = tuple(GuardrailSpec(name=Guardrail(name), margin=0.05, fail_margin=0.01) for name in told)
    kinds: dict[str, str] = {}
    for i in range(1, 40):
        at = AT + timedelta(seconds=5 * i)
        for arm in ARMS:
            n = 100.0 * (i - 20 if arm in again and i >= 20 else i)
            values = {"requests_total/http": n, "errors_total/http": n // 100}
            pages.add(Scrape(cell=CELL, arm=arm, replica=arm, at_ms=round(at.timestamp() * 1_000), values=values))
        log = Evidence(
            cell=CELL,
            at=at,
            arms={arm: Counts(attempts=50 * i, errors=0) for arm in ARMS},
            state={"baseline": "ok", "canary": "ok"},
            cursor=cursor,
            canary_outcomes="." * 50 * i,
        )
        e = merged(log, pages.evidence(at), "pages", is_tolerated=True)
        state, verdicts = judge(state, e, specs)
        kinds = {v.guardrail: v.kind for v in verdicts}
        assert kinds["all"] in ("INCONCLUSIVE", "PASS"), i
        assert e.arms["canary"].attempts == 50 * i
        assert ("errors_pages" in e.arms["canary"].shares) == (1 < i < 20)
        assert ("pages left out: " in e.detail) == (i >= 20)
    assert (kinds["errors"], kinds["errors_pages"]) == ("PASS", "INCONCLUSIVE")


@pytest.mark.parametrize("state", WORST)
def test_what_a_tolerated_source_counts_is_used_only_where_it_can_be(state: SignalState) -> None:
    tolerant = Combined({"log": Given(LOG), "probes": Given(PROBES, state, fault="XID 79")}, tolerant=["probes"])
    e = tolerant.read(CELL, tolerant.mark(CELL))
    assert (measures(e, "canary") == ("ttft",)) == (state in ("ok", "empty", "stale"))
    assert e.faults == ("XID 79",)
