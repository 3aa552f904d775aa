"""The emulated model: tokens, timing, cache."""

from __future__ import annotations

import math
import random
import statistics

from fleetctl.lab.sampler import VOCABULARY, PrefixCache, Timing, due_s, prompt_tokens, request_factor, tokens, top_logprobs

TIMING = Timing(ttft_ms=20, token_ms=2, log_sd=0.25)


def test_the_vocabulary_needs_no_escaping() -> None:
    assert len(set(VOCABULARY)) == 256
    assert all(w[0] == " " and w[1:].isascii() and w[1:].isalpha() for w in VOCABULARY)


def test_temperature_zero_is_a_function_of_the_prompt() -> None:
    first = tokens("a question", 200, temperature=0)
    assert first == tokens("a question", 200, temperature=0)
    assert first[:16] == tokens("a question", 16, temperature=0)
    assert first != tokens("another one", 200, temperature=0)
    assert tokens("a question", 64, temperature=0.7) != tokens("a question", 64, temperature=0.7)


def test_wrong_tokens_stand_at_their_share_of_positions() -> None:
    right = tokens("q", 4000, temperature=0)
    wrong = tokens("q", 4000, temperature=0, wrong_ratio=0.2)
    share = sum(a != b for a, b in zip(right, wrong, strict=True)) / 4000
    assert 0.17 < share < 0.23
    assert wrong == tokens("q", 4000, temperature=0, wrong_ratio=0.2)
    assert all(a != b for a, b in zip(right, tokens("q", 4000, temperature=0, wrong_ratio=1.0), strict=True))


def test_the_second_choice_is_no_near_tie() -> None:
    for token in range(256):
        top = top_logprobs(token, 5)
        assert top[0][0] == token
        assert len({t for t, _ in top}) == 5
        assert top[0][1] - top[1][1] > 1.0
        assert sum(math.exp(p) for _, p in top) <= 1.0


def test_latency_is_lognormal_about_its_median() -> None:
    dice = random.Random(5)
    whole = [due_s(TIMING, request_factor(TIMING, dice, latency=1, tail_share=0, tail_factor=1), 16) for _ in range(4000)]
    assert abs(statistics.median(whole) - 0.052) < 0.001
    assert 0.23 < statistics.stdev(math.log(w) for w in whole) < 0.27


def test_faults_change_the_factor() -> None:
    steady = Timing(ttft_ms=20, token_ms=2, log_sd=0)
    dice = random.Random(5)
    assert request_factor(steady, dice, latency=2, tail_share=0, tail_factor=1) == 2
    slow = [request_factor(steady, dice, latency=1, tail_share=0.1, tail_factor=3) for _ in range(4000)]
    assert set(slow) == {1.0, 3.0}
    assert 0.08 < slow.count(3.0) / 4000 < 0.12


def test_a_conversation_finds_its_prefix_in_whole_blocks() -> None:
    cache = PrefixCache(room=2)
    first = "x" * 400
    assert cache.look("a", first) == 0
    assert cache.look("a", first + "y" * 100) == 96
    assert cache.look("a", "z" * 800) == 0
    assert cache.look("", first) == 0
    assert cache.look("b", first) == 0
    assert cache.look("c", first) == 0
    assert cache.look("a", "z" * 900) == 0
    assert cache.look("c", first) <= prompt_tokens(first) - 1
