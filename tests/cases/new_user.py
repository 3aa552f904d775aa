"""Three things that a new user has at hand, small and of our own: CUDA kernels, a Python service with Triton kernels, a model folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.cases.binaries import elf, fat_binary, safetensors

KERNELS: Mapping[str, str] = {
    "README.md": "# ragged\nFast ragged attention.\n",
    "setup.py": """\
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="ragged",
    ext_modules=[CUDAExtension("ragged._C", ["csrc/attention.cu", "csrc/binding.cpp"], extra_compile_args={"nvcc": ["-arch=sm_90a"]})],
    cmdclass={"build_ext": BuildExtension},
)
""",
    "requirements.txt": "torch==2.9.0+cu128\nninja\nnvtx==0.2.10\n",
    "csrc/attention.cu": """\
#include <cuda_runtime.h>
#include <mma.h>
#include "reduce.cuh"

// The cudaMemcpyToSymbol in this comment is not a call.
template <int kThreads>
__global__ void attention(const float *__restrict__ q, const float *__restrict__ k, float *out, int n) {
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum;
    nvcuda::wmma::fill_fragment(sum, 0.0f);
    const int lane = threadIdx.x & 31;
    float value = q[blockIdx.x * kThreads + threadIdx.x] * k[lane];
    value = ragged::warp_sum(value);
    if (lane == 0) out[blockIdx.x] = value;
}

void launch(const float *q, const float *k, float *out, int n, cudaStream_t stream) {
    attention<256><<<(n + 255) / 256, 256, 0, stream>>>(q, k, out, n);
    cudaLaunchAttribute attribute = {};
    cudaStreamAttachMemAsync(stream, out, 0, cudaMemAttachSingle);
}
""",
    "csrc/reduce.cuh": """\
#pragma once
namespace ragged {
__device__ __forceinline__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}
__device__ __forceinline__ unsigned lane_id() {
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
}  // namespace ragged
""",
    "csrc/binding.cpp": """\
#include <torch/extension.h>
#include <cuda_runtime_api.h>
void launch(const float *q, const float *k, float *out, int n, cudaStream_t stream);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { cudaDeviceSynchronize(); }
""",
}
SERVICE: Mapping[str, str] = {
    "Dockerfile": """\
FROM nvidia/cuda:12.8.0-devel-ubuntu22.04
ENV CUDA_VISIBLE_DEVICES=0,1,2,3 NCCL_NVLS_ENABLE=1
COPY requirements.txt .
RUN pip install -r requirements.txt
CMD ["python", "-m", "service.main", "--attention-backend", "flashinfer"]
""",
    "requirements.txt": "vllm==0.14.0\ntorch==2.9.0\nflashinfer-python==0.5.2\ntriton>=3.4\nfastapi\npynvml==12.0.0\n",
    "service/main.py": """\
import pynvml
import torch
from service.kernels import scale


def main() -> None:
    pynvml.nvmlInit()
    print(torch.cuda.get_device_capability(), scale)
""",
    "service/kernels.py": """\
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) * factor, mask=mask)
""",
    "deploy/deployment.yaml": """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: service}
spec:
  template:
    spec:
      containers:
        - name: service
          image: registry.example.com/service:1.4
          resources: {limits: {nvidia.com/gpu: 4}}
""",
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "torch_dtype": "bfloat16",
}
MODEL_DOCKERFILE = """\
FROM vllm/vllm-openai:v0.14.0
COPY . /model
ENV VLLM_ATTENTION_BACKEND=FLASHINFER
ENTRYPOINT ["vllm", "serve", "/model", "--tensor-parallel-size", "4", "--kv-cache-dtype", "fp8"]
"""
ROUTES: Mapping[str, str] = {"ragged": "stay", "service": "rebuild", "llama-70b": "native"}
"""What a person who reads the trees would say: PTX and wmma without a branch for AMD stay; see each test for why."""


def write_trees(folder: Path) -> None:
    """Write the three trees into a folder."""
    for name, files in (("ragged", KERNELS), ("service", SERVICE)):
        for path, text in files.items():
            _write(folder / name / path, text.encode())
    _write(folder / "ragged/build/_C.so", elf({".nv_fatbin": fat_binary([(1, 90), (2, 90)])}, ["libcudart.so.12", "libc.so.6"]))
    model = folder / "llama-70b"
    _write(model / "config.json", json.dumps(CONFIG, indent=2).encode())
    _write(model / "model-00001-of-00002.safetensors", safetensors({"a.weight": "F8_E4M3", "a.scale": "F32"}))
    _write(model / "model-00002-of-00002.safetensors", safetensors({"b.weight": "F8_E4M3"}))
    _write(model / "Dockerfile", MODEL_DOCKERFILE.encode())


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
