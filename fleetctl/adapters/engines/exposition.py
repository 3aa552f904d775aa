"""Inventory, adapter layer: sums of the few families of a metrics page that an inventory needs. Never keeps a whole scrape."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?P<labels>\{.*\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

ENGINES: Mapping[str, str] = {"vllm:": "vllm", "sglang:": "sglang", "tgi_": "tgi", "nv_inference_": "triton", "llamacpp:": "llama.cpp"}
"""Engine by the beginning of its families' names."""

FAMILIES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "requests": ("vllm:request_success_total",),
        "input": ("vllm:prompt_tokens_total",),
        "output": ("vllm:generation_tokens_total",),
    },
    "sglang": {
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
        "requests": ("sglang:num_requests_total",),
        "input": ("sglang:prompt_tokens_total",),
        "output": ("sglang:generation_tokens_total",),
    },
    "tgi": {
        "running": ("tgi_batch_current_size",),
        "waiting": ("tgi_queue_size",),
        "requests": ("tgi_request_count",),
        "input": ("tgi_request_input_length_sum",),
        "output": ("tgi_request_generated_tokens_sum",),
    },
    "triton": {
        "waiting": ("nv_inference_pending_request_count",),
        "requests": ("nv_inference_request_success", "nv_inference_request_failure"),
    },
    "llama.cpp": {
        "running": ("llamacpp:requests_processing",),
        "waiting": ("llamacpp:requests_deferred",),
        "input": ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
        "output": ("llamacpp:tokens_predicted_total",),
    },
}
"""Families per engine, summed over all their labels (data-parallel ranks and finish reasons add up). llama.cpp counts no requests.

Source: vllm 0.33.0 vllm/v1/metrics/loggers.py, sglang 0.5.23 srt/observability, text-generation-inference v3.3.7 router/src/server.rs,
triton docs/user_guide/metrics.md (after v2.71.0), llama.cpp of October 2026; looked up 2026-11-30.
"""


MOST_COUNT = 1e15
"""A larger number is a lie: more tokens than all servers of the world wrote so far."""


def engine_of(page: str) -> str:
    """Return the engine that writes such a page, "" for none that is known."""
    for line in page.splitlines():
        name = line.removeprefix("# HELP ").removeprefix("# TYPE ")
        found = next((engine for start, engine in ENGINES.items() if name.startswith(start)), "")
        if found:
            return found
    return ""


def sums(page: str, engine: str) -> tuple[dict[str, float], str]:
    """Return the sum per quantity, and the model that the labels name ("" where none or several)."""
    wanted = {family: what for what, families in FAMILIES.get(engine, {}).items() for family in families}
    wanted["process_start_time_seconds"] = "started"
    out: dict[str, float] = {}
    models = set()
    for line in page.splitlines():
        if line.startswith("#") or not line:
            continue
        found = _SAMPLE.match(line)
        if found is None or found["name"] not in wanted:
            continue
        value = _number(found["value"])
        if value is None:
            continue
        what = wanted[found["name"]]
        out[what] = out.get(what, 0.0) + value
        labels = dict(_LABEL.findall(found["labels"] or ""))
        model = labels.get("model_name") or labels.get("model") or ""
        if model:
            models.add(model)
    return out, next(iter(models)) if len(models) == 1 else ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= MOST_COUNT else None
