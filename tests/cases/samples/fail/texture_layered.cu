__global__ void read(cudaTextureObject_t t, float *out) { out[threadIdx.x] = tex2DLayered<float>(t, 0.1f, 0.2f, 3); }
