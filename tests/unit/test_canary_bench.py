"""The canary benchmark: a seeded small part against its bars with room for chance; `slow`: every row with the published counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.bench.canary.__main__ import ROWS, main
from tests.bench.canary.bars import AT_LEAST, BARS, misses, table
from tests.bench.canary.engine import fail_errors, fail_latency, upper95
from tests.bench.canary.rows import ERRORS, LATENCY, TAIL, Counts, alike_setting, errors_bound, hard_failure, latency_bound, look_time
from tests.bench.canary.tools import run_tools
from tests.bench.canary.traffic import Setting, draw_errors, draw_ladder, frozen_tails
from tests.bench.canary.whole import STEPS_200, run_canary

BAR_OF_ROW = {
    "look": ("look_8000_seconds",),
    "errors": (*(b for b in BARS if b.startswith("errors_")), "bound_ratio_05_10", "bound_ratio_01_06"),
    "latency": (*(b for b in BARS if b.startswith("latency")), "bound_ratio_latency10", "tail_by12000"),
    "hard failure": ("hard_failure_within100",),
    "quality": ("quality_excess2_n90",),
    "whole canaries": ("pass_false_at_2x_margin", "pass_hours_p90_200"),
    "disturbed": ("cold_start_false_rollback", "host_effect_false_rollback", "cluster_false_rollback"),
    "stalls": (),
    "alike": ("aa_false_rollback_upper95",),
    "migration": ("migration_false_rollback_upper95",),
    "tools": (),
}


def test_every_bar_belongs_to_a_row() -> None:
    assert sorted(b for bars in BAR_OF_ROW.values() for b in bars) == sorted(BARS)
    assert list(BAR_OF_ROW) == list(ROWS)


@pytest.mark.slow
@pytest.mark.timeout(3500)
@pytest.mark.parametrize("row", list(ROWS))
def test_a_row_with_all_its_runs_meets_its_bars(row: str) -> None:
    fields = ROWS[row](Counts())
    missed = misses(fields)
    assert {b: missed.get(b) for b in BAR_OF_ROW[row] if b in missed} == {}


@pytest.mark.parametrize("name", list(ERRORS))
def test_errors_are_found_at_the_published_cost(name: str) -> None:
    ends = fail_errors(ERRORS[name], 150, 7, until_whole=False)
    assert np.median(ends.alone) <= 1.1 * BARS[f"{name}_median"]


@pytest.mark.parametrize("name", list(LATENCY))
def test_latency_is_found_at_the_published_cost(name: str) -> None:
    s, margin = LATENCY[name]
    ends = fail_latency(s, 100, 7, fail_margin=margin, until_whole=False)
    assert np.median(ends.alone) <= 1.1 * BARS[f"{name}_median"]


def test_a_tail_alone_is_found_in_most_runs_and_the_breaker_is_quick() -> None:
    assert fail_latency(TAIL, 60, 7, until_whole=False).share(12_000) >= 0.6
    fields = hard_failure(Counts(alike=200, worse=400))
    assert fields["hard_failure_within100"] >= 0.99
    assert look_time(Counts())["look_8000_seconds"] <= 5 * BARS["look_8000_seconds"]


def test_alike_sides_fail_in_few_runs() -> None:
    runs = 300
    for per_min, share in ((200, 0.5), (2000, 0.05)):
        s = alike_setting(per_min, share)
        assert fail_errors(s, runs, 8, until_whole=False).share() <= 0.02
    assert fail_latency(Setting(look_s=20), runs, 8, until_whole=False).share() <= 0.02


def test_alike_whole_canaries_pass_within_hours() -> None:
    outcome = run_canary(Setting(per_min=200), STEPS_200, 20, 9)
    assert np.median(outcome.hours) <= 2.8
    assert outcome.failed.mean() <= 0.05


def test_bounds_are_the_published_ones() -> None:
    assert errors_bound(0.005, 0.01, 0.5) == pytest.approx(5381, rel=0.001)
    assert errors_bound(0.005, 0.01, 0.05) == pytest.approx(2530, rel=0.001)
    assert errors_bound(0.001, 0.006, 0.5) == pytest.approx(2317, rel=0.001)
    assert latency_bound(1.1, 0.6, 0.5) == pytest.approx(730, rel=0.002)
    assert latency_bound(1.1, 0.25, 0.5) == pytest.approx(127, rel=0.003)


def test_upper_limits_are_clopper_and_pearsons() -> None:
    assert upper95(0, 299) == pytest.approx(0.00997, abs=1e-4)
    assert upper95(24, 4000) == pytest.approx(0.0084, abs=1e-4)
    assert upper95(5, 5) == 1.0


def test_drawn_counts_have_the_law_they_stand_for() -> None:
    rng, runs = np.random.default_rng(1), 4000
    tails = frozen_tails(rng, runs)
    assert tails.mean(axis=1) == pytest.approx([0.5, 0.25, 0.1, 0.05, 0.01], rel=0.05)
    drawn = draw_ladder(rng, np.full(runs, 1000), tails)
    assert drawn.mean(axis=1) / 1000 == pytest.approx(tails.mean(axis=1), rel=0.02)
    assert (np.diff(drawn, axis=0) <= 0).all()
    k, squares = draw_errors(rng, np.full(runs, 500), 0.02, Setting(look_s=10, cluster=3.0))
    assert k.mean() == pytest.approx(10, rel=0.05)
    assert (squares.sum() - k.sum() ** 2 / runs / 10) / k.sum() > 3  # clusters: E[s^2] / E[s] = 5, and chance


def test_the_tools_find_a_gross_regression_and_a_threshold_fires_on_alike_sides() -> None:
    slow = run_tools(Setting(factor=2.0, minutes=30), 6, 2, latency=True)
    assert all(np.isfinite(at).all() for at in slow.values())
    failing = run_tools(Setting(errors1=0.1, minutes=30), 6, 2, latency=False)
    assert all(np.isfinite(at).all() for at in failing.values())
    alike = run_tools(Setting(minutes=60), 20, 3, latency=True)
    assert np.isfinite(alike["argo_like"]).mean() > 0.5


def test_the_last_line_is_one_object_and_misses_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--rows", "look"]) == 0
    fields = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert fields["look_8000_seconds"] > 0
    assert set(fields["misses"]) == set(BARS) - {"look_8000_seconds"}
    met = dict(BARS)
    assert misses(met) == {}
    assert set(misses({name: bar * (0.9 if name in AT_LEAST else 1.1) for name, bar in BARS.items()})) == set(BARS)
    assert table(met).count("\n") == len(BARS) + 1
