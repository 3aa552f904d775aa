"""Sources of one cell that measure the same in another way, in any order, each beginning to tell when it can: the exact one is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from math import inf

import numpy as np
import pytest

from fleetctl.analysis.buckets import BucketTally, freeze_edges
from fleetctl.analysis.judge import fresh, judge, needed_scales
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, LADDER, Arm, Cursor, Evidence, Quantiles, Series, Thresholds, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt, Scrape
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from fleetctl.lab.engine_metrics import REQUEST_BOUNDS, TTFT_BOUNDS
from fleetctl.usecases.evidence import Combined

CELL = CellId("chat")
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MS = round(START.timestamp() * 1_000)
SPECS = (
    GuardrailSpec(name=Guardrail("errors"), margin=0.05, fail_margin=0.02),
    GuardrailSpec(name=Guardrail("latency"), margin=0.5, fail_margin=0.25),
    GuardrailSpec(name=Guardrail("ttft"), margin=0.5, fail_margin=0.25),
)
Counting = Tally | BucketTally


class Source:
    """A source over a tally that the test fills, as of the newest moment that the test has set."""

    def __init__(self, thresholds: Thresholds, make: Callable[[Cursor], Counting]) -> None:
        self.thresholds, self.make, self.at = thresholds, make, START
        self.tally: Counting | None = None

    def mark(self, c: CellId) -> Cursor:
        return Cursor(position="", since=START)

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        return self.thresholds

    def of(self, cursor: Cursor) -> Counting:
        self.tally = self.tally or self.make(cursor)
        return self.tally

    def read(self, c: CellId, since: Cursor) -> Evidence:
        return self.of(since).evidence(self.at)

    def describe(self, c: CellId) -> tuple[Series, ...]:
        return ()


def exact(metric: str, values: np.ndarray) -> Thresholds:
    rows = (tuple(float(np.quantile(values, rung)) for rung in LADDER),)
    found = Quantiles(class_edges=(), rows=rows, n=len(values), log_sd=0.6)
    whole = Thresholds(
        class_edges=(),
        latency_ms=(),
        scales=needed_scales(SPECS),
        baseline_n=1_000,
        baseline_error_ratio=0.0,
        log_sd=0.6,
        slo_latency_ms=None,
    )
    return replace(whole, latency_ms=rows) if metric == "latency" else replace(whole, others=((metric, found),))


def page(arm: Arm, at: datetime, whole: Iterable[float], first: Iterable[float]) -> Scrape:
    def cumulative(ms: Iterable[float], bounds: Iterable[float]) -> dict[float, float]:
        seen = np.sort(np.array([*ms])) / 1_000
        return {**{b: float(np.searchsorted(seen, b, side="right")) for b in bounds}, inf: float(len(seen))}

    buckets = {"e2e_seconds": cumulative(whole, REQUEST_BOUNDS), "ttft_seconds": cumulative(first, TTFT_BOUNDS)}
    values = {"requests_total/engine": float(len([*whole])), "errors_total/engine": 0.0}
    return Scrape(cell=CELL, arm=arm, replica=arm, at_ms=round(at.timestamp() * 1_000), values=values, buckets=buckets)


@pytest.mark.parametrize("order", list(permutations(("log", "probes", "prom"))), ids=" ".join)
def test_exact_records_are_judged_whatever_the_order_and_whoever_tells_first(order: tuple[str, ...]) -> None:
    """Whole answers take some 8 s, so the log and the probes tell of times a minute after the counters do."""
    rng = np.random.default_rng(7)
    draws: dict[str, Callable[[int], np.ndarray]] = {
        "latency": lambda n: rng.lognormal(9.0, 0.4, n),
        "ttft": lambda n: rng.lognormal(8.0, 0.6, n),
    }
    before = [page(arm, START, draws["latency"](3_000), draws["ttft"](3_000)) for arm in ARMS]
    edges = freeze_edges(before, needed_scales(SPECS), 100)
    assert edges is not None
    sources = {
        "log": Source(exact("latency", draws["latency"](3_000)), lambda cursor: Tally(CELL, cursor, streaming=False, slo_latency_ms=None)),
        "probes": Source(exact("ttft", draws["ttft"](300)), lambda cursor: Tally(CELL, cursor, streaming=True, slo_latency_ms=None)),
        "prom": Source(edges, lambda cursor: BucketTally(CELL, cursor, settle_s=0.0, leads=order[0] == "prom")),
    }
    combined = Combined({name: sources[name] for name in order})
    frozen = combined.freeze(CELL, needed_scales(SPECS), 100)
    assert frozen is not None
    assert [frozen.quantiles(m) and frozen.quantiles(m).edges_only for m in ("latency", "ttft")] == [False, False]  # type: ignore[union-attr]
    cursor = replace(combined.mark(CELL), thresholds=frozen)
    state = fresh(1, len(SPECS))
    counted: dict[Arm, dict[str, list[float]]] = {arm: {"latency": [], "ttft": []} for arm in ARMS}
    logged: list[Attempt] = []
    kinds: dict[str, str] = {}
    verdicts: tuple[Verdict, ...] = ()
    for second in range(0, 400, 5):
        at = START + timedelta(seconds=second)
        for arm in ARMS:
            for kind, n in (("latency", 60 if arm == "baseline" else 20), ("ttft", 5)):
                for i, value in enumerate(draws[kind](n)):
                    t0 = MS + second * 1_000 + 5_000 * i // n
                    a = Attempt(cell=CELL, arm=arm, started_ms=t0, ended_ms=t0 + int(value), failed=False, latency_ms=float(value))
                    logged.append(a if kind == "latency" else replace(a, latency_ms=None, ttft_ms=float(value)))
                    counted[arm][kind].append(float(value))
            counters = sources["prom"].of(cursor)
            assert isinstance(counters, BucketTally)
            counters.add(page(arm, at, counted[arm]["latency"], counted[arm]["latency"]))
        now = MS + second * 1_000 + 5_000
        for a in [a for a in logged if a.ended_ms <= now]:
            tally = sources["log" if a.latency_ms is not None else "probes"].of(cursor)
            assert isinstance(tally, Tally)
            tally.add(a)
            logged.remove(a)
        for source in sources.values():
            source.at = at + timedelta(seconds=5)
        e = combined.read(CELL, cursor)
        state, verdicts = judge(state, e, SPECS)
        kinds = {v.guardrail: v.kind for v in verdicts}
        assert kinds["all"] in ("INCONCLUSIVE", "PASS", "NO_DATA"), (second, verdicts)
        for metric in ("latency", "ttft"):
            for arm in ARMS:
                for key, rungs in e.arms[arm].ladders.items():
                    assert not key.startswith(metric) or max(rungs) <= e.arms[arm].timed_for(metric)
    assert kinds["latency"] == "PASS"
    (first,) = (v for v in verdicts if v.guardrail == "ttft")
    assert (first.blocked, first.missing is not None) == (False, True), "it only takes more probes"
