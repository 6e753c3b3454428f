/* vector_select_batch.cuh - the constants of vector_select.cu, its shared memory, and the batches of a warp: loaded, or copied to a ring in shared
 * memory and read from there. vector_select.cu says what they hold; vector_select_x.cuh brings X. */
#ifndef LAC_CUDA_KERNELS_VECTOR_SELECT_BATCH_CUH
#define LAC_CUDA_KERNELS_VECTOR_SELECT_BATCH_CUH

#include "async_copy.cuh"
#include "shared_access.cuh"
#include "stream_load.cuh"
#include "vector_select_arguments.h"

#define LAC_THREADS ((LAC_ROW_WARPS * LAC_K_WARPS + LAC_X_WARPS) * 32)

constexpr int workers = LAC_ROW_WARPS * LAC_K_WARPS; /* warps that multiply */
constexpr int token_tiles = (LAC_TOKENS + 7) / 8, row_tiles = LAC_UNIT_ROWS / 16;
constexpr int tile_bytes = LAC_CHUNK_INPUTS / 8 * 144, slot_bytes = token_tiles * tile_bytes; /* of 8 tokens of a chunk, of all */
constexpr int value_words = LAC_PACKED ? LAC_BATCH * LAC_PACKED / 2 : LAC_BATCH * row_tiles * (LAC_SPARSE ? 4 : 8);
constexpr int code_words = LAC_PACKED ? LAC_BATCH / 2 : 0;
constexpr int place_words = LAC_SPARSE ? LAC_BATCH * ((row_tiles + 1) / 2) : 0;
constexpr int input_words = LAC_ALL_INPUTS ? 0 : LAC_PACKED ? LAC_BATCH / 4 : (LAC_BATCH + 1) / 2;
constexpr int batch_bytes = (value_words + code_words + place_words + input_words) * 128;

/* Inputs of a strip, and its bytes: all tokens, eight at a time. */
constexpr int strip_inputs = 64, strip_bytes = strip_inputs * 16 * token_tiles;
constexpr int chunk_strips = (LAC_CHUNK_INPUTS + strip_inputs - 1) / strip_inputs;

/* In shared memory, behind the chunks. */
constexpr int ring_at = (LAC_X_RING * slot_bytes + 127) / 128 * 128;
constexpr int strips_at = ring_at + (LAC_PACKED ? workers * LAC_RING * batch_bytes : 0);
constexpr int barriers_at = strips_at + (LAC_X_TOKEN_MAJOR ? LAC_X_WARPS * LAC_X_STRIPS * strip_bytes : 0);

/* What a batch brings to a lane. */
struct batch_data {
    u32 values[value_words];
    u32 codes[code_words > 0 ? code_words : 1];
    u32 places[place_words > 0 ? place_words : 1];
    u32 inputs[input_words > 0 ? input_words : 1];
};

/* `words` words a lane: [sixteens][lane][16 B], then what is left by eights and fours. */
template <int words, int size> __device__ __forceinline__ void load_words(u32 (&to)[size], const u8 *from, int lane)
{
#pragma unroll
    for (int i = 0; i < words / 4; ++i) {
        const uint4 v = lac_stream_16(from + i * 512 + lane * 16);
        to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
    if (words % 4 >= 2) {
        const uint2 v = lac_stream_8(from + words / 4 * 512 + lane * 8);
        to[words / 4 * 4] = v.x, to[words / 4 * 4 + 1] = v.y;
    }
    if (words % 2) to[words - 1] = lac_stream_4(from + words / 2 * 256 + lane * 4);
}

__device__ __forceinline__ void load_batch(batch_data &d, const lac_select_weight &w, i64 batch, int lane)
{
    const u8 *at = w.batches + batch * batch_bytes;
    load_words<value_words>(d.values, at, lane);
    if (code_words) load_words<code_words>(d.codes, at + value_words * 128, lane);
    if (place_words) load_words<place_words>(d.places, at + (value_words + code_words) * 128, lane);
    if (input_words) load_words<input_words>(d.inputs, at + (value_words + code_words + place_words) * 128, lane);
}

#if LAC_PACKED
/* ---- the ring */

constexpr int codes_at = value_words * 128, places_at = codes_at + code_words * 128, inputs_at = places_at + place_words * 128;

/* A lane's words of a batch, `words` of them from byte `offset` on, in the order of load_words. The addresses are those of the lane's first
 * sixteen bytes. */
template <int words, int offset> __device__ __forceinline__ void copy_words(u32 to, const u8 *from, int lane)
{
#pragma unroll
    for (int i = 0; i < words / 4; ++i) lac_stream_copy_16(to + offset + i * 512, from + offset + i * 512);
    if (words % 4 >= 2) lac_stream_copy_8(to - lane * 8 + offset + words / 4 * 512, from - lane * 8 + offset + words / 4 * 512);
    if (words % 2) lac_stream_copy_4(to - lane * 12 + offset + words / 2 * 256, from - lane * 12 + offset + words / 2 * 256);
}

template <int words, int offset, int size> __device__ __forceinline__ void read_words(u32 (&to)[size], u32 from, int lane)
{
#pragma unroll
    for (int i = 0; i < words / 4; ++i) {
        const uint4 v = lac_shared_load_16(from + offset + i * 512);
        to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
    if (words % 4 >= 2) {
        const uint2 v = lac_shared_load_8(from - lane * 8 + offset + words / 4 * 512);
        to[words / 4 * 4] = v.x, to[words / 4 * 4 + 1] = v.y;
    }
    if (words % 2) to[words - 1] = lac_shared_load(from - lane * 12 + offset + words / 2 * 256);
}

/* A lane's part of a batch: on its way to shared memory; from there to registers. */
__device__ __forceinline__ void copy_batch(u32 to, const u8 *from, int lane)
{
    copy_words<value_words, 0>(to, from, lane);
    copy_words<code_words, codes_at>(to, from, lane);
    copy_words<place_words, places_at>(to, from, lane);
    copy_words<input_words, inputs_at>(to, from, lane);
}

__device__ __forceinline__ void read_batch(batch_data &d, u32 from, int lane)
{
    read_words<value_words, 0>(d.values, from, lane);
    read_words<code_words, codes_at>(d.codes, from, lane);
    read_words<place_words, places_at>(d.places, from, lane);
    read_words<input_words, inputs_at>(d.inputs, from, lane);
}

#endif

#endif
