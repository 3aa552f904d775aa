__global__ void count(unsigned *v) { atomicInc_system(v, 100u); }
