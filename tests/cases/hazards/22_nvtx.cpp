#include <nvtx3/nvToolsExt.h>
void mark() { nvtxRangePushA("decode"); nvtxRangePop(); }
