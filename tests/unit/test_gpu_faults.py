"""Texts that name hard faults of a GPU or its runtime, as migrants met them, and pages of several GPUs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.analysis.buckets import BucketTally, scrape_of
from fleetctl.analysis.faults import KINDS, classify, is_hard
from fleetctl.analysis.gpu_marks import gpu_marks
from fleetctl.catalog.metrics import load_metrics
from fleetctl.domain.evidence import Cursor
from fleetctl.domain.ids import CellId
from fleetctl.formats.exposition import samples

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


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


SYSTEMS = {
    "dcgm": ('{{gpu="{0}",UUID="GPU-{0}a"}} {1}', "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_XID_ERRORS"),
    "amd_exporter": ('{{gpu_id="{0}",serial_number="s{0}"}} {1}', "gpu_ecc_uncorrect_total", ""),
}
Page = dict[int, tuple[int | None, int]]
"""Per GPU uncorrected errors (None: the exporter leaves them out, as it does for a moment after a restart) and the last XID."""


def faults_of(system: str, pages: list[Page], *, position: str | None = None) -> str:
    """Return the faults seen over these pages of a canary's host, the first of them read as the step's weight was shown."""
    form, ecc, xid = SYSTEMS[system]
    scrapes = []
    for i, page in enumerate(pages):
        lines = [ecc + form.format(gpu, n) for gpu, (n, _) in page.items() if n is not None]
        lines += [xid + form.format(gpu, code) for gpu, (_, code) in page.items() if xid]
        totals = load_metrics().read(system, "", samples("\n".join(lines) + "\n"))
        at_ms = round(START.timestamp() * 1_000) + 5_000 * i
        scrapes.append(
            scrape_of(load_metrics(), totals, system=system, version="", needs=(), cell="chat", arm="canary", replica="h1", at_ms=at_ms)
        )
    cursor = Cursor(position=gpu_marks(scrapes[:1]) if position is None else position, since=START)
    tally = BucketTally(CellId("chat"), cursor, settle_s=0.0, leads=False)
    for s in scrapes:
        tally.add(s)
    e = tally.evidence(START + timedelta(seconds=5 * len(pages)))
    assert e.state["canary"] != "reset"
    return ", ".join(e.faults)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("pages", "fault"),
    [
        ([{0: (3, 0), 1: (0, 0)}, {0: (None, 0), 1: (0, 0)}, {0: (3, 0), 1: (0, 0)}], ""),
        ([{0: (3, 0), 1: (0, 0)}, {1: (0, 0)}, {0: (3, 0), 1: (0, 0)}], ""),
        ([{1: (0, 0)}, {0: (3, 0), 1: (0, 0)}], ""),
        ([{0: (3, 0), 1: (0, 0)}, {0: (None, 0), 1: (1, 0)}], "ECC"),
        ([{0: (3, 0), 1: (0, 0)}, {0: (None, 0), 1: (0, 0)}, {0: (4, 0), 1: (0, 0)}], "ECC"),
        ([{0: (3, 0), 1: (2, 0)}, {0: (3, 0), 1: (3, 0)}], "ECC"),
    ],
)
def test_each_gpu_is_held_against_itself_and_one_that_is_silent_for_a_scrape_has_no_new_errors(
    system: str, pages: list[Page], fault: str
) -> None:
    found = faults_of(system, pages)
    assert fault in found if fault else found == ""


@pytest.mark.parametrize(
    ("pages", "fault"),
    [
        ([{0: (0, 79), 1: (0, 0)}, {0: (0, 79), 1: (0, 48)}], "XID 48"),
        ([{0: (0, 79), 1: (0, 48)}, {0: (0, 0), 1: (0, 48)}], ""),
        ([{0: (0, 79), 1: (0, 48)}, {1: (0, 48)}, {0: (0, 79), 1: (0, 48)}], ""),
        ([{0: (0, 48), 1: (0, 0)}, {0: (0, 79), 1: (0, 0)}], "XID 79"),
    ],
)
def test_an_old_code_of_one_gpu_hides_no_new_one_of_another_and_is_none_itself(pages: list[Page], fault: str) -> None:
    found = faults_of("dcgm", pages)
    assert fault in found if fault else found == ""


def test_what_an_older_release_kept_of_all_gpus_together_is_no_new_fault() -> None:
    kept = '{"h1": {"gpu_ecc_uncorrected_total/rows": 3.0, "gpu_xid/last_code": 79.0}}'
    assert faults_of("dcgm", [{0: (3, 79), 1: (0, 48)}] * 2, position=kept) == ""
    assert "ECC" in faults_of("dcgm", [{0: (3, 79), 1: (0, 48)}, {0: (3, 79), 1: (1, 48)}], position=kept)
