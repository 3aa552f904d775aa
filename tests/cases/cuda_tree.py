"""A CUDA source tree of any size, made from templates of our own with the density of names, comments and hazards of real kernels."""

from __future__ import annotations

from pathlib import Path

KERNEL = """\
// Adds two vectors, part {n}. The cudaMemcpy in this comment is not a call.
template <typename T, int kThreads>
__global__ void add_{n}(const T *__restrict__ left, const T *__restrict__ right, T *__restrict__ out, int count) {{
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ T cache[kThreads];
    if (index < count) {{
        cache[threadIdx.x] = left[index] + right[index];  /* into the cache first */
    }}
    __syncthreads();
    if (index < count) {{
        out[index] = cache[threadIdx.x] * static_cast<T>({n});
    }}
}}

void launch_add_{n}(const float *left, const float *right, float *out, int count, cudaStream_t stream) {{
    constexpr int kThreads = 256;
    const int blocks = (count + kThreads - 1) / kThreads;
    add_{n}<float, kThreads><<<blocks, kThreads, 0, stream>>>(left, right, out, count);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) {{
        fprintf(stderr, "add_{n}: %s (cudaGetLastError)\\n", cudaGetErrorString(status));
        std::abort();
    }}
}}

"""
REDUCE = """\
__device__ __forceinline__ float warp_sum_{n}(float value) {{
    for (int offset = 16; offset > 0; offset >>= 1) {{
        value += __shfl_xor_sync(0xffffffff, value, offset);
    }}
    return value;
}}

__device__ __forceinline__ unsigned lane_{n}() {{
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}}

"""
HOST = """\
struct Buffer_{n} {{
    void *data = nullptr;
    std::size_t size = 0;
    int device = {n};
    std::vector<std::string> tags;

    bool reserve(std::size_t wanted) {{
        if (wanted <= size) return true;
        release();
        if (cudaMalloc(&data, wanted) != cudaSuccess) {{
            return false;
        }}
        size = wanted;
        tags.push_back("grown to " + std::to_string(wanted));
        return true;
    }}

    void release() {{
        if (data != nullptr) {{
            cudaFree(data);
        }}
        data = nullptr;
        size = 0;
    }}
}};

inline int clamp_{n}(int value, int low, int high) {{
    if (value < low) return low;
    if (value > high) return high;
    return value;
}}

"""
HEAD = "#include <cuda_runtime.h>\n#include <cstdio>\n#include <string>\n#include <vector>\n\n"


def write_tree(folder: Path, files: int, repeats: int = 20) -> int:
    """Write .cu, .cuh, .h and .cpp files in turn; return the number of lines."""
    lines = 0
    for i in range(files):
        parts = [HEAD]
        for j in range(repeats):
            n = i * repeats + j
            parts.append(HOST.format(n=n) if i % 4 >= 2 else KERNEL.format(n=n))
            if i % 4 == 1 and j % 5 == 0:
                parts.append(REDUCE.format(n=n))
        text = "".join(parts)
        path = folder / f"part{i // 50}" / f"unit_{i}{('.cu', '.cuh', '.h', '.cpp')[i % 4]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        lines += text.count("\n")
    return lines
