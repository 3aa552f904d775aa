#pragma once
#include <cuda/barrier>
__device__ inline void meet(cuda::barrier<cuda::thread_scope_block> &b) { b.arrive_and_wait(); }
