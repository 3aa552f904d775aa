"""Plan, catalogue layer: one row of a table of GPUs or of SKUs, checked. Never I/O, never a guess: what is unclear is refused.

Units are in the column's name and nowhere else: vram_gib, vram_gb or vram_mib, memory_bandwidth_tb_s or memory_bandwidth_gb_s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetctl.catalog.rows import KINDS, amount_of, date_fault, text_fault, unknown_fault
from fleetctl.domain.catalog import Gpu
from fleetctl.domain.pool import Sku, Vendor

VENDORS: Mapping[str, Vendor] = {"nvidia": "nvidia", "amd": "amd"}
COOLING = ("", "air", "liquid")
MEMORY = {"vram_gib": 1.0, "vram_gb": 0.931322574615, "vram_mib": 1 / 1024}
"""GiB per unit of the column."""
BANDWIDTH = {"memory_bandwidth_tb_s": 1.0, "memory_bandwidth_gb_s": 1e-3}
GPU_COLUMNS = (
    "gpu",
    "vendor",
    "vram_gib",
    "memory_bandwidth_tb_s",
    "bf16_dense_tflops",
    "fp8_dense_tflops",
    "tdp_w",
    "all_in_kw",
    "cooling",
    "target",
    "kind",
    "source",
    "as_of",
)
SKU_COLUMNS = ("cloud", "sku", "gpu", "accelerators", "vram_gib", "vcpu", "ram_gib", "kind", "source", "as_of")
BOUNDS = {
    "memory_bandwidth_tb_s": (0.05, 100.0),
    "bf16_dense_tflops": (1.0, 100_000.0),
    "fp8_dense_tflops": (1.0, 200_000.0),
    "tdp_w": (20.0, 10_000.0),
    "all_in_kw": (0.02, 25.0),
}
"""Least and most that one accelerator can have: outside it the unit is another (GB for TB, W for kW). About 3 x the announced parts."""
VRAM = (4.0, 2048.0)
MOST_ACCELERATORS = 576
"""In one machine or rack: the largest announced one has 144; more is a cluster."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._()+/-]{0,59}")
_SKU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_CLOUD = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def gpu_row(row: Mapping[str, str]) -> tuple[Gpu | None, str]:
    """Return the GPU of a row, or why it is refused."""
    fault = text_fault(row) or unknown_fault(row, (*GPU_COLUMNS, *MEMORY, *BANDWIDTH)) or _facts_fault(row)
    vram, unclear = vram_gib(row)
    numbers, wrong = _numbers(row)
    if not _NAME.fullmatch(row.get("gpu", "")):
        fault = fault or f"{row.get('gpu', '')!r} is no name of a GPU"
    elif row.get("vendor", "") not in VENDORS:
        fault = fault or f"{row.get('vendor', '')!r} is no vendor: nvidia, amd"
    elif row.get("cooling", "") not in COOLING:
        fault = fault or f"{row['cooling']!r} is no way of cooling: air, liquid, or nothing where it is not known"
    fault = fault or unclear or wrong
    if fault or vram is None:
        return None, fault
    gpu = Gpu(
        name=row["gpu"],
        vendor=VENDORS[row["vendor"]],
        vram_gib=vram,
        memory_bandwidth_tb_s=numbers["memory_bandwidth_tb_s"],
        bf16_dense_tflops=numbers["bf16_dense_tflops"],
        fp8_dense_tflops=numbers["fp8_dense_tflops"],
        tdp_w=None if numbers["tdp_w"] is None else round(numbers["tdp_w"]),
        target=row.get("target", ""),
        source=row["source"][:300],
        as_of=row["as_of"],
        all_in_kw=numbers["all_in_kw"],
        cooling=row.get("cooling", ""),
        kind=row["kind"],
    )
    fault = gpu_fault(gpu)
    return (None, fault) if fault else (gpu, "")


def sku_row(row: Mapping[str, str], gpus: Mapping[str, Gpu]) -> tuple[Sku | None, str]:
    """Return the SKU of a row, or why it is refused; its prices are rows of their own."""
    fault = text_fault(row) or unknown_fault(row, (*SKU_COLUMNS, *MEMORY)) or _facts_fault(row)
    vram, unclear = vram_gib(row)
    gpu, count = gpus.get(row.get("gpu", "")), row.get("accelerators", "")
    if not _SKU.fullmatch(row.get("sku", "")):
        fault = fault or f"{row.get('sku', '')!r} is no name of a SKU"
    elif not _CLOUD.fullmatch(row.get("cloud", "")):
        fault = fault or f"{row.get('cloud', '')!r} is no name of a cloud"
    elif gpu is None:
        fault = fault or f"there is no GPU {row.get('gpu', '')!r}: fleetctl catalog import gpus"
    elif not (count.isascii() and count.isdigit() and len(count) < 6 and 1 <= int(count) <= MOST_ACCELERATORS):
        fault = fault or f"{count!r} is no number of accelerators from 1 to {MOST_ACCELERATORS}"
    odd = [c for c in ("vcpu", "ram_gib") if row.get(c) and amount_of(row[c]) is None]
    fault = fault or unclear or (f"{row[odd[0]]!r} is no {odd[0]} above 0" if odd else "")
    if fault or vram is None or gpu is None:
        return None, fault
    fault = memory_fault(vram, gpu.vram_gib, int(count), gpu.name)
    if fault:
        return None, fault
    sku = Sku(
        name=row["sku"],
        cloud=row["cloud"],
        vendor=gpu.vendor,
        gpu=gpu.name,
        accelerators=int(count),
        vram_gib=vram,
        price_usd_per_hour=None,
        source=row["source"][:300],
        as_of=row["as_of"],
        memory_bandwidth_tb_s=gpu.memory_bandwidth_tb_s,
        kind=row["kind"],
    )
    return sku, ""


def gpu_fault(g: Gpu) -> str:
    """Return which figure of a GPU cannot be one accelerator's, "" where all can."""
    if not VRAM[0] <= g.vram_gib <= VRAM[1]:
        return f"{g.vram_gib:g} GiB is not the memory of one accelerator: MiB for GiB, or a whole machine's?"
    for name, (least, most) in BOUNDS.items():
        value = getattr(g, name)
        if value is not None and not least <= value <= most:
            return f"{name} {value:g} is outside {least:g} to {most:g}: another unit, or a whole machine's?"
    if g.tdp_w is not None and g.all_in_kw is not None and g.all_in_kw * 1000 < g.tdp_w:
        return f"all_in_kw {g.all_in_kw:g} is less than tdp_w {g.tdp_w}: all-in has host, network and cooling too"
    if g.bf16_dense_tflops is not None and g.fp8_dense_tflops is not None and g.fp8_dense_tflops < g.bf16_dense_tflops:
        return "fp8_dense_tflops is less than bf16_dense_tflops"
    return ""


def vram_gib(row: Mapping[str, str]) -> tuple[float | None, str]:
    """Return the memory of one GPU in GiB from vram_gib, vram_gb or vram_mib, or why it is unclear."""
    given = [c for c in MEMORY if row.get(c)]
    unknown = [c for c in row if c.startswith(("vram", "memory", "mem")) and c not in (*MEMORY, *BANDWIDTH) and row[c]]
    if len(given) != 1 or unknown:
        return None, f"memory needs exactly one of {', '.join(MEMORY)}; there is {', '.join([*given, *unknown]) or 'none'}"
    amount = amount_of(row[given[0]])
    if amount is None:
        return None, f"{row[given[0]]!r} is not a size above 0"
    return round(float(amount) * MEMORY[given[0]], 3), ""


def memory_fault(vram: float, gpu_vram: float, accelerators: int, name: str) -> str:
    """Return what is wrong with a SKU's memory against its GPU's, "" where they agree; a VM may show a little less than the part has."""
    if 0.9 * gpu_vram <= vram <= 1.01 * gpu_vram:
        return ""
    if accelerators > 1 and 0.9 * gpu_vram <= vram / accelerators <= 1.08 * gpu_vram:
        return f"{vram:g} GiB is the memory of all {accelerators} {name} together: write one's ({gpu_vram:g})"
    if 1.01 * gpu_vram < vram <= 1.08 * gpu_vram:
        return f"{vram:g} GiB looks like GB: {name} has {gpu_vram:g} GiB"
    return f"{vram:g} GiB is not what one {name} has ({gpu_vram:g})"


def _facts_fault(row: Mapping[str, str]) -> str:
    if row.get("kind", "") not in KINDS:
        return f"{row.get('kind', '')!r} is no kind: {', '.join(KINDS)}"
    return "source must be told" if not row.get("source") else date_fault(row.get("as_of", ""))


def _numbers(row: Mapping[str, str]) -> tuple[dict[str, float | None], str]:
    """Return the optional figures; one that is there must be a number above 0."""
    found: dict[str, float | None] = dict.fromkeys(BOUNDS)
    width = [c for c in BANDWIDTH if row.get(c)]
    if len(width) > 1:
        return found, f"bandwidth needs one of {', '.join(BANDWIDTH)}, not both"
    for column in (*(c for c in BOUNDS if c not in BANDWIDTH), *width):
        if not row.get(column):
            continue
        amount = amount_of(row[column])
        if amount is None:
            return found, f"{row[column]!r} is no {column} above 0; leave it empty where it is not known"
        found["memory_bandwidth_tb_s" if column in BANDWIDTH else column] = float(amount) * BANDWIDTH.get(column, 1.0)
    return found, ""
