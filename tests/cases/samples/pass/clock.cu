__global__ void ticks(clock_t *out) {
    extern __shared__ float cache[];
    if (threadIdx.x == 0) out[blockIdx.x] = clock();
    cache[threadIdx.x] = 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x + gridDim.x] = clock();
}
