"""Small trees that a migrant may have: some that must never be called native, some that must never be called blocked.

Each tree is written to disk and read by the real reader; the table says which rule has to be among the findings.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import time
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetctl.adapters.source_tree import SourceTreeReader
from fleetctl.assess.gather import gather
from fleetctl.assess.installs import installed_by, modules_run_by
from fleetctl.assess.route import decide, not_judged
from fleetctl.catalog.portability import load_rule_book
from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.plan import Assessment
from tests.cases import assess_kinds
from tests.cases.binaries import elf, tar

NOW = datetime(2026, 12, 1, tzinfo=UTC)
BOOK = load_rule_book()
Tree = Mapping[str, str | bytes]


def judged(folder: Path, tree: Tree) -> Assessment:
    for name, data in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    found = gather(BOOK, "gfx942", SourceTreeReader().read(folder))
    return decide(WorkloadId("w"), found.findings(NOW), NOW)


def notebook(*sources: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": s.splitlines(keepends=True)} for s in sources], "nbformat": 4})


def wheel(requires: str, name: str = "service") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{requires}\n\nText\n")
    return out.getvalue()


def layout(*layers: bytes, config: object | None = None) -> dict[str, str | bytes]:
    """Return the files of an image layout."""
    files: dict[str, str | bytes] = {"oci-layout": '{"imageLayoutVersion": "1.0.0"}'}

    def blob(data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        files[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    manifest = {"config": blob(json.dumps(config or {"config": {}}).encode()), "layers": [blob(layer) for layer in layers]}
    files["index.json"] = json.dumps({"manifests": [blob(json.dumps(manifest).encode())]})
    return files


APP = gzip.compress(tar({"app/main.py": b"print('hello')\n"}), mtime=0)


def without_layer() -> dict[str, str | bytes]:
    files = layout(APP)
    del files[f"blobs/sha256/{hashlib.sha256(APP).hexdigest()}"]
    return files


TRITON = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x, y):\n    a = tl.load(x)\n{}    tl.store(y, a)\n"
PTX_CALL = "    a = tl.inline_asm_elementwise({}, '=r,r', [a], dtype=tl.int32, is_pure=True, pack=1)\n"
KERNEL = "__global__ void k(float *v) { v[threadIdx.x] = 1; }\n"

NOT_NATIVE: dict[str, tuple[Tree, str]] = {
    # PTX where no C compiler sees it
    "triton-ptx": ({"k.py": TRITON.format(PTX_CALL.format("'cvt.rna.tf32.f32 $0, $1;'"))}, "R092"),
    "triton-ptx-by-name": ({"k.py": "ASM = '''\n{ .reg .b32 r; mov.b32 $0, $1; }\n'''\n" + TRITON.format(PTX_CALL.format("ASM"))}, "R092"),
    "triton-ptx-formatted": ({"k.py": TRITON.format(PTX_CALL.format("f'shfl.sync.bfly.b32 $0, $1, {n}, 0x1f, -1;'"))}, "R092"),
    "triton-asm-unknown": ({"k.py": TRITON.format(PTX_CALL.format("make_asm()"))}, "R092"),
    "triton-for-nvidia": ({"k.py": "from triton.language.extra.cuda import gdc_wait\n" + TRITON.format("")}, "R106"),
    "ptx-in-a-string": ({"load.cpp": 'const char *p = ".version 8.0\\n.target sm_80\\n.visible .entry k() {}";\n'}, "R100"),
    "ptx-macro-header": (
        {"ptx.h": '#define LDSM(r, a) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(a))\n'},
        "R038",
    ),
    # what could not be read
    "image-without-its-layer": (without_layer(), "R089"),
    "image-of-junk": (layout(b"junk" * 200), "R089"),
    "image-of-a-cut-layer": (layout(APP[: len(APP) // 2]), "R089"),
    "image-of-nothing": (layout(b""), "R089"),
    "image-without-layers": (layout(), "R089"),
    "saved-image-of-junk": ({"main.py": "print(1)\n", "image.tar": tar({"manifest.json": b"{]", "c.json": b"{}"})}, "R089"),
    "source-too-large": ({"main.py": "print(1)\n", "big.cu": KERNEL + " " * (9 * 2**20)}, "R089"),
    "broken-lock": ({"uv.lock": "[[[", "main.py": "print(1)\n"}, "R089"),
    "broken-json-lock": ({"Pipfile.lock": "{", "main.py": "print(1)\n"}, "R089"),
    "broken-notebook": ({"a.ipynb": "{", "main.py": "print(1)\n"}, "R089"),
    "pointer-instead-of-source": ({"k.py": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"}, "R089"),
    "package-not-opened": ({"main.py": "print(1)\n", "vendor/libnvinfer8.deb": b"!<arch>\ndebian"}, "R089"),
    "layout-inside-a-tree": ({"main.py": "print(1)\n", **{f"images/x/{k}": v for k, v in without_layer().items()}}, "R089"),
    "sources-beside-a-layout": ({**layout(APP), "kernels/k.cu": KERNEL}, "R035"),
    # packages, wherever they are named
    "wheel-by-url": ({"requirements.txt": "https://pypi.example/tensorrt_llm-0.20.0-cp312-cp312-linux_x86_64.whl\n"}, "P021"),
    "git": ({"requirements.txt": "git+https://github.com/NVIDIA/TensorRT-LLM.git@v0.20\n"}, "P021"),
    "git-ssh": ({"requirements.txt": "git+ssh://git@github.com/NVIDIA/warp.git\n"}, "P039"),
    "editable-egg": ({"requirements.txt": "-e git+https://host.example/x/y.git@main#egg=spconv-cu120&subdirectory=p\n"}, "P045"),
    "name-at-url": ({"requirements.txt": "tensorrt_llm @ https://host.example/x.whl ; python_version > '3'\n"}, "P021"),
    "local-wheel": ({"requirements.txt": "./wheels/deep_gemm-2.0-cp312-cp312-linux_x86_64.whl\n"}, "P047"),
    "archive-of-a-repository": ({"reqs.txt": "https://github.com/NVIDIA/cutlass/archive/refs/tags/v3.zip\n"}, "P049"),
    "any-req-name": ({"docker/gpu-reqs-prod.txt": "tensorrt-llm==0.20\n"}, "P021"),
    "list-of-any-name": ({"python.txt": "fastapi==0.100\ntensorrt==10.1\n"}, "P019"),
    "pixi": ({"pixi.toml": '[workspace]\nname="x"\n[feature.gpu.pypi-dependencies]\ntensorrt = "*"\n'}, "P019"),
    "pixi-lock": (
        {"pixi.lock": "packages:\n- conda: https://conda.example/linux-64/cuml-24.10.00-cuda12_py311.conda\n  sha256: 0\n"},
        "P025",
    ),
    "conda": ({"deploy/gpu.yml": "channels: [nvidia]\ndependencies:\n  - nvidia::tensorrt=10\n  - pip:\n    - tensorrt_llm\n"}, "P021"),
    "cargo": ({"Cargo.toml": '[package]\nname = "x"\n[dependencies]\ncudarc = { version = "0.12", features = ["driver"] }\n'}, "P073"),
    "cargo-feature": ({"Cargo.toml": '[dependencies]\ncandle-core = { version = "0.8", features = ["cuda"] }\n'}, "P095"),
    "cargo-feature-of-none-known": ({"Cargo.toml": '[dependencies]\nx = { version = "0.8", features = ["cuda"] }\n'}, "P087"),
    "pipfile": ({"Pipfile": '[packages]\nspconv-cu120 = "*"\n'}, "P045"),
    "poetry-lock": ({"poetry.lock": '[[package]]\nname = "tensorrt-llm"\nversion = "0.20"\n'}, "P021"),
    "dependency-groups": ({"pyproject.toml": '[dependency-groups]\ngpu = ["cvcuda-cu12>=0.10"]\n'}, "P054"),
    "setup-py": (
        {"setup.py": "from setuptools import setup\nDEPS = ['torch', 'tensorrt_llm>=0.2']\nsetup(name='x', install_requires=DEPS)\n"},
        "P021",
    ),
    "setup-cfg": ({"setup.cfg": "[options]\ninstall_requires =\n    torch\n    tensorrt>=10\n"}, "P019"),
    "script-metadata": ({"run.py": '# /// script\n# dependencies = ["tensorrt-llm"]\n# ///\nprint(1)\n'}, "P021"),
    "unknown-cuda-name": ({"requirements.txt": "quantum-kernels-cu12==1\n"}, "P087"),
    "wheel-that-requires": ({"dist/service-1-py3-none-any.whl": wheel("Requires-Dist: tensorrt-llm (>=0.2)")}, "P021"),
    "dist-info-in-an-image": (
        layout(
            gzip.compress(tar({"usr/lib/python3/dist-packages/service-1.dist-info/METADATA": b"Name: service\nRequires-Dist: cuml-cu12\n"}))
        ),
        "P025",
    ),
    "debian-packages-of-an-image": (
        layout(gzip.compress(tar({"var/lib/dpkg/status": b"Package: libnvinfer10\nStatus: install ok installed\n"}))),
        "P069",
    ),
    "egg-info": ({"x.egg-info/requires.txt": "tensorrt_llm\n\n[dev]\npytest\n"}, "P021"),
    # commands
    "apt": (
        {
            "Dockerfile": "FROM ubuntu:24.04\nRUN apt-get update && \\\n    apt-get install -y --no-install-recommends \\\n"
            "    # the runtime\n    libnvinfer8 curl\n"
        },
        "P069",
    ),
    "apt-toolkit": ({"Dockerfile": "FROM ubuntu:24.04\nRUN apt-get install -y cuda-toolkit-12-4\n"}, "P070"),
    "pip-in-docker": ({"Dockerfile": 'FROM python:3.12\nRUN ["pip", "install", "tensorrt_llm==0.20"]\n'}, "P021"),
    "pip-by-variable": (
        {"Dockerfile": "FROM python:3.12\nARG PKG=tensorrt_llm\nRUN python3 -m pip install --no-cache-dir -c c.txt $PKG==0.20\n"},
        "P021",
    ),
    "pip-git-in-a-script": ({"install.sh": "set -e\nuv pip install 'git+https://github.com/NVIDIA/warp.git'\n"}, "P039"),
    "pipeline": ({".github/workflows/x.yml": "jobs:\n  a:\n    steps:\n      - run: |\n          pip install tensorrt-llm\n"}, "P021"),
    "base-image": ({"Dockerfile": "FROM --platform=linux/amd64 nvidia/cuda:12.8.0-runtime-ubuntu24.04\nCOPY server /server\n"}, "R008"),
    "ngc": ({"Dockerfile": "ARG BASE=nvcr.io/nvidia/deepstream:7.0\nFROM ${BASE}\n"}, "R102"),
    "trtllm-serve": ({"run.sh": "exec trtllm-serve meta/llama --tp_size 8\n"}, "R097"),
    # C and C++ without a name that begins with cuda
    "nvshmem": ({"a.cpp": "#include <nvshmem.h>\nint main() { return 0; }\n"}, "R093"),
    "optix": ({"a.cpp": "#include <optix_stubs.h>\nint main() {}\n"}, "R094"),
    "thrust": ({"a.cpp": "#include <thrust/sort.h>\nint main() {}\n"}, "R095"),
    "cub": ({"a.hpp": "#include <cub/block/block_reduce.cuh>\n"}, "R095"),
    "npp": ({"a.c": "#include <nppi_filtering_functions.h>\n"}, "R093"),
    "nvjpeg": ({"a.cc": "# include <nvjpeg.h>\n"}, "R093"),
    "nvcuvid": ({"a.cc": '#include "Interface/nvcuvid.h"\n'}, "R093"),
    "cufile": ({"a.cc": "#include <cufile.h>\n"}, "R093"),
    "cutensor": ({"a.cc": "#include <cutensor.h>\n"}, "R035"),
    "cublas": ({"a.cc": "#include <cublas_v2.h>\n"}, "R035"),
    "cudss": ({"a.cc": "#include <cudss.h>\n"}, "R094"),
    "nvml": ({"a.cc": "#include <nvml.h>\n"}, "R072"),
    "nvtx": ({"a.cc": "#include <nvtx3/nvtx3.hpp>\n"}, "R071"),
    "cublasxt": ({"a.cc": "#include <cublasXt.h>\nint main() {}\n"}, "R108"),
    "cublasxt-in-quotes": ({"a.cc": '#include "cublasXt.h"\nint main() {}\n'}, "R108"),
    "device-header-that-is-absent": ({"a.cc": '#include "kernels/scan.cuh"\nint main() {}\n'}, "R108"),
    "header-of-no-table": ({"a.cc": "#include <cuda_new_thing.h>\n"}, "R108"),
    "dlopen": ({"a.c": '#include <dlfcn.h>\nvoid *f(void) { return dlopen("libcuda.so.1", RTLD_NOW); }\n'}, "R098"),
    "program-that-opens": ({"server": elf({".rodata": b"x\0libnvinfer.so.10\0y"})}, "R057"),
    "static-library": ({"libx.a": b"!<arch>\nx.o/            0           0     0     644     8         `\n.nv_fatbin\0\0"}, "R059"),
    # Python
    "numba": ({"a.py": "from numba import cuda\n\n\n@cuda.jit\ndef k(x):\n    pass\n"}, "P038"),
    "cupy": ({"a.py": "def f():\n    import cupy as cp\n    return cp.zeros(1)\n"}, "P016"),
    "pycuda": ({"a.py": "import os, pycuda.autoinit\n"}, "P036"),
    "import-module": ({"a.py": "import importlib\ntrt = importlib.import_module('tensorrt')\n"}, "P019"),
    "ctypes": ({"a.py": "import ctypes\nlib = 'libcudart.so.12'\nctypes.CDLL(lib)\n"}, "R098"),
    "ctypes-tensorrt": ({"a.py": "import ctypes\nctypes.CDLL('/opt/trt/libnvinfer_plugin.so', mode=ctypes.RTLD_GLOBAL)\n"}, "R099"),
    "needed-in-a-try": (
        {"a.py": "try:\n    import tensorrt_llm\nexcept ImportError as e:\n    raise SystemExit('install it') from e\n"},
        "P021",
    ),
    "notebook": ({"a.ipynb": notebook("!pip install -q tensorrt_llm", "x = 1")}, "P021"),
    "notebook-import": ({"a.ipynb": notebook("%matplotlib inline\nimport cupy\n")}, "P016"),
    "notebook-kernel": ({"a.ipynb": notebook("%%cu\n" + KERNEL)}, "R035"),
    "onnx-provider": ({"a.py": "import onnxruntime as o\no.InferenceSession('m', providers=['TensorrtExecutionProvider'])\n"}, "R105"),
    "script-without-an-ending": ({"bin/serve": "#!/usr/bin/env python3\nimport tensorrt_llm\n"}, "P021"),
    # builds alone
    "cmake-languages": ({"CMakeLists.txt": "project(x\n  VERSION 1\n  LANGUAGES CXX CUDA)\n"}, "R096"),
    "cmake-enable": ({"CMakeLists.txt": "project(x)\nenable_language( CUDA )\n"}, "R096"),
    "cmake-toolkit": ({"cmake/gpu.cmake": "find_package(CUDAToolkit REQUIRED)\n"}, "R096"),
    "setup-extension": ({"setup.py": "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('x', ['x.cpp'])\n"}, "R053"),
    "meson": ({"meson.build": "project('x', ['cpp', 'cuda'])\n"}, "R096"),
    "bazel": ({"BUILD.bazel": 'load("@rules_cuda//cuda:defs.bzl", "cuda_library")\ncuda_library(name = "k")\n'}, "R096"),
    "make": ({"Makefile": "x: x.o\n\tg++ -o $@ $< -lcudart -lcublas\n"}, "R096"),
    "cmake-tensorrt": ({"CMakeLists.txt": "target_link_libraries(app PRIVATE nvinfer nvonnxparser)\n"}, "R097"),
    # other languages
    "rust": ({"src/main.rs": "use cudarc::driver::CudaDevice;\n"}, "R101"),
    "julia": ({"a.jl": "using LinearAlgebra, CUDA\n"}, "R101"),
    "go": ({"a.go": 'package x\n\n// #include <cuda_runtime.h>\nimport "C"\n'}, "R101"),
    "cython": ({"a.pyx": 'cdef extern from "cuda_runtime.h":\n    pass\n'}, "R101"),
    "fortran": ({"a.f90": "attributes(global) subroutine k(a)\nend subroutine\n"}, "R101"),
}


NOT_NATIVE |= assess_kinds.FOUND


@pytest.mark.parametrize("name", list(NOT_NATIVE))
def test_what_must_not_be_called_native(tmp_path: Path, name: str) -> None:
    tree, rule = NOT_NATIVE[name]
    found = judged(tmp_path, tree)
    seen = {(f.rule, f.grade, f.least) for f in found.findings}
    assert rule in {f.rule for f in found.findings}, seen
    assert found.route != "native", seen
    assert all(f.evidence and f.as_of for f in found.findings)
    if rule == "R089":
        assert not_judged(found)
        assert "R089" in {f.rule for f in found.blocking}


HOST_ASM = (
    '#include <cuda_runtime.h>\nvoid f(float *p) { unsigned a, d; asm volatile("rdtsc" : "=a"(a), "=d"(d)); asm("pause"); cudaFree(p); }\n'
)
GUARD = "import torch\nif torch.version.hip:\n    {}\nelse:\n    {}\n"
MAPPED_HEADERS = ("cublasLt", "cusolverDn", "cufftXt", "cusolverMg", "cuda_bf16", "cuda_fp8", "cuda_fp16")
WARP_CALLS = ("(__syncwarp(), v)", "__reduce_add_sync(~0ull, v)", "__reduce_max_sync(~0ull, v)", "__reduce_xor_sync(~0ull, v)")
NOT_BLOCKED: dict[str, Tree] = {
    "host-asm": {"a.cpp": HOST_ASM},
    "host-asm-in-cu": {"a.cu": KERNEL + 'void g() { asm volatile("mfence" ::: "memory"); __asm__ __volatile__("" : : : "memory"); }\n'},
    "arm-asm": {"a.cu": KERNEL + 'void g(long *v) { asm volatile("mrs %0, cntvct_el0" : "=r"(*v)); }\n'},
    "amd-asm": {
        "a.cu": KERNEL + '__device__ void g(float a) { asm volatile("v_add_f32 %0, %0, 1.0" : "+v"(a)); asm("s_waitcnt vmcnt(0)"); }\n'
    },
    "linker-name": {"a.cu": KERNEL + 'int f(void) __asm__("g");\n'},
    "dead-code": {"a.cu": KERNEL + '#if 0\n__device__ void g() { asm("mov.u32 %0, 1;"); wmma::mma_sync(a); }\n#endif\n'},
    "dead-branch": {"a.cu": KERNEL + '#if 1\nint a;\n#else\n__device__ void g() { asm("mov.u32 %0, 1;"); }\n#endif\n'},
    "guarded": {"a.cu": KERNEL + '#ifndef __HIP_PLATFORM_AMD__\n__device__ void g() { asm("mov.u32 %0, 1;"); }\n#endif\n'},
    "own-module": {"warp.py": "def run():\n    pass\n", "main.py": "import warp\nfrom warp import run\n"},
    "own-package": {"src/cuml/__init__.py": "", "src/app/main.py": "import cuml\n", "tests/test_x.py": "import cuml\n"},
    "relative-import": {"pkg/__init__.py": "", "pkg/a.py": "from . import spconv\nfrom .cuml import x\n"},
    "docstring": {"a.py": '"""Once used tensorrt_llm.\n\nimport cuml\nctypes.CDLL("libnvinfer.so")\n"""\nprint(1)\n'},
    "comment": {"a.py": "x = 1  # import cuml; ctypes.CDLL('libnvinfer.so')\n# import spconv\n"},
    "echo": {"run.sh": 'echo "pip install tensorrt_llm cuml-cu12"\nprintf "trtexec --onnx" >&2\n# pip install spconv\n'},
    "echo-in-docker": {"Dockerfile": 'FROM ubuntu:24.04\nRUN echo "use nvcr.io/nvidia/tritonserver" && apt-get install -y curl\n'},
    "here-document": {"run.sh": "cat <<EOF\n  pip install cuml-cu12\nEOF\npip install fastapi\n"},
    "cmake-message": {
        "CMakeLists.txt": 'project(x CXX)\nmessage(STATUS "find_package(TensorRT) is not done;\n enable_language(CUDA)")\n'
        "#[[ enable_language(CUDA) ]]\n"
    },
    "requirement-comment": {"requirements.txt": "fastapi==0.1  # not tensorrt_llm\n# cuml-cu12==1\n"},
    "optional-import": {"a.py": "try:\n    import cuml\nexcept ImportError:\n    cuml = None\n"},
    "optional-library": {"a.py": "import ctypes\ntry:\n    ctypes.CDLL('libnvinfer.so.10')\nexcept OSError:\n    pass\n"},
    "branch-for-hip": {"a.py": GUARD.format("import amdsmi", "import spconv")},
    "leaves-on-hip": {"k.py": "def f():\n    if is_hip():\n        return 1\n    import cuml\n    return cuml\n"},
    "triton-amd": {"k.py": TRITON.format(PTX_CALL.format("'v_mov_b32 $0, $1'"))},
    "triton-amd-binding": {
        "k.py": TRITON.format(
            "    a = tl.inline_asm_elementwise(asm=op(), constraints='=v,v', args=[a], dtype=tl.int32, is_pure=True, pack=1)\n"
        )
    },
    "triton-both": {
        "k.py": "from x import is_hip\n"
        + TRITON.format("    if is_hip():\n        a = a + 1\n    else:\n    " + PTX_CALL.format("'mov.b32 $0, $1;'"))
    },
    "typing-only": {"a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cuml\n"},
    "words": {"vocab.txt": "warp\ncutlass\napex\nnvidia\ntensorrt\n", "main.py": "print(1)\n", "data.json": '["tensorrt", "cuda"]'},
    "setup-of-its-own-name": {
        "setup.py": "from setuptools import setup\nsetup(name='warp-lang', packages=['cuml', 'spconv'], keywords=['tensorrt'])\n"
    },
    "hip-build": {"CMakeLists.txt": "option(GPU)\nif(USE_HIP)\n  enable_language(HIP)\nelse()\n  enable_language(CUDA)\nendif()\n"},
    "rocm-image": {
        "Dockerfile": "FROM rocm/vllm:latest\nENV VLLM_ROCM_USE_AITER=0\nRUN pip install 'git+https://github.com/ROCm/flash-attention.git'\n"
    },
    "vllm": {"requirements.txt": "vllm==0.33.0\ntorch\n", "main.py": "import torch\nimport vllm\nx = torch.zeros(1, device='cuda')\n"},
    **{f"include-{n}": {"a.cpp": f"#include <{n}.h>\nint main() {{}}\n", "b.cu": f'#include "{n}.h"\n{KERNEL}'} for n in MAPPED_HEADERS},
    **{f"warp-{n}": {"a.cu": KERNEL + f"__device__ int g(int v) {{ return {n}; }}\n"} for n in WARP_CALLS},
    "extra-that-nothing-asks-for": {
        "pyproject.toml": '[project]\nname="x"\ndependencies=["fastapi"]\n[project.optional-dependencies]\ngpu=["cuml-cu12", "tensorrt"]\n'
    },
    "list-beside-one-for-rocm": {"requirements-cuda.txt": "cuml-cu12\n", "requirements-rocm.txt": "fastapi\n"},
    "comment-in-c": {
        "a.cpp": '// cudaLaunchKernelEx(); asm("mov.u32 %0, 1;")\n'
        '/* #include <optix.h> */ const char *s = "cudaMalloc failed";\nint main() {}\n'
    },
    "plain-image": layout(APP),
    "an-image-and-its-attestation": layout(APP),
    "junk-named-oci-layout": {"oci-layout": b"\x00junk", "main.py": "print(1)\n"},
    "packed-data": {"main.py": "print(1)\n", "data/train.jsonl.gz": b"\x1f\x8bjunk", "data/x.csv.gz": gzip.compress(b"1,2\n")},
    "headers-of-others": {
        "a.c": "#include <nvme.h>\n#include <linux/nvram.h>\n#include <curses.h>\n#include <customer.h>\n#include <cub.h>\n"
    },
    "own-header": {"cuda_helpers.h": "int f();\n", "a.cu": "#include <x/cuda_helpers.h>\n" + KERNEL},
    "wheel-of-vllm": {
        "wheels/vllm-0.33-py3-none-any.whl": wheel("Requires-Dist: flashinfer-python\nRequires-Dist: cuml-cu12 ; extra == 'gpu'", "vllm")
    },
    "other-languages": {
        "a.rs": "// use cudarc::driver;\nfn main() {}\n",
        "b.jl": "# using CUDA\nusing LinearAlgebra\n",
        "c.ts": "const cuda = 'x';\n",
    },
    "makefile-of-c": {"Makefile": "all:\n\t@echo linking -lcudart is not needed\n\tcc -o x x.c -lm\n"},
}


@pytest.mark.parametrize("name", list(NOT_BLOCKED))
def test_what_must_not_be_called_blocked(tmp_path: Path, name: str) -> None:
    found = judged(tmp_path, NOT_BLOCKED[name])
    assert found.blocking == ()
    assert found.route in ({"native"} if not {"a.cu", "a.cpp"} & NOT_BLOCKED[name].keys() else {"native", "hipify"}), [
        (f.rule, f.subject, f.least) for f in found.findings
    ]
    assert not_judged(found) == ()


def trees(verdict: str) -> dict[str, Tree]:
    """Read the trees of the corpus file that are about one verdict."""
    text = (Path(__file__).resolve().parents[1] / "cases" / "assess_trees.txt").read_text("utf-8")
    found: dict[str, Tree] = {}
    for section in text.split("\n=== ")[1:]:
        head, _, rest = section.partition("\n")
        kind, _, name = head.partition(" ")
        if kind == verdict:
            parts = f"\n{rest}".split("\n--- ")[1:]
            found[name] = {p.partition("\n")[0]: p.partition("\n")[2] + "\n" for p in parts}
    return found


ADVERSARY = trees("native") | assess_kinds.ADVERSARY
HARMLESS = trees("blocked") | assess_kinds.HARMLESS
ADVERSARY["utf16"] = {"k.cu": KERNEL.encode("utf-16")}
LAYERS: dict[str, tuple[str, bytes]] = {
    "app-in-usr-src": ("usr/src/app/main.py", b"import tensorrt_llm\n"),
    "program-in-usr-bin": ("usr/bin/server", elf({}, ["libcudart.so.12"])),
    "own-library-in-usr-lib": ("usr/lib/libapp.so.1", elf({}, ["libcudart.so.12"])),
    "library-of-tensorrt": ("usr/lib/x86_64-linux-gnu/libnvinfer.so.10", elf({})),
    "conda-package": ("opt/conda/conda-meta/cuml-24.10.json", b'{"name": "cuml"}'),
    "virtual-environment": ("opt/venv/lib/python3.12/site-packages/a.dist-info/METADATA", b"Name: tensorrt_llm\nVersion: 1\n"),
    "archive-in-a-layer": ("app/src.tar.gz", gzip.compress(tar({"k.cu": KERNEL.encode()}))),
    "engine": ("models/a/1/model.plan", b"ftrt0000"),
}
for key, (inner, data) in LAYERS.items():
    ADVERSARY[key] = layout(gzip.compress(tar({inner: data}), mtime=0))
NEEDED = (
    "libcuda.so.1",
    "libnvrtc.so.12",
    "libnvidia-ml.so.1",
    "libnppc.so.12",
    "libnvshmem_host.so.3",
    "libc10_cuda.so",
    "libtensorrt_llm.so",
)
for needed in NEEDED:
    ADVERSARY[f"needs-{needed}"] = {"app": elf({}, [needed])}
ADVERSARY["provider"] = {"libonnxruntime_providers_cuda.so": elf({})}
ADVERSARY["program-for-windows"] = {"a.exe": b"MZ" + bytes(99) + b"cudart64_12.dll\0"}
SAVED = json.dumps([{"Config": f"{'c' * 64}.json", "Layers": [f"{'a' * 64}/layer.tar"]}])
ADVERSARY["saved-image-unpacked"] = {
    "manifest.json": SAVED,
    f"{'c' * 64}.json": '{"config": {"Env": ["CUDA_VERSION=12.4"]}}',
    f"{'a' * 64}/layer.tar": tar({"app/a.py": b"print(1)\n"}),
}
ADVERSARY["byte-order-mark"] = {"requirements.txt": b"\xef\xbb\xbftensorrt_llm\n"}
ADVERSARY["line-ends"] = {"requirements.txt": b"torch\r\ntensorrt_llm\r\n"}
ADVERSARY["line-ends-of-old"] = {"requirements.txt": b"torch\rtensorrt_llm\r"}
HARMLESS["packed-and-pickled"] = {"a.py": "1\n", "data.gz": gzip.compress(b"x" * 99), "m.pt": b"\x80\x02cnumpy", "w.npz": b"PK\x03\x04junk"}


@pytest.mark.parametrize("name", list(ADVERSARY))
def test_what_an_adversary_hides_is_not_native(tmp_path: Path, name: str) -> None:
    found = judged(tmp_path, ADVERSARY[name])
    assert found.route != "native", [(f.rule, f.subject) for f in found.findings]


@pytest.mark.parametrize("name", list(HARMLESS))
def test_what_an_adversary_makes_look_bad_is_not_blocked(tmp_path: Path, name: str) -> None:
    found = judged(tmp_path, HARMLESS[name])
    assert (found.blocking, not_judged(found)) == ((), ()), [(f.rule, f.subject) for f in found.findings]
    assert found.route in ({"native", "hipify"} if any(n.endswith((".cu", ".cpp")) for n in HARMLESS[name]) else {"native"})


@pytest.mark.parametrize("name", list(assess_kinds.STAYS))
def test_what_has_no_amd_counterpart_stays(tmp_path: Path, name: str) -> None:
    found = judged(tmp_path, assess_kinds.STAYS[name])
    assert found.route == "stay"
    assert found.blocking


def test_lists_that_take_one_another_by_the_thousand_are_judged_in_time(tmp_path: Path) -> None:
    tree = {f"cuda/{n}/requirements-gpu.txt": f"-r ../{n + 1}/requirements-gpu.txt\n" for n in range(1500)}
    tree |= {f"rocm/{n}/requirements-amd.txt": "fastapi\n" for n in range(1500)}
    tree |= {"cuda/1500/requirements-gpu.txt": "cuml-cu12\n", "rocm/1500/requirements-amd.txt": "fastapi\n"}
    copies = "".join(f"COPY cuda/{n}/ /x\n" for n in range(1500))
    began = time.process_time()
    found = judged(tmp_path, {**tree, "Dockerfile": f"FROM python:3.12\n{copies}RUN pip install -r cuda/0/requirements-gpu.txt\n"})
    assert found.route == "stay"
    assert time.process_time() - began < 20


LONG = {
    "python": "python -W x " * 30_000,
    "list": "python\n- " * 30_000,
    "runs": "python -m x\n" * 20_000,
    "options": "python " + "-m " * 50_000,
    "tasks": "- pip:\n    name:\n" * 30_000,
    "names": "- pip: " + "name: " * 50_000,
    "wheels": "a-1-b-c-d.whl\n" * 20_000,
    "spaces": "pypi" + " " * 300_000,
    "flows": "[pip, " * 50_000,
}


@pytest.mark.parametrize("name", list(LONG))
def test_commands_of_a_long_text_are_read_in_time_in_proportion_to_it(name: str) -> None:
    began = time.process_time()
    assert len(modules_run_by(LONG[name])) <= 20_000
    assert len(list(installed_by("a.yml", LONG[name]))) <= 100_000
    assert time.process_time() - began < 10


@pytest.mark.parametrize("config", [{"quant_method": "brand_new"}, "broken", {"bits": 3}])
def test_a_quantisation_that_cannot_be_judged_is_a_risk(tmp_path: Path, config: object) -> None:
    found = judged(tmp_path, {"config.json": json.dumps({"model_type": "llama", "quantization_config": config})})
    assert [(f.rule, f.grade) for f in found.findings] == [("R124", "risk")]


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed-tensors", "hqq", "torchao"])
def test_a_quantisation_that_runs_on_rocm_is_no_risk(tmp_path: Path, method: str) -> None:
    found = judged(tmp_path, {"config.json": json.dumps({"quantization_config": {"quant_method": method}})})
    assert [f for f in found.findings if f.rule in {"R123", "R124"}] == []


def test_a_rocm_build_of_torch_is_not_to_be_installed_again(tmp_path: Path) -> None:
    found = judged(tmp_path, {"requirements.txt": "torch==2.5.1+rocm6.2\n"})
    assert [f.rule for f in found.findings if f.grade != "info"] == []


PLACES: dict[str, tuple[Tree, str, int, str]] = {
    "requirements": ({"requirements.txt": "tensorrt_llm==1\n", "x/requirements.txt": "a\ntensorrt-llm\n"}, "P021", 2, "requirements.txt:1"),
    "extras": (
        {"pyproject.toml": '[project]\nname="x"\n[project.optional-dependencies]\na=["cuml-cu12"]\n', "s.py": "import cuml\nimport cuml\n"},
        "P025",
        2,
        "s.py:1",
    ),
    "requirement-and-imports": (
        {"requirements.txt": "tensorrt_llm\n", "a.py": "import tensorrt_llm\nimport tensorrt_llm.x\n", "b.py": "import tensorrt_llm\n"},
        "P021",
        4,
        "requirements.txt:1",
    ),
    "imports": ({f"m{n}.py": "import tensorrt_llm\n" for n in range(60)}, "P021", 60, "m0.py:1"),
    "imports-behind-many-with-a-guard": (
        {"a.py": "try:\n" + "    import cuml\n" * 1500 + "except ImportError:\n    pass\n", "b.py": "import cuml\n"},
        "P025",
        1,
        "b.py:1",
    ),
    "asm": (
        {f"k{n}.cu": '__device__ void f() {\n  asm("mov.u32 %0, 1;");\n  asm("mov.u32 %0, 2;");\n}\n' for n in range(9)},
        "R038",
        18,
        "k0.cu:2",
    ),
    "names": ({f"k{n}.cu": KERNEL + "void f() { cudaGraphicsD3D9RegisterResource(0); }\n" * 200 for n in range(2)}, "R036", 400, "k0.cu"),
    "many-in-one-file": ({"k.cu": KERNEL + "__device__ void g() { wmma::mma_sync(a, b, c, d); }\n" * 300}, "R040", 300, "k.cu"),
    "many-in-one-build": ({"CMakeLists.txt": "enable_language(CUDA)\n" * 2500}, "R096", 2500, "CMakeLists.txt:1"),
    "one-without-a-guard-behind-many-with": (
        {
            "k.cu": KERNEL
            + "#ifdef USE_ROCM\nint a;\n#else\n"
            + "__device__ void g() { cudaGraphicsD3D9RegisterResource(0); wmma::mma_sync(a, b, c, d); }\n" * 80
            + "#endif\n__device__ void h() { cudaGraphicsD3D9RegisterResource(0); wmma::mma_sync(a, b, c, d); }\n"
        },
        "R040",
        1,
        "k.cu",
    ),
}


@pytest.mark.parametrize("name", list(PLACES))
def test_every_place_of_a_finding_counts(tmp_path: Path, name: str) -> None:
    tree, rule, count, where = PLACES[name]
    found = judged(tmp_path, tree)
    one = next(f for f in found.findings if f.rule == rule and not f.is_guarded)
    assert (one.count, one.where.startswith(where)) == (count, True), (one.count, one.where)
    assert len(one.places) == len(set(one.places)) == min(count, 5) or one.rule == "R036"
    if name.startswith("one-without"):
        assert not next(f for f in found.findings if f.rule == "R036").is_guarded


def test_the_corpus_is_large_enough() -> None:
    assert min(len(NOT_NATIVE) + len(ADVERSARY), len(NOT_BLOCKED) + len(HARMLESS)) >= 80
