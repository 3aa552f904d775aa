"""Positions that the quality gate's sign process needs, by simulation; seeded. `quality_excess2_n90` is a field of `make bench-canary`."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from fleetctl.analysis.shadow import FAIL_BOUND
from fleetctl.analysis.signs import SHARE_WEIGHTS, SHARES, log_fail


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Positions to a FAIL: median and 90th percentile (the longest looked at, plus 1, where it was not reached), share found."""

    median: float
    n90: float
    found: float


def excess_positions(*, floor: float, excess: float, runs: int, seed: int, most: int = 16_000) -> Positions:
    """Simulate triples that are looked at after every position.

    Args:
        floor: share of positions where the repeat differs; excess: what the canary adds to it; most: positions of a run.
    """
    rng = np.random.default_rng(seed)
    first: list[Any] = []
    for start in range(0, runs, 100):
        size = (min(100, runs - start), most)
        repeat, canary = rng.random(size) < floor, rng.random(size) < floor + excess
        b, c = np.cumsum(canary & ~repeat, 1), np.cumsum(repeat & ~canary, 1)
        value = np.full(size, -np.inf)
        for share, weight in zip(SHARES, SHARE_WEIGHTS, strict=True):
            value = np.logaddexp(value, log(weight) + b * log(2 * share) + c * log(2 * (1 - share)))
        check = (0, min(most, 500) - 1)
        assert abs(float(value[check]) - log_fail(int(b[check]), int(c[check]))) < 1e-9, "the simulation is not the judge's own process"
        hit = value >= log(FAIL_BOUND)
        first.append(np.where(hit.any(1), hit.argmax(1) + 1, most + 1))
    n = np.concatenate(first)
    return Positions(median=float(np.median(n)), n90=float(np.quantile(n, 0.9)), found=float((n <= most).mean()))


def quality_excess2_n90(runs: int = 2_000, seed: int = 1) -> float:
    """Return the positions by which 90 % of runs have found an excess of 2 points at a noise floor of 2 %. Bar: 3,100."""
    return excess_positions(floor=0.02, excess=0.02, runs=runs, seed=seed, most=8_000).n90
