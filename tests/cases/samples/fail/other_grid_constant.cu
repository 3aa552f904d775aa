struct Table { int v[1024]; };
__global__ void look(__grid_constant__ const Table table, int *out) { out[threadIdx.x] = table.v[threadIdx.x]; }
