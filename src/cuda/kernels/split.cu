/* split.cu - X as scaled half pairs: x * 2^s = hi + lo, both fp16, 22 significant bits together, with one s for a token's
 * inputs of one window. Runs before window.cu, which reads its tiles (window_tile.cuh). A block takes 64 tokens of a window.
 *
 * Feature-major X: lane l has tokens 2l and 2l + 1, warp w the inputs w, w + warps, ...; all of them wait in registers until the
 * largest of each token is known, and go straight to their rows. Token-major X: lane l has inputs l, l + 32, ... of a warp's
 * tokens, two tokens at a time; they are turned in shared memory, [plane][input][33] words of two tokens, where neither side
 * has conflicts. Blocks that run together read neighbours in memory. Bound by device memory: X once in, the pairs once out.
 *
 * With one plane the s of a token comes from its first 16 inputs, as far as it fits the window, so that most windows have the
 * same; a window that has another is noted.
 *
 * lo is multiplied by 2^LAC_LOW_SHIFT: 0, or 11 so that the lo of small elements keep their bits (window.cu undoes it).
 * Constants: LAC_WINDOW, LAC_TOKENS, LAC_UNIT, LAC_PLANES, LAC_LOW_SHIFT, LAC_THREADS, LAC_X_DTYPE, LAC_X_TOKEN_MAJOR,
 * LAC_HAS_COL_PERM, LAC_EARLY (1: the next kernel may be set up meanwhile). */
#include "arguments.h"
#include "window_tile.cuh"

#define LAC_WARPS (LAC_THREADS / 32)
#define LAC_FIRST 16 /* inputs that a token's scale is guessed from, with one plane */

typedef typename lac_element<LAC_X_DTYPE>::type lac_x_element;

/* An element that is read once: it need not stay in the caches. */
__device__ __forceinline__ float lac_load_once(const lac_x_element *from)
{
#if LAC_X_DTYPE == LAC_F32
    float value;
    asm volatile("ld.global.cs.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
#else
    u16 bits;
    asm volatile("ld.global.cs.u16 %0, [%1];" : "=h"(bits) : "l"(from));
    return lac_widen<LAC_X_DTYPE>(bits);
#endif
}

/* Two neighbours by one load; `from` is aligned to two elements. */
__device__ __forceinline__ void lac_load_two(float (&value)[2], const lac_x_element *from)
{
#if LAC_X_DTYPE == LAC_F32
    asm volatile("ld.global.cs.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "l"(from));
#else
    u32 two;
    asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(two) : "l"(from));
    value[0] = lac_widen<LAC_X_DTYPE>((u16)two), value[1] = lac_widen<LAC_X_DTYPE>((u16)(two >> 16));
#endif
}

/* The column of X that input `input` of W reads. */
__device__ __forceinline__ i64 lac_source(const lac_window_args &args, int input)
{
#if LAC_HAS_COL_PERM
    return args.source[input];
#else
    return input;
#endif
}

/* Largest finite magnitude (as bits) so far, and whether something was not finite. */
__device__ __forceinline__ void lac_observe(u32 &largest, u32 &odd, float value)
{
    const u32 magnitude = __float_as_uint(value) & 0x7fffffffu;
    if (magnitude >= 0x7f800000u)
        odd |= LAC_PLANES == 2;
    else
        largest = magnitude > largest ? magnitude : largest;
}

/* The power of two that brings `largest` to [2^14, 2^15); subnormals as far up as a normal factor allows. */
__device__ __forceinline__ int lac_shift(u32 largest)
{
    const int shift = 14 + 127 - (int)(largest >> 23);
    return largest == 0 ? 0 : shift > 126 ? 126 : shift;
}
__device__ __forceinline__ float lac_power(int exponent)
{
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    return __uint_as_float((u32)(127 + exponent) << 23);
}

/* The shift of a token in a window. `largest` is that of the window, `sample` of the token's first inputs, with room for 16 times
 * as much. */
__device__ __forceinline__ int lac_shift_of(u32 largest, u32 sample, u32 &odd)
{
    const int own = lac_shift(largest);
#if LAC_PLANES == 1
    const int common = lac_shift(sample) - 4;
    if (largest == 0 || (own >= common && own <= common + 6)) return common;
    odd = 1;
#endif
    return own;
}

struct lac_words { /* one of each plane, two tokens in a word */
    u32 plane[LAC_PLANES];
};

/* {hi, lo} of two tokens' scaled values. Infinity and NaN live in hi alone. */
__device__ __forceinline__ lac_words lac_pairs(float first, float second)
{
    const u16 high[2] = {lac_to_f16(first), lac_to_f16(second)};
    lac_words words;
    words.plane[0] = (u32)high[1] << 16 | high[0];
#if LAC_PLANES == 2
    const float scale = (float)(1 << LAC_LOW_SHIFT);
    const u16 low[2] = {lac_to_f16((first - lac_from_f16(high[0])) * scale), lac_to_f16((second - lac_from_f16(high[1])) * scale)};
    words.plane[1] = ((high[0] & 0x7c00u) == 0x7c00u ? 0u : low[0]) | ((high[1] & 0x7c00u) == 0x7c00u ? 0u : (u32)low[1] << 16);
#endif
    return words;
}

/* The first of the two tokens in word `word` of a row; the other is two further (window_tile.cuh). */
__device__ __forceinline__ int lac_token_of(int word) { return word / 8 * 16 + word % 4 * 4 + word / 4 % 2; }

/* Where piece `piece` (eight tokens) of an input's row begins in its band of the tile. */
__device__ __forceinline__ u8 *lac_piece(u8 *band, int input, int piece)
{
    const int row = lac_row_of(input);
    return band + row * LAC_X_ROW + (piece ^ (row & 7)) * 16;
}

#if LAC_X_TOKEN_MAJOR
#define LAC_COLUMNS (LAC_WINDOW / 32)                                       /* of a lane, for a token                   */
#define LAC_AT_ONCE (LAC_COLUMNS >= 16 ? 1 : LAC_COLUMNS >= 8 ? 2 : 4)      /* pairs of tokens in a warp's registers    */
#define LAC_ROUNDS ((32 / LAC_WARPS + LAC_AT_ONCE - 1) / LAC_AT_ONCE)
#define LAC_PAIRS_AT_ONCE (32 / LAC_WARPS < LAC_AT_ONCE ? 32 / LAC_WARPS : LAC_AT_ONCE)

/* The largest of all lanes. */
__device__ __forceinline__ u32 lac_largest(u32 value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const u32 other = __shfl_xor_sync(0xffffffffu, value, step);
        value = other > value ? other : value;
    }
    return value;
#endif
}

/* Reads 64 tokens of a window, scales and splits them; true when the tile is odd (window_arguments.h). */
__device__ __forceinline__ u32 lac_split_block(const lac_gpu_call &call, const lac_window_args &args, int token0, int input0,
                                               u8 *band, float *factors)
{
    extern __shared__ u32 turned[]; /* [plane][input][33] */
    const lac_x_element *x = (const lac_x_element *)call.x;
    const int lane = threadIdx.x & 31, first = (threadIdx.x >> 5) * (32 / LAC_WARPS);
    u32 odd = 0;
#pragma unroll 1
    for (int round = 0; round < LAC_ROUNDS; round++) {
        float value[LAC_PAIRS_AT_ONCE][2][LAC_COLUMNS], first_value[LAC_PAIRS_AT_ONCE][2];
#pragma unroll
        for (int i = 0; i < 2 * LAC_PAIRS_AT_ONCE; i++) {
            const int token = token0 + lac_token_of(first + round * LAC_PAIRS_AT_ONCE + i / 2) + i % 2 * 2;
            if (LAC_PLANES == 1)
                first_value[i / 2][i % 2] =
                    token < call.m && lane < LAC_FIRST && lane < args.k ? lac_widen<LAC_X_DTYPE>(x[token * call.ldx + lac_source(args, lane)]) : 0.0f;
#pragma unroll
            for (int c = 0; c < LAC_COLUMNS; c++) {
                const int input = input0 + c * 32 + lane;
                value[i / 2][i % 2][c] =
                    token < call.m && input < args.k ? lac_load_once(x + token * call.ldx + lac_source(args, input)) : 0.0f;
            }
        }
#pragma unroll
        for (int p = 0; p < LAC_PAIRS_AT_ONCE; p++) {
            const int pair = first + round * LAC_PAIRS_AT_ONCE + p;
            float multiplier[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                u32 largest = 0, sample = 0;
#pragma unroll
                for (int c = 0; c < LAC_COLUMNS; c++) lac_observe(largest, odd, value[p][e][c]);
#if LAC_PLANES == 1
                lac_observe(sample, odd, first_value[p][e]);
                sample = lac_largest(sample);
#endif
                const int shift = lac_shift_of(lac_largest(largest), sample, odd);
                multiplier[e] = lac_power(shift);
                if (lane == 0) factors[lac_token_of(pair) + 2 * e] = lac_power(args.exponent - shift);
            }
#pragma unroll
            for (int c = 0; c < LAC_COLUMNS; c++) {
                const lac_words words = lac_pairs(value[p][0][c] * multiplier[0], value[p][1][c] * multiplier[1]);
#pragma unroll
                for (int plane = 0; plane < LAC_PLANES; plane++)
                    turned[(plane * LAC_WINDOW + c * 32 + lane) * 33 + pair] = words.plane[plane];
            }
        }
    }
    odd = __syncthreads_or(odd);
#pragma unroll 4
    for (int i = threadIdx.x; i < LAC_WINDOW * 8; i += LAC_THREADS) {
#pragma unroll
        for (int plane = 0; plane < LAC_PLANES; plane++) {
            const u32 *from = turned + (plane * LAC_WINDOW + i / 8) * 33 + i % 8 * 4;
            *(uint4 *)(lac_piece(band, i / 8, i % 8) + plane * LAC_X_PLANE) = make_uint4(from[0], from[1], from[2], from[3]);
        }
    }
    return odd;
}
#else
#define LAC_ROWS (LAC_WINDOW / LAC_WARPS) /* of a warp */
#define LAC_SAMPLES (LAC_FIRST / LAC_WARPS)

__device__ __forceinline__ u32 lac_split_block(const lac_gpu_call &call, const lac_window_args &args, int token0, int input0,
                                               u8 *band, float *factors)
{
    __shared__ u32 part_largest[LAC_WARPS][64], part_sample[LAC_WARPS][64];
    const lac_x_element *x = (const lac_x_element *)call.x;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, token = token0 + 2 * lane;
    const bool aligned = ((u64)call.x & (2 * sizeof(lac_x_element) - 1)) == 0 && (call.ldx & 1) == 0;
    float value[LAC_ROWS][2];
    u32 odd = 0, largest[2] = {0, 0}, sample[2] = {0, 0};
    float first_value[LAC_SAMPLES][2];
#pragma unroll
    for (int r = 0; r < LAC_SAMPLES; r++) {
        const int input = warp + r * LAC_WARPS;
#pragma unroll
        for (int e = 0; e < 2; e++)
            first_value[r][e] = LAC_PLANES == 1 && token + e < call.m && input < args.k
                                    ? lac_widen<LAC_X_DTYPE>(x[lac_source(args, input) * call.ldx + token + e])
                                    : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < LAC_ROWS; r++) {
        const int input = input0 + warp + r * LAC_WARPS;
        const lac_x_element *row = x + (input < args.k ? lac_source(args, input) : 0) * call.ldx;
        if (aligned && token + 2 <= call.m && input < args.k) {
            lac_load_two(value[r], row + token);
        } else {
#pragma unroll
            for (int e = 0; e < 2; e++)
                value[r][e] = token + e < call.m && input < args.k ? lac_load_once(row + token + e) : 0.0f;
        }
    }
#pragma unroll
    for (int r = 0; r < LAC_ROWS; r++)
#pragma unroll
        for (int e = 0; e < 2; e++) lac_observe(largest[e], odd, value[r][e]);
#pragma unroll
    for (int r = 0; r < LAC_SAMPLES; r++)
#pragma unroll
        for (int e = 0; e < 2; e++) lac_observe(sample[e], odd, first_value[r][e]);
#pragma unroll
    for (int e = 0; e < 2; e++) part_largest[warp][2 * lane + e] = largest[e], part_sample[warp][2 * lane + e] = sample[e];
    __syncthreads();
    float multiplier[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        u32 all = 0, samples = 0;
#pragma unroll
        for (int i = 0; i < LAC_WARPS; i++) {
            all = part_largest[i][2 * lane + e] > all ? part_largest[i][2 * lane + e] : all;
            samples = part_sample[i][2 * lane + e] > samples ? part_sample[i][2 * lane + e] : samples;
        }
        const int shift = lac_shift_of(all, samples, odd);
        multiplier[e] = lac_power(shift);
        if (warp == 0) factors[2 * lane + e] = lac_power(args.exponent - shift);
    }
#pragma unroll
    for (int r = 0; r < LAC_ROWS; r++) {
        const lac_words words = lac_pairs(value[r][0] * multiplier[0], value[r][1] * multiplier[1]);
        u8 *to = lac_piece(band, warp + r * LAC_WARPS, lane / 8 * 2 + lane % 2) + lane % 8 / 2 * 4;
#pragma unroll
        for (int plane = 0; plane < LAC_PLANES; plane++) { /* the even tokens of two lanes, and the odd ones */
            const u32 mine = words.plane[plane], other = __shfl_xor_sync(0xffffffffu, mine, 1);
            *(u32 *)(to + plane * LAC_X_PLANE) = lane % 2 ? __byte_perm(other, mine, 0x7632) : __byte_perm(mine, other, 0x5410);
        }
    }
    return __syncthreads_or(odd);
}
#endif

/* Three blocks a multiprocessor; pairs, and any before sm_90, would lack a few registers. */
extern "C" __global__ void __launch_bounds__(LAC_THREADS, LAC_PLANES == 2 || __CUDA_ARCH__ < 900 ? 2 : 3) lac_split(lac_gpu_call call, lac_window_args args)
{
#if LAC_EARLY
    asm volatile("griddepcontrol.launch_dependents;");
#endif
#if LAC_X_TOKEN_MAJOR
    const int window = blockIdx.x % args.windows, half = blockIdx.x / args.windows;
#else
    const int halves = args.token_tiles * LAC_BANDS, window = blockIdx.x / halves, half = blockIdx.x % halves;
#endif
    const int tile = half / LAC_BANDS, number = half % LAC_BANDS;
    u8 *at = args.tiles + ((i64)tile * args.windows + window) * LAC_X_TILE;
    const u32 odd = lac_split_block(call, args, half * 64, window * LAC_WINDOW, at + LAC_X_HEADER + number * 128,
                                    (float *)at + number * 64);
    if (threadIdx.x == 0) args.odd[((i64)tile * args.windows + window) * LAC_BANDS + number] = odd;
}
