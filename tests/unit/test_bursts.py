"""Slow requests that come in bursts: what they weigh, that alike sides which pause do not FAIL, and that what stays slow does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pytest

from fleetctl.analysis import batch, clusters
from fleetctl.analysis.bursts import BLOCK_MS, LEAST_BLOCKS, Bursts, together
from fleetctl.analysis.freeze import quantiles
from fleetctl.analysis.judge import fresh, judge, needed_scales
from fleetctl.analysis.memory import ClusterMemory, Memory, unpack
from fleetctl.analysis.tally import Tally
from fleetctl.domain.evidence import ARMS, Arm, ClusterSums, Cursor, Thresholds, Verdict
from fleetctl.domain.ids import CellId
from fleetctl.domain.records import Attempt
from fleetctl.domain.workload import Guardrail, GuardrailSpec

CELL = CellId("bursts")
T0 = datetime(2026, 12, 1, tzinfo=UTC)
START_MS = round(T0.timestamp() * 1_000)
SLO_MS = 400.0
CANARY_PAUSES = (3, 7, 8, 10)
"""Seeds in which the canary pauses within ten minutes, alone or first: as independent requests, each of these is a FAIL."""
LATENCY = GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.05)
MISSES = GuardrailSpec(name=Guardrail("slo_misses"), margin=0.05, fail_margin=0.0)
ENDINGS = GuardrailSpec(name=Guardrail("finish_length"), margin=0.05, fail_margin=0.0)


def frozen(specs: tuple[GuardrailSpec, ...]) -> Thresholds:
    random = Random(7)
    found = quantiles(sorted(100 * random.lognormvariate(0, 0.6) for _ in range(3_000)))
    return Thresholds(
        class_edges=(), latency_ms=(found,), scales=needed_scales(specs), baseline_n=3_000, baseline_error_ratio=0.0, log_sd=0.6
    )


def pauses(random: Random, minutes: float, length_s: float, share: float = 0.01) -> list[tuple[float, float]]:
    """Return when an arm pauses, seconds."""
    out, at = [], random.expovariate(share / length_s)
    while at < 60 * minutes:
        out.append((at, at + length_s))
        at += length_s + random.expovariate(share / length_s)
    return out


def judged(
    spec: GuardrailSpec,
    seed: int,
    *,
    per_s: float = 20.0,
    minutes: float = 15.0,
    length_s: float = 10.0,
    is_common: bool = False,
    slower_from_s: float = 1e9,
    share: float = 0.01,
    endings: bool = False,
) -> tuple[float, tuple[Verdict, ...], dict[str, float]]:
    """Return when the canary failed (seconds, infinite without), the last verdicts and the design effects at the end.

    Both arms alike, each with pauses in which all that begins is five times as slow (or ends with "length"), by the real tally and judge.
    """
    random, specs = Random(seed), (spec,)
    cursor = Cursor(position="", since=T0, thresholds=frozen(specs))
    tally = Tally(CELL, cursor, streaming=False, slo_latency_ms=SLO_MS)
    held: dict[Arm, list[tuple[float, float]]] = {arm: pauses(random, minutes, length_s, share) if share else [] for arm in ARMS}
    if is_common:
        held["canary"] = held["baseline"]
    rows = []
    for arm in ARMS:
        at = 0.0
        while (at := at + random.expovariate(per_s / 2)) < 60 * minutes:
            is_held = any(a <= at < b for a, b in held[arm])
            factor = (2.0 if arm == "canary" and at >= slower_from_s else 1.0) * (5.0 if is_held and not endings else 1.0)
            ms = 100 * random.lognormvariate(0, 0.6) * factor
            ending = "length" if (is_held and endings) or random.random() < 0.01 else "stop"
            begins = START_MS + round(at * 1_000)
            rows.append(
                Attempt(cell=CELL, arm=arm, started_ms=begins, ended_ms=begins + round(ms), latency_ms=ms, failed=False, finish=ending)
            )
    rows.sort(key=lambda a: a.ended_ms)
    state, done = fresh(6, 1), 0
    verdicts: tuple[Verdict, ...] = ()
    for look in range(1, round(60 * minutes / 5) + 1):
        now = T0 + timedelta(seconds=5 * look)
        while done < len(rows) and rows[done].ended_ms <= now.timestamp() * 1_000:
            tally.add(rows[done])
            done += 1
        state, verdicts = judge(state, tally.evidence(now), specs)
        if verdicts[0].kind == "FAIL":
            return 5.0 * look, verdicts, {}
    memory = unpack(state)
    return float("inf"), verdicts, {name: clusters.effect_on(memory, name) for name in memory.clusters_of}


@pytest.mark.parametrize("spec", [LATENCY, MISSES, ENDINGS], ids=lambda s: s.name)
@pytest.mark.parametrize(
    ("is_common", "length_s"),
    [(False, 10.0), pytest.param(True, 10.0, marks=pytest.mark.slow), pytest.param(False, 5.0, marks=pytest.mark.slow)],
)
def test_alike_sides_that_pause_do_not_fail(spec: GuardrailSpec, is_common: bool, length_s: float) -> None:
    ends = [
        judged(spec, seed, is_common=is_common, length_s=length_s, minutes=10, share=length_s / 500, endings=spec is ENDINGS)[0]
        for seed in CANARY_PAUSES
    ]
    assert ends == [float("inf")] * len(CANARY_PAUSES)


def test_what_pauses_weigh_is_what_they_are() -> None:
    _, _, effects = judged(LATENCY, 3, share=0.02, minutes=30)
    assert effects["latency/4"] > 20
    assert effects["latency/4"] > effects["latency/2"] > effects["latency/0"] > 1.2
    _, _, alone = judged(LATENCY, 3, share=0.0)
    assert max(alone.values()) < 1.5
    assert sum(alone.values()) / len(alone) < 1.2


@pytest.mark.parametrize("from_s", [0.0, 330.0])
@pytest.mark.parametrize("spec", [LATENCY, MISSES], ids=lambda s: s.name)
def test_what_stays_slow_is_found_within_90_seconds(spec: GuardrailSpec, from_s: float) -> None:
    for seed in range(4):
        at, verdicts, _ = judged(spec, seed, slower_from_s=from_s, minutes=8, share=0.0)
        assert 0 < at - from_s <= 90, verdicts


def test_the_order_and_the_cuts_of_what_is_counted_do_not_matter() -> None:
    random = Random(1)
    rows = [(random.randrange(0, 40) * random.randrange(1, 4) * 7_000, ["a"] * (random.random() < 0.2)) for _ in range(500)]
    one, other = Bursts(), Bursts()
    for at, events in rows:
        one.add(at, events)
        one.effect("a")
    for at, events in sorted(rows, reverse=True):
        other.add(at, events)
    assert one.effect("a") == other.effect("a")


def test_what_never_happened_and_one_arm_alone_are_told_too() -> None:
    arms: dict[Arm, Bursts] = {arm: Bursts() for arm in ARMS}
    assert together(arms, ["a"]) == {"baseline": {}, "canary": {}}
    arms["canary"].add(0, ["b"])
    assert together(arms, ["a"])["baseline"] == {"a": ClusterSums(spread=0.0), "b": ClusterSums(spread=0.0)}


def test_many_runs_at_once_have_the_same_effects() -> None:
    rng, runs, looks = np.random.default_rng(3), 3, 60
    many = batch.BurstEffects((2, runs))
    each = [{arm: Bursts() for arm in ARMS} for _ in range(runs)]
    memories = [ClusterMemory() for _ in range(2 * runs)]
    for look in range(looks):
        n = rng.poisson(30, (2, runs)) + 1
        k = rng.binomial(n[:, None], np.where(look % 17 == 3, 0.9, 0.2), (2, 2, runs))
        many.note(n.astype(float), k.astype(float), 5.0 * (look + 1))
        for run in range(runs):
            for arm_no, arm in enumerate(ARMS):
                for i in range(int(n[arm_no, run])):
                    events = [name for e, name in enumerate("ab") if i < k[arm_no, e, run]]
                    each[run][arm].add(START_MS - START_MS % BLOCK_MS + 5_000 * look, events)
            sums = together(each[run])
            for e, name in enumerate("ab"):
                own = memories[2 * run + e]
                clusters.note_clusters(own, {arm: sums[arm].get(name, ClusterSums(spread=0.0)) for arm in ARMS}, 5.0 * (look + 1))
                assert many.effect()[e, run] == pytest.approx(clusters.design_effect(own), rel=1e-3)
    assert looks * 5_000 / BLOCK_MS > LEAST_BLOCKS


def burst_sums(k: int, effect: float) -> dict[Arm, ClusterSums]:
    return {arm: ClusterSums(errors=k, spread=k * effect) for arm in ARMS}


@pytest.mark.parametrize("name", ["latency/3", "slo_misses", "finish_length"])
def test_a_step_too_short_to_tell_of_bursts_delays_no_pass_and_weighs_on_no_later_step(name: str) -> None:
    memory = Memory(steps=6)
    own = memory.clusters_of.setdefault(name, ClusterMemory())
    for second in (5.0, 20.0, 45.0):
        clusters.note_clusters(own, burst_sums(int(second), second), second)
        assert clusters.effect_on(memory, name) > 2.0, "a FAIL waits until it can be told from a pause"
        assert clusters.effect_on_pass(memory, name) == 1.0
    clusters.new_step(own, in_bursts=clusters.comes_in_bursts(name))
    assert (own.spread, own.errors) == (0.0, 0.0)
    clusters.note_clusters(own, burst_sums(400, 6.0), 90.0)
    clusters.new_step(own, in_bursts=clusters.comes_in_bursts(name))
    assert own.spread == 4_800.0, "one that was long enough counts on"
    clusters.note_clusters(own, burst_sums(10, 1.0), 70.0)
    assert clusters.effect_on_pass(memory, name) > 2.0


def test_clusters_of_errors_are_told_at_once() -> None:
    memory = Memory(steps=6)
    memory.clusters_of["errors_prom"] = ClusterMemory()
    clusters.note_clusters(memory.clusters_of["errors_prom"], burst_sums(40, 6.0), 5.0)
    assert clusters.effect_on_pass(memory, "errors_prom") > 2.0
