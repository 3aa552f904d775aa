"""Comparing two greedy answers, and judging many comparisons."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.shadow import compare, mismatch_e_values, shadow_verdict, top_kl
from fleetctl.domain.evidence import Pair
from fleetctl.domain.quality import Choice
from fleetctl.domain.workload import ShadowSpec
from tests.fakes.clock import START
from tests.fakes.shadow import pair

SPEC = ShadowSpec(positions=600, max_mismatch_ratio=0.05, near_tie_nat=0.2)


def choice(token: str, *others: tuple[str, float], logprob: float = -0.5) -> Choice:
    return Choice(token=token, logprob=logprob, top=((token, logprob), *others))


def answer(tokens: str, shift: float = 0.0) -> list[Choice]:
    return [choice(t, ("~", -2.0), logprob=-0.5 - shift) for t in tokens]


def test_same_answers_agree_everywhere() -> None:
    found = compare(answer("abcd"), answer("abcd", shift=0.1), 0.2)
    assert (found.positions, found.same_top, found.first_divergence, found.near_tie) == (4, 4, None, False)
    assert found.logprob_delta == pytest.approx(0.1)
    assert found.kl is not None
    assert found.kl > 0


def test_nothing_after_the_first_divergence_counts() -> None:
    found = compare(answer("abcd"), answer("abXd"), 0.2)
    assert (found.positions, found.same_top, found.first_divergence, found.near_tie) == (3, 2, 2, False)
    assert compare(answer("abcd"), answer("Zbcd"), 0.2).logprob_delta == 0.0


@pytest.mark.parametrize(
    ("on_baseline", "on_canary", "tied"),
    [(-0.6, -0.6, True), (-0.7, -0.7, True), (-0.71, -0.6, False), (-0.6, -0.71, False), (None, -0.6, False), (-0.6, None, False)],
)
def test_near_tie_needs_both_sides(on_baseline: float | None, on_canary: float | None, tied: bool) -> None:
    baseline = [choice("a", *([("b", on_baseline)] if on_baseline is not None else []))]
    canary = [choice("b", *([("a", on_canary)] if on_canary is not None else []))]
    found = compare(baseline, canary, 0.2 + 1e-9)
    assert found.near_tie is tied
    assert (found.positions, found.first_divergence) == (1, 0)


def test_answer_that_ends_early_has_diverged() -> None:
    found = compare(answer("abcd"), answer("ab"), 0.2)
    assert (found.positions, found.same_top, found.first_divergence, found.near_tie) == (3, 2, 2, False)
    assert compare([], [], 0.2).positions == 0
    assert compare([], [], 0.2).kl is None


def test_kl_is_that_of_shared_tokens_and_the_rest() -> None:
    def side(p: float, q: float) -> Choice:
        return Choice(token="a", logprob=math.log(p), top=(("a", math.log(p)), ("b", math.log(q))))

    by_hand = 0.6 * math.log(0.6 / 0.5) + 0.3 * math.log(0.3 / 0.3) + 0.1 * math.log(0.1 / 0.2)
    assert top_kl(side(0.6, 0.3), side(0.5, 0.3)) == pytest.approx(by_hand)
    assert top_kl(side(0.6, 0.3), side(0.6, 0.3)) == pytest.approx(0.0, abs=1e-12)
    assert top_kl(choice("a"), choice("b")) is None
    assert top_kl(Choice(token="a", logprob=0.0), Choice(token="a", logprob=0.0)) is None
    assert top_kl(choice("a", logprob=0.0), choice("a", logprob=0.0)) == 0.0


tokens = st.lists(st.sampled_from("ab"), max_size=6)


@given(tokens, tokens)
def test_comparison_is_the_same_from_either_side(left: list[str], right: list[str]) -> None:
    one, other = compare(answer("".join(left)), answer("".join(right)), 0.2), compare(answer("".join(right)), answer("".join(left)), 0.2)
    assert one == other
    assert one.same_top <= one.positions <= one.same_top + 1
    assert (one.first_divergence is None) == (left == right)


def test_verdicts_over_many_pairs() -> None:
    assert shadow_verdict((), SPEC).kind == "NO_DATA"
    few = [pair(n) for n in range(10)]
    waiting = shadow_verdict(few, SPEC)
    assert (waiting.kind, waiting.missing, waiting.look.canary_n) == ("INCONCLUSIVE", 28, 160)
    assert waiting.look.at == few[-1].at
    good = shadow_verdict([*few, *(pair(n, diverged=15) for n in range(10)), *(pair(n) for n in range(20))], SPEC)
    assert (good.kind, good.missing, good.guardrail) == ("PASS", 0, "quality")
    assert (good.look.canary_events, good.look.canary_n) == (10, 640)
    assert good.pass_e_value > 20 > good.e_value
    assert "10 of 640" in good.detail
    bad = shadow_verdict([pair(n, diverged=3) for n in range(30)], SPEC)
    assert (bad.kind, bad.missing) == ("FAIL", None)
    assert bad.e_value >= 100
    border = shadow_verdict([pair(n, diverged=15) for n in range(10)] + [pair(n, diverged=1) for n in range(26)] + few * 3, SPEC, at=START)
    assert (border.kind, border.look.canary_events, border.look.canary_n) == ("INCONCLUSIVE", 36, 692)


def test_near_ties_are_no_mismatches() -> None:
    tied = [pair(n, diverged=15, near_tie=True) for n in range(40)]
    found = shadow_verdict(tied, SPEC)
    assert (found.kind, found.look.canary_events, found.look.canary_n) == ("PASS", 0, 640)
    assert "40 near ties" in found.detail


def test_wrong_tokens_fail_only_after_enough_answers() -> None:
    def wrong(count: int) -> list[Pair]:
        return [pair(n, diverged=0) for n in range(count)]

    assert shadow_verdict(wrong(19), SPEC).kind == "INCONCLUSIVE"
    assert shadow_verdict(wrong(20), SPEC).kind == "FAIL"


def test_comparisons_that_failed_count_as_nothing_and_are_told() -> None:
    broken = [pair(n, error="canary: status 500") for n in range(50)]
    assert shadow_verdict(broken, SPEC).kind == "NO_DATA"
    found = shadow_verdict([*broken, pair(51)], SPEC)
    assert (found.kind, found.look.canary_n) == ("INCONCLUSIVE", 16)
    assert "50 comparisons failed, most often: canary: status 500" in found.detail


@pytest.mark.parametrize("bound", [0.0, 0.02, 0.05, 0.5, 1.0])
def test_e_values_have_mean_at_most_one_at_the_bound(bound: float) -> None:
    p = min(max(bound, 1e-4), 1 - 1e-4)
    trials = 40
    weights = [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    above = math.fsum(w * mismatch_e_values(k, trials, bound)[0] for k, w in enumerate(weights))
    below = math.fsum(w * mismatch_e_values(k, trials, bound)[1] for k, w in enumerate(weights))
    assert above <= 1 + 1e-6
    assert below <= 1 + 1e-6


@given(st.integers(0, 5000), st.integers(0, 5000), st.floats(0, 1))
@settings(max_examples=200)
def test_e_values_are_finite_and_not_both_large(mismatches: int, matches: int, bound: float) -> None:
    above, below = mismatch_e_values(mismatches, mismatches + matches, bound)
    assert 0 <= above <= 1e12
    assert 0 <= below <= 1e12
    assert min(above, below) <= 1 + 1e-6


@pytest.mark.parametrize("ratio", [0.05, 0.055])
def test_a_share_at_or_above_the_bound_seldom_passes_however_often_it_is_looked_at(ratio: float) -> None:
    dice, runs, passed = random.Random(11), 150, 0
    for _ in range(runs):
        pairs: list[Pair] = []
        for n in range(150):
            diverged = next((i for i in range(16) if dice.random() < ratio), None)
            pairs.append(pair(n, diverged=diverged))
            if n >= 40 and n % 4 == 0 and shadow_verdict(pairs, SPEC).kind == "PASS":
                passed += 1
                break
    assert passed <= 0.05 * runs, "alpha is 5 %; the share that happens to be within the bound at some look is over one half"


def test_a_share_well_below_the_bound_passes_after_about_as_many_answers_as_were_told() -> None:
    dice = random.Random(5)
    pairs: list[Pair] = []
    told: list[int] = []
    while (found := shadow_verdict(pairs, SPEC)).kind != "PASS":
        assert len(pairs) < 400
        if len(pairs) == 100:
            told.append(len(pairs) + (found.missing or 0))
        pairs.append(pair(len(pairs), diverged=next((i for i in range(16) if dice.random() < 0.033), None)))
    assert told
    assert 0.5 * len(pairs) < told[0] < 2 * len(pairs)


def test_equal_sides_seldom_fail_while_looked_at_all_the_time() -> None:
    dice = random.Random(7)
    failed = 0
    for _ in range(200):
        mismatches = 0
        for positions in range(1, 801):
            mismatches += dice.random() < SPEC.max_mismatch_ratio
            if positions % 10 == 0 and mismatch_e_values(mismatches, positions, SPEC.max_mismatch_ratio)[0] >= 100:
                failed += 1
                break
    assert failed <= 4, "alpha is 1 % at the very bound"
