#include <cuda_runtime.h>
#include <mpi.h>
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) { int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }
static void cudaCheck(cudaError_t e) { if (e != cudaSuccess) MPI_Abort(MPI_COMM_WORLD, 1); }
void run(float *a, float *b, float *c, int n) { vector_add<<<(n + 255) / 256, 256>>>(a, b, c, n); cudaCheck(cudaGetLastError()); }
