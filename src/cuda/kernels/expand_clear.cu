/* expand_clear.cu - sets the counters of expand_ring.cu to 0, ahead of it on the same stream: a workspace comes as it is. */
#include "chain.cuh"

extern "C" __global__ void __launch_bounds__(256) lac_expand_clear(u32 *counters, int count)
{
    lac_let_next_begin();
    lac_wait_for_inputs(); /* the call before may use the same counters */
    for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) counters[i] = 0;
}
