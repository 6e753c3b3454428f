/* finish.cu - what is left of the epilogue after the vendor's dense product: Y from sums in fp32 that lie apart, or Y finished
 * where it stands (LAC_IN_PLACE: the library has scaled it, and the call's alpha is 1).
 *
 * Preconditions: `sums` has lines of `ld` elements, as many and as long as Y's.
 * Threads: a block takes 1024 elements of a line, four a thread and 256 apart, so that warps read and write whole lines; then
 * the line a grid's height further on. Shared memory: none. Bottleneck: device memory. */
#include "epilogue.cuh"

typedef struct lac_finish_args {
    const float *sums; /* [m][ld] or [n][ld], as Y lies */
    i64 ld;
} lac_finish_args;

extern "C" __global__ void __launch_bounds__(256) lac_dense_finish(const lac_gpu_call call, const lac_finish_args args)
{
    const int length = LAC_Y_TOKEN_MAJOR ? call.n : call.m, lines = LAC_Y_TOKEN_MAJOR ? call.m : call.n;
    const i64 first = (i64)blockIdx.x * 1024 + threadIdx.x;
    for (int line = blockIdx.y; line < lines; line += gridDim.y) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (first + i * 256 >= length) break;
            const int at = (int)(first + i * 256);
            const int token = LAC_Y_TOKEN_MAJOR ? line : at, output = LAC_Y_TOKEN_MAJOR ? at : line;
#if LAC_IN_PLACE
            const float sum =
                lac_widen<LAC_Y_DTYPE>(((const typename lac_element<LAC_Y_DTYPE>::type *)call.y)[lac_at(call.ldy, token, output)]);
#else
            const float sum = args.sums[(i64)line * args.ld + at];
#endif
            lac_store(call, token, output, lac_finish(call, token, output, sum, lac_bias(call, output)));
        }
    }
}
