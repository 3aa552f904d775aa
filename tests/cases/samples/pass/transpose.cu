#define TILE_DIM 16
__global__ void transpose(float *out, const float *in, int width, int height) {
    __shared__ float tile[TILE_DIM][TILE_DIM + 1];
    int x = blockIdx.x * TILE_DIM + threadIdx.x, y = blockIdx.y * TILE_DIM + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[x + y * width];
    __syncthreads();
    out[blockIdx.y * TILE_DIM + threadIdx.x + (blockIdx.x * TILE_DIM + threadIdx.y) * height] = tile[threadIdx.x][threadIdx.y];
}
