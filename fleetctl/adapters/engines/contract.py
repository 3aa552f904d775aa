"""Evidence, adapter layer: runs the serving contract against one arm. Never judges an answer, never repeats a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetctl.adapters.engines.api import Api
from fleetctl.domain.identity import ContractAnswer, ContractCall

DEFAULT_CONTEXT = 4096
NEAR = 0.9
"""A prompt near the longest context: that share of it, a word being about one token."""
MOST_WORDS = 40_000
LONG_S = 120.0


def run_call(api: Api, call: ContractCall, *, model: str, adapter: str = "", context_tokens: int = DEFAULT_CONTEXT) -> ContractAnswer:
    """Send one call and return what came back.

    Args:
        model: as the server names it; adapter: for calls with $ADAPTER; context_tokens: the longest request it accepts.
    """
    words = {
        "$MODEL": model,
        "$ADAPTER": adapter,
        "$LONGEST": "the " * min(MOST_WORDS, int(context_tokens * NEAR)),
        "$TOO_LONG": "the " * min(4 * MOST_WORDS, 2 * context_tokens),
        "$NOT_JSON": "{not json",
    }
    body = _filled(call.body, words)
    return api.call(call.method, call.path, body, timeout_s=LONG_S if call.topic == "limits" else None)


def filled(call: ContractCall, model: str) -> ContractCall:
    """Return the call with the model's name in what is expected."""
    return replace(call, expect=_filled(call.expect, {"$MODEL": model}))


def applies(call: ContractCall, adapters: Sequence[str]) -> bool:
    """Tell whether a call is to be made at all: one about adapter models needs some."""
    return call.topic != "adapters" or bool(adapters)


def _filled(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        return words.get(value, value)
    if isinstance(value, dict):
        return {k: _filled(v, words) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(v, words) for v in value]
    return value
