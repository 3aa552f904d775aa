"""Judge, pure layer: the judge's processes for many runs at once, on numpy arrays. Never a verdict, never I/O, never imported by `judge`.

For what needs thousands of runs or streams: benchmarks, calibration, re-judging with other settings, a look over a whole fleet. The
formulas, priors, alternatives and weights are those of `guardrails`, `sudden`, `clusters` and `breaker`; tests/unit/test_batch.py proves
that both give the same numbers look by look. Runs lie on the last axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, log1p, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetctl.analysis import breaker as br
from fleetctl.analysis import bursts as bu
from fleetctl.analysis import clusters as cl
from fleetctl.analysis import eprocess as ep
from fleetctl.analysis import guardrails as g
from fleetctl.analysis import sudden as su
from fleetctl.domain.evidence import LADDER

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
_NOMINAL = 1.0 - np.array(LADDER)[:, None]
_MOST = 700.0


def log_sum(values: Floats, weights: Floats) -> Floats:
    """Return the log of the weighted sum of exp(values) over the first axis; weights broadcast against values."""
    top = values.max(axis=0)
    return np.asarray(top + np.log((weights * np.exp(values - top)).sum(axis=0)))


def nearest_null(n0: Floats, n1: Floats, q0: Floats, q1: Floats, shift: float) -> tuple[Floats, Floats]:
    """Return `eprocess.nearest_null` element by element; arrays of one shape."""
    if shift == 0.0:
        pooled = (n0 * q0 + n1 * q1) / (n0 + n1)
        return pooled, pooled
    floor, ceiling = max(1e-12, 1e-12 - shift), min(1.0, 1.0 - shift) - 1e-12
    a, b = np.clip(q0, floor, ceiling), np.clip(q1 - shift, floor, ceiling)
    low, high = np.minimum(a, b), np.maximum(a, b)
    for _ in range(50):
        middle = 0.5 * (low + high)
        other = middle + shift
        above = n0 * (middle - q0) / (middle * (1 - middle)) + n1 * (other - q1) / (other * (1 - other)) > 0
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    p0 = 0.5 * (low + high)
    return p0, p0 + shift


def _log_ratio(n: Floats, k: Floats, q: Floats, p: Floats) -> Floats:
    return np.asarray((n - k) * (np.log1p(-q) - np.log1p(-p)) + k * np.log(q / p))


def _log_e(n0: Floats, k0: Floats, n1: Floats, k1: Floats, q0: Floats, q1: Floats, shift: float, *, worse: bool) -> Floats:
    q0, q1 = _clip(q0), _clip(q1)
    q0, q1 = np.broadcast_arrays(q0, q1)
    p0, p1 = nearest_null(n0, n1, q0, q1, shift)
    value = _log_ratio(n0, k0, q0, p0) + _log_ratio(n1, k1, q1, p1)
    return np.asarray(np.where(q1 > q0 + shift if worse else q1 < q0 + shift, value, 0.0))


def _clip(rate: Floats) -> Floats:
    return np.clip(rate, ep.LEAST_RATE, 1 - ep.LEAST_RATE)


class Shares:
    """Share guardrails of many runs: the FAIL and PASS processes of `guardrails.feed_share`.

    Args:
        prior, weight: as the judge's, per run; margin None feeds no PASS, fail_margin None no FAIL.
    """

    def __init__(
        self, prior: Floats, weight: Floats, *, steps: int = 1, margin: float | None = None, fail_margin: float | None = 0.0
    ) -> None:
        runs = len(prior)
        self.prior, self.weight, self.steps, self.margin, self.fail_margin = prior, weight, steps, margin, fail_margin
        self.seen = np.zeros((4, runs))
        self.fail = np.zeros((len(g.RATIOS), runs))
        self.marks = [self.fail.copy()]
        self.pass_llr = np.zeros((3, runs))
        self.best = np.zeros(runs)
        self.reached = np.zeros(runs, dtype=bool)

    @classmethod
    def of_errors(cls, frozen_ratio: Floats, frozen_n: float, **more: Any) -> Shares:
        """Return error guardrails whose prior is the frozen baseline, as `feed_share` takes it."""
        prior = (frozen_ratio * frozen_n + 0.5) / (frozen_n + 1)
        return cls(prior, np.full(len(prior), min(float(frozen_n), g._PRIOR_BASELINE)), **more)

    @property
    def baseline(self) -> Floats:
        """The baseline's rate as estimated before the next block."""
        return np.asarray((self.seen[1] + self.prior * self.weight) / (self.seen[0] + self.weight))

    def feed(self, block: Floats) -> None:
        """Feed blocks of shape (4, runs): n0, k0, n1, k1; an arm without attempts says nothing."""
        n0, k0, n1, k1 = block
        m0, j0, m1, j1 = self.seen
        baseline = self.baseline
        ok = (n0 > 0) & (n1 > 0)
        n0, n1 = np.where(ok, n0, 1.0), np.where(ok, n1, 1.0)
        if self.fail_margin is not None:
            q1 = np.minimum((baseline + self.fail_margin) * np.array(g.RATIOS)[:, None], 0.97)
            self.fail += np.where(ok, _log_e(n0, k0, n1, k1, baseline, q1, self.fail_margin, worse=True), 0.0)
        if self.margin is not None:
            pooled = (j0 + j1 + self.prior * self.weight) / (m0 + m1 + self.weight)
            own = (j1 + pooled * 100.0) / (m1 + 100.0)
            q0 = np.stack([pooled, pooled, baseline])
            q1 = np.stack([pooled, pooled + self.margin / 2, own])
            self.pass_llr += np.where(ok, _log_e(n0, k0, n1, k1, q0, q1, self.margin, worse=False), 0.0)
        self.seen += block

    def note_pass(self, effect: Floats | float = 1.0) -> None:
        """Latch what PASS has reached at this look."""
        value = log_sum(self.pass_llr / effect, np.array(g._PASS_WEIGHTS)[:, None])
        self.best = np.maximum(self.best, value)
        self.reached |= value >= log(g.PASS_BOUND)

    def log_fail(self, effect: Floats | float = 1.0) -> Floats:
        """Return the log FAIL e-value of each run."""
        weights = np.array(g._RATIO_WEIGHTS)[:, None]
        total = np.full(self.fail.shape[1], float(self.steps - len(self.marks)))
        for mark in self.marks:
            total += np.exp(np.minimum(log_sum((self.fail - mark) / effect, weights), _MOST))
        return np.log(total / self.steps)

    def new_step(self, *, margin: float | None = None, fail_margin: float | None = None) -> None:
        """Begin a step: PASS afresh, FAIL beside a restart, counts from zero."""
        if len(self.marks) < self.steps:
            self.marks.append(self.fail.copy())
        self.pass_llr[:], self.seen[:], self.best[:], self.reached[:] = 0.0, 0.0, 0.0, False
        self.margin = self.margin if margin is None else margin
        self.fail_margin = self.fail_margin if fail_margin is None else fail_margin

    def keep(self, mask: Mask) -> None:
        """Drop the runs that are not in the mask."""
        for name in ("prior", "weight", "best", "reached"):
            setattr(self, name, getattr(self, name)[mask])
        self.seen, self.fail, self.pass_llr = self.seen[:, mask], self.fail[:, mask], self.pass_llr[:, mask]
        self.marks = [m[:, mask] for m in self.marks]


class Staked:
    """What gets worse late: `sudden.feed` for many runs.

    Args:
        shape: alternatives first, runs last.
    """

    def __init__(self, shape: tuple[int, ...], stakes: su.Stakes) -> None:
        runs, self.stakes = shape[-1], stakes
        self.capital = np.full(shape, -np.inf)
        self.alternatives = prod(shape[:-1])
        self.restarts, self.waited = np.zeros(runs), np.full(runs, float(stakes.every))

    def stake(self, n1: Floats, ok: Mask) -> None:
        """Stake anew where it is time, before a block of n1 canary requests; an arm without attempts says nothing."""
        again, j, level = ok & (self.waited >= self.stakes.every), self.restarts, self.stakes.level
        if again.any():
            share = np.where(j < level, 0.5 / level, 0.5 * level / np.maximum(j * (j + 1), 1)) / self.alternatives
            self.capital = np.where(again, np.logaddexp(self.capital, np.log(share)), self.capital)
        self.restarts, self.waited = self.restarts + again, np.where(again, 0.0, self.waited) + np.where(ok, n1, 0.0)

    def beside(self, log_fail: Floats) -> Floats:
        """Return the log FAIL e-value of the guardrail with both processes, as `sudden.beside`."""
        j, level = self.restarts, self.stakes.level
        rest = np.log(np.where(j <= level, 1 - 0.5 * j / level, 0.5 * level / np.maximum(j, 1)))
        own = np.logaddexp(np.logaddexp.reduce(self.capital, axis=tuple(range(self.capital.ndim - 1))), rest)
        return np.asarray(np.logaddexp(log_fail + log(1 - self.stakes.kept_back), own + log(self.stakes.kept_back)))

    def keep(self, mask: Mask) -> None:
        """Drop the runs that are not in the mask."""
        self.capital, self.restarts, self.waited = self.capital[..., mask], self.restarts[mask], self.waited[mask]


class Suddens(Staked):
    """Errors and other shares that begin late: `sudden.feed_share` for many runs."""

    def __init__(self, runs: int, *, fail_margin: float = 0.0) -> None:
        super().__init__((1, runs), su.SHARES)
        self.fail_margin = fail_margin

    def feed(self, block: Floats, baseline: Floats, effect: Floats | float = 1.0, most: float = inf) -> None:
        """Feed blocks of shape (4, runs): n0, k0, n1, k1, with the baseline's rate before them; most: see `sudden.feed`."""
        n0, k0, n1, k1 = block
        ok = (n0 > 0) & (n1 > 0)
        self.stake(n1, ok)
        n0, n1 = np.where(ok, n0, 1.0), np.where(ok, n1, 1.0)
        odds = _clip(baseline) / (1 - _clip(baseline)) * su.LEAST_ODDS
        q1 = np.minimum(np.maximum(odds / (1 + odds), su.RATE) + self.fail_margin, 0.97)
        more = np.where(ok, _log_e(n0, k0, n1, k1, baseline, q1, self.fail_margin, worse=True) / effect, 0.0)
        self.capital = self.capital + np.minimum(more, most)


class LadderFails:
    """Latency's FAIL processes of many runs, all rungs: `guardrails._feed_fail_rung`, the mean over rungs, and `late`, staked anew."""

    def __init__(self, runs: int, *, steps: int = 1) -> None:
        self.seen_n, self.seen_k, self.steps = np.zeros(runs), np.zeros((len(LADDER), runs)), steps
        self.llr = np.zeros((len(g.ODDS), len(LADDER), runs))
        self.marks = [self.llr.copy()]
        self.late = Staked((len(su.ODDS), len(LADDER), runs), su.LADDERS)

    def feed(self, n0: Floats, k0: Floats, n1: Floats, k1: Floats, most: float = inf) -> None:
        """Feed blocks: n0, n1 of shape (runs,); k0 over the plain ladder, k1 over the scaled one: (rungs, runs); most: see `sudden`."""
        q0 = _clip((self.seen_k + _NOMINAL * g._PRIOR_RUNG) / (self.seen_n + g._PRIOR_RUNG))
        self.seen_n, self.seen_k = self.seen_n + n0, self.seen_k + k0
        ok = (n0 > 0) & (n1 > 0)
        events, total = k0 + k1, np.where(ok, n0 + n1, 1.0)
        none = total - events
        log_q, log_not = np.log(q0), np.log1p(-q0)
        base = events * log_q + none * log_not
        self.late.stake(n1, ok)
        for i, odds in enumerate(g.ODDS):
            spread = 1 + (odds - 1) * q0
            pooled = q0 * (n0 + n1 * odds / spread) / total
            pooled = np.where(ok, pooled, 0.5)
            step = base + k1 * log(odds) - n1 * np.log(spread) - events * np.log(pooled) - none * np.log1p(-pooled)
            step = np.where(ok, step, 0.0)
            self.llr[i] += step
            if i in g.SUDDEN_ODDS:
                self.late.capital[g.SUDDEN_ODDS.index(i)] += np.minimum(step, most)

    def log_fail(self, effect: Floats | float = 1.0) -> Floats:
        """Return the log FAIL e-value of each run: the mean over steps (those not started count 1), and over rungs."""
        weights = np.array(g._ODDS_WEIGHTS)[:, None, None]
        total = np.full(self.seen_k.shape, float(self.steps - len(self.marks)))
        for mark in self.marks:
            total += np.exp(np.minimum(log_sum((self.llr - mark) / effect, weights), _MOST))
        return np.asarray(np.log(total.mean(axis=0) / self.steps))

    def new_step(self) -> None:
        """Begin a step: FAIL beside a restart, counts from zero."""
        if len(self.marks) < self.steps:
            self.marks.append(self.llr.copy())
        self.seen_n, self.seen_k = np.zeros_like(self.seen_n), np.zeros_like(self.seen_k)

    def keep(self, mask: Mask) -> None:
        """Drop the runs that are not in the mask."""
        self.seen_n, self.seen_k = self.seen_n[mask], self.seen_k[:, mask]
        self.llr, self.marks = self.llr[..., mask], [m[..., mask] for m in self.marks]
        self.late.keep(mask)


class LadderPasses:
    """Latency's PASS processes of one step of many runs, every rung: `guardrails._feed_pass_rung`.

    Args:
        margins: per rung, above 0; log_sd: of the baseline's latency.
    """

    def __init__(self, runs: int, margins: Sequence[float], log_sd: float) -> None:
        shape = (len(LADDER), runs)
        self.guess = np.array(
            [[ep.slowed(1 - rung, -log1p(m), max(log_sd, g._LEAST_LOG_SD))] for rung, m in zip(LADDER, margins, strict=True)]
        )
        self.n0, self.n1 = np.zeros(runs), np.zeros(runs)
        self.plain, self.scaled, self.canary = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.llr = np.zeros((3, *shape))
        self.best, self.reached = np.zeros(shape), np.zeros(shape, dtype=bool)

    def feed(self, n0: Floats, k0: Floats, s0: Floats, n1: Floats, k1: Floats) -> None:
        """Feed blocks: k0 over the plain ladder, s0 (baseline) and k1 (canary) over the one scaled by 1 + margin; (rungs, runs)."""
        w = g._PRIOR_SLOWED
        q0 = _clip((self.plain + _NOMINAL * g._PRIOR_RUNG) / (self.n0 + g._PRIOR_RUNG))
        faster = (self.scaled + self.guess * w) / (self.n0 + w)
        own = (self.canary + faster * w) / (self.n1 + w)
        ok = (n0 > 0) & (n1 > 0)
        m0, m1 = np.where(ok, n0, 1.0), np.where(ok, n1, 1.0)
        for i, q1 in enumerate((faster, between(q0, faster), own)):
            self.llr[i] += np.where(ok, _log_e(m0, k0, m1, k1, q0, _clip(q1), 0.0, worse=False), 0.0)
        self.n0, self.n1 = self.n0 + n0, self.n1 + n1
        self.plain, self.scaled, self.canary = self.plain + k0, self.scaled + s0, self.canary + k1

    def note_pass(self, effect: Floats | float = 1.0) -> None:
        """Latch what PASS has reached at this look; `effect` of shape (rungs, runs)."""
        value = log_sum(self.llr / effect, np.array(g._PASS_WEIGHTS)[:, None, None])
        self.best = np.maximum(self.best, value)
        self.reached |= value >= log(g.PASS_BOUND)

    def keep(self, mask: Mask) -> None:
        """Drop the runs that are not in the mask."""
        self.n0, self.n1 = self.n0[mask], self.n1[mask]
        for name in ("plain", "scaled", "canary", "best", "reached"):
            setattr(self, name, getattr(self, name)[:, mask])
        self.llr = self.llr[..., mask]


def between(a: Floats, b: Floats) -> Floats:
    """Return `eprocess.between` element by element."""
    a, b = _clip(a), _clip(b)
    odds = np.sqrt(a / (1 - a) * (b / (1 - b)))
    return np.asarray(odds / (1 + odds))


class Effects:
    """Design effects of many runs: `clusters` for looks that all runs share.

    Feed cumulative sums since the step began, of shape (arms, runs).
    """

    def __init__(self, runs: int) -> None:
        self.spread, self.errors, self.seconds = np.zeros(runs), np.zeros(runs), 0.0
        self.opened = self.now = 0.0
        self.then, self.last = np.zeros((2, 2, runs)), np.zeros((2, 2, runs))

    def note(self, errors: Floats, squares: Floats, elapsed_s: float) -> None:
        """Take in both arms' cumulative sums `elapsed_s` seconds after the step's cursor."""
        self.last = np.stack([errors, squares])
        self.now = max(self.now, elapsed_s)
        if self.now - self.opened >= cl.WINDOW_S:
            self._close()

    def new_step(self) -> None:
        """Close the open window; sums count from 0 again."""
        self._close()
        self.then, self.last = np.zeros_like(self.then), np.zeros_like(self.last)
        self.opened = self.now = 0.0

    def effect(self) -> Floats:
        """Return what log-likelihoods of errors are divided by, at least 1."""
        spread, errors, seconds = self._open_part()
        found = (self.spread + spread + cl._PRIOR) / (self.errors + errors + cl._PRIOR)
        return np.maximum(1.0, found - sqrt(2 / max(2.0, self.seconds + seconds)))

    def keep(self, mask: Mask) -> None:
        """Drop the runs that are not in the mask."""
        self.spread, self.errors = self.spread[mask], self.errors[mask]
        self.then, self.last = self.then[..., mask], self.last[..., mask]

    def _open_part(self) -> tuple[Floats, Floats, float]:
        seconds = self.now - self.opened
        errors, squares = self.last - self.then
        if seconds >= cl._LEAST_WINDOW_S:
            squares = np.maximum(0.0, squares - errors * errors / seconds) * seconds / (seconds - 1)
        return squares.sum(axis=0), errors.sum(axis=0), seconds * 2

    def _close(self) -> None:
        spread, errors, seconds = self._open_part()
        self.spread, self.errors, self.seconds = self.spread + spread, self.errors + errors, self.seconds + seconds
        self.opened, self.then = self.now, self.last.copy()


class BurstEffects:
    """Design effects of events that come in bursts, of many runs: `bursts` and `clusters` for looks that all runs share.

    Args:
        shape: kinds of event first, runs last. A look's requests all count in the block in which its middle lies.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.spread, self.errors, self.seconds = np.zeros(shape), np.zeros(shape), 0.0
        self._begin(shape)

    def _begin(self, shape: tuple[int, ...]) -> None:
        self.n, self.k = np.zeros((2, shape[-1])), np.zeros((2, *shape))
        self.squares, self.held = np.zeros((2, *shape)), np.zeros((2, shape[-1]))
        self.newest = [[np.zeros_like(self.n), np.zeros_like(self.k)]]
        self.open: list[Floats] = [np.zeros_like(self.k), np.zeros_like(self.n)]
        self.blocks, self.at, self.block = 1, 0.0, 0

    def note(self, n: Floats, k: Floats, ends_s: float) -> None:
        """Take in a look's requests, (arms, runs), and events, (arms, kinds, runs); it ends `ends_s` seconds after the step's cursor."""
        block = int(0.5 * (self.at + ends_s) * 1_000 // bu.BLOCK_MS)
        if block != self.block:
            self.newest, self.open = [*self.newest[-3:], [np.zeros_like(self.n), np.zeros_like(self.k)]], [o * 0 for o in self.open]
            self.block, self.blocks = block, self.blocks + 1
        now = self.newest[-1]
        now[0], now[1], self.at = now[0] + n, now[1] + k, ends_s
        squares, held = _apart(self.newest) if len(self.newest) == bu.SPAN else self.open
        self.n, self.k = self.n + n, self.k + k
        self.squares, self.held = self.squares + squares - self.open[0], self.held + held - self.open[1]
        self.open = [squares, held]

    def new_step(self) -> None:
        """Begin a step: what was found counts on, and blocks begin anew."""
        errors = self.k.sum(axis=0)
        self.spread, self.errors = self.spread + errors * self._found(), self.errors + errors
        self.seconds += 2 * self.at
        self._begin(self.spread.shape)

    def effect(self) -> Floats:
        """Return what log-likelihoods of each kind are divided by, at least 1."""
        errors = self.k.sum(axis=0)
        found = (self.spread + errors * self._found() + cl._PRIOR) / (self.errors + errors + cl._PRIOR)
        return np.asarray(np.maximum(1.0, found - sqrt(2 / max(2.0, self.seconds + 2 * self.at))))

    def keep(self, mask: Mask) -> None:
        """Drop the runs that are not in the mask."""
        for name in ("spread", "errors", "n", "k", "squares", "held"):
            setattr(self, name, getattr(self, name)[..., mask])
        self.open = [s[..., mask] for s in self.open]
        self.newest = [[s[..., mask] for s in block] for block in self.newest]

    def _found(self) -> Floats:
        """Return `bursts.together` of both arms."""
        n, k = np.maximum(self.n, 1)[:, None], self.k
        if self.blocks < bu.LEAST_BLOCKS:
            own = np.maximum(k, 1.0)
        else:
            rate = np.clip(k, 0.5, np.maximum(n - 0.5, 0.5)) / n
            squares, held = self.squares + bu.NEWEST * self.open[0], self.held + bu.NEWEST * self.open[1]
            chance = held[:, None] * rate * (1 - rate)
            above = (squares / np.maximum(chance, 1e-9) - 1) * k / (k + bu.PRIOR)
            granted = np.sqrt((3 + self.blocks / np.maximum(chance, 1)) / self.blocks)
            own = np.where(chance > 0, 1 + bu.ABOVE_CHANCE * (above - granted), 1.0)
        total = self.n.sum(axis=0)
        return np.asarray(np.maximum((own[0] * self.n[1] + own[1] * self.n[0]) / np.maximum(total, 1), 0.0))


def _apart(blocks: Sequence[Sequence[Floats]]) -> tuple[Floats, Floats]:
    """Return the squared difference of the newest two pairs of blocks, and the requests that it is held against."""
    before, now = ([a + b for a, b in zip(*blocks[i : i + 2], strict=True)] for i in (0, 2))
    ok, ratio = (now[0] > 0) & (before[0] > 0), now[0] / np.maximum(before[0], 1)
    wide = ratio[:, None]
    return np.where(ok[:, None], (now[1] - before[1] * wide) ** 2 / (1 + wide), 0.0), np.where(ok, now[0], 0.0)


class Breakers:
    """The one-arm breaker of many runs, request by request: `breaker.note_outcomes`.

    Args:
        null: per run, the canary error rate that is tolerated.
    """

    def __init__(self, null: Floats) -> None:
        rates = np.array(br._RATES)[:, None]
        rates = np.where(rates > 1.5 * null, rates, np.minimum(0.97, 2.0 * null))
        self.failed, self.good = np.log(rates / null), np.log1p(-rates) - np.log1p(-null)
        self.capital = np.full((len(br._RATES), len(null)), -np.inf)
        self.total = 0
        self.peak = np.zeros(len(null))

    @property
    def tripped(self) -> Mask:
        """Tell which have tripped by now."""
        return np.asarray(self.peak >= log(br.BREAKER_BOUND))

    def note(self, failed: Mask) -> None:
        """Take in one more request of every run."""
        if self.total % br.RESTART_EVERY == 0:
            self.capital = np.logaddexp(self.capital, br._log_share(self.total // br.RESTART_EVERY + 1))
        self.total += 1
        self.capital = self.capital + np.where(failed, self.failed, self.good)
        if failed.any():
            value = log_sum(self.capital, np.full((len(br._RATES), 1), 1 / len(br._RATES)))
            self.peak = np.where(failed, np.maximum(self.peak, value), self.peak)
