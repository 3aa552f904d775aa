"""Design effect and breaker alone: what chance gives, what clusters give, how soon and how seldom the breaker trips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from fleetctl.analysis import breaker, clusters
from fleetctl.analysis.memory import BreakerMemory, ClusterMemory, Memory, pack, unpack
from fleetctl.domain.evidence import Arm, ClusterSums, Evidence, JudgeState
from tests.fakes.simulated_evidence import Setting, looks


def effect(per_second: list[int], every: int = 1) -> float:
    """Both arms see these errors per second; a look every `every` seconds."""
    memory = ClusterMemory()
    for end in range(every, len(per_second) + 1, every):
        seen = per_second[:end]
        sums = ClusterSums(clusters=sum(v > 0 for v in seen), errors=sum(seen), sum_sq=sum(v * v for v in seen))
        both: dict[Arm, ClusterSums] = {"baseline": sums, "canary": sums}
        clusters.note_clusters(memory, both, float(end))
    return clusters.design_effect(memory)


def test_no_errors_or_a_steady_rate_have_no_effect() -> None:
    assert effect([0] * 60) == 1.0
    assert effect([20] * 60) == 1.0
    rng = np.random.default_rng(1)
    for rate in (0.1, 2.0, 50.0):
        assert effect([int(v) for v in rng.poisson(rate, 300)]) < 1.15


@pytest.mark.parametrize("every", [1, 3, 10])
def test_clusters_of_three_have_the_effect_of_their_size(every: int) -> None:
    rng = np.random.default_rng(2)
    groups = rng.poisson(0.2, 600)
    errors = [int(sum(rng.geometric(1 / 3, n))) for n in groups]
    assert effect(errors, every) == pytest.approx(5.0, rel=0.3)  # E[s^2] / E[s] of a geometric law with mean 3


def test_a_single_burst_is_discounted_at_once() -> None:
    assert effect([8]) > 4
    assert effect([0, 0, 0, 0, 0, 0, 0, 8]) > 4


def test_a_new_step_keeps_what_was_learned() -> None:
    memory = ClusterMemory()
    burst = ClusterSums(clusters=4, errors=40, sum_sq=400)
    clusters.note_clusters(memory, {"baseline": burst, "canary": burst}, 30.0)
    before = clusters.design_effect(memory)
    clusters.new_step(memory)
    assert clusters.design_effect(memory) == before > 5
    none = ClusterSums()
    clusters.note_clusters(memory, {"baseline": none, "canary": none}, 1.0)
    assert clusters.design_effect(memory) > 5


BASE = next(looks(Setting(), 1))


def trips(outcomes: str, *, ratio: float = 0.001) -> bool:
    memory = BreakerMemory()
    breaker.note_outcomes(memory, evidence(outcomes, ratio=ratio))
    return memory.tripped


def evidence(outcomes: str, *, ratio: float = 0.001) -> Evidence:
    assert BASE.cursor.thresholds is not None
    cursor = replace(BASE.cursor, thresholds=replace(BASE.cursor.thresholds, baseline_error_ratio=ratio))
    canary = replace(BASE.arms["canary"], attempts=len(outcomes))
    return replace(BASE, cursor=cursor, arms={"baseline": BASE.arms["baseline"], "canary": canary}, canary_outcomes=outcomes)


def drawn(rate: float, n: int, seed: int) -> str:
    return "".join("x" if v < rate else "." for v in np.random.default_rng(seed).random(n))


@pytest.mark.parametrize("good", [0, 17, 99, 4000])
def test_a_dead_canary_trips_within_ten_requests(good: int) -> None:
    assert trips("." * good + "x" * 10)


def test_twenty_percent_errors_trip_within_100_requests() -> None:
    assert sum(trips(drawn(0.2, 100, seed)) for seed in range(300)) >= 299
    assert sum(trips("." * 1000 + drawn(0.2, 100, seed)) for seed in range(100)) >= 97


def test_it_spares_what_the_null_allows() -> None:
    assert not any(trips(drawn(0.009, 4000, seed)) for seed in range(40))
    assert not any(trips(drawn(0.055, 4000, seed), ratio=0.02) for seed in range(40))


def test_the_null_is_three_times_the_baseline_and_at_least_one_percent() -> None:
    assert breaker.null_rate(evidence(".")) == 0.01
    assert breaker.null_rate(evidence(".", ratio=0.02)) == pytest.approx(0.06)
    assert breaker.null_rate(evidence(".", ratio=0.5)) == 0.9


def test_reading_outcomes_in_parts_is_the_same_as_at_once() -> None:
    outcomes = drawn(0.05, 400, 9)
    at_once, in_parts = BreakerMemory(), BreakerMemory()
    breaker.note_outcomes(at_once, evidence(outcomes))
    for end in (3, 90, 91, 250, 400):
        breaker.note_outcomes(in_parts, evidence(outcomes[:end]))
    assert (at_once.capital, at_once.total, at_once.peak, at_once.tripped) == (
        in_parts.capital,
        in_parts.total,
        in_parts.peak,
        in_parts.tripped,
    )
    assert [s.run for s in at_once.stretches] == pytest.approx([s.run for s in in_parts.stretches])


def blamed(looks_: list[tuple[str, int, int]]) -> Iterator[tuple[BreakerMemory, str]]:
    """Yield the memory and who is blamed after each look: canary outcomes, baseline attempts and errors since the one before."""
    memory, outcomes, n0, k0 = BreakerMemory(), "", 0, 0
    for new, n, k in looks_:
        outcomes, n0, k0 = outcomes + new, n0 + n, k0 + k
        e = evidence(outcomes)
        e = replace(e, arms={**e.arms, "baseline": replace(e.arms["baseline"], attempts=n0, errors=k0)})
        breaker.note_outcomes(memory, e)
        yield memory, breaker.blame(memory, e) if memory.tripped else "not tripped"


def looked(*looks_: tuple[str, int, int]) -> tuple[BreakerMemory, str]:
    """Return both after the last look."""
    return list(blamed(list(looks_)))[-1]


GOOD = ("." * 50, 50, 0)


def test_a_canary_that_fails_alone_is_blamed_as_soon_as_the_baseline_can_be_compared() -> None:
    assert looked(GOOD, ("x" * 7, 7, 0))[1] == ""
    assert "5 baseline requests at the same time are too few" in looked(GOOD, ("x" * 5, 5, 0))[1]
    assert "0 baseline requests at the same time are too few" in looked(GOOD, ("x" * 6, 0, 0))[1]
    assert looked(GOOD, ("x" * 6, 0, 0), ("x" * 6, 5, 0))[1] == ""
    assert looked(GOOD, ("xxxx.x", 300, 1))[1] == "", "a baseline that fails as it always did is no excuse"


@pytest.mark.parametrize(
    ("canary", "n0", "k0"), [("x" * 6, 6, 6), ("x" * 6, 3, 2), ("x" * 40, 2, 2), ("xxxxxx", 100, 50), ("xx.xx.xx", 4, 1)]
)
def test_arms_that_fail_alike_are_never_the_canarys_fault(canary: str, n0: int, k0: int) -> None:
    assert looked(GOOD, (canary, n0, k0))[1] != ""


def test_a_baseline_that_was_seen_to_fail_too_excuses_until_the_stretch_is_over() -> None:
    memory, said = looked(GOOD, ("x" * 20, 10, 8), *[("x" * 20, 40, 0)] * 5)
    assert said == "the baseline is failing too"
    assert unpack(pack(Memory(steps=1, breaker=memory))).breaker == memory
    assert looked(GOOD, ("x" * 20, 10, 1), *[("x" * 20, 40, 0)] * 5)[1] == "", "one error of the baseline is no excuse"
    memory, _ = looked(GOOD, ("x" * 20, 10, 8), ("." * 900, 900, 0))
    assert breaker.is_over(memory)
    breaker.start_afresh(memory)
    assert not memory.is_shared


def test_a_trip_of_an_older_release_is_kept_where_its_stretch_is_not_known() -> None:
    old = BreakerMemory(capital=[8.0] * 4, total=9, seen=9, peak=8.0, tripped=True)
    read = unpack(JudgeState(format_version=1, numbers=pack(Memory(steps=1, breaker=old)).numbers.replace(b",-1,[0,0],[]]", b"]"))).breaker
    assert read == old
    assert "too few" in breaker.blame(read, BASE)
    assert not breaker.is_over(read)
    read.trip = 2
    assert "too few" in breaker.blame(read, BASE)
    assert not breaker.is_over(read)


def test_good_baseline_requests_after_a_burst_say_nothing_about_the_burst() -> None:
    memory, said = looked(GOOD, ("x" * 6, 0, 0), *[("..", 40, 0)] * 3)
    assert "too few" in said
    memory, _ = looked(GOOD, ("x" * 6, 0, 0), *[("." * 100, 40, 0)] * 3)
    assert breaker.is_over(memory)


def test_a_canary_that_has_no_baseline_beside_it_is_blamed_within_a_hundred_requests() -> None:
    assert looked(GOOD, ("x" * 60, 0, 0))[1] != ""
    assert looked(GOOD, ("x" * 60, 0, 0), ("x" * 40, 0, 0))[1] == ""


@pytest.mark.parametrize(("share", "look_s"), [(0.05, 1), (0.5, 10), (0.95, 1)])
def test_joint_outages_at_few_requests_are_rarely_and_canary_outages_always_a_fail(share: float, look_s: int) -> None:
    """Bursts in which every request of both arms fails, at one request a second; and the same bursts on the canary alone."""
    rng, failed = np.random.default_rng(4), {True: 0, False: 0}
    for is_joint in (True, False):
        for _ in range(10):
            looks_, t = [], 0
            while t < 400:
                new, n0, k0 = "", 0, 0
                for second in range(t, t + look_s):
                    is_burst = second % 200 >= 160 - 100 * (not is_joint)
                    if rng.random() < share:
                        new += "x" if is_burst else "."
                    else:
                        n0, k0 = n0 + 1, k0 + (is_burst and is_joint)
                looks_.append((new, n0, k0))
                t += look_s
            failed[is_joint] += any(said == "" for _, said in blamed(looks_))
    assert failed[True] <= 1
    assert failed[False] >= 9


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
def test_errors_that_both_arms_share_for_long_are_nobodys_fault_and_those_of_the_canary_alone_are_found(rate: float) -> None:
    """At 95 % of 10 requests a second, looked at every 5 s for half an hour: every look asks again."""
    for is_joint in (True, False):
        for seed in range(3):
            rng, looks_ = np.random.default_rng(seed), []
            for look in range(360 if is_joint else 48):
                n1, bad = int(rng.binomial(50, 0.95)), rate if look >= 12 else 0.001
                looks_.append((drawn(bad, n1, 1_000 * seed + look), 50 - n1, int(rng.binomial(50 - n1, bad if is_joint else 0.001))))
            is_found = any(said == "" for _, said in blamed(looks_))
            assert is_found is (not is_joint and rate > 0.05)
