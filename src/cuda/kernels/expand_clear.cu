/* expand_clear.cu - sets the counters of expand_ring.cu to 0, ahead of it on the same stream: a workspace comes as it is. */
#include "numbers.cuh"

extern "C" __global__ void __launch_bounds__(256) lac_expand_clear(u32 *counters, int count)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); /* the product waits for the end of this by itself */
    asm volatile("griddepcontrol.wait;" ::: "memory");              /* the call before may use the same counters        */
    for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) counters[i] = 0;
}
