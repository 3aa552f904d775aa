"""Evidence, domain layer: what an arm serves, as far as it can be told, and what its API answers. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.canonical import digest
from fleetctl.domain.units import Instant

UNKNOWN = ""
PARTS = ("weights", "tokenizer", "chat_template", "adapters", "flags")
"""What must be the same on both arms before their answers may be compared. Source: design section 7, canary.md 4."""


FLAGS = (
    "max_model_len",
    "context_length",
    "max_total_tokens",
    "n_ctx",
    "quantization",
    "quant",
    "dtype",
    "weight_type",
    "tool_call_parser",
    "reasoning_parser",
    "speculative_algorithm",
    "generation_config",
    "trust_remote_code",
    "rope_scaling",
    "sampling_defaults",
)
"""Flags of engines that change what is answered, as the engines name them."""
NUMERIC_FLAGS = ("dtype", "quantization", "quant", "weight_type")
"""Flags that a fleet file may declare to differ on purpose (bf16 here, fp8 there): the quality gate judges what they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What one replica serves; every part is a short hash, "" where the engine does not tell.

    Args:
        model: the name it serves; engine: its name and version (shown; may differ).
        weights: of revision, or of what stands for it; tokenizer: of the token ids (or counts) of fixed texts.
        chat_template: of the template, or of the token counts of fixed chats; adapters: name and base of each adapter model.
        flags: of the flags that change what is answered: context length, parsers, default sampling, quantisation of the weights.
        shown: flags that may differ and are shown: type of the KV cache, parallelism, batch sizes; told: each flag behind `flags`.
    """

    model: str
    engine: str = UNKNOWN
    weights: str = UNKNOWN
    tokenizer: str = UNKNOWN
    chat_template: str = UNKNOWN
    adapters: tuple[tuple[str, str], ...] = ()
    flags: str = UNKNOWN
    shown: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    def hash(self) -> str:
        """Return the hash of every part that must be the same, 16 hex digits."""
        return digest([self.model, self.weights, self.tokenizer, self.chat_template, self.adapters, self.flags])[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmsIdentity:
    """What both arms serve at one moment.

    Args:
        differs: what is not the same, () where all that both tell is the same; unknown: parts that an arm does not tell.
        declared: what is not the same and was declared so.
    """

    baseline: Identity
    canary: Identity
    at: Instant
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    def hash(self) -> str:
        """Return the hash of both arms, 16 hex digits: it changes when either does."""
        return digest([self.baseline.hash(), self.canary.hash()])[:16]


ContractTopic = Literal["models", "completions", "chat", "stream", "logprobs", "stops", "tools", "json", "errors", "limits", "adapters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractCall:
    """One call of the serving contract and what a right answer looks like.

    Args:
        id: such as "stream.usage"; topic: group; method, path: of the API; body: JSON, in which $MODEL, $ADAPTER, $LONGEST and
            $TOO_LONG are filled in; a text is sent as it is.
        expect: checks by name (fleetctl.analysis.contract); optional: an engine may refuse it with 400, 404, 422 or 501 as a whole,
            as long as both arms do.
    """

    id: str
    topic: ContractTopic
    method: str
    path: str
    body: Mapping[str, object] | str | None
    expect: Mapping[str, object]
    optional: bool = False
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractAnswer:
    """What one arm answered.

    Args:
        status: 0 where there was no answer; body: parsed JSON, or the parsed events of a stream; error: why there was none.
    """

    status: int
    body: object = None
    events: tuple[object, ...] = ()
    ended: bool = False
    error: str = ""


CallKind = Literal["ok", "unsupported", "broken", "both_broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractResult:
    """How one call went on both arms.

    Args:
        kind: same and right; unsupported on both alike; broken: a right arm and a wrong one; both_broken: neither is right.
        baseline, canary: what was wrong there, "" where nothing was.
    """

    call: str
    kind: CallKind
    baseline: str = ""
    canary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractReport:
    """The serving contract as it went on both arms of a cell, kept as a record.

    Args:
        arms: hash of both arms when it ran: it says nothing of others; a_a: the canary was the source itself (a trial of the contract).
    """

    cell: str
    at: Instant
    arms: str
    results: tuple[ContractResult, ...]
    a_a: bool = False

    @property
    def broken(self) -> tuple[ContractResult, ...]:
        """The calls that the baseline answers as it should and the canary does not, or the other way round."""
        return tuple(r for r in self.results if r.kind == "broken")
