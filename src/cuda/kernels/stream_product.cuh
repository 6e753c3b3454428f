/* stream_product.cuh - the products of a step, LAC_ROWS rows of X and what W keeps of them, and what they take out of registers. PTX
 * forbids touching a register that a running product reads: its users have two sets of them, which take turns. Used by stream.cu and
 * stream_few.cu, behind tile_product.cuh. */
#ifndef LAC_CUDA_KERNELS_STREAM_PRODUCT_CUH
#define LAC_CUDA_KERNELS_STREAM_PRODUCT_CUH

#include "shared_access.cuh"
#include "wgmma_tile.cuh"

static_assert(LAC_ROWS == 64 && LAC_BLOCKS == 1, "a step is 64 rows, and a warpgroup has 64 outputs");

/* What products take out of registers. */
struct lac_kept {
    u32 places;
#if LAC_PACKED
    u32 a[8]; /* two products' */
#endif
};

/* Nobody else has the registers until here. */
__device__ __forceinline__ void lac_kept_end(const lac_kept &kept)
{
    asm volatile("" ::"r"(kept.places) : "memory");
#if LAC_PACKED
#pragma unroll
    for (int i = 0; i < 8; i++) asm volatile("" ::"r"(kept.a[i]) : "memory");
#endif
}

#if LAC_PACKED
/* Four bytes of eight, by the selector's nibbles. */
__device__ __forceinline__ u32 lac_permute(u32 low, u32 high, u32 selector)
{
    u32 result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}

/* The values of this lane's fours of inputs out of the words of their eights. Of a four that keeps two the word, else none of it, or half,
 * which goes where its place can stand: by the code, 0 nothing, 1 all, 2 its half, 3 its half moved. The first four's half is the low
 * one, the second's the high one. */
__device__ __forceinline__ void lac_unpack(u32 (&a)[8], u32 weight, u32 codes)
{
    const u32 lane = threadIdx.x & 31, odd = lane & 1;
    const u32 low = odd ? 0x32441044u : 0x44101044u, high = odd ? 0x44323244u : 0x10443244u; /* selectors, by code */
    const uint4 first = lac_shared_load_16(weight + (lane >> 1) * 16), second = lac_shared_load_16(weight + 256 + (lane >> 1) * 16);
    const u32 word[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const u32 two = (codes >> i & 0x0303u) * 0x11u + 0x4040u, take = lac_permute(low, high, two);
        a[i] = lac_permute(word[i], 0, take);
        a[i + 1] = lac_permute(word[i + 1], 0, take >> 16);
    }
}
#endif

/* The first of this warpgroup's outputs in a tile, and of its tokens. */
__device__ __forceinline__ u32 lac_first_output() { return LAC_SPLITS_OUTPUTS ? (threadIdx.x >> 7) * 64 : 0; }
__device__ __forceinline__ u32 lac_first_token() { return LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N; }

/* Takes what the products of a step need out of its W, at `weight`. */
__device__ __forceinline__ void lac_keep(lac_kept &kept, u32 weight)
{
    const u32 outputs = lac_first_output(), thread = threadIdx.x & 127;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(kept.places) : "r"(weight + LAC_TILE_OUTPUTS * LAC_W_ROW + outputs * 8 + thread * 4));
#if LAC_PACKED
    const u32 codes = lac_shared_load_half(weight + LAC_TILE_OUTPUTS * (LAC_W_ROW + 8) + outputs * 4 + thread * 2);
    lac_unpack(kept.a, weight + outputs * LAC_W_ROW + (thread >> 5) * 512, codes);
#endif
}

/* Where the tensor cores find X of a step, at `x`, turned in blocks of 64 tokens, `block` bytes each, and its W. */
__device__ __forceinline__ u64 lac_operand_x(u32 x, u32 block)
{
    const u32 tokens = lac_first_token();
    return LAC_TURNED ? lac_operand(x + tokens / 64 * block + tokens % 64 * 2, block, 1024, 1) : lac_operand(x + tokens * 128, 16, 1024, 1);
}

__device__ __forceinline__ u64 lac_operand_w(u32 weight)
{
    return lac_operand(weight + lac_first_output() * LAC_W_ROW, 16, LAC_W_ROW * 8, LAC_SWIZZLE(LAC_W_ROW));
}

/* Puts the products of a step into the tensor cores: `x` and `w` as above. Packed W is in registers. */
__device__ __forceinline__ void lac_products(float (&sum)[LAC_SUMS], const lac_kept &kept, u64 x, u64 w)
{
#if LAC_PACKED
    lac_wgmma_held<LAC_N, LAC_TURNED, 0>::run(sum, kept.a, x, kept.places);
    lac_wgmma_held<LAC_N, LAC_TURNED, 1>::run(sum, kept.a + 4, x + 2 * LAC_X_STEP, kept.places);
#else
    lac_wgmma_sparse<LAC_N, LAC_TURNED, 0>::run(sum, w, x, kept.places);
    lac_wgmma_sparse<LAC_N, LAC_TURNED, 1>::run(sum, w + (32 >> 4), x + 2 * LAC_X_STEP, kept.places);
#endif
}

#endif
