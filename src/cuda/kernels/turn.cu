/* turn.cu - X brought into the workspace for kernels that gather its rows: feature-major, rows aligned, 16-bit elements. From
 * token-major [m][k] (LAC_X_TOKEN_MAJOR) or from feature-major [k][m] whose rows are not aligned, to [k][ld].
 *
 * Preconditions: `to` is aligned to 16 bytes, ld is a multiple of 64 and at least m. Columns from m to ld become zero.
 * A block takes 64 tokens x 64 inputs; token-major goes through shared memory. A thread reads 8 neighbours, twice (16 bytes
 * where X is aligned), and writes 16 bytes, twice. The last tokens come first, so that L2 still has the first ones when the
 * product, which begins with them, asks for them; and the product may be launched at once (it waits by itself, where its
 * launch says so). Bottleneck: device memory.
 *
 *   shared memory, token-major: [64 inputs][8 chunks of 8 tokens], chunk t of input i at place t ^ i / 8. A thread has 8 inputs of two
 *   tokens, puts these side by side and writes 8 words; the 32 of a warp differ in all banks, as do the 16 bytes of 8 that read. */
#include "arguments.h"
#include "chain.cuh"
#include "chunk.cuh"
#include "turn_arguments.h"

#define LAC_SIDE 64

extern "C" __global__ void __launch_bounds__(256) lac_turn(const lac_gpu_call call, const lac_turn_args args)
{
    const u16 *x = (const u16 *)call.x;
    const int across = (call.k + LAC_SIDE - 1) / LAC_SIDE, line = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const int input0 = (int)(blockIdx.x % across) * LAC_SIDE, token0 = (int)(gridDim.x / across - 1 - blockIdx.x / across) * LAC_SIDE;
    const bool aligned = lac_is_aligned(x, call.ldx);
    uint4 got[2];
    lac_let_next_begin();
    lac_wait_for_inputs(); /* and for the kernel that reads the last call's, where `to` is the same */
#if LAC_X_TOKEN_MAJOR
    __shared__ __align__(16) u32 tile[LAC_SIDE][LAC_SIDE / 2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int token = token0 + 2 * line + i, input = input0 + chunk * 8;
        got[i] = lac_read_chunk(x + (i64)token * call.ldx + input, token < call.m ? call.k - input : 0, aligned);
    }
    const u32 first[4] = {got[0].x, got[0].y, got[0].z, got[0].w}, second[4] = {got[1].x, got[1].y, got[1].z, got[1].w};
#pragma unroll
    for (int i = 0; i < 8; i++)
        tile[chunk * 8 + i][(line / 4 ^ chunk) * 4 + line % 4] = __byte_perm(first[i / 2], second[i / 2], i & 1 ? 0x7632 : 0x5410);
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        const int i = line + pass * 32;
        got[pass] = *(const uint4 *)&tile[i][(chunk ^ i / 8) * 4];
    }
#else
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        const int input = input0 + line + pass * 32, token = token0 + chunk * 8;
        got[pass] = lac_read_chunk(x + (i64)input * call.ldx + token, input < call.k ? call.m - token : 0, aligned);
    }
#endif
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        const int input = input0 + line + pass * 32;
        if (input < call.k) *(uint4 *)(args.to + (i64)input * args.ld + token0 + chunk * 8) = got[pass];
    }
}
