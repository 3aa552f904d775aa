#include <cuda_runtime.h>
void loop(cudaGraph_t graph, cudaGraphConditionalHandle *handle) {
    cudaGraphConditionalHandleCreate(handle, graph, 1, cudaGraphCondAssignDefault);
}
