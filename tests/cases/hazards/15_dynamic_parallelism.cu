__global__ void child(int *v) { v[threadIdx.x] += 1; }
__global__ void parent(int *v) {
    if (threadIdx.x == 0) child<<<1, 32>>>(v);
}
