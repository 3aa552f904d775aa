#include <cuda_runtime.h>
__global__ void idle() {}
void CUDART_CB done(cudaStream_t stream, cudaError_t status, void *data);
