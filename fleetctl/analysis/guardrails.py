"""Judge, pure layer: FAIL and PASS processes of one guardrail, fed block by block. Never a verdict, never I/O.

A share guardrail (errors, SLO misses, quality) counts events among attempts; its margin is in points / 100. The latency guardrail
counts, per rung of the ladder, canary requests slower than (1 + margin) x the frozen quantile against baseline requests slower
than the quantile itself: the null "a canary request divided by (1 + margin) is as slow as a baseline one" needs no rate and no
shape. FAIL averages the rungs; PASS needs every rung.

Alternatives are fixed before each block from what was seen before it. Source: evidence.md 1-3; canary.md 3.4 (mixture of ratios).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, log1p
from operator import sub
from typing import NamedTuple

from fleetctl.analysis import caches, clusters, sudden
from fleetctl.analysis import eprocess as ep
from fleetctl.analysis.caches import CONFOUNDED_SCALE
from fleetctl.analysis.eprocess import Block
from fleetctl.analysis.memory import ArmSeen, FailBank, Memory, PassBank
from fleetctl.domain.evidence import ARMS, FINISHED, LADDER, SETTLED, Counts, Evidence, Thresholds, ladder_key
from fleetctl.domain.workload import GuardrailSpec

FAIL_BOUND = 100.0
PASS_BOUND = 20.0
CACHE_BOUND = ("latency", "ttft")
"""Ladder metrics that a cached prompt makes smaller."""
CONFOUNDED_CAPITAL = 0.1
"""Share of such a metric's FAIL capital that is for blocks in which the caches differ, where they are told at all: slowness of x1.5 makes
up for so little in some tens of requests."""

RATIOS = (1.5, 2.0, 3.0, 6.0, 20.0)
_RATIO_WEIGHTS = (0.23, 0.35, 0.2, 0.12, 0.1)
ODDS = (1.15, 1.35, 1.7, 2.5, 4.0, 8.0, 20.0)
SUDDEN_ODDS = tuple(ODDS.index(odds) for odds in sudden.ODDS)
_ODDS_WEIGHTS = (0.15, 0.2, 0.2, 0.15, 0.1, 0.1, 0.1)
_PASS_WEIGHTS = (0.7, 0.15, 0.15)
_PRIOR_BASELINE = 1000.0
_PRIOR_RUNG = 1000.0
_PRIOR_SLOWED = 300.0
_LEAST_LOG_SD = 0.02


class Rate(NamedTuple):
    """What was seen of one arm before a block: events k in n."""

    n: int
    k: int


class Ladder(NamedTuple):
    """One rung's block on both arms with what was seen before it."""

    block: Block
    baseline: Rate
    canary: Rate


def share_counts(guardrail: str, counts: Counts | ArmSeen) -> Rate:
    """Return attempts and events of a share guardrail."""
    if guardrail == "slo_misses":
        return Rate(n=counts.timed, k=counts.misses)
    if guardrail == "quality":
        return Rate(n=counts.attempts, k=counts.mismatches)
    if guardrail == "errors":
        return Rate(n=counts.attempts, k=counts.errors)
    if guardrail not in counts.shares and guardrail.startswith("finish_"):
        return Rate(n=counts.shares.get(FINISHED, (0, 0))[0], k=0)
    n, k = counts.shares.get(guardrail, (0, 0))
    return Rate(n=n, k=k)


def increment(before0: Rate, now0: Rate, before1: Rate, now1: Rate) -> Block:
    """Return the block between two cumulative counts of both arms."""
    return Block(n0=now0.n - before0.n, k0=now0.k - before0.k, n1=now1.n - before1.n, k1=now1.k - before1.k)


def is_told(memory: Memory, e: Evidence, guardrail: str) -> bool:
    """Tell whether this look tells of a guardrail on both arms, where an earlier one of this step did; a silent source passes nothing."""
    for arm, counts in e.arms.items():
        seen = memory.arm(arm)
        told = FINISHED if guardrail.startswith("finish_") else guardrail
        if told in seen.shares and told not in counts.shares:
            return False
        metric = "latency" if guardrail == "slo_misses" else guardrail
        if any(key.startswith(f"{metric}@") for key in seen.ladders) and not any(key.startswith(f"{metric}@") for key in counts.ladders):
            return False
    return True


def feed_share(memory: Memory, guardrail: str, e: Evidence, margin: float, fail_margin: float) -> None:
    """Feed a share guardrail's two processes with what is new."""
    seen = {arm: share_counts(guardrail, memory.arm(arm)) for arm in e.arms}
    now = {arm: share_counts(guardrail, e.arms[arm]) for arm in e.arms}
    block = increment(seen["baseline"], now["baseline"], seen["canary"], now["canary"])
    frozen = e.cursor.thresholds
    prior, weight = 0.005, 10.0
    if guardrail == "errors" and frozen is not None and frozen.baseline_n > 0:
        weight = min(float(frozen.baseline_n), _PRIOR_BASELINE)
        prior = (frozen.baseline_error_ratio * frozen.baseline_n + 0.5) / (frozen.baseline_n + 1)
    base, canary = seen["baseline"], seen["canary"]
    baseline = ep.estimate(base.k, base.n, prior, weight)
    fail = memory.fail_bank(guardrail, len(RATIOS))
    for i, ratio in enumerate(RATIOS):
        fail.llr[i] += ep.log_e(block, baseline, min((baseline + fail_margin) * ratio, 0.97), fail_margin, worse=True)
    most = sudden.MOST_PER_S * memory.since_used_s(e) if clusters.is_in_bursts(e, guardrail) else inf
    sudden.feed_share(memory.sudden(guardrail), block, baseline, fail_margin, clusters.effect_on(memory, guardrail), most)
    if guardrail == "errors" and all(SETTLED in counts.shares for counts in e.arms.values()):
        base, canary, block = _settled(memory, e)
    pooled = ep.estimate(base.k + canary.k, base.n + canary.n, prior, weight)
    own = ep.estimate(canary.k, canary.n, pooled, 100.0)
    options = ((pooled, pooled), (pooled, pooled + margin / 2), (baseline, own))
    bank = memory.pass_bank(guardrail, len(options))
    for i, (q0, q1) in enumerate(options):
        bank.llr[i] += ep.log_e(block, q0, q1, margin, worse=False)


def _settled(memory: Memory, e: Evidence) -> tuple[Rate, Rate, Block]:
    """Return what a PASS on errors may rest on, before this look and in it: one that ends last, by failing, is missing among the others."""
    base, canary = memory.arm("baseline"), memory.arm("canary")
    if canary.attempts and SETTLED not in canary.shares:  # an older release has counted them all
        memory.passes.pop("errors", None)
    before = [share_counts(SETTLED, seen) for seen in (base, canary)]
    now = [share_counts(SETTLED, e.arms[arm]) for arm in ARMS]
    return before[0], before[1], increment(before[0], now[0], before[1], now[1])


def usable_key(thresholds: Thresholds | None, counts: Counts, scale: float, *, worse: bool, metric: str = "latency") -> str | None:
    """Return the ladder to use for a scale: the exact one, else the nearest that can only err towards saying nothing.

    A FAIL may use a larger scale, a PASS a smaller one; None where there is none.
    """
    exact = ladder_key(scale, metric)
    if exact in counts.ladders:
        return exact
    scales = sorted(thresholds.scales) if thresholds is not None else []
    fit = [s for s in scales if (s >= scale if worse else s <= scale) and ladder_key(s, metric) in counts.ladders]
    if not fit:
        return None
    return ladder_key(fit[0] if worse else fit[-1], metric)


def _rungs(memory: Memory, e: Evidence, key: str, metric: str, wanted: Sequence[int] = range(len(LADDER))) -> list[Ladder]:
    """Return the wanted rungs' blocks: canary requests over the ladder `key` against baseline requests over the plain one."""
    plain = ladder_key(1.0, metric)
    base, canary = memory.arm("baseline"), memory.arm("canary")
    before0 = base.ladders.get(plain) or [0] * len(LADDER)
    before1 = canary.ladders.get(key) or [0] * len(LADDER)
    seen0, seen1 = base.timed_for(metric), canary.timed_for(metric)
    n0, n1 = e.arms["baseline"].timed_for(metric) - seen0, e.arms["canary"].timed_for(metric) - seen1
    now0, now1 = e.arms["baseline"].ladders[plain], e.arms["canary"].ladders[key]
    return [
        Ladder(Block(n0, now0[i] - before0[i], n1, now1[i] - before1[i]), Rate(seen0, before0[i]), Rate(seen1, before1[i])) for i in wanted
    ]


def has_ladder(e: Evidence, metric: str = "latency") -> bool:
    """Tell whether a ladder metric can be compared at all: frozen quantiles, and both arms counted over them."""
    plain = ladder_key(1.0, metric)
    return e.cursor.thresholds is not None and all(len(e.arms[a].ladders.get(plain, ())) == len(LADDER) for a in e.arms)


def only_detects(e: Evidence, metric: str) -> bool:
    """Tell whether the source has only the bounds of buckets: they can show a regression, and no percentage."""
    own = e.cursor.thresholds.quantiles(metric) if e.cursor.thresholds is not None else None
    return own is not None and own.edges_only


def tells_slo(e: Evidence) -> bool:
    """Tell whether SLO misses are what was promised: buckets tell them only where one of their bounds is the promised latency."""
    frozen = e.cursor.thresholds
    own = frozen.quantiles("latency") if frozen is not None else None
    has_records = frozen is None or (own is not None and not own.edges_only)
    return has_records or all("slo_misses" in c.shares for c in e.arms.values())


def can_pass(e: Evidence, spec: GuardrailSpec) -> bool:
    """Tell whether the source counts ladders that a PASS at these margins can use, every rung."""
    scales = {1 + spec.rung_margin(i) for i in range(len(LADDER))}
    keys = [usable_key(e.cursor.thresholds, e.arms["canary"], scale, worse=False, metric=spec.name) for scale in scales]
    return None not in keys and not only_detects(e, spec.name)


def confounded_name(metric: str) -> str:
    """Return the name of a metric's FAIL process of the blocks in which the caches differ, at the scale that counts there."""
    return f"{metric}+50%"


def feed_latency(memory: Memory, e: Evidence, spec: GuardrailSpec) -> None:
    """Feed a ladder metric's processes with what is new; a block in which the caches differ goes to the process of those alone."""
    thresholds, metric = e.cursor.thresholds, spec.name
    name, scale, is_confounded = str(metric), 1 + spec.fail_margin, False
    if metric in CACHE_BOUND and caches.shares(memory) is not None:
        for i in range(len(LADDER)):  # made with the first block that tells, so that each has its capital from its beginning
            memory.fail_bank(f"{confounded_name(metric)}/{i}", len(ODDS))
        is_confounded = caches.is_confounded(memory)
    if is_confounded:
        name, scale = confounded_name(metric), max(CONFOUNDED_SCALE, scale)
    key = usable_key(thresholds, e.arms["canary"], scale, worse=True, metric=metric)
    if key is not None:
        rungs = _rungs(memory, e, key, metric)
        more = [_feed_fail_rung(memory.fail_bank(f"{name}/{i}", len(ODDS)), rung, 1 - LADDER[i]) for i, rung in enumerate(rungs)]
        most = sudden.MOST_PER_S * memory.since_used_s(e)
        sudden.feed(memory.sudden(name), sudden.LADDERS, rungs[0].block.n1, [row[i] for row in more for i in SUDDEN_ODDS], most)
    if not is_confounded:
        _feed_pass(memory, e, spec)


def _feed_pass(memory: Memory, e: Evidence, spec: GuardrailSpec) -> None:
    thresholds, metric = e.cursor.thresholds, spec.name
    own = thresholds.quantiles(metric) if thresholds is not None else None
    if own is None or own.edges_only:
        return
    base = memory.arm("baseline")
    for i in range(len(LADDER)):
        margin = spec.rung_margin(i)
        key = usable_key(thresholds, e.arms["canary"], 1 + margin, worse=False, metric=metric)
        if key is None:
            continue
        slowed = base.ladders.get(key) or [0] * len(LADDER)
        guess = ep.slowed(1 - LADDER[i], -log1p(margin), max(own.log_sd, _LEAST_LOG_SD))
        faster = ep.estimate(slowed[i], base.timed_for(metric), guess, _PRIOR_SLOWED)
        (rung,) = _rungs(memory, e, key, metric, (i,))
        _feed_pass_rung(memory.pass_bank(f"{metric}/{i}", len(_PASS_WEIGHTS)), rung, 1 - LADDER[i], faster)


def _feed_fail_rung(bank: FailBank, ladder: Ladder, nominal: float) -> list[float]:
    q0 = ep.clip(ep.estimate(ladder.baseline.k, ladder.baseline.n, nominal, _PRIOR_RUNG))
    more = ep.log_es(ladder.block, q0, [ep.clip(ep.by_odds(q0, odds)) for odds in ODDS], worse=True)
    _add(bank.llr, more)
    return more


def _feed_pass_rung(bank: PassBank, ladder: Ladder, nominal: float, faster: float) -> None:
    q0 = ep.clip(ep.estimate(ladder.baseline.k, ladder.baseline.n, nominal, _PRIOR_RUNG))
    own = ep.estimate(ladder.canary.k, ladder.canary.n, faster, _PRIOR_SLOWED)
    _add(bank.llr, ep.log_es(ladder.block, q0, [ep.clip(q1) for q1 in (faster, ep.between(q0, faster), own)], worse=False))


def _add(llr: list[float], more: Sequence[float]) -> None:
    for i, value in enumerate(more):
        llr[i] += value


def log_fail(memory: Memory, bank: FailBank, weights: Sequence[float], effect: float) -> float:
    """Return the log of the mean over steps of the process restarted at each step; steps not started count 1."""
    if effect == 1.0:  # a thousand cells do this at every look
        values = [ep.log_mean(list(map(sub, bank.llr, mark)), weights) for mark in bank.marks]
    else:
        values = [ep.log_mean([(v - m) / effect for v, m in zip(bank.llr, mark, strict=True)], weights) for mark in bank.marks]
    values += [0.0] * (memory.steps - len(values))
    return ep.log_mean(values, [1 / memory.steps] * len(values))


def share_log_fail(memory: Memory, guardrail: str, effect: float) -> float:
    """Return the log FAIL e-value of a share guardrail, 0 before it was fed."""
    bank = memory.fails.get(guardrail)
    return log_fail(memory, bank, _RATIO_WEIGHTS, effect) if bank is not None else 0.0


def latency_log_fail(memory: Memory, name: str = "latency") -> float:
    """Return the log FAIL e-value of latency: the mean over rungs; a rung never fed counts 1."""
    rungs = [memory.fails.get(f"{name}/{i}") for i in range(len(LADDER))]
    metric = name.removesuffix(confounded_name(""))
    effects = [clusters.effect_on(memory, f"{metric}/{i}") for i in range(len(LADDER))]
    values = [
        log_fail(memory, bank, _ODDS_WEIGHTS, effect) if bank is not None else 0.0 for bank, effect in zip(rungs, effects, strict=True)
    ]
    return ep.log_mean(values, [1 / len(values)] * len(values))


def ladder_log_fail(memory: Memory, name: str) -> float:
    """Return the log FAIL e-value of a ladder metric: of fair blocks and, where caches are told, of confounded ones, with its part."""
    names = (name, confounded_name(name)) if f"{confounded_name(name)}/0" in memory.fails else (name,)
    values = [sudden.beside(memory.sudden(n), sudden.LADDERS, latency_log_fail(memory, n)) for n in names]
    return values[0] if len(values) == 1 else ep.log_mean(values, [1 - CONFOUNDED_CAPITAL, CONFOUNDED_CAPITAL])


def pass_log(bank: PassBank, effect: float) -> float:
    """Return the log of the PASS process as it stands."""
    return ep.log_mean([v / effect for v in bank.llr], _PASS_WEIGHTS)


def note_pass(bank: PassBank, effect: float) -> None:
    """Latch what the PASS process has reached at this look."""
    value = pass_log(bank, effect)
    bank.best = max(bank.best, value)
    bank.reached = bank.reached or value >= log(PASS_BOUND)


def new_step(memory: Memory) -> None:
    """Start PASS afresh and take the snapshot from which FAIL is restarted; a step that used no evidence needs no new one."""
    if memory.fed and memory.started < memory.steps:
        memory.started += 1
        for bank in memory.fails.values():
            bank.marks.append(list(bank.llr))
    memory.fed = False
    memory.passes = {}
    memory.seen = {}
    memory.quits_seen = {}
    memory.caches = {}
    memory.used_s = 0.0
    memory.cursor = ""
