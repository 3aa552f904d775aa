__global__ void vote(const int *v, int *out) { out[threadIdx.x] = __any_sync(0xFFFFFFFF, v[threadIdx.x]); }
