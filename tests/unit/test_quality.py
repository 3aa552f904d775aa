"""The quality gate over made-up triples: what passes, what fails, what settles nothing; and the sign processes' own error rates."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fleetctl.analysis import signs
from fleetctl.analysis.answers import Answered, FreeSpec, accuracy, embeddings, free_run
from fleetctl.analysis.quality import quality_report
from fleetctl.catalog.quality import quality_texts
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.quality import Choice, QualityReport, QualitySpec, Triple
from tests.bench.quality import excess_positions

AT = datetime(2026, 11, 30, tzinfo=UTC)
SPEC = QualitySpec(prefill_chunk=256)


def choice(token: str, gap: float = 2.0) -> Choice:
    other = "b" if token == "a" else "a"
    return Choice(token=token, logprob=-0.2, top=((token, -0.2), (other, -0.2 - gap)))


def made(
    floor: float, excess: float, *, prompts: int = 60, each: int = 60, seed: int = 1, tie: bool = False, longest: int = 600
) -> list[Triple]:
    dice = random.Random(seed)
    gap = 0.05 if tie else 2.0
    out = []
    for p in range(prompts):
        for i in range(each):
            rep = "b" if dice.random() < floor else "a"
            can = "b" if dice.random() < floor + excess else "a"
            length = (p * longest // prompts) + i
            out.append(
                Triple(
                    prompt=str(p),
                    prompt_len=length,
                    forced="a",
                    reference=choice("a", gap),
                    repeat=choice(rep, gap),
                    canary=choice(can, gap),
                )
            )
    return out


def test_a_canary_that_differs_as_often_as_the_reference_from_itself_passes() -> None:
    report = quality_report(made(0.005, 0.0), SPEC, AT, "m")
    assert (report.kind, report.missing) == ("PASS", 0)
    assert report.e_pass >= 20
    assert [b.name for b in report.buckets] == ["to 64", "to 256", "over 256"]
    assert sum(b.positions for b in report.buckets) == report.whole.positions == 3600
    assert decode(QualityReport, canonical(report)) == report


def test_an_excess_fails_and_says_by_how_much() -> None:
    report = quality_report(made(0.02, 0.06), SPEC, AT)
    assert report.kind == "FAIL"
    assert report.e_fail >= 100
    assert "more positions than the reference from itself" in report.why


def test_near_ties_are_agreement() -> None:
    report = quality_report(made(0.0, 0.3, tie=True), replace(SPEC, kl_excess=1.0), AT)
    assert (report.kind, report.whole.same_top) == ("PASS", 1.0)
    assert report.whole.near_ties > 500


def test_a_small_difference_everywhere_is_seen_by_the_divergence() -> None:
    flat = [replace(t, canary=Choice(token="a", logprob=-0.45, top=(("a", -0.45), ("b", -1.1)))) for t in made(0.0, 0.0)]
    report = quality_report(flat, SPEC, AT)
    assert report.kind == "INCONCLUSIVE"
    assert "mean KL" in report.why
    assert report.whole.delta_mean == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("triples", "why"),
    [
        ([], "nothing was compared"),
        (made(0.0, 0.0, prompts=5), "5 of 20 texts"),
        (made(0.0, 0.0, longest=40, each=20), "longer than the prefill chunk"),
        (made(0.01, 0.0, each=4), "not yet shown"),
    ],
)
def test_what_settles_nothing_says_why_and_what_is_missing(triples: list[Triple], why: str) -> None:
    report = quality_report(triples, replace(SPEC, kl_excess=0.1), AT)
    assert report.kind in ("INCONCLUSIVE", "NO_DATA")
    assert why in report.why
    if "not yet" in why:
        assert report.missing is not None
        assert 50 < report.missing < 3000


def test_few_texts_never_fail_however_bad() -> None:
    assert quality_report(made(0.0, 0.9, prompts=10), SPEC, AT).kind == "INCONCLUSIVE"


def test_a_fault_beyond_the_prefill_chunk_shows_in_its_bucket() -> None:
    good = made(0.0, 0.0)
    bad = [replace(t, canary=choice("b")) if t.prompt_len > 256 else t for t in good]
    report = quality_report(bad, SPEC, AT)
    assert report.kind == "FAIL"
    assert [b.same_top for b in report.buckets] == [1.0, 1.0, 0.0]


def test_positions_of_one_text_that_fail_together_count_less() -> None:
    clustered = [replace(t, canary=choice("b")) if int(t.prompt) % 12 == 0 else t for t in made(0.0, 0.0)]
    spread = quality_report(made(0.0, 1 / 12), SPEC, AT)
    report = quality_report(clustered, SPEC, AT)
    assert report.effect > 5
    assert spread.effect < 1.5
    assert report.e_fail < spread.e_fail


def test_the_planned_excess_costs_at_most_what_was_promised() -> None:
    found = excess_positions(floor=0.02, excess=0.02, runs=300, seed=1)
    assert found.n90 <= 3100
    assert 1000 < found.median < found.n90


def test_equal_sides_hardly_ever_fail() -> None:
    found = excess_positions(floor=0.05, excess=0.0, runs=400, most=3000, seed=2)
    assert found.found <= stats.binom.ppf(0.999, 400, 0.01) / 400


@settings(max_examples=60, deadline=None)
@given(b=st.integers(0, 400), c=st.integers(0, 400), more=st.integers(0, 3000), margin=st.floats(0.001, 0.3))
def test_sign_processes_are_e_values_of_one_step_more(b: int, c: int, more: int, margin: float) -> None:
    """Under each null the mean over the next trial is at most what stands now (a supermartingale)."""
    now = signs.log_fail(b, c)
    after = 0.5 * signs.as_e(signs.log_fail(b + 1, c) - now) + 0.5 * signs.as_e(signs.log_fail(b, c + 1) - now)
    assert after <= 1 + 1e-9
    n = b + c + more
    here = signs.log_pass(n, b, c, margin)
    for lost in (margin, min(0.9, margin + 0.1)):
        steps = ((lost, signs.log_pass(n + 1, b + 1, c, margin)), (1 - lost, signs.log_pass(n + 1, b, c, margin)))
        assert sum(p * signs.as_e(v - here) for p, v in steps) <= 1 + 1e-9


def test_accuracy_is_paired_and_sequential() -> None:
    dice = random.Random(3)
    right = [dice.random() < 0.92 for _ in range(4000)]
    same = [(ok, ok != (dice.random() < (0.02 if ok else 0.23))) for ok in right]
    assert accuracy(same).kind == "PASS"
    worse = [(b, c and dice.random() > 0.06) for b, c in same]
    found = accuracy(worse)
    assert (found.kind, found.drop > 0.04) == ("FAIL", True)
    few = accuracy(same[:200])
    assert few.kind == "INCONCLUSIVE"
    assert few.missing is not None
    assert few.missing > 300
    assert accuracy([]).kind == "NO_DATA"


def test_planned_pairs_are_near_the_published_sizes() -> None:
    """At 4 % discordance one look needs about 1,620 paired items for 2 points, 5,200 for 1. Source: canary.md 3.3."""
    assert 600 < signs.planned_pairs(0.04, 0.02) < 1620 * 1.5
    assert 2000 < signs.planned_pairs(0.04, 0.01) < 5200 * 1.5
    assert signs.planned_pairs(0.0, 0.02) == pytest.approx((log(20) + log(7)) / max(log(1 + s * 0.02 / 0.98) for s in signs.STAKES))


def test_embeddings() -> None:
    dice = random.Random(4)
    one = [[dice.gauss(0, 1) for _ in range(16)] for _ in range(120)]
    near = [[x + dice.gauss(0, 1e-4) for x in v] for v in one]
    far = [[x + dice.gauss(0, 0.5) for x in v] for v in one]
    assert embeddings(one, near).kind == "PASS"
    bad = embeddings(one, far)
    assert (bad.kind, bad.cosine_p1 < 0.9, bad.overlap < 0.9) == ("FAIL", True, True)
    assert embeddings(one[:20], near[:20]).kind == "INCONCLUSIVE"
    assert embeddings([], []).kind == "NO_DATA"
    with pytest.raises(ValueError, match="as many vectors"):
        embeddings(one, near[:5])


def answered(text: str, *, finish: str = "stop", valid: bool = True) -> Answered:
    return Answered(choices=tuple(choice(t) for t in text), finish=finish, is_valid=valid)


def test_free_answers() -> None:
    same = (answered("aaaa"), answered("aaaa"), answered("aaaa"))
    off = (answered("aaaa"), answered("aaaa"), answered("abaaaaaa", finish="length", valid=False))
    found = free_run([same] * 30 + [off] * 30, FreeSpec())
    assert found.kind == "FAIL"
    assert (found.diverged, found.floor, found.invalid, found.invalid_floor) == (0.5, 0.0, 0.5, 0.0)
    assert found.length_ratio == pytest.approx(2**0.5)
    assert found.finish == {"length": (0, 30), "stop": (60, 30)}
    assert found.e_fail > 100
    alike = free_run([same] * 60, FreeSpec())
    assert alike.kind == "INCONCLUSIVE"
    assert alike.e_fail == pytest.approx(1.0)
    assert alike.missing is not None
    assert free_run([same] * (60 + alike.missing), FreeSpec()).kind == "PASS"
    longer = (answered("aaaa"), answered("aaaa"), answered("a" * 1000))
    assert "as long" in free_run([same] * 380 + [longer] * 20, FreeSpec()).why
    assert free_run([same] * 5, FreeSpec()).why == "5 of 20 answers"
    assert free_run([], FreeSpec()).kind == "NO_DATA"


def test_texts_beyond_the_prefill_chunk_are_among_the_shipped_ones() -> None:
    texts = quality_texts(256)
    assert len(texts) >= 24
    assert len(texts[0].split()) > 256
    assert len(texts[1].split()) < 64
