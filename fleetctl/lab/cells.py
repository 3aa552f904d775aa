"""Lab, lab layer: the cells of the lab as data: what each serves, how fast, under which load. Never starts or writes anything."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE_POOL, TARGET_POOL = "nvidia-lab", "mi300x-lab"
SOURCE_HOSTS = ("nvidia-lab-1", "nvidia-lab-2")
TARGET_HOSTS = ("mi300x-lab-1", "mi300x-lab-2")
REGION = "lab"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabCell:
    """One cell of the lab.

    Args:
        is_real: a real model serves it; else an emulated engine.
        replicas: per side, at least 1.
        rate_per_s: load, requests per second.
        most_chars: bound of a conversation's text in the load; max_tokens: of an answer.
        serving: what a unit is built from (strings, as in the fleet file).
        facts: lines of the model in the fleet file.
        lane: kind, reason and actor; empty reason for the lane own.
    """

    cell: str
    workload: str
    text: str
    is_real: bool
    replicas: int
    rate_per_s: float
    is_stream: bool
    wave: int
    klass: str
    model: str
    engine: str
    facts: tuple[tuple[str, str], ...]
    serving: tuple[tuple[str, str], ...]
    input_tokens: int
    most_chars: int = 2000
    max_tokens: int = 16
    latency: str = "400ms"
    accelerators: int = 1
    lane: tuple[str, str, str] = ("own", "", "")
    shadow_positions: int = 0
    guardrails: tuple[str, ...] = ("errors", "latency")


_EMULATED = (
    ("kind", "emulated"),
    ("ttft_ms", "20"),
    ("token_ms", "2"),
    ("target_ttft_ms", "20"),
    ("target_token_ms", "2"),
    ("log_sd", "0.25"),
)
"""Both sides equal: the first migration must PASS, so what goes wrong is switched on as a fault. Source: lab figures of 2026-11-30."""


def _facts(billion: str, precision: str, context: int, layers: int, kv_heads: int, head_dim: int) -> tuple[tuple[str, str], ...]:
    return (
        ("parameters_billion", billion),
        ("precision", precision),
        ("context_tokens", str(context)),
        ("layers", str(layers)),
        ("kv_heads", str(kv_heads)),
        ("head_dim", str(head_dim)),
    )


_FACTS_8B = _facts("8.0", "bf16", 8192, 32, 8, 128)
_FACTS_24B = _facts("23.6", "bf16", 8192, 40, 8, 128)
_FACTS_SMOL = _facts("0.135", "q4_1", 1024, 30, 3, 64)
"""The emulated ones have the geometry of common 8B and 24B models; the real one's is that of its GGUF."""

CHAT = LabCell(
    cell="chat-lab",
    workload="chat",
    text="Emulated, plain answers, conversations: the one that migrates on its own evidence.",
    is_real=False,
    replicas=2,
    rate_per_s=150.0,
    is_stream=False,
    wave=1,
    klass="online",
    model="emulated-chat-8b",
    engine="emulated",
    facts=_FACTS_8B,
    serving=_EMULATED,
    input_tokens=220,
)
SMOLLM = LabCell(
    cell="smollm-lab",
    workload="smollm",
    text="Real: SmolLM2-135M on llama.cpp. Too slow for evidence on latency, so its gate is the comparison of answers.",
    is_real=True,
    replicas=1,
    rate_per_s=1.2,
    is_stream=False,
    wave=1,
    klass="online",
    model="SmolLM2-135M-Instruct",
    engine="llama.cpp",
    facts=_FACTS_SMOL,
    serving=(("kind", "llama.cpp"), ("source_kv", "f16"), ("target_kv", "q8_0")),
    input_tokens=40,
    most_chars=60,
    max_tokens=24,
    latency="5s",
    lane=("accepted", "about one request a second, too few for evidence on latency; answers are compared instead", "lab"),
    shadow_positions=600,
)
SUMMARY = LabCell(
    cell="summary-lab",
    workload="summary",
    text="Emulated, plain answers: the one that is given a fault in the demo.",
    is_real=False,
    replicas=2,
    rate_per_s=150.0,
    is_stream=False,
    wave=2,
    klass="online",
    model="emulated-summary-24b",
    engine="emulated",
    facts=_FACTS_24B,
    serving=_EMULATED,
    input_tokens=220,
    accelerators=2,
)
STREAM = LabCell(
    cell="stream-lab",
    workload="stream",
    text="Emulated, streamed answers: judged on errors and the breaker only, since the router's log has no time to first token.",
    is_real=False,
    replicas=1,
    rate_per_s=10.0,
    is_stream=True,
    wave=2,
    klass="realtime",
    model="emulated-stream-8b",
    engine="emulated",
    facts=_FACTS_8B,
    serving=_EMULATED,
    input_tokens=220,
    lane=("accepted", "the router's log has no time to first token of streams", "lab"),
    guardrails=("errors",),
)


def lab_cells(*, with_llm: bool) -> tuple[LabCell, ...]:
    """Return the cells of a lab, with or without the real model's."""
    return (CHAT, SMOLLM, SUMMARY, STREAM) if with_llm else (CHAT, SUMMARY, STREAM)
