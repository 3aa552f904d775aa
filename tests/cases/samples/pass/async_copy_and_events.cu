#include <cuda_runtime.h>
__global__ void add(int *v, int n) { v[blockIdx.x * blockDim.x + threadIdx.x] += n; }
float timed(int *host, int *device, size_t bytes) {
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start, 0);
    cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, 0);
    add<<<16, 256>>>(device, 26);
    cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, 0);
    cudaEventRecord(stop, 0);
    cudaEventSynchronize(stop);
    float ms = 0.0f;
    cudaEventElapsedTime(&ms, start, stop);
    return ms;
}
