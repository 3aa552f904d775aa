#include <cuda_runtime.h>
__global__ void square(int *v, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) v[i] *= v[i]; }
double occupancy(int block) {
    int blocks = 0, device = 0;
    cudaDeviceProp prop;
    cudaGetDevice(&device);
    cudaGetDeviceProperties(&prop, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, square, block, 0);
    return double(blocks * block / prop.warpSize) / (prop.maxThreadsPerMultiProcessor / prop.warpSize);
}
