/* expand_few_spread.cuh - kept weights of a row in 32 inputs, packed one behind the other, spread to 16 pairs of zeros and values in
 * registers. Used by expand_few.cu; src/cuda/expand_few_tile.c packs them, and a test does on the CPU what is done here.
 *
 * The 32 inputs are four bytes of a mask. Exactly 2 LAC_WORDS are marked as kept, in ascending order; where a row keeps fewer, zeros are.
 * Every byte must know where its values stand without counting what is before it:
 *
 *   values      |byte 0 >  byte 1 | byte 2  < byte 3|    byte 0 from the front, byte 3 from the back
 *   moved round |byte 2 ...  byte 3, byte 0  ... < byte 1|    by what bytes 0 and 1 have: byte 2 from the front, byte 1 from the back
 *
 * Within a byte the pairs follow each other: the first word of the queue is put in its place by a byte permutation, zeros beside it, and the
 * queue moves on by 0, 16 or 32 bits. A table in shared memory tells both for the four pairs of a byte:
 *
 *   [from front, from back][byte][8 copies, one for each lane of eight, so that no two read the same banks][pair in its turn]
 *   word of a pair: selector of the permutation that puts it, selector of the one that moves the queue << 16
 */
#ifndef LAC_CUDA_KERNELS_EXPAND_FEW_SPREAD_CUH
#define LAC_CUDA_KERNELS_EXPAND_FEW_SPREAD_CUH

#include "shared_access.cuh"

#define LAC_TABLE_SIDE 32768
#define LAC_TABLE (2 * LAC_TABLE_SIDE)

/* Four bytes of high:low, each by a number from 0 to 7 in four bits of the selector, whose upper half is not looked at. */
__device__ __forceinline__ u32 lac_permute(u32 low, u32 high, u32 selector)
{
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(selector));
    return r;
}

/* The upper half of a word of the table, in both. Selectors that move a queue are ordinary numbers as fp16, so that adding -0 copies them: that
 * is not done by the unit that permutes, which has more to do than any other. */
__device__ __forceinline__ u32 lac_upper_half(u32 word)
{
    u32 r;
    asm("{\n.reg .b16 low, high;\n.reg .b32 both;\n"
        "mov.b32 {low, high}, %1;\nmov.b32 both, {high, high};\nadd.rn.f16x2 %0, both, %2;\n}"
        : "=r"(r)
        : "r"(word), "r"(0x80008000u));
    return r;
}

/* What the table has for `pair` of `byte`. A single value stands in the low half of the first word, from the back in the high one. The queue moves by
 * as many values as the pair has: to the front out of (word, next), to the back out of (word before, word). */
__device__ __forceinline__ u32 lac_table_word(u32 byte, int pair, int back)
{
    const u32 code = byte >> 2 * pair & 3u, count = (code & 1u) + (code >> 1);
    const u32 first = back ? 0x32u : 0x10u, selector = code == 0 ? 0x4444u : code == 1 ? 0x4400u | first : code == 2 ? first << 8 | 0x44u : 0x3210u;
    return selector | (back ? 0x7654u - 0x2222u * count : 0x3210u + 0x2222u * count) << 16;
}

/* All threads of the block, `count` of them: each entry is made once. */
__device__ __forceinline__ void lac_table_make(u32 table, int thread, int count)
{
    for (int i = thread; i < 512; i += count) {
        const int back = i >> 8, byte = i & 255;
        u32 word[4];
#pragma unroll
        for (int p = 0; p < 4; p++) word[p] = lac_table_word((u32)byte, back ? 3 - p : p, back);
#pragma unroll
        for (int copy = 0; copy < 8; copy++) /* lanes begin with different copies, that is, banks */
            lac_shared_store_16(table + i * 128 + ((copy + thread) & 7) * 16, make_uint4(word[0], word[1], word[2], word[3]));
    }
}

/* Where the table has byte `byte` of a mask: bytes 0 and 2 are taken from the front, 1 and 3 from the back. */
template <int byte> __device__ __forceinline__ u32 lac_table_entry(u32 mask, u32 table)
{
    return table + (byte & 1) * LAC_TABLE_SIDE + lac_permute(mask, 0, 0x4440u | byte) * 128;
}

/* The four pairs of a byte out of a queue of words, in the order in which the byte takes them; words past LAC_WORDS are zeros. */
template <int back> __device__ __forceinline__ void lac_spread_byte(u32 (&out)[4], const u32 (&queue)[4], uint4 e)
{
    constexpr int last = LAC_WORDS - 1;
    const u32 word[4] = {e.x, e.y, e.z, e.w};
    u32 q[4];
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] = !back ? queue[i] : i <= last ? queue[i <= last ? last - i : 0] : 0;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        out[back ? 3 - p : p] = lac_permute(q[0], 0, word[p]);
        if (p == 3) break;
        const u32 move = lac_upper_half(word[p]);
#pragma unroll
        for (int i = 0; i < 3 - p; i++) q[i] = back ? lac_permute(q[i + 1], q[i], move) : lac_permute(q[i], q[i + 1], move);
    }
}

/* The values moved round by `count` of them. */
__device__ __forceinline__ void lac_move_round(u32 (&to)[4], const u32 (&v)[4], u32 count)
{
    u32 w[4];
    const bool far = LAC_WORDS == 4 && count >= 4;
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = LAC_WORDS == 4 ? (far ? v[i ^ 2] : v[i]) : v[i];
    int left = (int)count - (far ? 4 : 0);
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = w[i];
#pragma unroll
    for (int stage = 1; stage <= (LAC_WORDS == 4 ? 2 : LAC_WORDS); stage++) { /* by two values at most */
        const u32 move = 0x3210u + 0x2222u * (u32)min(left, 2);
#pragma unroll
        for (int i = 0; i < LAC_WORDS; i++) to[i] = lac_permute(to[i], w[(i + stage) % LAC_WORDS], move);
        left = max(left - 2, 0);
    }
}

#endif
