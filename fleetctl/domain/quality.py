"""Evidence, domain layer: answers' quality as it was compared position by position, and what was found. Never I/O; no text is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one side would say next at one position.

    Args:
        token: names the likeliest token (id, bytes or text), the same way on all sides; logprob: of that token, nat, at most 0.
        top: the likeliest tokens with their logprobs, as many as the server gave.
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


Match = Literal["exact", "contains", "number", "choice", "json"]
Form = Literal["text", "json", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One prompt of a file.

    Args:
        expect: the right answer, "" where it is not scored; match: how an answer is held against it.
        form: what a valid answer is, right or wrong.
    """

    prompt: str
    expect: str = ""
    match: Match = "exact"
    form: Form = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One side's whole answer, as it came; scored at once and never kept.

    Args:
        choices: token by token, () where no log-probabilities were told; finish: the reason.
    """

    text: str
    choices: tuple[Choice, ...] = ()
    finish: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triple:
    """One position of one forced text: what the reference, the reference again, and the canary would say next.

    Args:
        prompt: which text it belongs to; prompt_len: its length in tokens up to here; forced: the token that the text goes on with.
    """

    prompt: str
    prompt_len: int
    forced: str
    reference: Choice
    repeat: Choice
    canary: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class QualitySpec:
    """What the quality gate tolerates.

    Args:
        excess: of mismatched positions over the reference's own repeats, points / 100; near_tie_nat: gap under which tokens count as tied.
        kl_excess: of the mean top-k KL over the repeats', nat; prefill_chunk: tokens; at least one text must be longer.
        least_prompts: texts on which a FAIL or a PASS must rest.
    Source: evidence.md 5 (2 points), canary.md 4.1, 4.4 (0.002 nat is about the drift of 8-bit weights; ties up to 0.125 nat).
    """

    excess: float = 0.02
    near_tie_nat: float = 0.125
    kl_excess: float = 0.002
    prefill_chunk: int = 2048
    least_prompts: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityBucket:
    """What was found in texts of one class of lengths, or in all of them.

    Args:
        same_top: share of positions where canary and reference agree (near ties count as agreement); floor: where the repeat does not.
        delta_mean, delta_p99: of |difference of the forced token's log-probability|, nat; None where it is not among those told.
        kl, kl_floor: mean top-k KL of the canary and of the repeat from the reference, nat.
        only_canary, only_repeat: positions where one of them alone differs.
    """

    name: str
    prompts: int
    positions: int
    same_top: float
    floor: float
    delta_mean: float | None
    delta_p99: float | None
    kl: float | None
    kl_floor: float | None
    only_canary: int
    only_repeat: int
    near_ties: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """All that the quality gate found for one model name, kept as a record beside its verdict.

    Args:
        e_fail: that the canary differs more often than the repeat; e_pass: that it does so by less than the tolerated excess.
        effect: what log-likelihoods were divided by, since positions of one text hang together; why: of an INCONCLUSIVE.
    """

    model: str
    at: Instant
    kind: str
    whole: QualityBucket
    buckets: tuple[QualityBucket, ...]
    e_fail: float
    e_pass: float
    effect: float
    missing: int | None
    why: str
    settings: Mapping[str, float] = field(default_factory=dict)
