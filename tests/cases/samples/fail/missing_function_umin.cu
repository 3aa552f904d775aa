__global__ void smaller(const unsigned *a, const unsigned *b, unsigned *c) { c[threadIdx.x] = umin(a[threadIdx.x], b[threadIdx.x]); }
