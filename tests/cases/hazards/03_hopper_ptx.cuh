__device__ inline void arrive() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
