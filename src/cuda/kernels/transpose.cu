/* transpose.cu - X as fp32 and feature-major in the workspace, [k][pitch], whatever its layout and dtype: what strict.cu wants.
 *
 * A block takes 64 tokens x 64 inputs. Token-major X is turned through shared memory, so that both sides go to memory in whole
 * lines; feature-major X is only widened and copied. Threads: 256 = 4 rows x 64 lanes, 16 rows each, all loads before the
 * first store.
 *
 *     tile  [64][65]   one word of padding, so that a column of it touches all banks
 *
 * Bottleneck: device memory, read once and written once. */
#include "arguments.h"
#include "numbers.cuh"

typedef typename lac_element<LAC_X_DTYPE>::type element;

extern "C" __global__ void __launch_bounds__(256) lac_transpose(const lac_gpu_call call, const i64 pitch)
{
    const element *x = (const element *)call.x;
    float *out = (float *)call.workspace;
    const int lane = threadIdx.x & 63, row = threadIdx.x >> 6;
    const int tiles_k = (call.k + 63) / 64, tile_m = blockIdx.x / tiles_k * 64, tile_k = blockIdx.x % tiles_k * 64;
    float v[16];
#if LAC_X_TOKEN_MAJOR
    __shared__ float tile[64][65];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        int token = tile_m + row + i * 4, input = tile_k + lane;
        bool inside = token < call.m && input < call.k;
        v[i] = inside ? lac_widen<LAC_X_DTYPE>(x[(i64)token * call.ldx + input]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) tile[row + i * 4][lane] = v[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        int token = tile_m + lane, input = tile_k + row + i * 4;
        if (token < pitch && input < call.k) out[(i64)input * pitch + token] = tile[lane][row + i * 4];
    }
#else
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        int token = tile_m + lane, input = tile_k + row + i * 4;
        bool inside = token < call.m && input < call.k;
        v[i] = inside ? lac_widen<LAC_X_DTYPE>(x[(i64)input * call.ldx + token]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        int token = tile_m + lane, input = tile_k + row + i * 4;
        if (token < pitch && input < call.k) out[(i64)input * pitch + token] = v[i];
    }
#endif
}
