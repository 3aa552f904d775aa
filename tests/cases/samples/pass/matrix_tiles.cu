template <int SIDE> __global__ void multiply(float *c, const float *a, const float *b, int wa, int wb) {
    __shared__ float as[SIDE][SIDE], bs[SIDE][SIDE];
    float sum = 0;
    for (int t = 0; t < wa / SIDE; ++t) {
        as[threadIdx.y][threadIdx.x] = a[(blockIdx.y * SIDE + threadIdx.y) * wa + t * SIDE + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(t * SIDE + threadIdx.y) * wb + blockIdx.x * SIDE + threadIdx.x];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < SIDE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[(blockIdx.y * SIDE + threadIdx.y) * wb + blockIdx.x * SIDE + threadIdx.x] = sum;
}
void run(float *c, float *a, float *b) { multiply<32><<<dim3(20, 10), dim3(32, 32)>>>(c, a, b, 320, 640); }
