/* reorder.cu - the columns of a token-major matrix in another order: to[t][j] = from[t][index[j]]. Y that was left in the order of W's
 * rows comes to its places so, and C and the bias come into that order (unshuffle.c). Nothing behind the last column is written.
 *
 * Preconditions: at most 65,536 columns; `index` is aligned to 16 bytes; shared memory for the block's lines of as many words as there
 * are columns, padded to whole chunks; `to` and `from` do not overlap.
 * Constant: LAC_ELEMENT_BYTES, 2 or 4.
 *
 * A line is as many tokens as make words of their elements (two of 16 bits, one of 32): a word of shared memory has one column of all
 * of them, so that one load, which finds its neighbours' words in other banks by chance alone, serves them all. A thread reads and
 * writes 16 bytes of a token at a time, where they are aligned. The last tokens come first: of what the kernel before has written, L2
 * has those. Bottleneck: device memory; 32 words anywhere in shared memory take about 3.5 clocks. */
#include "chain.cuh"
#include "chunk.cuh"
#include "reorder_arguments.h"

#if LAC_ELEMENT_BYTES == 2
typedef u16 lac_cell;
#else
typedef u32 lac_cell;
#endif
#define LAC_CHUNK (16 / LAC_ELEMENT_BYTES)
#define LAC_TOKENS (4 / LAC_ELEMENT_BYTES)

/* A chunk of each token as words of all tokens, and back. */
__device__ __forceinline__ void lac_join_tokens(const uint4 (&chunk)[LAC_TOKENS], u32 (&word)[LAC_CHUNK])
{
#if LAC_TOKENS == 2
    const u32 first[4] = {chunk[0].x, chunk[0].y, chunk[0].z, chunk[0].w};
    const u32 second[4] = {chunk[1].x, chunk[1].y, chunk[1].z, chunk[1].w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word[2 * i] = __byte_perm(first[i], second[i], 0x5410);
        word[2 * i + 1] = __byte_perm(first[i], second[i], 0x7632);
    }
#else
    word[0] = chunk[0].x, word[1] = chunk[0].y, word[2] = chunk[0].z, word[3] = chunk[0].w;
#endif
}

__device__ __forceinline__ void lac_part_tokens(const u32 (&word)[LAC_CHUNK], uint4 (&chunk)[LAC_TOKENS])
{
#if LAC_TOKENS == 2
    u32 half[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        half[0][i] = __byte_perm(word[2 * i], word[2 * i + 1], 0x5410);
        half[1][i] = __byte_perm(word[2 * i], word[2 * i + 1], 0x7632);
    }
#pragma unroll
    for (int t = 0; t < 2; t++) chunk[t] = make_uint4(half[t][0], half[t][1], half[t][2], half[t][3]);
#else
    chunk[0] = make_uint4(word[0], word[1], word[2], word[3]);
#endif
}

/* Where the columns of a chunk stand. */
__device__ __forceinline__ void lac_read_index(const u16 *index, u32 (&place)[LAC_CHUNK])
{
    u32 pair[LAC_CHUNK / 2];
#if LAC_CHUNK == 8
    const uint4 read = *(const uint4 *)index;
    pair[0] = read.x, pair[1] = read.y, pair[2] = read.z, pair[3] = read.w;
#else
    const uint2 read = *(const uint2 *)index;
    pair[0] = read.x, pair[1] = read.y;
#endif
#pragma unroll
    for (int i = 0; i < LAC_CHUNK; i++) place[i] = pair[i / 2] >> 16 * (i & 1) & 0xffff;
}

extern "C" __global__ void __launch_bounds__(1024) lac_reorder(const lac_reorder_args args)
{
    extern __shared__ uint4 lines[];
    const lac_cell *from = (const lac_cell *)args.from;
    lac_cell *to = (lac_cell *)args.to;
    const int lanes = 1 << args.lane_bits, line = threadIdx.x >> args.lane_bits, lane = threadIdx.x & (lanes - 1);
    const int chunks = (args.columns + LAC_CHUNK - 1) / LAC_CHUNK, lines_here = blockDim.x >> args.lane_bits;
    const int token = (int)((gridDim.x - 1 - blockIdx.x) * lines_here + line) * LAC_TOKENS;
    const bool aligned_from = lac_is_aligned(from, args.ld_from), aligned_to = lac_is_aligned(to, args.ld_to);
    uint4 *own = lines + line * chunks * (LAC_CHUNK / 4);
    lac_let_next_begin();
    lac_wait_for_inputs();
    for (int at = lane; at < chunks; at += lanes) {
        const int column = at * LAC_CHUNK;
        uint4 chunk[LAC_TOKENS];
        u32 word[LAC_CHUNK];
#pragma unroll
        for (int t = 0; t < LAC_TOKENS; t++)
            chunk[t] = lac_read_chunk(from + (i64)(token + t) * args.ld_from + column, token + t < args.m ? args.columns - column : 0,
                                      aligned_from);
        lac_join_tokens(chunk, word);
#pragma unroll
        for (int i = 0; i < LAC_CHUNK / 4; i++)
            own[at * (LAC_CHUNK / 4) + i] = make_uint4(word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]);
    }
    __syncthreads();
    for (int at = lane; at < chunks; at += lanes) {
        const int column = at * LAC_CHUNK;
        u32 place[LAC_CHUNK], word[LAC_CHUNK];
        uint4 chunk[LAC_TOKENS];
        lac_read_index(args.index + column, place);
#pragma unroll
        for (int i = 0; i < LAC_CHUNK; i++) word[i] = ((const u32 *)own)[place[i]];
        lac_part_tokens(word, chunk);
#pragma unroll
        for (int t = 0; t < LAC_TOKENS; t++)
            lac_write_chunk(to + (i64)(token + t) * args.ld_to + column, chunk[t], token + t < args.m ? args.columns - column : 0,
                            aligned_to);
    }
}
