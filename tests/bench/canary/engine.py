"""Bench: the shipped engine's processes on simulated traffic, batch by batch of runs. What each run's FAIL and PASS cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np
from scipy.stats import beta

from fleetctl.analysis.batch import BurstEffects, Effects, LadderFails, Shares, Suddens
from fleetctl.analysis.guardrails import FAIL_BOUND
from fleetctl.analysis.judge import LEAST_BLOCK
from fleetctl.analysis.sudden import MOST_PER_S
from fleetctl.domain.evidence import LADDER
from tests.bench.canary.traffic import FROZEN_N, Setting, canary_tails, draw_errors, draw_ladder, frozen_tails

CHUNK = 1000
GUARDRAILS, STEPS = 8, 6
"""The whole rule as the bench takes it: 8 guardrails share the FAIL capital, and so do 6 steps."""
WHOLE = FAIL_BOUND * GUARDRAILS
"""What one guardrail must reach alone: the other seven are granted nothing."""


def over_steps(log_e: Any) -> Any:
    """Return the log of the mean over steps in the first one: steps to come count 1."""
    return np.logaddexp(log_e, log(STEPS - 1)) - log(STEPS)


@dataclass(frozen=True)
class Ends:
    """Canary requests at FAIL per run, infinite where there was none: at alpha 0.01 alone, and by the whole rule."""

    alone: Any
    whole: Any

    def share(self, within: float = inf, *, whole: bool = False) -> float:
        """Return the share of runs that failed within so many canary requests."""
        at = self.whole if whole else self.alone
        return float(np.mean(at <= within if within < inf else np.isfinite(at)))


def upper95(events: float, runs: int) -> float:
    """Return the one-sided upper 95 % limit of a share (Clopper and Pearson)."""
    return float(beta.ppf(0.95, events + 1, runs - events)) if events < runs else 1.0


def chunks(runs: int) -> list[int]:
    """Split runs into batches that fit a cache."""
    return [min(CHUNK, runs - i) for i in range(0, runs, CHUNK)]


class Blocks:
    """Attempts that wait until they make a block, as in the judge: each arm at least one, both at least `LEAST_BLOCK`."""

    def __init__(self, rows: int, runs: int) -> None:
        self.waiting = np.zeros((rows, runs))

    def take(self, new: Any, n0: Any, n1: Any) -> Any:
        """Add what is new (its rows) and return what is fed now; n0, n1: indices of the rows that hold the attempts."""
        self.waiting += new
        ready = (self.waiting[n0] >= 1) & (self.waiting[n1] >= 1) & (self.waiting[n0] + self.waiting[n1] >= LEAST_BLOCK)
        out = np.where(ready, self.waiting, 0.0)
        self.waiting = np.where(ready, 0.0, self.waiting)
        return out


class _Record:
    """Where each run of a batch first reached the two bounds."""

    def __init__(self, runs: int) -> None:
        self.ends = Ends(np.full(runs, inf), np.full(runs, inf))
        self.index, self.canary = np.arange(runs), np.zeros(runs)

    def note(self, alone: Any, whole: Any, until_whole: bool) -> Any:
        """Note who has reached which bound; return the mask of the runs to go on with: a bound may be reached before the other."""
        for at, log_e, bound in ((self.ends.alone, alone, FAIL_BOUND), (self.ends.whole, whole, WHOLE)):
            hit = (log_e >= log(bound)) & np.isinf(at[self.index])
            at[self.index[hit]] = self.canary[hit]
        keep = np.isinf(self.ends.alone[self.index])
        if until_whole:
            keep = keep | np.isinf(self.ends.whole[self.index])
        self.index, self.canary = self.index[keep], self.canary[keep]
        return keep


def _joined(parts: list[Ends]) -> Ends:
    return Ends(np.concatenate([p.alone for p in parts]), np.concatenate([p.whole for p in parts]))


def fail_errors(
    s: Setting, runs: int, seed: int, *, fail_margin: float = 0.0, until_whole: bool = True, name: str = "errors", both: bool = False
) -> Ends:
    """Run the FAIL process of a share guardrail until it fails or the setting's time is over.

    Args:
        both: "alone" is one step of the guardrail as it ships, with its process for what gets worse late; else without it.
    """
    rng, parts = np.random.default_rng(seed), []
    for size in chunks(runs):
        if name == "errors":
            shares = Shares.of_errors(rng.binomial(FROZEN_N, s.errors0, size) / FROZEN_N, FROZEN_N, fail_margin=fail_margin)
        else:
            shares = Shares(np.full(size, 0.005), np.full(size, 10.0), fail_margin=fail_margin)
        late, effects, record, blocks = Suddens(size, fail_margin=fail_margin), Effects(size), _Record(size), Blocks(4, size)
        sums, pauses = np.zeros((2, 2, size)), BurstEffects((1, size))
        for look in range(s.looks):
            new = np.empty((4, len(record.index)))
            for arm, (mean, rate) in enumerate(zip(s.means, (s.errors0, s.errors1), strict=True)):
                n = rng.poisson(mean, len(record.index))
                k, squares = draw_errors(rng, n, rate, s)
                new[2 * arm], new[2 * arm + 1] = n, k
                sums[0, arm] += k
                sums[1, arm] += squares
            record.canary += new[2]
            effects.note(sums[0], sums[1], (look + 1) * s.look_s)
            pauses.note(new[[0, 2]], new[[1, 3]][:, None], (look + 1) * s.look_s)
            effect = effects.effect() if name == "errors" else pauses.effect()[0]
            fed = blocks.take(new, 0, 2)
            late.feed(fed, shares.baseline, effect, inf if name == "errors" else MOST_PER_S * s.look_s)
            shares.feed(fed)
            plain = shares.log_fail(effect)
            keep = record.note(late.beside(plain) if both else plain, late.beside(over_steps(plain)), until_whole)
            if not keep.all():
                shares.keep(keep)
                late.keep(keep)
                effects.keep(keep)
                pauses.keep(keep)
                blocks.waiting, sums = blocks.waiting[:, keep], sums[:, :, keep]
            if not keep.any():
                break
        parts.append(record.ends)
    return _joined(parts)


def fail_latency(
    s: Setting, runs: int, seed: int, *, fail_margin: float = 0.0, until_whole: bool = True, log_factor: Any = None, late: bool = False
) -> Ends:
    """Run latency's FAIL processes.

    Args:
        log_factor: of generator and runs, may yield both arms' common or own slowness look by look; late: as `both` of `fail_errors`.
    """
    rng, parts = np.random.default_rng(seed), []
    for size in chunks(runs):
        tails = frozen_tails(rng, size)
        both = tails, canary_tails(tails, s, 1 + fail_margin)
        moves = log_factor(rng, size) if log_factor is not None else None
        slow, record, blocks, pauses = LadderFails(size), _Record(size), Blocks(12, size), BurstEffects((len(LADDER), size))
        for look in range(s.looks):
            index = record.index
            if moves is not None:
                own = next(moves)
                both = canary_tails(tails, _flat(s), 1.0, own[0]), canary_tails(tails, s, 1 + fail_margin, own[1])
            n = [rng.poisson(mean, len(index)) for mean in s.means]
            new = np.concatenate([row for a in range(2) for row in (n[a][None], draw_ladder(rng, n[a], both[a][:, index]))])
            record.canary += new[6]
            pauses.note(new[[0, 6]], np.stack([new[1:6], new[7:12]]), (look + 1) * s.look_s)
            fed = blocks.take(new, 0, 6)
            slow.feed(fed[0], fed[1:6], fed[6], fed[7:12], MOST_PER_S * s.look_s)
            value = slow.log_fail(pauses.effect())
            keep = record.note(slow.late.beside(value) if late else value, slow.late.beside(over_steps(value)), until_whole)
            if not keep.all():
                slow.keep(keep)
                pauses.keep(keep)
                blocks.waiting = blocks.waiting[:, keep]
            if not keep.any():
                break
        parts.append(record.ends)
    return _joined(parts)


def _flat(s: Setting) -> Setting:
    from dataclasses import replace

    return replace(s, factor=1.0, tail=0.0)
