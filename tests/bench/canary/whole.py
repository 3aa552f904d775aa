"""Bench: whole canaries, step by step: hours to PASS of alike sides, and PASSes of a target that is worse by twice the margin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from fleetctl.analysis.batch import BurstEffects, Effects, LadderFails, LadderPasses, Shares, Suddens
from fleetctl.analysis.clusters import SURE
from fleetctl.analysis.guardrails import FAIL_BOUND
from fleetctl.analysis.power import LEAST_CANARY, planned_requests
from fleetctl.analysis.sudden import MOST_PER_S
from fleetctl.domain.evidence import LADDER
from tests.bench.canary.engine import STEPS, Blocks, chunks
from tests.bench.canary.rows import Counts, Fields
from tests.bench.canary.traffic import FROZEN_N, Setting, canary_tails, draw_errors, draw_ladder, frozen_tails, slower_than

LOOK_S = 20
WARM_UP_H = 5 / 60
PATIENCE = 3
"""A step that has not passed after so many times the planned p90 is inconclusive. Source: evidence.md 2."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: share of the canary, bake time, PASS margins (errors in points / 100; latency per rung), FAIL margin of latency."""

    share: float
    bake_min: float
    errors: float
    rungs: tuple[float, ...]
    fail: float


@dataclass(frozen=True)
class Outcome:
    """Hours from the first customer on the target until the last step's PASS, infinite where there was none; whether it failed."""

    hours: Any
    failed: Any


def run_canary(s: Setting, steps: tuple[Step, ...], runs: int, seed: int) -> Outcome:
    """Take runs through all steps; shares and lengths are the steps', all else the setting's."""
    rng, hours, failed = np.random.default_rng(seed), [], []
    for size in chunks(runs):
        h, f = _chunk(rng, s, steps, size)
        hours.append(h)
        failed.append(f)
    return Outcome(np.concatenate(hours), np.concatenate(failed))


def _chunk(rng: np.random.Generator, s: Setting, steps: tuple[Step, ...], size: int) -> tuple[Any, Any]:
    hours, failed, index = np.full(size, WARM_UP_H), np.zeros(size, dtype=bool), np.arange(size)
    errors = Shares.of_errors(rng.binomial(FROZEN_N, s.errors0, size) / FROZEN_N, FROZEN_N, steps=STEPS)
    slow, late, effects, tails = LadderFails(size, steps=STEPS), Suddens(size), Effects(size), frozen_tails(rng, size)
    pauses = BurstEffects((len(LADDER), size))
    for number, step in enumerate(steps):
        if number:
            for one in (errors, slow, effects, pauses):
                one.new_step()
        errors.margin = step.errors
        took, fail = _step(rng, replace(s, share=step.share, look_s=LOOK_S), step, errors, late, slow, effects, pauses, tails[:, index])
        failed[index] = fail
        hours[index] += np.where(fail, inf, np.maximum(took, step.bake_min / 60))
        keep = np.isfinite(hours[index])
        late.keep(keep)
        for one in (errors, slow, effects, pauses):
            one.keep(keep)
        index = index[keep]
    return hours, failed


def _step(
    rng: np.random.Generator,
    s: Setting,
    step: Step,
    errors: Shares,
    late: Suddens,
    slow: LadderFails,
    effects: Effects,
    pauses: BurstEffects,
    tails: Any,
) -> tuple[Any, Any]:
    """Return hours to this step's PASS (infinite without one) and who failed meanwhile; every run is fed until the last has an end."""
    runs = tails.shape[1]
    scales = 1 + np.array(step.rungs)[:, None]
    above = {
        "plain": tails,
        "base": slower_than(tails, s, scales),
        "fail": canary_tails(tails, s, 1 + step.fail),
        "pass": canary_tails(tails, s, scales),
    }
    passes, blocks, sums = LadderPasses(runs, step.rungs, s.log_sd), Blocks(24, runs), np.zeros((2, 2, runs))
    took, failed, canary = np.full(runs, inf), np.zeros(runs, dtype=bool), np.zeros(runs)
    for look in range(_patience(s, step)):
        rows: list[Any] = []
        for arm, rate in enumerate((s.errors0, s.errors1)):
            n = rng.poisson(s.means[arm], runs)
            k, squares = draw_errors(rng, n, rate, s)
            sums[0, arm] += k
            sums[1, arm] += squares
            timed = n - k.astype(int)
            rows += [n, k, *_two(rng, timed, above["plain"] if arm == 0 else above["fail"], above["base"] if arm == 0 else above["pass"])]
        canary += rows[12]
        new = np.array(rows, dtype=float)
        pauses.note(np.stack([new[0] - new[1], new[12] - new[13]]), np.stack([new[2:7], new[14:19]]), (look + 1) * s.look_s)
        fed = blocks.take(new, 0, 12)
        effects.note(sums[0], sums[1], (look + 1) * s.look_s)
        effect = effects.effect()
        late.feed(fed[[0, 1, 12, 13]], errors.baseline, effect)
        errors.feed(fed[[0, 1, 12, 13]])
        timed = fed[0] - fed[1], fed[12] - fed[13]
        slow.feed(timed[0], fed[2:7], timed[1], fed[14:19], MOST_PER_S * s.look_s)
        passes.feed(timed[0], fed[2:7], fed[7:12], timed[1], fed[19:24])
        errors.note_pass(effect)
        effects_now = pauses.effect()
        passes.note_pass(np.where(effects_now > SURE, effects_now, 1.0))
        failing = late.beside(errors.log_fail(effect))
        whole = 0.5 * (np.exp(np.minimum(failing, 600)) + np.exp(np.minimum(slow.late.beside(slow.log_fail(pauses.effect())), 600)))
        failed |= (whole >= FAIL_BOUND) & np.isinf(took)
        done = errors.reached & passes.reached.all(axis=0) & (canary >= LEAST_CANARY) & np.isinf(took) & ~failed
        took[done] = (look + 1) * s.look_s / 3600
        if (np.isfinite(took) | failed).all():
            break
    return took, failed


def _two(rng: np.random.Generator, n: Any, low: Any, high: Any) -> list[Any]:
    """Draw one arm's two ladders. Each rung is right by itself; that they are drawn apart matters to no process, each reads one."""
    return [*draw_ladder(rng, n, low), *draw_ladder(rng, n, high)]


def _patience(s: Setting, step: Step) -> int:
    needs = [planned_requests("errors", step.errors, s.errors0, s.log_sd, step.share)[1]]
    needs += [planned_requests("latency", m, s.errors0, s.log_sd, step.share)[1] for m in step.rungs[:1]]
    minutes = max(step.bake_min, max(needs) / (s.per_min * step.share))
    return round(PATIENCE * minutes * 60 / s.look_s)


STEPS_200 = (
    Step(share=0.05, bake_min=15, errors=0.02, rungs=(0.25, 0.25, 0.50, 0.50, 1.50), fail=0.10),
    Step(share=0.25, bake_min=30, errors=0.01, rungs=(0.15, 0.15, 0.30, 0.30, 0.40), fail=0.075),
    Step(share=0.50, bake_min=60, errors=0.005, rungs=(0.10, 0.10, 0.20, 0.20, 0.20), fail=0.05),
)
"""The preset of 100 to 1,000 requests a minute with the margins of evidence.md 2."""
WORSE = {"errors +1 point": Setting(per_min=200, errors1=0.015), "latency x1.2": Setting(per_min=200, factor=1.2)}
"""Twice the last step's margins."""


def whole_canaries(n: Counts) -> Fields:
    """Hours to the last PASS of alike sides at 200 requests a minute (log-sd 0.6, errors 0.5 %), and PASSes of what is worse."""
    s = Setting(per_min=200)
    alike = run_canary(s, STEPS_200, n.whole, 91)
    passed = {name: float(np.isfinite(run_canary(worse, STEPS_200, n.whole, 92).hours).mean()) for name, worse in WORSE.items()}
    ordered = np.sort(alike.hours)
    return {
        "pass_hours_median_200": round(float(ordered[len(ordered) // 2]), 3),
        "pass_hours_p90_200": round(float(ordered[int(0.9 * len(ordered))]), 3),
        "pass_never_200": float(np.isinf(alike.hours).mean()),
        "pass_false_rollback_200": float(alike.failed.mean()),
        "pass_false_at_2x_margin": max(passed.values()),
        "pass_false_cells": passed,
    }
