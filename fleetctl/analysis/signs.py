"""Judge, pure layer: e-values of paired trials (reference, repeat, canary), where only the trials on which two differ say anything.

FAIL: among positions where exactly one of canary and repeat differs from the reference, the canary is it at most half of the time if it
is no worse; likelihood ratios of higher shares, mixed. PASS: the mean of (canary differs) - (repeat differs) is at least the margin if it
is too much worse; bets against that, mixed over stakes. Both are e-processes: they may be looked at after every position.

Source: evidence.md 5 (discordant sign process); Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting"
(2023), for the PASS side.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, log1p

from fleetctl.analysis import eprocess as ep

SHARES = (0.55, 0.6, 0.67, 0.75, 0.85, 0.95, 0.99)
SHARE_WEIGHTS = (0.1, 0.2, 0.25, 0.2, 0.1, 0.1, 0.05)
STAKES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
_EQUAL = [1 / len(STAKES)] * len(STAKES)
_PRIOR = 4.0


def log_fail(only_canary: int, only_repeat: int, effect: float = 1.0) -> float:
    """Return the log e-value against "the canary differs no more often than the repeat".

    Args:
        effect: at least 1, what log-likelihoods are divided by (clustered trials).
    """
    logs = [(only_canary * log(2 * q) + only_repeat * log(2 * (1 - q))) / effect for q in SHARES]
    return ep.log_mean(logs, SHARE_WEIGHTS)


def log_pass(trials: int, only_canary: int, only_repeat: int, margin: float, effect: float = 1.0) -> float:
    """Return the log e-value against "the canary differs more often than the repeat, by `margin` or more".

    Args:
        trials: all of them, those on which both or neither differ included; margin: points / 100, above 0 and below 1.
    """
    return ep.log_mean([_bet(s, trials, only_canary, only_repeat, margin) / effect for s in STAKES], _EQUAL)


def _bet(stake: float, trials: float, only_canary: float, only_repeat: float, margin: float) -> float:
    most = stake / (1 - margin)
    same = trials - only_canary - only_repeat
    return (
        only_canary * log1p(-stake)  # 1 + most * (margin - 1)
        + only_repeat * log1p(most * (margin + 1))
        + same * log1p(most * margin)
    )


def missing_trials(trials: int, only_canary: int, only_repeat: int, margin: float, effect: float, bound: float) -> float:
    """Return the trials still needed for a PASS if canary and repeat differ alike from here on; infinite where there is no drift."""
    if trials <= 0:
        return inf
    each = (only_canary + only_repeat + 1) / 2 / (trials + 1)
    left = log(bound) - log_pass(trials, only_canary, only_repeat, margin, effect)
    drift = max(_bet(s, 1.0, each, each, margin) for s in STAKES) / effect
    return max(0.0, left / drift) if drift > 0 else inf


def design_effect(by_cluster: Sequence[tuple[int, int]]) -> float:
    """Return by how much trials of one text overstate what was seen, at least 1.

    Args:
        by_cluster: (only_canary, only_repeat) of each text. Source: evidence.md 4, the ratio of variances, drawn towards 1 by four trials.
    """
    n = len(by_cluster)
    discordant = sum(b + c for b, c in by_cluster)
    if n < 2 or not discordant:
        return 1.0
    mean = sum(b - c for b, c in by_cluster) / n
    spread = sum((b - c - mean) ** 2 for b, c in by_cluster) * n / (n - 1)
    return max(1.0, (spread + _PRIOR) / (discordant + _PRIOR))


def planned_pairs(discordance: float, margin: float, bound: float = 20.0) -> float:
    """Return the paired trials to a PASS if both are equal: distance to the bound (with what mixing costs) over the drift.

    Args:
        discordance: share of trials on which exactly one of the two differs, 0 to 1. Infinite where there is no drift.
    """
    drift = max(_bet(s, 1.0, discordance / 2, discordance / 2, margin) for s in STAKES)
    return (log(bound) + log(len(STAKES))) / drift if drift > 0 else inf


def as_e(value: float) -> float:
    """Return exp(value), bounded."""
    return exp(max(-700.0, min(700.0, value)))
