#include <cuda_runtime.h>
__global__ void idle() {}
bool unified(int device) { cudaDeviceProp p; cudaGetDeviceProperties(&p, device); return p.unifiedAddressing; }
