"""Lab, lab layer: the emulated model: which tokens an answer has and when each is due. Never a real model; never I/O.

At temperature 0 the tokens are a hash of the prompt, so both sides answer alike unless a fault says otherwise.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from itertools import product

VOCABULARY = tuple(
    " " + a + b
    for a, b in product(
        ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "br", "st", "tr"),
        ("an", "ar", "el", "en", "ing", "is", "o", "on", "or", "ul", "um", "ust", "at", "eth", "ix", "ow"),
    )
)
"""256 made-up words, each one token; ASCII letters only, so that they need no escaping in JSON."""

CHARS_PER_TOKEN = 4
"""Emulated tokenizer: a token is four characters of the prompt."""

CACHE_BLOCK = 16
"""Tokens of a prefix are cached in whole blocks. Source: default block size of vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How fast an emulated pool is.

    Args:
        ttft_ms: milliseconds before the first token's own time, at least 0.
        token_ms: milliseconds per token, at least 0.
        log_sd: standard deviation of the logarithm of one factor per request, 0 to 3.
    """

    ttft_ms: float
    token_ms: float
    log_sd: float


def prompt_tokens(prompt: str) -> int:
    """Return how many tokens the emulated tokenizer sees, at least 1."""
    return max(1, len(prompt) // CHARS_PER_TOKEN)


def tokens(prompt: str, count: int, *, temperature: float, wrong_ratio: float = 0.0) -> list[int]:
    """Return the numbers (0 to 255) of `count` tokens.

    Args:
        temperature: 0 gives the hash of the prompt; above 0 anything.
        wrong_ratio: share of positions, 0 to 1, where another token stands; the same positions each time at temperature 0.
    """
    if temperature > 0:
        return list(random.randbytes(count))  # noqa: S311 - made-up words, not a secret
    right = _stream(prompt, count, b"right")
    if wrong_ratio <= 0:
        return list(right)
    dice = _stream(prompt, 2 * count, b"wrong")
    limit = wrong_ratio * 65536
    return [(t + 1 + dice[2 * i] % 255) % 256 if dice[2 * i] + 256 * dice[2 * i + 1] < limit else t for i, t in enumerate(right)]


def _stream(prompt: str, count: int, purpose: bytes) -> bytes:
    text = prompt.encode("utf-8", "surrogatepass")
    out = hashlib.blake2b(text, key=purpose).digest()
    while len(out) < count:
        out += hashlib.blake2b(text, key=purpose + str(len(out)).encode()).digest()
    return out[:count]


def top_logprobs(token: int, count: int) -> list[tuple[int, float]]:
    """Return the token and `count - 1` others with their log-probabilities, likeliest first; the gap to the second is 2 nat.

    Args:
        count: 1 to 20.
    """
    first = -0.3 - token / 2560
    return [(token, first), *(((token + 37 * i) % 256, first - 1.5 - 0.5 * i) for i in range(1, count))]


def request_factor(timing: Timing, dice: random.Random, *, latency: float, tail_share: float, tail_factor: float) -> float:
    """Return the factor of one request: lognormal noise (median 1) times the faults' factors."""
    factor = latency * (math.exp(dice.gauss(0.0, timing.log_sd)) if timing.log_sd > 0 else 1.0)
    if tail_share > 0 and dice.random() < tail_share:
        factor *= tail_factor
    return factor


def due_s(timing: Timing, factor: float, token: int) -> float:
    """Return seconds from arrival to token number `token` (1 for the first): (ttft + tokens x token time) x factor."""
    return (timing.ttft_ms + token * timing.token_ms) * factor / 1000.0


class PrefixCache:
    """Remembers the last prompt of each conversation, as a length and a hash; a bounded number of them.

    Args:
        room: conversations kept, at least 1; the longest unused goes first.
    """

    def __init__(self, room: int = 4096) -> None:
        self._room = room
        self._known: dict[str, tuple[int, int]] = {}

    def look(self, conversation: str, prompt: str) -> int:
        """Return how many prompt tokens are cached for this conversation, and remember the prompt."""
        if not conversation:
            return 0
        length, mark = self._known.pop(conversation, (0, 0))
        cached = 0
        if 0 < length <= len(prompt) and hash(prompt[:length]) == mark:
            cached = min(length // CHARS_PER_TOKEN, prompt_tokens(prompt) - 1) // CACHE_BLOCK * CACHE_BLOCK
        elif len(self._known) >= self._room:
            del self._known[next(iter(self._known))]
        self._known[conversation] = (len(prompt), hash(prompt))
        return cached
