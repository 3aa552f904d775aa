__global__ void store(cudaSurfaceObject_t image) {
    surf2Dwrite(1.0f, image, threadIdx.x * sizeof(float), blockIdx.x);
}
