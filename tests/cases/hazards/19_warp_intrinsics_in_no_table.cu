__global__ void step(int *v) {
    v[threadIdx.x] += 1;
    __nanosleep(20);
}
