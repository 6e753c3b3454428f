/* vector_pack.cuh - kept weights of a row in 32 inputs, packed one behind the other, spread to fragments of mma.sp in registers. Used by
 * vector_select.cu where each row keeps inputs of its own; src/cuda/vector_select_pack.c packs them.
 *
 * The 32 inputs are dealt out to eight fours so that a row keeps two of each at most. A code of 2 bits says which of a four's two places hold a
 * weight: 0 none, 1 the first, 2 the second, 3 both. Weights of fours 0 to 3 stand in their order from the first one on, those of fours 4 to
 * 7 so that they end with the last one: so a four's two halves are always found by at most three funnel shifts, whatever the codes are, and a
 * byte permutation puts them in their places and zeros into the others. 43 instructions for 8 weights, none of them to memory. */
#ifndef LAC_CUDA_KERNELS_VECTOR_PACK_CUH
#define LAC_CUDA_KERNELS_VECTOR_PACK_CUH

#include "numbers.cuh"

/* The low word of high:low >> shift, and the high word of high:low << shift; shift 0, 16 or 32. */
__device__ __forceinline__ u32 lac_funnel_right(u32 low, u32 high, u32 shift)
{
    u32 r;
    asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(shift));
    return r;
}

__device__ __forceinline__ u32 lac_funnel_left(u32 low, u32 high, u32 shift)
{
    u32 r;
    asm("shf.l.clamp.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(shift));
    return r;
}

/* Four bytes of high:low, each by a number from 0 to 7 in four bits of the selector, whose upper half is not looked at. */
__device__ __forceinline__ u32 lac_permute(u32 low, u32 high, u32 selector)
{
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(selector));
    return r;
}

/* packed[words] -> four[8], one word of two halves each. `codes`: of four q < 4 bits 4q and 4q + 1, of four q >= 4 bits 4q - 14 and 4q - 13. */
template <int words> __device__ __forceinline__ void lac_spread(u32 (&four)[8], const u32 *packed, u32 codes)
{
    u32 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = i < words ? packed[i] : 0;
    const u32 front = codes & 0x3333u, back = codes >> 2 & 0x3333u;
    /* A byte for each of four fours: bits by which what follows moves on, and which bytes of a word go to the first half and to the second. In
     * front a single weight stands in the low half of its word, at the back in the high one. */
    const u32 step = lac_permute(0x20101000u, 0, front), step_back = lac_permute(0x20101000u, 0, back);
    const u32 first = lac_permute(0x10441044u, 0, front), second = lac_permute(0x32104444u, 0, front);
    const u32 first_back = lac_permute(0x10443244u, 0, back), second_back = lac_permute(0x32324444u, 0, back);

    const u32 s0 = lac_permute(step, 0, 0x4440), s1 = lac_permute(step, 0, 0x4441), s2 = lac_permute(step, 0, 0x4442);
    const u32 a0 = lac_funnel_right(v[0], v[1], s0), a1 = lac_funnel_right(v[1], v[2], s0), a2 = lac_funnel_right(v[2], v[3], s0);
    const u32 b0 = lac_funnel_right(a0, a1, s1), b1 = lac_funnel_right(a1, a2, s1);
    const u32 c0 = lac_funnel_right(b0, b1, s2);

    constexpr int last = words - 1;
    const u32 w3 = v[last], w2 = last > 0 ? v[last > 0 ? last - 1 : 0] : 0, w1 = last > 1 ? v[last > 1 ? last - 2 : 0] : 0,
              w0 = last > 2 ? v[0] : 0;
    const u32 t7 = lac_permute(step_back, 0, 0x4443), t6 = lac_permute(step_back, 0, 0x4442), t5 = lac_permute(step_back, 0, 0x4441);
    const u32 d3 = lac_funnel_left(w2, w3, t7), d2 = lac_funnel_left(w1, w2, t7), d1 = lac_funnel_left(w0, w1, t7);
    const u32 e3 = lac_funnel_left(d2, d3, t6), e2 = lac_funnel_left(d1, d2, t6);
    const u32 f3 = lac_funnel_left(e2, e3, t5);

    four[0] = lac_permute(v[0], 0, lac_permute(first, second, 0x40));
    four[1] = lac_permute(a0, 0, lac_permute(first, second, 0x51));
    four[2] = lac_permute(b0, 0, lac_permute(first, second, 0x62));
    four[3] = lac_permute(c0, 0, lac_permute(first, second, 0x73));
    four[4] = lac_permute(f3, 0, lac_permute(first_back, second_back, 0x40));
    four[5] = lac_permute(e3, 0, lac_permute(first_back, second_back, 0x51));
    four[6] = lac_permute(d3, 0, lac_permute(first_back, second_back, 0x62));
    four[7] = lac_permute(w3, 0, lac_permute(first_back, second_back, 0x73));
}

#endif
