"""Assess, pure layer: does a replica fit into its accelerators' memory. Never a latency promise, never I/O.

needed = weights + LoRA adapters + KV cache at the wanted concurrency + runtime reserve
  weights  = parameters x bytes per parameter of the precision
  KV cache = tokens x 2 (keys, values) x layers x KV heads x head size x bytes per element
  tokens   = one request of the full context + (concurrency - 1) requests of mean length
  reserve  = per accelerator: 10 % of its memory + graphs, activations and communication of its runtime

Source: KV formula: a transformer keeps one key and one value vector per layer, KV head and token. Tokens: vLLM refuses to start
where one request of the longest allowed length has no room. 10 %: vLLM's `gpu_memory_utilization` is 0.9 by default.
The runtime's own share is estimated: ROCm's is set twice as large because graph memory is under-reported there
(vllm-project/vllm pull request 36720, ROCm/vllm issue 397: a 70B model out of memory on 192 GB).
"""

from __future__ import annotations

from math import log

from fleetctl.domain.plan import Fit
from fleetctl.domain.pool import Sku, Vendor
from fleetctl.domain.workload import Model, Workload

GIB = 2**30
BYTES_PER_PARAMETER = {
    "fp32": 4.0,
    "f32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "f16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "q8_0": 1.0625,
    "fp4": 0.5625,
    "mxfp4": 0.53125,
    "int4": 0.5625,
    "awq": 0.5625,
    "gptq": 0.5625,
    "q4_0": 0.5625,
    "q4_1": 0.625,
}
"""Scales of block formats included: 16 bits per 32 (q8_0, q4_0, int4), 32 per 32 (q4_1), 8 per 32 (mxfp4)."""
KV_BYTES = 2.0
"""bf16 keys and values, also under fp8 weights: vLLM's `kv_cache_dtype` is "auto"."""
UTILISATION_RESERVE = 0.10
RUNTIME_GIB: dict[Vendor, float] = {"nvidia": 2.0, "amd": 4.0}
ADAPTER_SHARE = 0.01
"""Estimated size of one LoRA adapter against its base model's weights."""
PUBLISHED_SHAPES = ((0.135, 30), (1.2, 16), (3.2, 28), (8.0, 32), (14.0, 48), (32.0, 64), (70.0, 80), (405.0, 126))
"""(billion parameters, layers) of SmolLM2, Llama 3.x and Qwen2.5 as their config.json publish them; between them: nearest by ratio."""
ESTIMATED_KV_WIDTH = 8 * 128
"""8 KV heads of 128: Llama 3.x from 8B to 405B; too large for smaller models, so never too kind."""


def memory_fit(workload: Workload, sku: Sku) -> Fit:
    """Return what one replica needs and what its accelerators of this SKU have, both in GiB; no claim about speed."""
    notes: list[str] = []
    count = workload.accelerators_per_replica
    weights = _weights_gib(workload.model, notes)
    if workload.adapters:
        notes.append(f"{len(workload.adapters)} adapters at {ADAPTER_SHARE:.0%} of the weights each")
    adapters = weights * ADAPTER_SHARE * len(workload.adapters)
    cache = _kv_gib(workload, count, notes)
    reserve = count * (UTILISATION_RESERVE * sku.vram_gib + RUNTIME_GIB[sku.vendor])
    notes.append(f"runtime {RUNTIME_GIB[sku.vendor]:g} GiB per accelerator")
    needed = weights + adapters + cache + reserve
    return Fit(needed_gib=round(needed, 1), available_gib=round(count * sku.vram_gib, 1), estimated="; ".join(notes))


def fits(fit: Fit) -> bool:
    """Tell whether the memory is enough."""
    return fit.needed_gib <= fit.available_gib


def _weights_gib(model: Model, notes: list[str]) -> float:
    size = BYTES_PER_PARAMETER.get(model.precision.lower())
    if size is None:
        notes.append(f"precision {model.precision!r} counted as 2 bytes")
        size = 2.0
    return model.parameters_billion * 1e9 * size / GIB


def _kv_gib(workload: Workload, accelerators: int, notes: list[str]) -> float:
    model, traffic = workload.model, workload.traffic
    layers = model.layers
    width = model.kv_heads * model.head_dim
    if not layers:
        layers = _estimated_layers(model.parameters_billion)
        notes.append(f"{layers} layers")
    if not width:
        width = ESTIMATED_KV_WIDTH
        notes.append("8 KV heads of 128")
    copies = max(1.0, accelerators / model.kv_heads) if model.kv_heads else 1.0  # more GPUs than heads: heads are copied
    mean_tokens = min(float(model.context_tokens), traffic.input_tokens + traffic.output_tokens)
    tokens = model.context_tokens + max(0, workload.concurrency - 1) * mean_tokens
    return tokens * 2 * layers * width * KV_BYTES * copies / GIB


def _estimated_layers(parameters_billion: float) -> int:
    wanted = log(max(parameters_billion, 1e-6))
    return min(PUBLISHED_SHAPES, key=lambda shape: abs(log(shape[0]) - wanted))[1]
