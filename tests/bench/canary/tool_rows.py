"""Bench rows of the baseline tools: the fields of the shipped engine that a tool can have, from the same settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from math import exp
from typing import Any

import numpy as np

from tests.bench.canary.engine import GUARDRAILS, upper95
from tests.bench.canary.rows import (
    BOUNDS,
    ERRORS,
    LATENCY,
    RATES,
    SHARES,
    STEP_SHARES,
    TAIL,
    WARM_UP_MIN,
    Counts,
    Fields,
    alike_setting,
    errors_bound,
    latency_bound,
)
from tests.bench.canary.tools import TOOLS, run_tools
from tests.bench.canary.traffic import Setting

Factors = Iterator[Callable[[int], tuple[float, float]]]
NONE_OF_TOOLS = ("pass_false_at_2x_margin", "pass_hours_p90_200", "quality_excess2_n90", "look_8000_seconds")
"""What the tools have no verdict for, or what is not measured of them."""


def baselines(n: Counts) -> Fields:
    """Return the fields of each tool by name."""
    out: dict[str, Fields] = {name: {} for name in TOOLS}
    for fields in (_alike(n), _worse(n), _disturbed(n), _migration(n)):
        for name in TOOLS:
            out[name] |= fields[name]
    return {"baselines": {name: fields | dict.fromkeys(NONE_OF_TOOLS) for name, fields in out.items()}}


def _alike(n: Counts) -> dict[str, Fields]:
    cells: dict[str, dict[str, float]] = {name: {} for name in TOOLS}
    for per_min in RATES:
        for share in SHARES:
            for latency in (False, True):
                found = run_tools(alike_setting(per_min, share), n.tools, 81, latency=latency)
                for name, at in found.items():
                    cells[name][f"{'latency' if latency else 'errors'} {per_min}/min {share:.0%}"] = _false(at)
    return {
        name: {
            "aa_false_rollback_upper95": round(max(upper95(v * n.tools, n.tools) for v in own.values()), 5),
            "aa_false_rollback_200_half": max(own["errors 200/min 50%"], own["latency 200/min 50%"]),
            "aa_cells": own,
        }
        for name, own in cells.items()
    }


def _worse(n: Counts) -> dict[str, Fields]:
    out: dict[str, Fields] = {name: {} for name in TOOLS}
    settings = {name: (s, False) for name, s in ERRORS.items()} | {name: (s, True) for name, (s, _) in LATENCY.items()}
    for field, (s, latency) in settings.items():
        s = replace(s, minutes=min(s.minutes, 12_000 / (s.per_min * s.share)))
        for name, at in run_tools(s, n.tools, 82, latency=latency).items():
            median = float(np.median(at))
            out[name][f"{field}_median"] = median if np.isfinite(median) else None
            if field == "errors_05_10":
                out[name]["errors_05_10_by12000"] = _within(at)
            if field in BOUNDS:
                bound = latency_bound(s.factor, s.log_sd, s.share) if latency else errors_bound(s.errors0, s.errors1, s.share)
                out[name][BOUNDS[field]] = round(float(np.minimum(at, 12_000).mean()) / bound, 3)
    for name, at in run_tools(TAIL, n.tools, 83, latency=True).items():
        out[name]["tail_by12000"] = _within(at)
    for name, at in run_tools(Setting(per_min=100, errors1=0.2, minutes=30), n.tools, 84, latency=False).items():
        out[name]["hard_failure_within100"] = _within(at, 100)
    return out


def _disturbed(n: Counts) -> dict[str, Fields]:
    s = Setting()
    cold = [run_tools(s, n.tools, 85, latency=True, factors=cycle([f])) for f in (_square, _decay)]
    rng = np.random.default_rng(86)
    hosts = run_tools(s, n.tools, 87, latency=True, factors=_hosts(rng, 0.02, round(s.minutes)))
    clustered = run_tools(replace(s, cluster=3.0), n.tools, 88, latency=False)
    return {
        name: {
            "cold_start_false_rollback": max(_false(c[name]) for c in cold),
            "host_effect_false_rollback": _false(hosts[name]),
            "cluster_false_rollback": _false(clustered[name]),
        }
        for name in TOOLS
    }


def _square(minute: int) -> tuple[float, float]:
    return 1.0, 2.0 if minute + WARM_UP_MIN < 3 else 1.0


def _decay(minute: int) -> tuple[float, float]:
    return 1.0, 1 + exp(-(minute + WARM_UP_MIN) / 2)


def _hosts(rng: np.random.Generator, sd: float, minutes: int) -> Factors:
    """One host an arm, AR(1) with a time constant of 10 min."""
    keep = exp(-0.1)
    while True:
        walk = np.empty((minutes + 1, 2))
        walk[0] = rng.normal(0, sd, 2)
        for m in range(minutes):
            walk[m + 1] = keep * walk[m] + np.sqrt(1 - keep * keep) * rng.normal(0, sd, 2)
        yield lambda m, walk=walk: (float(np.exp(walk[m, 0])), float(np.exp(walk[m, 1])))  # type: ignore[misc]


def _migration(n: Counts) -> dict[str, Fields]:
    """8 guardrails (4 of errors, 4 of latency) x 6 steps of 55 min at 200 requests a minute, from each step's own false rollbacks.

    The tools begin every step afresh and one alarm is enough, so the chances of no alarm multiply.
    """
    calm = dict.fromkeys(TOOLS, 1.0)
    for share in STEP_SHARES:
        for latency in (False, True):
            found = run_tools(Setting(per_min=200, share=share, minutes=55), n.tools, 89, latency=latency)
            for name, at in found.items():
                calm[name] *= (1 - _false(at)) ** (GUARDRAILS // 2)
    return {name: {"migration_false_rollback": round(1 - v, 4), "migration_false_rollback_upper95": None} for name, v in calm.items()}


def _false(at: Any) -> float:
    return float(np.isfinite(at).mean())


def _within(at: Any, most: float = 12_000) -> float:
    return float((at <= most).mean())
