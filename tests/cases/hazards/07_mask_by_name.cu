#define ALL_LANES 0xffffffffu
__global__ void any_set(const int *v, int *out) {
    if (__any_sync(ALL_LANES, v[threadIdx.x])) *out = 1;
}
