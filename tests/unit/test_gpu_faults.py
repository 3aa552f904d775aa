"""Texts that name hard faults of a GPU or its runtime, as migrants met them."""

from __future__ import annotations

import pytest

from fleetctl.analysis.faults import KINDS, classify, is_hard


@pytest.mark.parametrize(
    ("text", "kind", "hard"),
    [
        ("Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f", "memory_access_fault", True),
        ("CUDA error: an illegal memory access was encountered", "memory_access_fault", True),
        ("HIP error: no kernel image is available for execution on the device", "no_kernel_image", True),
        ("HIP error: invalid device function", "no_kernel_image", True),
        ("hipErrorInvalidDevice: invalid device ordinal", "invalid_device", True),
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCES: the runtime failed", "hsa_status_error", True),
        ("amdgpu: GPU reset begin!", "gpu_hang", True),
        ("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus", "xid", True),
        ("NVRM: Xid (PCI:0000:65:00): 48, pid='<unknown>', DBE", "xid", True),
        ("NVRM: Xid (PCI:0000:65:00): 13, pid=4711, name=train.py, Graphics Exception", "xid_program", False),
        ("NVRM: Xid (PCI:0000:65:00): 43, pid=4711, name=train.py, Ch 00000010", "xid_program", False),
        ("NVRM: Xid (PCI:0000:65:00): 790, not in any list", "xid_program", False),
        ("RuntimeError: HIPBLAS_STATUS_NOT_SUPPORTED when calling hipblasLtMatmul", "hipblas_not_supported", True),
        ("operation not permitted when stream is capturing", "stream_capture", False),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2 GiB", "out_of_memory", False),
        ("RCCL error: unhandled system error", "nccl", False),
        ("the model is starting", "", False),
        ("proxid is 5", "", False),
        ("", "", False),
    ],
)
def test_a_text_names_its_kind(text: str, kind: str, hard: bool) -> None:
    assert (classify(text), is_hard(classify(text))) == (kind, hard)


def test_only_the_beginning_of_a_text_is_looked_at_and_names_are_unique() -> None:
    assert classify(" " * 9_000 + "HSA_STATUS_ERROR_FATAL") == ""
    assert len({k.name for k in KINDS}) == len(KINDS)
