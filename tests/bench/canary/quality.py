"""Bench: triples (reference, repeat, canary) by the quality gate's discordant sign process; left out where the gate is not there."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from math import log
from typing import Any

import numpy as np

from fleetctl.analysis.batch import log_sum
from fleetctl.analysis.guardrails import FAIL_BOUND
from tests.bench.canary.engine import chunks, upper95
from tests.bench.canary.rows import Counts, Fields

_GATE = "fleetctl.analysis.signs"
_MOST = 8000
_BATCH = 10
"""Triples between two looks."""


def quality(n: Counts) -> Fields:
    """Triples until a FAIL in 9 of 10 runs for an excess of 2 points at a noise floor of 2 %, and false FAILs without an excess."""
    if find_spec(_GATE) is None:
        return {}
    gate = import_module(_GATE)
    rng = np.random.default_rng(95)
    found = np.concatenate([_until_fail(rng, gate, size, 0.02, 0.04) for size in chunks(n.worse)])
    false = np.concatenate([_until_fail(rng, gate, size, 0.02, 0.02) for size in chunks(n.alike)])
    at = np.sort(found)
    events = int(np.isfinite(false).sum())
    return {
        "quality_excess2_n90": _finite(at[int(0.9 * len(at))]),
        "quality_excess2_median": _finite(at[len(at) // 2]),
        "quality_false_upper95": upper95(events, n.alike),
    }


def _until_fail(rng: np.random.Generator, gate: Any, runs: int, floor: float, canary: float) -> Any:
    only = np.zeros((2, runs))
    value, at, chances = np.zeros(runs), np.full(runs, np.inf), (canary * (1 - floor), floor * (1 - canary))
    shares = np.array(gate.SHARES)[:, None]
    weights = np.array(gate.SHARE_WEIGHTS)[:, None]
    for n in range(_BATCH, _MOST + 1, _BATCH):
        hits = rng.binomial(_BATCH, sum(chances), runs)
        first = rng.binomial(hits, chances[0] / sum(chances))
        only += np.stack([first, hits - first])
        value = log_sum(only[0] * np.log(2 * shares) + only[1] * np.log(2 * (1 - shares)), weights)
        at[(value >= log(FAIL_BOUND)) & np.isinf(at)] = n
    shipped = [gate.log_fail(int(b), int(c)) for b, c in only.T[:5]]
    if not np.allclose(shipped, value[:5]):
        raise AssertionError("the bench's sign process is not the gate's")
    return at


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
