__global__ void write(cudaSurfaceObject_t s) { surf2Dwrite(1.0f, s, threadIdx.x * 4, 0, cudaBoundaryModeTrap); }
