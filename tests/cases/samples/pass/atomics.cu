__global__ void all(int *v) {
    atomicAdd(&v[0], 10);
    atomicSub(&v[1], 10);
    atomicExch(&v[2], threadIdx.x);
    atomicMax(&v[3], threadIdx.x);
    atomicMin(&v[4], threadIdx.x);
    atomicInc((unsigned int *)&v[5], 17);
    atomicCAS(&v[7], threadIdx.x - 1, threadIdx.x);
    atomicXor(&v[10], threadIdx.x);
}
