"""Counters as evidence, property by property: how often somebody looks changes nothing, and a counter that falls is always told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.buckets import BucketTally
from fleetctl.domain.evidence import Arm, ClusterSums, Cursor, Evidence, Quantiles, Thresholds
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Scrape
from fleetctl.formats.recording import from_line, to_line

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = round(START.timestamp() * 1000)
EDGES = Quantiles(class_edges=(), rows=((100.0, 100.0, 500.0, 500.0, 500.0),), n=500, log_sd=0.0, edges_only=True)
CURSOR = Cursor(
    position="",
    since=START,
    thresholds=Thresholds(
        class_edges=(), latency_ms=(), scales=(1.0, 1.1), baseline_n=500, baseline_error_ratio=0.0, log_sd=0.0, others=(("ttft", EDGES),)
    ),
)
GROWTH = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(0, 50)), min_size=2, max_size=12)


def scrapes(arm: Arm, name: str, growth: list[tuple[int, int, int]], *, start: int = 1_000) -> list[Scrape]:
    """Return scrapes 5 s apart of counters that grow by these numbers of fast, failed and slow requests."""
    fast, failed, slow, out = start, 0, 0, []
    for i, (f, e, s) in enumerate(growth):
        fast, failed, slow = fast + f, failed + e, slow + s
        values = {"requests_total/engine": float(fast + failed + slow), "errors_total/engine": float(failed)}
        buckets = {"ttft_seconds": {0.1: float(fast), 0.5: float(fast + slow // 2), 1.0: float(fast + slow), inf: float(fast + slow)}}
        out.append(Scrape(cell=CELL, arm=arm, replica=name, at_ms=T0 + 5_000 * i, values=values, buckets=buckets))
    return out


def counted(found: list[Scrape]) -> Evidence:
    tally = BucketTally(CELL, CURSOR, settle_s=0)
    for s in sorted(found, key=lambda s: s.at_ms):
        tally.add(s)
    return tally.evidence(START + timedelta(seconds=70))


@given(GROWTH, GROWTH, st.data())
@settings(max_examples=60, deadline=None)
def test_leaving_out_looks_between_the_first_and_the_last_changes_no_count(
    baseline: list[tuple[int, int, int]], canary: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    whole = [scrapes("baseline", "b1", baseline), scrapes("canary", "c1", canary)]
    some = [
        [s[0], *data.draw(st.lists(st.sampled_from(s[1:-1]), unique_by=lambda x: x.at_ms) if s[1:-1] else st.just([])), s[-1]]
        for s in whole
    ]
    fewer, all_ = (counted([s for rows in those for s in rows]).arms for those in (some, whole))
    for arm in fewer:  # how errors change from scrape to scrape is what the scrapes in between tell
        assert replace(fewer[arm], clusters=ClusterSums()) == replace(all_[arm], clusters=ClusterSums())
        for counts in (fewer[arm], all_[arm]):
            told = counts.clusters
            assert told.errors <= counts.errors, "no error is in two intervals"
            assert told.spread is not None
            assert told.spread >= told.errors, "whoever looks seldom is never told that errors come more evenly than chance has it"


@given(GROWTH, GROWTH)
@settings(max_examples=60, deadline=None)
def test_counts_are_what_grew_whatever_stood_before_and_never_exceed_the_attempts(
    baseline: list[tuple[int, int, int]], canary: list[tuple[int, int, int]]
) -> None:
    low, high = (
        counted([*scrapes("baseline", "b1", baseline, start=start), *scrapes("canary", "c1", canary, start=start)]) for start in (0, 10**9)
    )
    assert low.arms == high.arms
    for arm, growth in (("baseline", baseline), ("canary", canary)):
        side: Arm = "baseline" if arm == "baseline" else "canary"
        c = low.arms[side]
        assert c.attempts == sum(sum(g) for g in growth[1:])
        assert c.errors == sum(g[1] for g in growth[1:])
        for key, rungs in c.ladders.items():
            assert all(0 <= k <= c.timed_of["ttft"] for k in rungs), key
        exact, scaled = c.ladders["ttft@1.0000"], c.ladders["ttft@1.1000"]
        assert all(a >= b for a, b in zip(exact, scaled, strict=True)), "a higher bound is passed by no more requests"


@given(GROWTH, st.data())
@settings(max_examples=60, deadline=None)
def test_a_counter_that_falls_anywhere_is_a_reset(growth: list[tuple[int, int, int]], data: st.DataObject) -> None:
    good = scrapes("canary", "c1", growth)
    at = data.draw(st.integers(1, len(good) - 1))
    again = scrapes("canary", "c1", growth, start=0)
    assert counted([*scrapes("baseline", "b1", growth), *good[:at], *again[at:]]).state["canary"] == "reset"


@given(GROWTH)
@settings(max_examples=40, deadline=None)
def test_a_recorded_scrape_reads_back_the_same(growth: list[tuple[int, int, int]]) -> None:
    for s in scrapes("canary", "c1", growth):
        assert from_line(to_line(s)) == s
