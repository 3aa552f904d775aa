#include <cuda_runtime.h>
__global__ void idle() {}
void prefer(cudaStream_t stream) { cudaStreamAttrValue value; (void)value; (void)stream; }
