/* split.cu - X as scaled half pairs: x * 2^s = hi + lo, both fp16, 22 significant bits together, with one s for a token's
 * inputs of one window. Runs before window.cu, which reads its tiles (window_tile.cuh). A block takes 64 tokens of a window.
 *
 * Feature-major X: lane l has tokens 2l and 2l + 1, warp w the inputs w, w + warps, ...; all of them wait in registers until the
 * largest of each token is known, and go straight to their rows. Token-major X: lane l has inputs l, l + 32, ... of a warp's
 * tokens, two tokens at a time; they are turned in shared memory, [plane][input][33] words of two tokens, where neither side
 * has conflicts. Blocks that run together read neighbours in memory. Bound by device memory: X once in, the pairs once out.
 *
 * With one plane the s of a token comes from its first 16 inputs, as far as it fits the window, so that most windows have the
 * same; a window that has another is noted. Feature-major X then need not wait in registers: half a warp takes a row, a lane four of
 * its tokens, and what has been loaded is scaled and stored at once, LAC_BATCH rows a turn, so that loads and stores of
 * different warps overlap. The largest of each token is known in the end; a block with a token that does not fit begins anew.
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

/* The power of two that brings `largest` to [2^14, 2^15); tiny ones as far up as a normal factor allows, and as the fp32 number
 * 2^(args.exponent - shift) that undoes it. */
__device__ __forceinline__ int lac_shift(u32 largest, const lac_window_args &args)
{
    const int shift = 14 + 127 - (int)(largest >> 23), most = args.exponent < -23 ? 149 + args.exponent : 126;
    return largest == 0 ? 0 : shift > most ? most : shift;
}
__device__ __forceinline__ float lac_power(int exponent)
{
    if (exponent < -126) return __uint_as_float(exponent < -149 ? 0u : 1u << (149 + exponent)); /* subnormal, and as exact */
    return __uint_as_float((u32)(127 + (exponent > 127 ? 127 : exponent)) << 23);
}

/* The shift of a token in a window. `largest` is that of the window, `sample` of the token's first inputs, with room for 16 times
 * as much. */
__device__ __forceinline__ int lac_shift_of(u32 largest, u32 sample, u32 &odd, const lac_window_args &args)
{
    const int own = lac_shift(largest, args);
#if LAC_PLANES == 1
    const int common = lac_shift(sample, args) - 4;
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
                const int shift = lac_shift_of(lac_largest(largest), sample, odd, args);
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
#elif LAC_PLANES == 1
#define LAC_HALVES (LAC_THREADS / 16)      /* half warps: each takes a row, and one of the first inputs */
#define LAC_ROWS (LAC_WINDOW / LAC_HALVES) /* of a half warp                                            */

/* How many rows are loaded together: at the edges of X, where each element has a load of its own, two. */
constexpr int lac_batch(bool whole, int most) { return !whole ? 2 : LAC_ROWS < most ? LAC_ROWS : most; }
enum { LAC_BATCH = 8, LAC_BATCH_AGAIN = 4 }; /* at most; and where the block begins anew, for registers are short */

/* Four neighbouring tokens of an input. `whole`: all inputs of the block's window and all its tokens are there, and one load may take four. */
template <bool whole>
__device__ __forceinline__ float4 lac_load_four(const lac_gpu_call &call, const lac_window_args &args, int token, int input)
{
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!whole && input >= args.k) return v;
    const lac_x_element *row = (const lac_x_element *)call.x + lac_source(args, input) * call.ldx + token;
    if (whole) {
#if LAC_X_DTYPE == LAC_F32
        asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(row));
#else
        u32 a, b;
        asm volatile("ld.global.cs.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "l"(row));
        v = make_float4(lac_widen<LAC_X_DTYPE>((u16)a), lac_widen<LAC_X_DTYPE>((u16)(a >> 16)), lac_widen<LAC_X_DTYPE>((u16)b),
                        lac_widen<LAC_X_DTYPE>((u16)(b >> 16)));
#endif
    } else {
        if (token < call.m) v.x = lac_load_once(row);
        if (token + 1 < call.m) v.y = lac_load_once(row + 1);
        if (token + 2 < call.m) v.z = lac_load_once(row + 2);
        if (token + 3 < call.m) v.w = lac_load_once(row + 3);
    }
    return v;
}

/* Magnitudes: the larger of `a`, which is one, and that of b, where NaN is none; and 0 for what is not finite. */
__device__ __forceinline__ float4 lac_larger(float4 a, float4 b)
{
    return make_float4(fmaxf(a.x, fabsf(b.x)), fmaxf(a.y, fabsf(b.y)), fmaxf(a.z, fabsf(b.z)), fmaxf(a.w, fabsf(b.w)));
}
__device__ __forceinline__ float lac_finite(float v) { return fabsf(v) < __uint_as_float(0x7f800000u) ? fabsf(v) : 0.0f; }
__device__ __forceinline__ float4 lac_finite(float4 v)
{
    return make_float4(lac_finite(v.x), lac_finite(v.y), lac_finite(v.z), lac_finite(v.w));
}

typedef float4 lac_parts[LAC_WARPS][16]; /* the largest of each warp: four tokens a lane */

/* Notes this warp's largest, and those of all warps after that; magnitudes. */
__device__ __forceinline__ void lac_put_largest(lac_parts &parts, float4 v)
{
    const int lane = threadIdx.x & 31;
    v = lac_larger(v, make_float4(__shfl_xor_sync(0xffffffffu, v.x, 16), __shfl_xor_sync(0xffffffffu, v.y, 16),
                                  __shfl_xor_sync(0xffffffffu, v.z, 16), __shfl_xor_sync(0xffffffffu, v.w, 16)));
    __syncthreads(); /* nobody reads those of before */
    if (lane < 16) parts[threadIdx.x >> 5][lane] = v;
    __syncthreads();
}
__device__ __forceinline__ float4 lac_get_largest(const lac_parts &parts)
{
    float4 v = parts[0][threadIdx.x & 15];
#pragma unroll
    for (int i = 1; i < LAC_WARPS; i++) v = lac_larger(v, parts[i][threadIdx.x & 15]);
    return v;
}

/* Two halves in a word. */
__device__ __forceinline__ u32 lac_halves(float first, float second)
{
#if __CUDA_ARCH__ >= 800
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
#else
    return (u32)lac_to_f16(second) << 16 | lac_to_f16(first);
#endif
}

/* Four tokens of an input to their row: of the eight of two lanes the first lane stores the even ones, the second the odd ones. */
__device__ __forceinline__ void lac_store_four(u8 *band, int input, float4 v, float4 multiplier)
{
    const int lane = threadIdx.x & 15;
    const u32 even = lac_halves(v.x * multiplier.x, v.z * multiplier.z), odd = lac_halves(v.y * multiplier.y, v.w * multiplier.w);
    const u32 other = __shfl_xor_sync(0xffffffffu, lane % 2 ? even : odd, 1);
    *(uint2 *)(lac_piece(band, input, lane / 4 * 2 + lane % 2) + lane % 4 / 2 * 8) =
        lane % 2 ? make_uint2(other, odd) : make_uint2(even, other);
}

/* Starts the loads of a thread's rows; the first is `input`. */
template <bool whole, int batch>
__device__ __forceinline__ void lac_load_batch(float4 (&value)[batch], const lac_gpu_call &call, const lac_window_args &args,
                                               int token, int input)
{
#pragma unroll
    for (int r = 0; r < batch; r++) value[r] = lac_load_four<whole>(call, args, token, input + r * LAC_HALVES);
}

/* Scales and stores this thread's part of the tile, of which the first batch has been loaded; the largest of its tokens, infinity
 * included. */
template <bool whole, int batch>
__device__ __forceinline__ float4 lac_stream(float4 (&value)[batch], const lac_gpu_call &call, const lac_window_args &args,
                                             int token, int input0, u8 *band, float4 multiplier)
{
    float4 largest = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const int row = threadIdx.x >> 4;
#pragma unroll 1
    for (int first = 0; first < LAC_ROWS; first += batch) {
        if (first > 0) lac_load_batch<whole>(value, call, args, token, input0 + row + first * LAC_HALVES);
#pragma unroll
        for (int r = 0; r < batch; r++) {
            largest = lac_larger(largest, value[r]);
            lac_store_four(band, row + (first + r) * LAC_HALVES, value[r], multiplier);
        }
    }
    return largest;
}

/* The multipliers of this lane's tokens, and their factors for window.cu, by the largest of the window and of the first inputs. */
__device__ __forceinline__ float4 lac_scale(const lac_window_args &args, float4 largest, const lac_parts &first, float *factors, u32 &odd)
{
    const float4 sample = lac_get_largest(first);
    const float all[4] = {largest.x, largest.y, largest.z, largest.w}, samples[4] = {sample.x, sample.y, sample.z, sample.w};
    float multiplier[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int shift = lac_shift_of(__float_as_uint(all[i]), __float_as_uint(samples[i]), odd, args);
        multiplier[i] = lac_power(shift);
        if (threadIdx.x < 16) factors[threadIdx.x * 4 + i] = lac_power(args.exponent - shift);
    }
    return make_float4(multiplier[0], multiplier[1], multiplier[2], multiplier[3]);
}

template <bool whole>
__device__ __forceinline__ u32 lac_split_rows(const lac_gpu_call &call, const lac_window_args &args, int token, int input0, u8 *band,
                                              float *factors, lac_parts &first, lac_parts &all)
{
    const int row = threadIdx.x >> 4;
    const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f), mine = lac_load_four<whole>(call, args, token, row);
    float4 value[lac_batch(whole, LAC_BATCH)], again[lac_batch(whole, LAC_BATCH_AGAIN)];
    u32 odd = 0;
    lac_load_batch<whole>(value, call, args, token, input0 + row);
    lac_put_largest(first, lac_finite(mine));
    lac_put_largest(all, lac_stream<whole>(value, call, args, token, input0, band, lac_scale(args, none, first, factors, odd)));
    lac_scale(args, lac_get_largest(all), first, factors, odd);
    if (!__syncthreads_or(odd)) return 0;
    odd = 0;
    float4 largest = none;
#pragma unroll(lac_batch(whole, LAC_BATCH_AGAIN))
    for (int r = 0; r < LAC_ROWS; r++)
        largest = lac_larger(largest, lac_finite(lac_load_four<whole>(call, args, token, input0 + row + r * LAC_HALVES)));
    lac_put_largest(all, largest);
    const float4 own = lac_scale(args, lac_get_largest(all), first, factors, odd);
    lac_load_batch<whole>(again, call, args, token, input0 + row);
    lac_stream<whole>(again, call, args, token, input0, band, own);
    return __syncthreads_or(odd);
}

__device__ __forceinline__ u32 lac_split_block(const lac_gpu_call &call, const lac_window_args &args, int token0, int input0,
                                               u8 *band, float *factors)
{
    __shared__ lac_parts first, all; /* the largest of the first inputs and of the window */
    const bool aligned = ((u64)call.x & (4 * sizeof(lac_x_element) - 1)) == 0 && (call.ldx & 3) == 0;
    const int token = token0 + (threadIdx.x & 15) * 4;
    if (aligned && token0 + 64 <= call.m && input0 + LAC_WINDOW <= args.k) 
        return lac_split_rows<true>(call, args, token, input0, band, factors, first, all);
    return lac_split_rows<false>(call, args, token, input0, band, factors, first, all);
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
        const int shift = lac_shift_of(all, samples, odd, args);
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

/* Blocks of a multiprocessor, as registers allow. */
#if LAC_PLANES == 2
#define LAC_BLOCKS 2
#elif LAC_X_TOKEN_MAJOR
#define LAC_BLOCKS (__CUDA_ARCH__ < 900 ? 2 : 3)
#else
#define LAC_BLOCKS (LAC_EARLY ? LAC_WINDOW == 256 ? 4 : 3 : 2)
#endif

extern "C" __global__ void __launch_bounds__(LAC_THREADS, LAC_BLOCKS) lac_split(lac_gpu_call call, lac_window_args args)
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
