#include <cuda_runtime.h>
__global__ void idle() {}
void take(int **p, size_t n) { int *mine; cudaHostAlloc(&mine, n, cudaHostAllocDefault); *p = mine; }
