"""Bench traffic: what both arms see between two looks, for many runs at once. Lognormal latencies, Poisson arrivals, seeded."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from fleetctl.domain.evidence import LADDER

FROZEN_N = 3000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the arms really do.

    Args:
        per_min: requests a minute on both arms; share: of the canary; errors0, errors1: failing share of each arm.
        factor: canary latency over the baseline's; tail: share of canary requests that are `tail_factor` slower.
        look_s: seconds between looks; minutes: length; cluster: mean number of errors that come together (geometric).
    """

    per_min: float = 400.0
    share: float = 0.5
    errors0: float = 0.005
    errors1: float = 0.005
    log_sd: float = 0.6
    factor: float = 1.0
    tail: float = 0.0
    tail_factor: float = 3.0
    look_s: int = 6
    minutes: float = 60.0
    cluster: float = 1.0

    @property
    def looks(self) -> int:
        """How many looks there are."""
        return round(self.minutes * 60 / self.look_s)

    @property
    def means(self) -> tuple[float, float]:
        """Requests per look on the baseline and on the canary."""
        both = self.per_min / 60 * self.look_s
        return both * (1 - self.share), both * self.share


def frozen_tails(rng: np.random.Generator, runs: int, n: int = FROZEN_N) -> Any:
    """Return the true share of baseline requests above each frozen quantile, (rungs, runs): order statistics of n requests."""
    ranks = [max(1, round(q * n)) for q in LADDER]
    gaps = np.diff([0, *ranks, n + 1])
    parts = np.cumsum(rng.gamma(gaps[:, None].astype(float), size=(len(gaps), runs)), axis=0)
    return 1 - parts[:-1] / parts[-1]


def slower_than(tails: Any, s: Setting, scale: Any, log_factor: Any = 0.0) -> Any:
    """Return the share of requests above scale x each frozen quantile when latencies are multiplied by exp(log_factor)."""
    return ndtr(-(ndtri(1 - tails) + (np.log(scale) - log_factor) / s.log_sd))


def canary_tails(tails: Any, s: Setting, scale: Any, log_factor: Any = 0.0) -> Any:
    """Return the same for the canary of a setting: its factor, and its tail."""
    body = slower_than(tails, s, scale, log(s.factor) + log_factor)
    if not s.tail:
        return body
    return (1 - s.tail) * body + s.tail * slower_than(tails, s, scale, log(s.factor * s.tail_factor) + log_factor)


def draw_ladder(rng: np.random.Generator, n: Any, tails: Any) -> Any:
    """Draw how many of n requests lie above each rung, (rungs, runs); `tails` falls from rung to rung."""
    out, left, above = np.empty(tails.shape), n, np.ones(tails.shape[1])
    for i, share in enumerate(tails):
        left = rng.binomial(left, np.clip(share / above, 0.0, 1.0))
        out[i], above = left, share
    return out


def draw_errors(rng: np.random.Generator, n: Any, rate: float, s: Setting) -> tuple[Any, Any]:
    """Draw errors among n requests and the sum of squares of errors per second of start, each (runs,).

    Clusters: geometric sizes with the given mean, each cluster within one second, as retries of one failure are.
    """
    runs = len(n)
    if s.cluster <= 1.0:
        groups = rng.binomial(n, rate)
        sizes = np.ones(int(groups.sum()), dtype=np.int64)
    else:
        groups = rng.binomial(n, rate / s.cluster)
        sizes = rng.geometric(1 / s.cluster, int(groups.sum()))
    at = np.repeat(np.arange(runs), groups) * s.look_s + rng.integers(0, s.look_s, len(sizes))
    seconds = np.bincount(at, weights=sizes, minlength=runs * s.look_s).reshape(runs, s.look_s)
    errors = seconds.sum(axis=1)
    return np.minimum(errors, n), (seconds * seconds).sum(axis=1)
