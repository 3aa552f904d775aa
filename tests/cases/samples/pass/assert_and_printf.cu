#include <cassert>
#include <cstdio>
__global__ void check(int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    printf("[%d] %d, cudaNothing in a string\n", i / int(blockDim.x), i);
    assert(i < n);
}
