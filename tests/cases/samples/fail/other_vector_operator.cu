inline __device__ float2 operator/(float2 a, float2 b) { return make_float2(a.x / b.x, a.y / b.y); }
__global__ void ratio(float2 *v) { v[threadIdx.x] = v[threadIdx.x] / v[0]; }
