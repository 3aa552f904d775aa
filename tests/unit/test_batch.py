"""Many runs at once against the shipped judge, look by look: the same e-values, PASS levels, design effects and trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import exp, inf, log

import numpy as np
import pytest

from fleetctl.analysis import batch, breaker, sudden
from fleetctl.analysis.clusters import design_effect
from fleetctl.analysis.guardrails import latency_log_fail, share_log_fail
from fleetctl.analysis.judge import LEAST_BLOCK, fresh, judge, start_step
from fleetctl.analysis.memory import BreakerMemory, Memory, unpack
from fleetctl.domain.evidence import ARMS, Arm, Counts, Evidence, ladder_key
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from tests.fakes.simulated_evidence import START, Setting, looks

ERRORS = GuardrailSpec(name=Guardrail("errors"), margin=0.01, fail_margin=0.002)
RUNGS = (0.25, 0.25, 0.25, 0.5, 0.5)
LATENCY = GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.10, rungs=RUNGS)
SETTING = Setting(per_s=60, share=0.4, errors0=0.01, errors1=0.02, factor=1.05, cluster=2.0, look_s=2, looks=12)
RUNS = 3


def two_steps(seed: int) -> list[Evidence]:
    later = START + timedelta(hours=1)
    return [*looks(SETTING, seed), *looks(replace(SETTING, share=0.6), seed, since=later)]


def judged(runs: Sequence[Sequence[Evidence]]) -> list[list[Memory]]:
    """The shipped judge's memory after each look of each run."""
    out = []
    for run in runs:
        state, rows = fresh(3), []
        for before, e in zip([None, *run], run, strict=False):
            if before is not None and before.cursor.since != e.cursor.since:
                state = start_step(state)
            state, _ = judge(state, e, (ERRORS, LATENCY))
            rows.append(unpack(state))
        out.append(rows)
    return out


def table(counts: Sequence[Counts], key: float) -> batch.Floats:
    return np.array([c.ladders[ladder_key(key)] for c in counts], dtype=float).T


def test_every_process_of_the_batch_is_the_judges_look_by_look() -> None:
    runs = [two_steps(seed) for seed in range(RUNS)]
    memories = judged(runs)
    frozen = [r[0].cursor.thresholds for r in runs]
    ratio = np.array([t.baseline_error_ratio for t in frozen if t is not None])
    errors = batch.Shares.of_errors(ratio, 3000, steps=3, margin=ERRORS.margin, fail_margin=ERRORS.fail_margin)
    late = batch.Suddens(RUNS, fail_margin=ERRORS.fail_margin)
    slow = batch.LadderFails(RUNS, steps=3)
    passes = batch.LadderPasses(RUNS, RUNGS, SETTING.log_sd)
    effects = batch.Effects(RUNS)
    before: dict[Arm, list[Counts]] = {}
    for i in range(2 * SETTING.looks):
        if i == SETTING.looks:
            errors.new_step()
            slow.new_step()
            effects.new_step()
            passes, before = batch.LadderPasses(RUNS, RUNGS, SETTING.log_sd), {}
        now = {arm: [run[i].arms[arm] for run in runs] for arm in ARMS}
        old = {arm: before.get(arm) or [_none(c) for c in now[arm]] for arm in ARMS}
        block = [
            np.array([getattr(a, f) - getattr(b, f) for a, b in zip(now[arm], old[arm], strict=True)], dtype=float)
            for arm in ARMS
            for f in ("attempts", "errors")
        ]
        assert min(block[0] + block[2]) >= LEAST_BLOCK
        sums = [[getattr(c.clusters, f) for c in now[arm]] for f in ("errors", "sum_sq") for arm in ARMS]
        effects.note(np.array(sums[:2], dtype=float), np.array(sums[2:], dtype=float), SETTING.look_s * (i % SETTING.looks + 1.0))
        late.feed(np.array(block), errors.baseline, effects.effect())
        errors.feed(np.array(block))
        timed = [np.array([a.timed - b.timed for a, b in zip(now[arm], old[arm], strict=True)], dtype=float) for arm in ARMS]
        new = {(arm, s): table(now[arm], s) - table(old[arm], s) for arm in ARMS for s in (1.0, 1.1, 1.25, 1.5)}
        slow.feed(timed[0], new["baseline", 1.0], timed[1], new["canary", 1.1], sudden.MOST_PER_S * SETTING.look_s)
        by_rung = [np.stack([new[arm, 1 + m][rung] for rung, m in enumerate(RUNGS)]) for arm in ARMS]
        passes.feed(timed[0], new["baseline", 1.0], by_rung[0], timed[1], by_rung[1])
        effect = effects.effect()
        errors.note_pass(effect)
        passes.note_pass()
        before = now
        for run in range(RUNS):
            memory = memories[run][i]
            assert effect[run] == pytest.approx(design_effect(memory.clusters), rel=1e-12)
            assert errors.log_fail(effect)[run] == pytest.approx(share_log_fail(memory, "errors", effect[run]), abs=1e-9)
            value = share_log_fail(memory, "errors", effect[run])
            whole = sudden.beside(memory.sudden("errors"), sudden.SHARES, value)
            assert late.beside(errors.log_fail(effect))[run] == pytest.approx(whole, abs=1e-9)
            value = latency_log_fail(memory)
            assert slow.log_fail()[run] == pytest.approx(value, abs=1e-9)
            whole = sudden.beside(memory.sudden("latency"), sudden.LADDERS, value)
            assert slow.late.beside(slow.log_fail())[run] == pytest.approx(whole, abs=1e-9)
            assert errors.best[run] == pytest.approx(memory.passes["errors"].best, abs=1e-9)
            assert errors.reached[run] == memory.passes["errors"].reached
            for rung in range(5):
                assert passes.best[rung, run] == pytest.approx(memory.passes[f"latency/{rung}"].best, abs=1e-9)
    assert min(late.restarts.min(), slow.late.restarts.min()) >= 3
    assert max(exp(slow.log_fail().max()), exp(errors.log_fail(effects.effect()).max())) > 1.5


def _none(c: Counts) -> Counts:
    return Counts(ladders={k: (0,) * len(v) for k, v in c.ladders.items()})


@pytest.mark.parametrize("ratio", [0.001, 0.02, 0.2])
def test_every_breaker_of_the_batch_is_the_shipped_one_request_by_request(ratio: float) -> None:
    base = next(looks(Setting(), 1))
    assert base.cursor.thresholds is not None
    cursor = replace(base.cursor, thresholds=replace(base.cursor.thresholds, baseline_error_ratio=ratio))
    failed = np.random.default_rng(5).random((200, 4)) < np.array([0.01, 0.05, 0.3, 0.9])
    many = batch.Breakers(np.full(4, max(0.01, 3 * ratio)))
    one = [BreakerMemory() for _ in range(4)]
    text = [""] * 4
    tripped: list[float] = [inf] * 4
    for i, row in enumerate(failed):
        many.note(row)
        now = many.tripped
        for run in range(4):
            text[run] += "x" if row[run] else "."
            canary = replace(base.arms["canary"], attempts=i + 1)
            e = replace(base, cursor=cursor, arms={"baseline": base.arms["baseline"], "canary": canary}, canary_outcomes=text[run])
            breaker.note_outcomes(one[run], e)
            assert now[run] == one[run].tripped
            assert many.peak[run] == pytest.approx(one[run].peak, abs=1e-9)
            if now[run]:
                tripped[run] = min(tripped[run], i + 1)
    assert tripped[0] == inf
    assert tripped[3] <= 60


def test_runs_that_are_dropped_do_not_change_the_others() -> None:
    rng = np.random.default_rng(3)
    blocks = rng.poisson([[[100], [2], [100], [3]]] * 6, (6, 4, 5)).astype(float)
    whole, part = (batch.Shares(np.full(5, 0.02), np.full(5, 10.0), steps=2, margin=0.01) for _ in range(2))
    mask = np.array([True, False, True, True, False])
    for i, block in enumerate(blocks):
        whole.feed(block)
        part.feed(block if i < 3 else block[:, mask])
        if i == 2:
            whole.new_step()
            part.new_step()
            part.keep(mask)
    assert part.log_fail() == pytest.approx(whole.log_fail()[mask])
    assert log(1e-9) < part.log_fail().min()


def test_an_arm_without_attempts_says_nothing() -> None:
    shares = batch.Shares(np.full(2, 0.02), np.full(2, 10.0), margin=0.01)
    shares.feed(np.array([[0.0, 50.0], [0.0, 1.0], [40.0, 0.0], [40.0, 0.0]]))
    assert shares.log_fail().tolist() == [0.0, 0.0]
    slow = batch.LadderFails(2)
    slow.feed(np.array([0.0, 9.0]), np.zeros((5, 2)), np.array([9.0, 0.0]), np.full((5, 2), 0.0))
    assert slow.log_fail().tolist() == pytest.approx([0.0, 0.0])
