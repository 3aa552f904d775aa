__global__ void fetch(cudaTextureObject_t image, float *out) {
    out[threadIdx.x] = tex2D<float>(image, threadIdx.x + 0.5f, blockIdx.x + 0.5f);
}
