"""Assess, pure layer: CUDA in languages that no tool translates to HIP: bindings, dialects and wrappers by their own words. Never I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

OTHER_LANGUAGES = (
    ".rs",
    ".go",
    ".java",
    ".kt",
    ".scala",
    ".jl",
    ".f",
    ".cuf",
    ".f90",
    ".f95",
    ".f03",
    ".f08",
    ".for",
    ".cs",
    ".fs",
    ".pyx",
    ".pxd",
    ".pxi",
    ".zig",
    ".swift",
    ".nim",
    ".d",
    ".hs",
    ".mojo",
    ".rb",
    ".js",
    ".mjs",
    ".ts",
    ".pl",
    ".r",
)
"""Endings of source that is read for the words below alone."""
_LIBRARIES = (
    r"(?:cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusparse|cusolver|nvrtc|nccl|nvinfer|nvml|cutensor|nvidia-ml|nvjpeg|nvcuvid)"
)
_WORDS = re.compile(
    r"^[ \t]*(?:using|import)[ \t]+(?:[\w, ]*\b)?(?:CUDA|CUDAnative|CuArrays|cuDNN|CUDAKernels)\b(?!\.jl)"  # Julia
    r"|^[ \t]*use[ \t]+(?:cudarc|cust|rustacuda|cuda_\w+|cudnn\w*|nvml_wrapper|tensorrt\w*)\b|\bcudarc::|\bcust::|\bcuda_std\b"  # Rust
    r"|#[ \t]*include[ \t]*[<\"](?:cuda\w*|cublas\w*|cudnn\w*|cufft\w*|curand\w*|cusparse\w*|cusolver\w*|nccl|nvml)\.h"
    r"|#[ \t]*include[ \t]*[<\"](?:NvInfer\w*|npp\w*)\.h"
    r"|#cgo[^\n]*-l(?:cuda|cudart|cublas|cudnn|nvinfer|nvidia-ml|nvml)\b"
    r"|\"github\.com/(?:NVIDIA|barnex/cuda\w*|mumax/3?cuda?)[^\"\n]*\""  # Go
    r"|^[ \t]*import[ \t]+(?:static[ \t]+)?jcuda\.|\borg\.bytedeco\.(?:cuda|tensorrt)\b|\bai\.rapids\b"  # Java
    r"|^[ \t]*using[ \t]+(?:ManagedCuda|ILGPU\.Runtime\.Cuda)\b|\bDllImport\(\"(?:nvcuda|cudart\w*|cublas\w*|nvinfer\w*)"  # .NET
    r"|^[ \t]*use[ \t]*(?:,[^\n:]*::)?[ \t]*(?:cudafor|cublas\w*|cufft\w*|curand\w*|cusparse\w*|cutensorex|nvtx|cusolver\w*)\b"  # Fortran
    r"|\battributes[ \t]*\([ \t]*(?:global|device|grid_global)[ \t]*\)|^!\$cuf\b|<<<[^\n>]{1,200}>>>"
    r"|\bextern[ \t]+from[ \t]+[<\"]+(?:cuda\w*|cublas\w*|cudnn\w*|nvml|nccl|NvInfer\w*)\.h"  # Cython
    r"|\b(?:from[ \t]+cuda|from[ \t]+cupy\w*|cimport[ \t]+cuda)\b[^\n]*\bcimport\b"
    rf"|[\"'](?:[^\"'\n ]*/)?(?:lib{_LIBRARIES}\.so(?:\.\d+)*|nvcuda(?:\.dll)?|cudart64_\w*(?:\.dll)?)[\"']"
    r"|\.target[ \t]+sm_\d+",
    re.MULTILINE,
)
_GATE = re.compile(r"cu|Cu|CU|nv|Nv|NV|rapids|sm_|device|global|tensorrt|<<<")
_SLASHES = (".rs", ".java", ".kt", ".scala", ".cs", ".fs", ".zig", ".swift", ".d", ".js", ".mjs", ".ts")
_HASHES = (".jl", ".pyx", ".pxd", ".rb", ".pl", ".r")


def is_other_language(path: str) -> bool:
    """Tell whether a file of this name is read for CUDA's bindings."""
    return path.lower().endswith(OTHER_LANGUAGES)


def cuda_words(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each place that binds CUDA; whole-line comments do not count, except Go's, which hold C."""
    if not _GATE.search(text):
        return
    lower = path.lower()
    mark = "//" if lower.endswith(_SLASHES) else "#" if lower.endswith(_HASHES) else ""
    for match in _WORDS.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        line = text[start : match.start() + 1].lstrip()
        if mark and (line.startswith(mark) or f" {mark}" in line) and not match.group().startswith("#"):
            continue
        yield text.count("\n", 0, match.start()) + 1, " ".join(match.group().split())[:80]
