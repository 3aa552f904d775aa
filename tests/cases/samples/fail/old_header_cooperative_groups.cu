#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void sum(int *v) { cg::thread_block block = cg::this_thread_block(); block.sync(); v[block.thread_rank()] += 1; }
