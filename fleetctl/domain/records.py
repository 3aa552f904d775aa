"""Evidence, domain layer: what a source of evidence records: attempts one by one, and counters as they stood. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.domain.evidence import Arm

_FIELDS = {"latency": "latency_ms", "ttft": "ttft_ms", "token_time": "token_ms", "nll": "nll"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one request at one replica.

    Args:
        started_ms: epoch milliseconds of its start; ended_ms: of its end.
        failed: counts as an error of `arm`; latency_ms: None where it must not be timed.
        prompt_tokens, cached_tokens, output_tokens: -1 where the answer did not tell.
        ttft_ms: to the first token; token_ms: mean per output token after the first; nll: mean negative log-likelihood per token, nat;
            None where it was not measured.
        finish: the finish reason, "" where it is not known; pair: of a paired probe, the same on both arms, -1 for a user's request.
        fault: what kind of hard fault of the GPU or its runtime the error names, "" for none.
        model: name of the adapter model that was asked, "" for the base model; cohort: what a header or tenant names, "" for none.
        refused: it was answered, with a 4xx that counts as no error.
    """

    cell: str
    arm: Arm
    started_ms: int
    ended_ms: int
    failed: bool
    latency_ms: float | None
    prompt_tokens: int = -1
    cached_tokens: int = -1
    output_tokens: int = -1
    ttft_ms: float | None = None
    token_ms: float | None = None
    nll: float | None = None
    finish: str = ""
    pair: int = -1
    fault: str = ""
    model: str = ""
    cohort: str = ""
    refused: bool = False

    def measured(self, metric: str) -> float | None:
        """Return its value of a ladder metric, None where it has none."""
        if self.failed:
            return None
        value: float | None = getattr(self, _FIELDS[metric])
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """A request whose client went away before the answer was whole; times as `Attempt`. Whose fault that is only a comparison tells."""

    cell: str
    arm: Arm
    started_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What the counters of one replica (or one GPU exporter) of an arm were at one moment, in canonical metrics and units.

    Args:
        at_ms: epoch milliseconds; up: whether it answered.
        values, buckets: as `Totals`; unknown: series that the table does not have.
        is_nan: its numbers are not numbers; trouble: why it cannot be used, "" where it can.
        reset: the exporter itself saw a counter begin again since the scrape before.
    """

    cell: str
    arm: Arm
    replica: str
    at_ms: int
    up: bool = True
    values: Mapping[str, float] = field(default_factory=dict)
    buckets: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    is_nan: bool = False
    trouble: str = ""
    reset: bool = False


Record = Attempt | GaveUp | Scrape
"""What a recording holds."""
