"""Judge, pure layer: clients that go away before the answer is whole, compared between the arms. Never a verdict, never I/O.

Clients go away for reasons of their own on both arms alike; those of a target that does not answer in time go away there more often, and
leave neither an error nor a latency. So the share of requests that were given up has a FAIL process of its own (the same e-process as a
share guardrail, from the step's beginning and staked anew within it; null: at most `MARGIN` more often than on the baseline), at 1,000
beside the guardrails' mean, as the breaker is: at most 0.1 % false a rollout. One client that closes many requests at once is one event:
log-likelihoods are divided by the design effect.
"""

from __future__ import annotations

from fleetctl.analysis import clusters, guardrails, sudden
from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.breaker import BREAKER_BOUND
from fleetctl.analysis.guardrails import RATIOS, Rate
from fleetctl.analysis.memory import Memory
from fleetctl.domain.evidence import ARMS, Arm, Counts, Evidence

GAVE_UP = "gave_up"
GAVE_UP_BOUND = BREAKER_BOUND
MARGIN = 0.02
"""By how much more often clients may go away: 2 points, since what people do between two arms differs a little in any case."""
LEAST_BLOCK = 16
LEAST_S = 15.0
"""Seconds of a step before the first block: within two or three, two clients that close all they have look like a steady rate."""
_PRIOR, _WEIGHT = 0.01, 50.0


def gave_up_counts(counts: Counts) -> Rate:
    """Return requests that were given up among all."""
    return Rate(n=counts.attempts + counts.gave_up.errors, k=counts.gave_up.errors)


def gave_up_went_back(memory: Memory, e: Evidence, arm: Arm) -> bool:
    """Tell whether customers' cumulative counts of an arm are lower than what has been used already."""
    n, k = memory.quits_seen.get(arm, (0, 0))
    now = gave_up_counts(e.customers.arms[arm])
    return now.n < n or now.k < k


def feed_gave_up(memory: Memory, e: Evidence) -> None:
    """Feed the process with what is new of customers' own requests."""
    arms = e.customers.arms
    elapsed_s = max(0.0, (e.at - e.cursor.since).total_seconds())
    clusters.note_clusters(memory.quits, {arm: arms[arm].gave_up for arm in ARMS}, elapsed_s)
    if elapsed_s < LEAST_S:
        return
    now = {arm: gave_up_counts(arms[arm]) for arm in ARMS}
    used = {arm: memory.quits_seen.get(arm, (0, 0)) for arm in ARMS}
    seen = {arm: Rate(n=n, k=k) for arm, (n, k) in used.items()}
    block = guardrails.increment(seen["baseline"], now["baseline"], seen["canary"], now["canary"])
    if min(block.n0, block.n1) < 1 or block.n0 + block.n1 < LEAST_BLOCK:
        return
    baseline = ep.estimate(seen["baseline"].k, seen["baseline"].n, _PRIOR, _WEIGHT)
    bank = memory.fail_bank(GAVE_UP, len(RATIOS))
    for i, ratio in enumerate(RATIOS):
        bank.llr[i] += ep.log_e(block, baseline, min((baseline + MARGIN) * ratio, 0.97), MARGIN, worse=True)
    sudden.feed_share(memory.sudden(GAVE_UP), block, baseline, MARGIN, clusters.design_effect(memory.quits))
    memory.quits_seen = {arm: (rate.n, rate.k) for arm, rate in now.items()}


def gave_up_log(memory: Memory) -> float:
    """Return the log e-value that clients give up more often on the canary, 0 before it was fed."""
    whole = guardrails.share_log_fail(memory, GAVE_UP, clusters.design_effect(memory.quits))
    return sudden.beside(memory.sudden(GAVE_UP), sudden.SHARES, whole)
