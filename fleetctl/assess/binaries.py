"""Assess, pure layer: what an ELF file's own words mean for a move. Never I/O."""

from __future__ import annotations

import re
from typing import NamedTuple

from fleetctl.domain.portability import ElfFile

_TENSORRT = re.compile(r"lib(?:nvinfer|nvonnxparser|nvparsers|tensorrt|onnxruntime_providers_tensorrt)")
_CUDA_LIBS = re.compile(
    r"lib(?:cudart|cublas|cublasLt|cudnn|nccl|cufft|curand|cusolver|cusparse|nvrtc|nvToolsExt|cupti|nvJitLink|nvoptix|cudss|nvshmem_\w+)\b"
)
_PARTIAL = re.compile(
    r"lib(?:nvcuvid|nvidia-encode|nvidia-ml|nvjpeg|cufile|cusparseLt|cutensor|npp\w+|torch_cuda\w*|c10_cuda|onnxruntime_providers_cuda)\b"
)
_FATBIN = frozenset({".nv_fatbin", ".nvFatBinSegment", "__nv_module_id"})
_SYSTEM = re.compile(r"(?:^|/)(?:usr/local/cuda[^/]*|opt/nvidia|usr/lib/(?:x86_64-linux-gnu|wsl)|usr/lib64|lib64|opt/rocm[^/]*)/")
_PACKAGE = re.compile(r"/(?:site|dist)-packages/")


class ElfHit(NamedTuple):
    """One finding about a binary; `about` is what makes it a finding of its own."""

    rule: str
    subject: str
    about: str = ""


def of_elf(elf: ElfFile, target: str, *, has_source: bool) -> list[ElfHit]:
    """Return what a binary means for a move to this target; parts of CUDA itself and of known packages are judged elsewhere.

    Args:
        has_source: CUDA source lies beside it, so it can be built again.
    """
    found: list[ElfHit] = []
    if ".hip_fatbin" in elf.sections or elf.gfx:
        if not any(g == target or g.startswith(f"{target}:") for g in elf.gfx):
            found.append(ElfHit("R061", f"has {', '.join(elf.gfx) or 'no target'}, not {target}", _name(elf.path)))
        return found
    own = _name(elf.path)
    if _TENSORRT.match(own) and not _PACKAGE.search(f"/{elf.path}"):
        found.append(ElfHit("R057", "the library itself", own))
    elif _PARTIAL.match(own) and not _SYSTEM.search(elf.path) and not _PACKAGE.search(f"/{elf.path}"):
        found.append(ElfHit("R063", "the library itself", own))
    if _SYSTEM.search(elf.path) or _PACKAGE.search(f"/{elf.path}"):
        return found
    needed = elf.needed
    tensorrt = [n for n in needed if _TENSORRT.match(n)]
    cuda = [n for n in needed if _CUDA_LIBS.match(n)]
    has_fatbin = bool(_FATBIN.intersection(elf.sections))
    if tensorrt:
        found.append(ElfHit("R057", ", ".join(tensorrt)[:80], _name(elf.path)))
    if has_source and (cuda or has_fatbin):
        found.append(ElfHit("R060", "built from CUDA source beside it: build again", _name(elf.path)))
        return found
    if not cuda and not has_fatbin and not elf.has_ptx:
        cuda = [n for n in needed if n.startswith("libcuda.so")]
    if cuda:
        found.append(ElfHit("R058", ", ".join(cuda)[:80], _name(elf.path)))
    elif has_fatbin:
        found.append(ElfHit("R059", "CUDA code inside, runtime linked statically", _name(elf.path)))
    if any(n.startswith("libcuda.so") for n in needed) and elf.has_ptx and not cuda:
        found.append(ElfHit("R062", "libcuda.so alone, PTX inside", _name(elf.path)))
    partial = [n for n in needed if _PARTIAL.match(n)]
    if partial:
        found.append(ElfHit("R063", ", ".join(partial)[:80], _name(elf.path)))
    found += _opened(elf, has_cuda=bool(cuda or tensorrt or has_fatbin))
    if has_fatbin and (elf.sm or elf.has_ptx):
        found.append(ElfHit("R060", f"{', '.join(elf.sm)}{' with PTX' if elf.has_ptx else ''}".strip(), _name(elf.path)))
    return found


def _opened(elf: ElfFile, *, has_cuda: bool) -> list[ElfHit]:
    """Return what a program opens by name at run time; one that knows HIP's libraries too can do without CUDA's."""
    if has_cuda or any(n.startswith(_OF_HIP) for n in (*elf.opens, *elf.needed)):
        return []
    tensorrt = [n for n in elf.opens if _TENSORRT.match(n) or n.startswith("nvinfer")]
    if tensorrt:
        return [ElfHit("R057", f"opens {', '.join(tensorrt)}"[:80], _name(elf.path))]
    if elf.opens:
        return [ElfHit("R115", ", ".join(elf.opens)[:80], _name(elf.path))]
    return [ElfHit("R062", "PTX inside", _name(elf.path))] if elf.has_ptx and "libcuda.so.1" not in elf.needed else []


_OF_HIP = ("libamdhip64", "libhipblas", "librccl", "libhsa-runtime64")


def _name(path: str) -> str:
    return path.rpartition("/")[2][:80]
