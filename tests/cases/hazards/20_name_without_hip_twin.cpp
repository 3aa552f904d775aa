#include <cuda_runtime.h>
void hint(cudaStream_t stream, cudaStreamAttrValue *value) { cudaCtxResetPersistingL2Cache(); (void)stream; (void)value; }
