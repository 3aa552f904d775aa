"""Lab: every row of `make bench-traffic` runs, gives its fields and meets its bars, in few runs."""

from __future__ import annotations

import pytest

from tests.bench.traffic.rows import ROWS, STREAMS

pytestmark = [pytest.mark.lab, pytest.mark.slow]
BARS: dict[str, dict[str, float]] = {
    "switch": {"haproxy_p100_ms": 2_000, "envoy_p100_ms": 2_000, "client_errors": 0},
    "cap": {"cap_excess_points": 1},
    "buckets": {"bucket_moves_wrong": 0},
    "batch": {"batch_lost": 0, "batch_double": 0},
    "tee": {"tee_p50_ratio": 1.2},  # the bar of 1.05 is for 50 runs
    "locality": {"locality_gap_points": 5},
}


@pytest.mark.parametrize("row", list(ROWS))
def test_a_row_meets_its_bars(row: str) -> None:
    found = ROWS[row](2)
    over = {name: found[name] for name, bar in BARS[row].items() if float(str(found[name])) > bar}
    assert over == {}
    assert {value for key, value in found.items() if key.endswith("_streams_whole")} <= {STREAMS}
