"""Judge, pure layer: errors that begin at any moment of a step. Never a verdict, never I/O.

The process of `guardrails` that begins with a step loses capital for as long as all is well: after half an hour a fault has to make up
for that first. So half of the errors guardrail's capital is kept back, and a part of it is staked anew after every 200 canary requests on
rates that are far above the baseline's. The shares of the restarts, H / ((H + j) (H + j + 1)), sum to 1, and what is not yet staked counts
as it is: the whole is one e-process over the rollout, valid under continuous looking like those it is made of. Each block's
log-likelihoods are divided by the design effect of clustered errors as it is known with that block.

Source: mixtures of restarted e-processes, Shin, Ramdas, Rinaldo, "E-detectors" (2022); the figures are ours (docs/explanation/promises.md).
"""

from __future__ import annotations

from math import log

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.eprocess import Block
from fleetctl.analysis.memory import SuddenMemory

RATES = (0.02, 0.05)
LEAST_RATIO = 3.0
"""The canary's error rate under the two alternatives; at least three times the baseline's."""
RESTART_EVERY = 200
"""Canary requests between restarts: what all is well costs the newest process stays below about 2 nat."""
HORIZON = 40.0
KEPT_BACK = 0.5
"""Share of the errors guardrail's FAIL capital that this process has."""


def stake(restart: int) -> float:
    """Return the share of the capital that a restart gets; 0 is the first."""
    return HORIZON / ((HORIZON + restart) * (HORIZON + restart + 1))


def cash(restarts: int) -> float:
    """Return the share of the capital that so many restarts have left."""
    return HORIZON / (HORIZON + restarts)


def alternatives(baseline: float, fail_margin: float) -> list[float]:
    """Return the canary's error rates that are staked on."""
    return [min(max(LEAST_RATIO * baseline, rate) + fail_margin, 0.97) for rate in RATES]


def feed(memory: SuddenMemory, block: Block, baseline: float, fail_margin: float, effect: float) -> None:
    """Take in one block.

    Args:
        baseline: its error rate as estimated before the block; effect: design effect, at least 1.
    """
    if not memory.capital or memory.waited >= RESTART_EVERY:
        share = log(stake(memory.restarts) / len(RATES))
        memory.capital = [ep.log_mean([c, share], (1.0, 1.0)) for c in memory.capital] or [share] * len(RATES)
        memory.restarts, memory.waited = memory.restarts + 1, 0
    memory.waited += block.n1
    for i, rate in enumerate(alternatives(baseline, fail_margin)):
        memory.capital[i] += ep.log_e(block, baseline, rate, fail_margin, worse=True) / effect


def log_sudden(memory: SuddenMemory) -> float:
    """Return the log e-value of the process, 0 before it was fed."""
    if not memory.capital:
        return 0.0
    return ep.log_mean([*memory.capital, log(cash(memory.restarts))], [1.0] * (len(RATES) + 1))


def beside(memory: SuddenMemory, log_fail: float) -> float:
    """Return the log FAIL e-value of errors: that of the process restarted at each step, and this one's, each with its capital."""
    return ep.log_mean([log_fail, log_sudden(memory)], [1 - KEPT_BACK, KEPT_BACK])
