#include <cuda_runtime.h>
void start(cudaLaunchConfig_t *config, void (*kernel)(int)) { cudaLaunchKernelEx(config, kernel, 1); }
