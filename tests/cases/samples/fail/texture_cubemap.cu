__global__ void read(cudaTextureObject_t t, float *out) { out[threadIdx.x] = texCubemap<float>(t, 0.1f, 0.2f, 0.3f); }
