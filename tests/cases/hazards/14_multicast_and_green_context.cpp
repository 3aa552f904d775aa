#include <cuda.h>
CUresult both(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop, CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device) {
    cuMulticastCreate(handle, prop);
    return cuGreenCtxCreate(context, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
}
