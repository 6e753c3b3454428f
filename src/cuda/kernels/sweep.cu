/* sweep.cu - reads a block of memory once, so that L2 holds that and nothing of what is to be timed behind it. Clearing a
 * block would do so too, but leave L2 full of lines that must be written back first, for which those pay who read most.
 *
 * Preconditions: `block` has `count` times 16 bytes, aligned to that, all zero: nothing is ever written to `out`.
 * Threads: 256 a block; a warp reads 512 bytes in a row. Bottleneck: device memory. */
#include "numbers.cuh"

extern "C" __global__ void __launch_bounds__(256) lac_sweep(const uint4 *block, i64 count, u32 *out)
{
    u32 seen = 0;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < count; i += (i64)gridDim.x * 256) {
        const uint4 read = block[i];
        seen |= read.x | read.y | read.z | read.w;
    }
    if (seen) *out = seen;
}
