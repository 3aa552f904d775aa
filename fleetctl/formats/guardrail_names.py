"""Evidence, formats layer: the names that a guardrail may have. Never a margin."""

from __future__ import annotations

import re

GUARDRAIL = (
    r"errors|refusals|latency|ttft|token_time|nll|slo_misses|quality|finish_[a-z_]{1,30}|counter_[a-z0-9_]{1,40}|errors_[a-z0-9-]{1,62}"
    r"|model_(errors|slow)_[a-z0-9_]{1,60}"
)
GUARDRAIL_TEXT = (
    "a guardrail: errors, refusals, latency, ttft, token_time, nll, slo_misses, quality, finish_REASON, counter_NAME, errors_SOURCE, "
    "model_errors_ADAPTER or model_slow_ADAPTER"
)
FINISH_REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call", "abort", "error", "eos_token", "stop_sequence")
"""Of OpenAI's interface, vLLM, SGLang and TGI. Another one is believed unless it looks like a slip of one of these."""


def require_guardrail(name: str) -> None:
    """Raise ValueError where a name is no guardrail."""
    if not re.fullmatch(GUARDRAIL, name):
        raise ValueError(f"{name[:60]!r} is not {GUARDRAIL_TEXT}")
