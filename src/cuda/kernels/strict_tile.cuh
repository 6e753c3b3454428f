/* strict_tile.cuh - the tile of strict.cu: its constants, the product of one slot, and the way from sums to Y. */
#ifndef LAC_CUDA_KERNELS_STRICT_TILE_CUH
#define LAC_CUDA_KERNELS_STRICT_TILE_CUH

#include "arguments.h"
#include "epilogue.cuh"
#include "strict_arguments.h"

namespace {

constexpr int lanes_n = LAC_LANES_N, lanes_m = 32 / LAC_LANES_N;
constexpr int thread_n = LAC_THREAD_N, thread_m = LAC_THREAD_M;
constexpr int warp_n = lanes_n * thread_n, warp_m = lanes_m * thread_m;
constexpr int block_n = warp_n * LAC_WARPS_N, block_m = warp_m * LAC_WARPS_M;
constexpr int slices = LAC_SLICES, tile_threads = 32 * LAC_WARPS_N * LAC_WARPS_M, threads = tile_threads * slices;
constexpr int slots = LAC_SLOTS, slice_slots = slots / slices, rows = LAC_ROWS, stages = LAC_STAGES;

constexpr int row_bytes = block_m * 4;
constexpr int x_bytes = rows * row_bytes;
constexpr int w_bytes = slots * block_n * 4;
constexpr int slice_offsets = slice_slots + (LAC_UNEVEN ? 8 : 4);
constexpr int offset_bytes = LAC_ROWWISE ? block_n * slots * 4 : LAC_WARPS_N * slices * slice_offsets * 4;
constexpr int record_bytes = w_bytes + offset_bytes;
constexpr int stage_bytes = x_bytes + record_bytes;

struct fragment {
    float w[thread_n], x[thread_m];
};

/* Where a lane stands in its warp's tile. The lowest bit goes to the outputs: then each half of the warp reads 128 bytes of X
 * and a 16-byte shared load takes no more than two turns. */
__device__ __forceinline__ int lane_n(int lane) { return lanes_n == 1 ? 0 : lanes_n == 2 ? lane & 1 : (lane & 1) | (lane >> 4 << 1); }
__device__ __forceinline__ int lane_m(int lane) { return lanes_n == 1 ? lane : lanes_n == 2 ? lane >> 1 : lane >> 1 & 7; }

/* Along a row of sums and back along the next: neighbours share a weight or an input, which then is read from the register
 * file once. For Y token-major along columns, for the sake of run_of. */
__device__ __forceinline__ void multiply(float (&sum)[thread_n][thread_m], const fragment &f)
{
#if LAC_Y_TOKEN_MAJOR
#pragma unroll
    for (int j = 0; j < thread_m; ++j)
#pragma unroll
        for (int at = 0; at < thread_n; ++at) {
            const int i = j & 1 ? thread_n - 1 - at : at;
            sum[i][j] = fmaf(f.w[i], f.x[j], sum[i][j]);
        }
#else
#pragma unroll
    for (int i = 0; i < thread_n; ++i)
#pragma unroll
        for (int at = 0; at < thread_m; ++at) {
            const int j = i & 1 ? thread_m - 1 - at : at;
            sum[i][j] = fmaf(f.w[i], f.x[j], sum[i][j]);
        }
#endif
}

/* Sums are stored in runs of 4 that lie side by side in Y. Run r of a thread: */
#if LAC_Y_TOKEN_MAJOR
__device__ __forceinline__ int run_n(int r) { return r / thread_m * 4; }
__device__ __forceinline__ int run_m(int r) { return r % thread_m; }
#else
__device__ __forceinline__ int run_n(int r) { return r / (thread_m / 4); }
__device__ __forceinline__ int run_m(int r) { return r % (thread_m / 4) * 4; }
#endif
constexpr int runs = thread_n * thread_m / 4;

/* Run r, its neighbours exchanged. A run wants four registers in a row, and the operands came in fours as well. Exchanged, a sum
 * lies in the other bank of registers than the operand that changes from product to product, and both are read in one clock. */
__device__ __forceinline__ float4 run_of(const float (&sum)[thread_n][thread_m], int r)
{
    int i = run_n(r), j = run_m(r);
    if (LAC_Y_TOKEN_MAJOR) return make_float4(sum[i + 1][j], sum[i][j], sum[i + 3][j], sum[i + 2][j]);
    return make_float4(sum[i][j + 1], sum[i][j], sum[i][j + 3], sum[i][j + 2]);
}

__device__ __forceinline__ float4 in_order(float4 run) { return make_float4(run.y, run.x, run.w, run.z); }

/* Number i of a thread's rows of W (j of its tokens), counted from its warp's first. */
__device__ __forceinline__ int row_in_warp(int i, int lane) { return (i >> 2) * (lanes_n * 4) + lane_n(lane) * 4 + (i & 3); }
__device__ __forceinline__ int token_in_warp(int j, int lane) { return (j >> 2) * (lanes_m * 4) + lane_m(lane) * 4 + (j & 3); }

__device__ __forceinline__ void store_run(const lac_gpu_call &call, const lac_strict_weight &weight, int row, int token, float4 run,
                                          bool wide)
{
    if (row >= weight.rows || token >= call.m) return;
    const int count = LAC_Y_TOKEN_MAJOR ? weight.rows - row : call.m - token;
    float v[4] = {run.x, run.y, run.z, run.w};
    int output[4], step_n = LAC_Y_TOKEN_MAJOR, step_m = !LAC_Y_TOKEN_MAJOR;
    bool stored[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        stored[i] = i < count;
        output[i] = row + i * step_n;
#if LAC_ROW_MAP
        if (stored[i]) output[i] = (int)weight.row_map[output[i]];
        stored[i] = stored[i] && output[i] >= 0;
#endif
        if (stored[i]) v[i] = lac_finish(call, token + i * step_m, output[i], v[i], lac_bias(call, output[i]));
    }
#if LAC_Y_DTYPE == LAC_F32 && !(LAC_Y_TOKEN_MAJOR && LAC_ROW_MAP)
    if (wide && count >= 4 && stored[0]) {
        *(float4 *)((float *)call.y + lac_at(call.ldy, token, output[0])) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (stored[i]) lac_store(call, token + i * step_m, output[i], v[i]);
}

} // namespace

#endif
