/* split.cu - X as scaled half pairs: x * 2^s = hi + lo, both fp16, 22 significant bits together, with one s for a token's
 * inputs of one window. Runs before window.cu, which reads its tiles (window_tile.cuh). A block takes 64 tokens of a window
 * and each thread LAC_PASSES times four neighbours along the contiguous side of X. Feature-major X goes straight from
 * registers to its tile, token-major X is turned in shared memory. Bound by device memory: X once in, the pairs once out.
 * Constants: LAC_WINDOW (64 or 128), LAC_PLANES, LAC_X_DTYPE, LAC_X_TOKEN_MAJOR, LAC_HAS_COL_PERM. */
#include "arguments.h"
#include "window_tile.cuh"

#define LAC_HALF_TOKENS 64
#define LAC_PASSES (LAC_WINDOW * LAC_HALF_TOKENS / 4 / 256)

typedef typename lac_element<LAC_X_DTYPE>::type lac_x_element;

/* Four neighbours by one load; `from` is aligned to four elements. */
__device__ __forceinline__ void lac_load_four(float (&value)[4], const lac_x_element *from)
{
#if LAC_X_DTYPE == LAC_F32
    const float4 four = *(const float4 *)from;
    value[0] = four.x, value[1] = four.y, value[2] = four.z, value[3] = four.w;
#else
    const uint2 four = *(const uint2 *)from;
    value[0] = lac_widen<LAC_X_DTYPE>((u16)four.x), value[1] = lac_widen<LAC_X_DTYPE>((u16)(four.x >> 16));
    value[2] = lac_widen<LAC_X_DTYPE>((u16)four.y), value[3] = lac_widen<LAC_X_DTYPE>((u16)(four.y >> 16));
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
        odd = 1;
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

/* {hi, lo} of a scaled value. */
__device__ __forceinline__ u32 lac_pair(float value)
{
    const u16 high = lac_to_f16(value);
    const u16 low = lac_to_f16(value - lac_from_f16(high));
    return (high & 0x7c00u) == 0x7c00u ? high : (u32)low << 16 | high; /* infinity and NaN live in hi alone */
}

/* Four tokens' pairs to row r of the tile; piece: which four of the 128. */
__device__ __forceinline__ void lac_put(u8 *tile, int r, int piece, const u32 (&word)[4])
{
    u8 *row = tile + LAC_X_HEADER + r * LAC_X_ROW + (piece * 8 ^ (r & 7) << 4);
    *(uint2 *)row = make_uint2((word[0] & 0xffffu) | word[1] << 16, (word[2] & 0xffffu) | word[3] << 16);
#if LAC_PLANES == 2
    *(uint2 *)(row + LAC_X_PLANE) = make_uint2(word[0] >> 16 | (word[1] & 0xffff0000u), word[2] >> 16 | (word[3] & 0xffff0000u));
#endif
}

extern "C" __global__ void __launch_bounds__(256) lac_split(lac_gpu_call call, lac_window_args args)
{
    const lac_x_element *x = (const lac_x_element *)call.x;
    const int window = blockIdx.x % args.windows, half = blockIdx.x / args.windows, thread = threadIdx.x;
    const int token0 = half * LAC_HALF_TOKENS, input0 = window * LAC_WINDOW;
    const bool aligned = ((u64)call.x & (4 * sizeof(lac_x_element) - 1)) == 0 && (call.ldx & 3) == 0;
    u8 *tile = args.tiles + ((i64)(half >> 1) * args.windows + window) * LAC_X_TILE;
    float *factors = (float *)tile + (half & 1) * LAC_HALF_TOKENS;
    float value[LAC_PASSES][4];
    u32 odd = 0;
#if LAC_X_TOKEN_MAJOR
    __shared__ u32 turned[LAC_WINDOW][LAC_HALF_TOKENS + 1];
    const int lanes = LAC_WINDOW / 4, r = thread % lanes * 4, first = thread / lanes, apart = 256 / lanes;
#pragma unroll
    for (int p = 0; p < LAC_PASSES; p++) {
        const int token = token0 + first + p * apart, input = input0 + r;
        if (!LAC_HAS_COL_PERM && aligned && token < call.m && input + 4 <= args.k) {
            lac_load_four(value[p], x + token * call.ldx + input);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                value[p][j] = token < call.m && input + j < args.k
                                  ? lac_widen<LAC_X_DTYPE>(x[token * call.ldx + lac_source(args, input + j)])
                                  : 0.0f;
        }
    }
#pragma unroll
    for (int p = 0; p < LAC_PASSES; p++) {
        const int t = first + p * apart;
        u32 largest = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) lac_observe(largest, odd, value[p][j]);
#pragma unroll
        for (int step = lanes / 2; step > 0; step /= 2) {
            const u32 other = __shfl_xor_sync(0xffffffffu, largest, step);
            largest = other > largest ? other : largest;
        }
        const int shift = lac_shift(largest);
        const float multiplier = lac_power(shift);
        if (r == 0) factors[t] = lac_power(args.exponent - shift);
#pragma unroll
        for (int j = 0; j < 4; j++) turned[r + j][t] = lac_pair(value[p][j] * multiplier);
    }
    odd = __syncthreads_or(odd);
#pragma unroll
    for (int p = 0; p < LAC_PASSES; p++) {
        const int i = thread + p * 256, row = i / (LAC_HALF_TOKENS / 4), four = i % (LAC_HALF_TOKENS / 4);
        const u32 *from = turned[row] + 4 * four;
        const u32 word[4] = {from[0], from[1], from[2], from[3]};
        lac_put(tile, row, (half & 1) * (LAC_HALF_TOKENS / 4) + four, word);
    }
#else
    __shared__ u32 part_largest[16][LAC_HALF_TOKENS];
    __shared__ float multiplier[LAC_HALF_TOKENS];
    const int four = thread % 16, first = thread / 16, token = token0 + 4 * four;
    u32 largest[4] = {0, 0, 0, 0};
#pragma unroll
    for (int p = 0; p < LAC_PASSES; p++) {
        const int input = input0 + first + p * 16;
        const lac_x_element *row = x + (input < args.k ? lac_source(args, input) : 0) * call.ldx;
        if (aligned && token + 4 <= call.m && input < args.k) {
            lac_load_four(value[p], row + token);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                value[p][j] = token + j < call.m && input < args.k ? lac_widen<LAC_X_DTYPE>(row[token + j]) : 0.0f;
        }
    }
#pragma unroll
    for (int p = 0; p < LAC_PASSES; p++)
#pragma unroll
        for (int j = 0; j < 4; j++) lac_observe(largest[j], odd, value[p][j]);
#pragma unroll
    for (int j = 0; j < 4; j++) part_largest[first][4 * four + j] = largest[j];
    odd = __syncthreads_or(odd);
    if (thread < LAC_HALF_TOKENS) {
        u32 all = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) all = part_largest[i][thread] > all ? part_largest[i][thread] : all;
        const int shift = lac_shift(all);
        multiplier[thread] = lac_power(shift);
        factors[thread] = lac_power(args.exponent - shift);
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < LAC_PASSES; p++) {
        u32 word[4];
#pragma unroll
        for (int j = 0; j < 4; j++) word[j] = lac_pair(value[p][j] * multiplier[4 * four + j]);
        lac_put(tile, first + p * 16, (half & 1) * (LAC_HALF_TOKENS / 4) + four, word);
    }
#endif
    if (thread == 0) args.odd[((i64)(half >> 1) * args.windows + window) * 2 + (half & 1)] = odd;
}
