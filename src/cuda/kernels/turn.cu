/* turn.cu - X brought into the workspace for kernels that gather its rows: feature-major, rows aligned, 16-bit elements. From
 * token-major [m][k] (LAC_X_TOKEN_MAJOR) or from feature-major [k][m] whose rows are not aligned, to [k][ld].
 *
 * Preconditions: `to` is aligned to 16 bytes, ld is a multiple of 64 and at least m. Columns from m to ld become zero.
 * A block takes 64 tokens x 64 inputs; token-major goes through shared memory. A thread reads 8 neighbours, twice (16 bytes
 * where X is aligned), and writes 16 bytes, twice. The last tokens come first, so that L2 still has the first ones when the
 * product, which begins with them, asks for them; and the product may be launched at once (it waits by itself, where its
 * launch says so). Bottleneck: device memory. */
#include "arguments.h"
#include "chain.cuh"
#include "chunk.cuh"

#define LAC_SIDE 64
#define LAC_PITCH (LAC_SIDE + 2) /* neighbouring tokens one bank apart */

typedef struct lac_turn_args {
    u16 *to; /* [k][ld] */
    i64 ld;
} lac_turn_args;

extern "C" __global__ void __launch_bounds__(256) lac_turn(const lac_gpu_call call, const lac_turn_args args)
{
    const u16 *x = (const u16 *)call.x;
    const int across = (call.k + LAC_SIDE - 1) / LAC_SIDE, line = threadIdx.x / 8, chunk = threadIdx.x % 8 * 8;
    const int input0 = (int)(blockIdx.x % across) * LAC_SIDE, token0 = (int)(gridDim.x / across - 1 - blockIdx.x / across) * LAC_SIDE;
    const bool aligned = lac_is_aligned(x, call.ldx);
    uint4 got[2];
    lac_let_next_begin();
    lac_wait_for_inputs(); /* and for the kernel that reads the last call's, where `to` is the same */
#if LAC_X_TOKEN_MAJOR
    __shared__ u32 tile[LAC_SIDE * LAC_PITCH / 2];
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        const int token = token0 + line + pass * 32, input = input0 + chunk;
        got[pass] = lac_read_chunk(x + (i64)token * call.ldx + input, token < call.m ? call.k - input : 0, aligned);
    }
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        u32 *row = tile + (line + pass * 32) * (LAC_PITCH / 2) + chunk / 2;
        row[0] = got[pass].x, row[1] = got[pass].y, row[2] = got[pass].z, row[3] = got[pass].w;
    }
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        const int i = line + pass * 32;
        u32 word[4];
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const u32 *pair = tile + (chunk + 2 * w) * (LAC_PITCH / 2) + i / 2;
            word[w] = __byte_perm(pair[0], pair[LAC_PITCH / 2], i & 1 ? 0x7632 : 0x5410);
        }
        got[pass] = make_uint4(word[0], word[1], word[2], word[3]);
    }
#else
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        const int input = input0 + line + pass * 32, token = token0 + chunk;
        got[pass] = lac_read_chunk(x + (i64)input * call.ldx + token, input < call.k ? call.m - token : 0, aligned);
    }
#endif
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        const int input = input0 + line + pass * 32;
        if (input < call.k) *(uint4 *)(args.to + (i64)input * args.ld + token0 + chunk) = got[pass];
    }
}
