__global__ void sum(float *v) {
    float x = v[threadIdx.x];
    x += __shfl_xor_sync(0xffffffff, x, 1);
    v[threadIdx.x] = x;
}
