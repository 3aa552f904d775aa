"""Judge, pure layer: texts of engines and runtimes that name a hard fault of the GPU. Never a log's content in a result, never I/O.

Kinds that are `HARD` trip the breaker by themselves; the others are told and stay errors like any other.
Source: ROCm HIP runtime error strings (hipError_t), HSA status codes, as migrants met them: vllm#46895, sglang#28471, hip#3876,
llama.cpp#28211, ROCm/ROCm#4439 and the NVIDIA counterparts; looked up 2026-11-30.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MOST_TEXT = 8_192
"""Characters of a text that are looked at."""
HARD_XIDS = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 119, 120})
"""XIDs of the hardware: double-bit ECC, row remapping, NVLink, off the bus, ECC contained or not, GSP. Others come from programs.
Source: NVIDIA, XID errors (GPU deployment and management documentation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A kind of fault: its pattern, whether it is hard, what it usually means, and what a person does about it."""

    name: str
    pattern: re.Pattern[str]
    is_hard: bool
    meaning: str
    mend: str


_MENDS: Mapping[str, str] = {
    "memory_access_fault": "Go home, keep the engine's log, and look whether only long prompts fail; then another engine or image version.",
    "no_kernel_image": "Rebuild or take an image for this gfx target (gfx942 for MI300X); `fleetctl assess` finds such builds.",
    "invalid_device": "Look at ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES together, and at the numeric group of /dev/kfd and /dev/dri.",
    "hsa_status_error": "Look at dmesg for amdgpu, at the driver's version against the version matrix, then reset or replace the host.",
    "gpu_hang": "Look at dmesg, at kernel.numa_balancing (0) and the driver's version; drain the host.",
    "ecc": "Drain the host and ask the provider for another one.",
    "xid": "Look up the XID: it is one of the hardware, which means another host.",
    "xid_program": "Look up the XID and the process that it names: a program's own fault, of whichever program runs there.",
    "hipblas_not_supported": "Take another data type or library version; the shape has no kernel.",
    "stream_capture": "Start the engine without graph capture (eager) and price it again: decoding is slower.",
    "out_of_memory": "Lower the memory share or the context length; `fleetctl plan` shows what was reckoned.",
    "nccl": "Look at the links between GPUs and the RCCL version of the image.",
}


def _kind(name: str, pattern: str, meaning: str, *, hard: bool = True) -> FaultKind:
    return FaultKind(name=name, pattern=re.compile(pattern, re.IGNORECASE), is_hard=hard, meaning=meaning, mend=_MENDS[name])


KINDS: tuple[FaultKind, ...] = (
    _kind(
        "memory_access_fault",
        r"memory access fault by gpu|illegal memory access|page fault on gpu|\[(?:gfx|mm)hub[0-9]*\][^\n]{0,40}page fault",
        "a kernel read or wrote what is not its own",
    ),
    _kind("no_kernel_image", r"no kernel image|invalid device function", "the build has no code for this GPU: another gfx target"),
    _kind("invalid_device", r"invalid device ordinal|no (?:rocm|hip|cuda)-capable device", "a device mask hides the GPU, or it is gone"),
    _kind("hsa_status_error", r"HSA_STATUS_ERROR_[A-Z_]+", "the runtime lost the GPU or a queue of it"),
    _kind("gpu_hang", r"gpu (?:hang|reset)|hipErrorLaunchTimeOut|GPU core dump|ring [a-z0-9_.]+ timeout", "the GPU hung or was reset"),
    _kind("ecc", r"uncorrectable ecc|ECC error|RAS (?:poison|fatal)", "memory of the GPU is broken"),
    _kind(
        "xid",
        rf"\bXid\b[^\n:]{{0,8}}\([^)\n]{{0,40}}\): ?(?:{'|'.join(map(str, sorted(HARD_XIDS)))})\b",
        "the NVIDIA driver lost the GPU or its memory",
    ),
    _kind("xid_program", r"\bXid\b", "a program's own fault on an NVIDIA GPU", hard=False),
    _kind(
        "hipblas_not_supported",
        r"HIPBLAS(?:LT)?_STATUS_NOT_SUPPORTED|rocblas_status_not_implemented",
        "a matrix shape or type has no kernel here",
    ),
    _kind("stream_capture", r"operation not permitted when stream is captur", "graph capture: run without graphs", hard=False),
    _kind(
        "out_of_memory", r"(?:HIP|CUDA) out of memory|hipErrorOutOfMemory|cudaErrorMemoryAllocation", "less memory than planned", hard=False
    ),
    _kind("nccl", r"\b[NR]CCL (?:error|WARN)|ncclSystemError|ncclUnhandledCudaError", "GPUs cannot reach one another", hard=False),
)
_BY_NAME: Mapping[str, FaultKind] = {k.name: k for k in KINDS}


def classify(text: str) -> str:
    """Return the name of the first kind that a text names, "" for none."""
    start = text[:MOST_TEXT]
    return next((k.name for k in KINDS if k.pattern.search(start)), "")


def is_hard(name: str) -> bool:
    """Tell whether a kind trips the breaker by itself."""
    return name in _BY_NAME and _BY_NAME[name].is_hard
