__global__ void per_warp(float *out) {
    int lane = threadIdx.x & 31;
    int warp = threadIdx.x >> 5;
    if (lane == 0) out[warp] = 1.0f;
}
