"""Requests that take longer than anything is remembered: each is counted whole, and the baseline's own incident is seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, Arm, Cursor
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt

CELL = CellId("slow")
T0 = datetime(2026, 12, 1, tzinfo=UTC)


def attempt(arm: Arm, ends_s: float, took_s: float, *, failed: bool) -> Attempt:
    end = round((T0.timestamp() + ends_s) * 1_000)
    return Attempt(cell=CELL, arm=arm, started_ms=end - round(took_s * 1_000), ended_ms=end, failed=failed, latency_ms=took_s * 1_000)


@pytest.mark.parametrize("took_s", [1.0, 14.9, 15.1, 30.0, 600.0])
def test_a_request_is_counted_whole_however_long_it_took(took_s: float) -> None:
    tally = Tally(CELL, Cursor(position="", since=T0, thresholds=None), streaming=False, slo_latency_ms=None)
    for i in range(20):
        for arm in ARMS:
            tally.add(attempt(arm, 600.0 + i, took_s, failed=arm == "canary"))
    e = tally.evidence(T0 + timedelta(seconds=621))
    assert {arm: (e.arms[arm].attempts, e.arms[arm].errors) for arm in ARMS} == {"baseline": (20, 0), "canary": (20, 20)}
    assert e.canary_outcomes == "x" * 20


@pytest.mark.parametrize("took_s", [1.0, 8.0, 12.0, 30.0])
def test_errors_of_the_baseline_that_ended_lately_are_seen_however_long_they_took(took_s: float) -> None:
    tally = Tally(CELL, Cursor(position="", since=T0, thresholds=None), streaming=False, slo_latency_ms=None)
    for i in range(60):
        tally.add(attempt("baseline", 100.0 + i, took_s if i % 3 == 0 else 0.5, failed=i % 3 == 0))
    e = tally.evidence(T0 + timedelta(seconds=160))
    assert e.baseline_recent >= 9
    assert 0.2 < e.baseline_recent_errors / e.baseline_recent < 0.5
