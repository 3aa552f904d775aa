"""Judge, pure layer: what gets worse at any moment of a step. Never a verdict, never I/O.

The processes of `guardrails` that begin with a step lose capital for as long as all is well: after half an hour a fault has to make up
for that first, after a day it never does. So a part of every guardrail's capital is kept back, and some of it is staked anew after every
so many canary requests on what is far above the baseline: a rate for a share, odds for the rungs of a ladder. Half of it is for the first
`level` restarts alike, and the others get shares that fall with the square of their number: all of them sum to 1, and what is not yet
staked counts as it is. So the whole is one e-process over the rollout, valid under continuous looking like those it is made of. Each
block's log-likelihoods are divided by the design effect of clustered events as it is known with that block.

Source: mixtures of restarted e-processes, Shin, Ramdas, Rinaldo, "E-detectors" (2022); the figures are ours (docs/explanation/promises.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.eprocess import Block
from fleetctl.analysis.memory import SuddenMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Stakes:
    """How capital is staked anew.

    Args:
        every: canary requests between restarts, so few that a fault finds a process that has lost little; level: restarts that share half
            of the capital alike, at least 1; kept_back: share of the guardrail's FAIL capital that this process has, 0 to 1.
    """

    every: int
    level: int
    kept_back: float

    def stake(self, restart: int) -> float:
        """Return the share of the capital that a restart gets; 0 is the first."""
        return 0.5 / self.level if restart < self.level else 0.5 * self.level / (restart * (restart + 1))

    def cash(self, restarts: int) -> float:
        """Return the share of the capital that so many restarts have left."""
        return 1 - 0.5 * restarts / self.level if restarts <= self.level else 0.5 * self.level / restarts


SHARES = Stakes(every=120, level=80, kept_back=0.5)
"""Errors and other shares: a few per cent are told by hundreds of requests, so half of the capital is here."""
LADDERS = Stakes(every=50, level=200, kept_back=0.2)
"""Every request tells of latency, so a process loses more in fewer of them, and a fault makes up for a small stake in some tens."""
RATE = 0.03
LEAST_ODDS = 3.0
"""The canary's rate under the alternative of a share, what 450 requests of which 5 % fail show in the unlucky case; its odds are at least
three times the baseline's."""
MOST_PER_S = 0.45
"""How fast (nat a second) what is staked on slowness may grow: a pause of 10 s that slows all in flight is 4.5 nats and no FAIL, and what
stays slow is found in some 50 s."""
ODDS = (2.5, 8.0)
"""Odds of being slow under the two alternatives of each rung, as times the baseline's: those of all x1.5 and all x2 at a log-sd of 0.6."""


def alternative(baseline: float, fail_margin: float) -> float:
    """Return the canary's rate that is staked on."""
    return min(max(ep.by_odds(ep.clip(baseline), LEAST_ODDS), RATE) + fail_margin, 0.97)


def feed_share(memory: SuddenMemory, block: Block, baseline: float, fail_margin: float, effect: float, most: float = inf) -> None:
    """Take in one block of a share guardrail.

    Args:
        baseline: its rate as estimated before the block; effect: design effect, at least 1; most: as in `feed`.
    """
    value = ep.log_e(block, baseline, alternative(baseline, fail_margin), fail_margin, worse=True)
    feed(memory, SHARES, block.n1, [value / effect], most)


def feed(memory: SuddenMemory, stakes: Stakes, canary: int, more: Sequence[float], most: float = inf) -> None:
    """Take in one block.

    Args:
        canary: its canary requests; more: the log e-value of each alternative, which are staked on alike; most: that an alternative may
            grow by, since what was slow in so short a time may be one pause.
    """
    if not memory.capital or memory.waited >= stakes.every:
        share = log(stakes.stake(memory.restarts) / len(more))
        memory.capital = [ep.log_mean([c, share], (1.0, 1.0)) for c in memory.capital] or [share] * len(more)
        memory.restarts, memory.waited = memory.restarts + 1, 0
    memory.waited += canary
    memory.capital = [c + min(value, most) for c, value in zip(memory.capital, more, strict=True)]


def log_sudden(memory: SuddenMemory, stakes: Stakes) -> float:
    """Return the log e-value of the process, 0 before it was fed."""
    if not memory.capital:
        return 0.0
    return ep.log_mean([*memory.capital, log(stakes.cash(memory.restarts))], [1.0] * (len(memory.capital) + 1))


def beside(memory: SuddenMemory, stakes: Stakes, log_fail: float) -> float:
    """Return the log FAIL e-value of a guardrail: that of the process restarted at each step, and this one's, each with its capital."""
    return ep.log_mean([log_fail, log_sudden(memory, stakes)], [1 - stakes.kept_back, stakes.kept_back])
