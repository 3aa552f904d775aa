"""Bench rows of the shipped engine: each returns fields of the result. Bars and settings: docs/explanation/evidence.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, log
from time import process_time
from typing import Any

import numpy as np

from fleetctl.analysis.batch import Breakers, BurstEffects, LadderFails, LadderPasses, Shares, Suddens, log_sum
from fleetctl.analysis.eprocess import kl
from fleetctl.analysis.guardrails import FAIL_BOUND
from fleetctl.analysis.judge import fresh, judge
from fleetctl.analysis.sudden import MOST_PER_S
from fleetctl.domain.evidence import LADDER
from fleetctl.domain.workload import Guardrail, GuardrailSpec
from tests.bench.canary.engine import STEPS, Blocks, Ends, chunks, fail_errors, fail_latency, upper95
from tests.bench.canary.traffic import FROZEN_N, Setting, canary_tails, draw_ladder, frozen_tails
from tests.fakes.simulated_evidence import Setting as Looks
from tests.fakes.simulated_evidence import looks

Fields = dict[str, Any]
RATES, SHARES = (20, 200, 2000), (0.01, 0.05, 0.5)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many runs: of alike sides, of regressions, of whole canaries and long runs, of each baseline tool."""

    alike: int = 10_000
    worse: int = 10_000
    whole: int = 2_000
    tools: int = 500


QUICK = Counts(alike=400, worse=200, whole=60, tools=40)
SHARE5 = Setting(per_min=2000.0, share=0.05, look_s=12)
"""100 canary and 1,900 baseline requests a minute, a look every 20 canary requests."""
ERRORS = {
    "errors_05_10": Setting(errors1=0.01, minutes=300),
    "errors_05_10_share5": replace(SHARE5, errors1=0.01, minutes=300),
    "errors_01_06": Setting(errors0=0.001, errors1=0.006, minutes=200),
    "errors_01_06_share5": replace(SHARE5, errors0=0.001, errors1=0.006, minutes=200),
}
LATENCY = {
    "latency10": (Setting(factor=1.1, minutes=120), 0.0),
    "latency10_share5": (replace(SHARE5, factor=1.1, minutes=120), 0.0),
    "latency10_token": (Setting(factor=1.1, log_sd=0.25, minutes=60), 0.0),
    "latency20_margin10": (Setting(factor=1.2, minutes=120), 0.10),
}
TAIL = Setting(tail=0.02, minutes=60)
BOUNDS = {"errors_05_10": "bound_ratio_05_10", "errors_01_06": "bound_ratio_01_06", "latency10": "bound_ratio_latency10"}


def alike_setting(per_min: float, share: float) -> Setting:
    """Return an hour of alike sides with a look every 10 s; 24 hours where an hour holds too few canary requests."""
    long = per_min * share < 1
    return Setting(per_min=per_min, share=share, look_s=60 if long else 10, minutes=24 * 60 if long else 60)


def alike(n: Counts) -> Fields:
    """False FAILs of alike sides per guardrail at alpha 0.01 alone, zero margin: the worst cell decides."""
    cells: Fields = {}
    for per_min in RATES:
        for share in SHARES:
            s = alike_setting(per_min, share)
            missing = replace(s, errors0=0.02, errors1=0.02)
            runs = {}
            for late in (False, True):
                more = ", late ones too" if late else ""
                runs[f"errors{more}"] = fail_errors(s, n.alike, 11, until_whole=False, both=late)
                runs[f"slo_misses{more}"] = fail_errors(missing, n.alike, 12, until_whole=False, name="slo_misses", both=late)
                runs[f"latency{more}"] = fail_latency(s, n.alike, 13, until_whole=False, late=late)
            for name, ends in runs.items():
                cells[f"{name} {per_min}/min {share:.0%}"] = _false(ends, n.alike)
    return {"aa_false_rollback_upper95": max(c[1] for c in cells.values()), "aa_cells": cells}


def _false(ends: Ends, runs: int) -> tuple[float, float]:
    events = int(np.isfinite(ends.alone).sum())
    return round(events / runs, 5), round(upper95(events, runs), 5)


def detect_errors(n: Counts) -> Fields:
    """Canary requests to a FAIL on errors: alone, with what is staked anew beside it (`_late`), and by the whole rule (`_shipped`)."""
    out: Fields = {}
    for name, s in ERRORS.items():
        ends, late = fail_errors(s, n.worse, 21), fail_errors(s, n.worse, 21, until_whole=False, both=True)
        out |= _median(name, ends, late)
        if name == "errors_05_10":
            out |= {f"{name}_by12000": ends.share(12_000), f"{name}_by12000_shipped": ends.share(12_000, whole=True)}
            out[f"{name}_by12000_late"] = late.share(12_000)
        if name in BOUNDS:
            out |= _ratio(BOUNDS[name], ends, late, s, errors_bound(s.errors0, s.errors1, s.share))
    return out


def detect_latency(n: Counts) -> Fields:
    """Canary requests to a FAIL on latency, as for errors; a pure tail by 12,000."""
    out: Fields = {}
    for name, (s, margin) in LATENCY.items():
        ends = fail_latency(s, n.worse, 31, fail_margin=margin)
        late = fail_latency(s, n.worse, 31, fail_margin=margin, until_whole=False, late=True)
        out |= _median(name, ends, late)
        if name in BOUNDS:
            out |= _ratio(BOUNDS[name], ends, late, s, latency_bound(s.factor, s.log_sd, s.share))
    tail = fail_latency(TAIL, n.worse, 32)
    late = fail_latency(TAIL, n.worse, 32, until_whole=False, late=True)
    shares = {"": tail.share(12_000), "_late": late.share(12_000), "_shipped": tail.share(12_000, whole=True)}
    return out | {f"tail_by12000{kind}": share for kind, share in shares.items()}


def _median(name: str, ends: Ends, late: Ends) -> Fields:
    kinds = {"": ends.alone, "_late": late.alone, "_shipped": ends.whole}
    return {f"{name}_median{kind}": _finite(np.median(at)) for kind, at in kinds.items()}


def _ratio(name: str, ends: Ends, late: Ends, s: Setting, bound: float) -> Fields:
    """Mean requests over the bound; a run that never failed counts with all its requests."""
    most = s.per_min * s.share * s.minutes
    kinds = {"": ends.alone, "_late": late.alone, "_shipped": ends.whole}
    return {f"{name}{kind}": round(float(np.minimum(at, most).mean()) / bound, 3) for kind, at in kinds.items()}


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def errors_bound(p0: float, p1: float, share: float) -> float:
    """Return ln(100) / KL* for errors with an unknown baseline rate. Source: evidence.md 1."""
    pooled = share * p1 + (1 - share) * p0
    return log(FAIL_BOUND) / (kl(p1, pooled) + (1 - share) / share * kl(p0, pooled))


def latency_bound(factor: float, log_sd: float, share: float) -> float:
    """Return the parametric bound for a shift of lognormal latencies with an unknown baseline mean: KL* = (1 - w) d^2 / 2."""
    return log(FAIL_BOUND) / ((1 - share) * (log(factor) / log_sd) ** 2 / 2)


def hard_failure(n: Counts) -> Fields:
    """Share of runs in which the breaker trips within 100 canary requests at 20 % errors, and false trips at its own null."""
    rng, null = np.random.default_rng(41), 0.015
    within, false = 0, 0
    for size in chunks(n.worse):
        many = Breakers(np.full(size, null))
        for _ in range(100):
            many.note(rng.random(size) < 0.2)
        within += int(many.tripped.sum())
    for size in chunks(n.alike):
        many = Breakers(np.full(size, null))
        for _ in range(2000):
            many.note(rng.random(size) < null)
        false += int(many.tripped.sum())
    return {"hard_failure_within100": within / n.worse, "breaker_false_upper95": upper95(false, n.alike)}


def migration(n: Counts) -> Fields:
    """False rollbacks of a whole migration by the shipped rule: 4 share guardrails and 4 ladders, 6 steps in 330 min, zero margins."""
    out: Fields = {}
    for per_min in (200, 2000):
        rng, events = np.random.default_rng(51), 0
        for size in chunks(n.alike):
            events += int(_migrate(rng, per_min, size).sum())
        out[f"migration_false_rollback_{per_min}"] = events / n.alike
        out[f"migration_upper95_{per_min}"] = upper95(events, n.alike)
    return {"migration_false_rollback_upper95": max(v for k, v in out.items() if "upper95" in k)} | out


STEP_SHARES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.95)
_EVENTS = (0.005, 0.02, 0.05, 0.001)


def _migrate(rng: np.random.Generator, per_min: float, runs: int) -> Any:
    look_s, failed = 60, np.zeros(runs, dtype=bool)
    pauses = [BurstEffects((len(LADDER), runs)) for _ in range(4)]
    shares = [Shares.of_errors(rng.binomial(FROZEN_N, p, runs) / FROZEN_N, FROZEN_N, steps=STEPS) for p in _EVENTS]
    ladders, late = [LadderFails(runs, steps=STEPS) for _ in range(4)], [Suddens(runs) for _ in shares]
    for number, share in enumerate(STEP_SHARES):
        means = per_min / 60 * look_s * (1 - share), per_min / 60 * look_s * share
        tails = [frozen_tails(rng, runs) for _ in ladders]
        blocks = [Blocks(4, runs) for _ in shares], [Blocks(12, runs) for _ in ladders]
        if number:
            for guard in shares:
                guard.new_step()
            for one in ladders:
                one.new_step()
            for pause in pauses:
                pause.new_step()
        for look in range(55 * 60 // look_s):
            n = [rng.poisson(mean, runs) for mean in means]
            for guard, own, p, block in zip(shares, late, _EVENTS, blocks[0], strict=True):
                new = np.array([v for m in n for v in (m, rng.binomial(m, p))], dtype=float)
                fed = block.take(new, 0, 2)
                own.feed(fed, guard.baseline)
                guard.feed(fed)
            for slow, above, block, bursts in zip(ladders, tails, blocks[1], pauses, strict=True):
                new = np.concatenate([row for m in n for row in (m[None], draw_ladder(rng, m, above))])
                bursts.note(new[[0, 6]], np.stack([new[1:6], new[7:12]]), (look + 1) * look_s)
                fed = block.take(new, 0, 6)
                slow.feed(fed[0], fed[1:6], fed[6], fed[7:12], MOST_PER_S * look_s)
            of_shares = (own.beside(guard.log_fail()) for guard, own in zip(shares, late, strict=True))
            of_ladders = (slow.late.beside(slow.log_fail(own.effect())) for slow, own in zip(ladders, pauses, strict=True))
            logs = np.stack([*of_shares, *of_ladders])
            failed |= log_sum(logs, np.full((len(logs), 1), 1 / len(logs))) >= log(FAIL_BOUND)
    return failed


def disturbed(n: Counts) -> Fields:
    """False FAILs from cold starts, host effects and clustered errors, with what the product does against each."""
    runs, out = n.alike, {}
    cold = {
        f"{shape} sd {sd}": _false(
            fail_latency(Setting(log_sd=sd, look_s=10), runs, 61, fail_margin=0.05, until_whole=False, log_factor=move), runs
        )
        for shape, move in (("square", _square), ("decay", _decay))
        for sd in (0.25, 0.6)
    }
    out["cold_start_false_rollback"] = max(c[0] for c in cold.values())
    hosts: Fields = {}
    for count, margin in ((1, 0.10), (4, 0.05)):
        for sd in (0.25, 0.6):
            s = Setting(log_sd=sd, look_s=10)
            hosts[f"{count} an arm, sd {sd}, moving"] = _false(
                fail_latency(s, runs, 62, fail_margin=margin, until_whole=False, log_factor=_moving(0.02, count, s.look_s)), runs
            )
        s = Setting(log_sd=0.25, look_s=60, minutes=24 * 60)
        hosts[f"{count} an arm, sd 0.25, fixed for 24 h"] = _false(
            fail_latency(s, n.whole, 63, fail_margin=margin, until_whole=False, log_factor=_fixed(0.02, count)), n.whole
        )
    out["host_effect_false_rollback"] = max(c[0] for c in hosts.values())
    clustered = {
        f"{per_min}/min, base {p:.1%}{', late ones too' if both else ''}": _false(
            fail_errors(Setting(per_min=per_min, errors0=p, errors1=p, cluster=3.0, look_s=10), runs, 64, until_whole=False, both=both),
            runs,
        )
        for per_min in (200, 2000)
        for p in (0.005, 0.02)
        for both in (False, True)
    }
    out["cluster_false_rollback"] = max(c[0] for c in clustered.values())
    return out | {"cold_start_cells": cold, "host_effect_cells": hosts, "cluster_cells": clustered}


def stalls(n: Counts) -> Fields:
    """False FAILs of alike sides of which 1 % of the time is pauses of 10 s that slow all requests five times, at own or common times."""
    cells: Fields = {}
    for per_min, share in ((200, 0.5), (2000, 0.5), (2000, 0.05)):
        for is_common in (False, True):
            s = Setting(per_min=per_min, share=share, look_s=5)
            moves = _pausing(0.01, 10, s.look_s, is_common=is_common)
            name = f"{per_min}/min {share:.0%}{', at once' if is_common else ''}"
            ends = fail_latency(s, n.whole, 65, log_factor=moves, late=True)
            cells[name] = {"whole": round(ends.share(whole=True), 5), "alone": round(ends.share(), 5)}
    most = {kind: max(c[kind] for c in cells.values()) for kind in ("whole", "alone")}
    return {"stall_false_rollback": most["whole"], "stall_false_rollback_alone": most["alone"], "stall_cells": cells}


def _pausing(
    share: float, length_s: int, look_s: int, *, is_common: bool
) -> Callable[[np.random.Generator, int], Iterator[tuple[Any, Any]]]:
    """Pauses begin at any look, so they lie in one block of time or in two."""
    looks_each = length_s // look_s

    def moves(rng: np.random.Generator, runs: int) -> Iterator[tuple[Any, Any]]:
        left = np.zeros((2, runs))
        while True:
            begins = (left <= 0) & (rng.random((2, runs)) < share / looks_each)
            left = np.where(begins, looks_each, left)
            now = np.where(left > 0, log(5.0), 0.0)
            yield now[0], now[0 if is_common else 1]
            left = left - 1

    return moves


WARM_UP_MIN = 5.0


def _square(rng: np.random.Generator, runs: int) -> Iterator[tuple[Any, Any]]:
    return _cold(runs, lambda minute: 2.0 if minute < 3 else 1.0)


def _decay(rng: np.random.Generator, runs: int) -> Iterator[tuple[Any, Any]]:
    return _cold(runs, lambda minute: 1 + exp(-minute / 2))


def _cold(runs: int, factor: Callable[[float], float]) -> Iterator[tuple[Any, Any]]:
    """Yield (0, the canary's slowness) look by look of 10 s, from the end of warm-up on."""
    look = 0
    while True:
        yield 0.0, np.full(runs, log(factor(WARM_UP_MIN + look / 6)))
        look += 1


def _moving(sd: float, hosts: int, look_s: int) -> Callable[[np.random.Generator, int], Iterator[tuple[Any, Any]]]:
    """Each host's slowness moves as AR(1) with a time constant of 10 min; an arm's is the mean of its hosts'."""
    keep = exp(-look_s / 600)

    def moves(rng: np.random.Generator, runs: int) -> Iterator[tuple[Any, Any]]:
        now = rng.normal(0, sd, (2, hosts, runs))
        while True:
            yield now[0].mean(axis=0), now[1].mean(axis=0)
            now = keep * now + np.sqrt(1 - keep * keep) * rng.normal(0, sd, now.shape)

    return moves


def _fixed(sd: float, hosts: int) -> Callable[[np.random.Generator, int], Iterator[tuple[Any, Any]]]:
    def moves(rng: np.random.Generator, runs: int) -> Iterator[tuple[Any, Any]]:
        now = rng.normal(0, sd, (2, hosts, runs)).mean(axis=1)
        while True:
            yield now[0], now[1]

    return moves


def look_time(n: Counts) -> Fields:
    """CPU seconds of one look over 8,000 streams (each errors and a ladder, FAIL and PASS), and of one cell's `judge`."""
    rng, runs = np.random.default_rng(71), 8000
    s = Setting()
    tails = frozen_tails(rng, runs)
    own = [rng.poisson(mean, runs).astype(float) for mean in s.means]
    block = np.array([own[0], rng.binomial(own[0].astype(int), 0.005), own[1], rng.binomial(own[1].astype(int), 0.005)], dtype=float)
    k0, k1 = (draw_ladder(rng, m.astype(int), tails) for m in own)
    s0, s1 = (draw_ladder(rng, m.astype(int), canary_tails(tails, s, 1.1)) for m in own)
    shares = Shares.of_errors(np.full(runs, 0.005), FROZEN_N, margin=0.005)
    slow, quick = LadderFails(runs), LadderPasses(runs, [0.1] * 5, s.log_sd)
    times = []
    for _ in range(5):
        began = process_time()
        shares.feed(block)
        slow.feed(own[0], k0, own[1], k1)
        quick.feed(own[0], k0, s0, own[1], s1)
        shares.note_pass()
        quick.note_pass()
        shares.log_fail()
        slow.log_fail()
        times.append(process_time() - began)
    specs = (
        GuardrailSpec(name=Guardrail("errors"), margin=0.005, fail_margin=0.0),
        GuardrailSpec(name=Guardrail("latency"), margin=0.1, fail_margin=0.05),
    )
    state, evidence = fresh(), list(looks(Looks(scales=(1.0, 1.05, 1.1, 1.5)), 1))
    began = process_time()
    for e in evidence:
        state, _ = judge(state, e, specs)
    return {"look_8000_seconds": round(min(times), 4), "judge_look_seconds": round((process_time() - began) / len(evidence), 5)}
