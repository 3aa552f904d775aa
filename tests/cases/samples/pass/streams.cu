#include <cuda_runtime.h>
__global__ void fill(int *v, int *factor) { v[blockIdx.x * blockDim.x + threadIdx.x] = *factor; }
void many(int *v, int *factor) {
    cudaStream_t streams[4];
    for (auto &s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    for (int i = 0; i < 4; i++) fill<<<8, 512, 0, streams[i]>>>(v + i * 4096, factor);
    for (auto &s : streams) { cudaStreamSynchronize(s); cudaStreamDestroy(s); }
}
