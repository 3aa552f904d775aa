"""A shadow whose comparisons a test makes."""

from __future__ import annotations

from datetime import timedelta

from fleetctl.domain.evidence import Cursor, Pair
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.units import Instant
from tests.fakes.clock import START


def pair(seconds: float = 0, positions: int = 16, diverged: int | None = None, near_tie: bool = False, error: str = "") -> Pair:
    at: Instant = START + timedelta(seconds=seconds)
    seen = 0 if error else positions if diverged is None else diverged + 1
    return Pair(
        at=at,
        class_="chat<64",
        prompt_len=40,
        positions=seen,
        same_top=seen - (diverged is not None),
        first_divergence=diverged,
        near_tie=near_tie,
        logprob_delta=0.01,
        kl=0.001,
        error=error,
    )


class GivenShadow:
    """Yields the pairs it was given, and remembers its rates."""

    def __init__(self) -> None:
        self.rates: dict[CellId, float] = {}
        self.made: dict[CellId, list[Pair]] = {}

    def start(self, c: CellId, sample_per_s: float, token: Token) -> None:
        if not 0 < sample_per_s <= 1000:
            raise ValueError("copies a second are above 0 and at most 1,000")
        self.rates[c] = sample_per_s

    def stop(self, c: CellId) -> None:
        self.rates[c] = 0.0

    def pairs(self, c: CellId, since: Cursor | None) -> tuple[Pair, ...]:
        return tuple(p for p in self.made.get(c, ()) if since is None or p.at >= since.since)
