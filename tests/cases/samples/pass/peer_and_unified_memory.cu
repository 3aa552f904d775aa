#include <cuda_runtime.h>
__global__ void twice(float *from, float *to) { int i = blockIdx.x * blockDim.x + threadIdx.x; to[i] = from[i] * 2.0f; }
void both(size_t bytes) {
    int can = 0;
    float *a, *b;
    cudaDeviceCanAccessPeer(&can, 0, 1);
    if (can) cudaDeviceEnablePeerAccess(1, 0);
    cudaMallocManaged(&a, bytes);
    cudaMalloc(&b, bytes);
    cudaMemAdvise(a, bytes, cudaMemAdviseSetReadMostly, 0);
    cudaMemPrefetchAsync(a, bytes, 0, 0);
    twice<<<64, 256>>>(a, b);
    cudaDeviceSynchronize();
    cudaFree(a);
    cudaFree(b);
}
