/* vector.cuh - what vector.cu and vector_mma.cu share: the stream of the weight, and the way from sums to Y.
 *
 * The weight comes in tiles of 32 stored rows x one step along k, in each LAC_SLOTS kept weights for every lane, so that each
 * load of a warp is 512 consecutive bytes. Which of the 32 rows and which groups of the step a lane has is the kernel's own.
 *
 * Constants beside those of every kernel:
 * LAC_TOKENS         m
 * LAC_ROW_WARPS      warps of a block side by side along n, 32 rows each
 * LAC_K_WARPS        warps of the same rows, which take steps in turn
 * LAC_SPLIT          blocks of a cluster: the same rows, chunks of k in turn
 * LAC_BLOCKS         blocks that a multiprocessor is to hold at once: bounds the registers
 * LAC_SLOTS          kept weights of a lane in a step
 * LAC_GROUP_SLOTS    N: kept in a group; LAC_GROUP_INPUTS M: inputs in a group
 * LAC_INDEX_KIND     0 every input stays, 1 packed, 2 bitmask, 3 input numbers within the chunk (16 bits; free distributions)
 * LAC_INDEX_BITS     of a packed entry
 * LAC_INDEX_SHARED   1: the 32 rows share their inputs, and the index is apart
 * LAC_CHUNK_INPUTS   inputs of x in shared memory at a time
 * LAC_CHUNK_STEPS    steps in a chunk (free distributions: 0, see lac_vector_weight.begin)
 * LAC_HAS_COL_PERM
 * Of vector.cu with one token alone:
 * LAC_ROUNDS         row blocks that a warp takes one behind the other; more than one only where a block has one chunk of x
 * LAC_DEPTH          steps of a warp under way at once */
#ifndef LAC_CUDA_KERNELS_VECTOR_CUH
#define LAC_CUDA_KERNELS_VECTOR_CUH

#include "async_copy.cuh"
#include "chain.cuh"
#include "cluster.cuh"
#include "epilogue.cuh"
#include "stream_load.cuh"
#include "vector_arguments.h"

#define LAC_THREADS (LAC_ROW_WARPS * LAC_K_WARPS * 32)

#ifndef LAC_ROUNDS
#define LAC_ROUNDS 1
#endif

typedef lac_element<LAC_X_DTYPE>::type x_element;

/* Kept weights in 16 bytes, loads of a step, words of a lane's index in a step. */
constexpr int load_values = LAC_W_DTYPE == LAC_F32 ? 4 : 8;
constexpr int value_loads = (LAC_SLOTS + load_values - 1) / load_values;
constexpr int entry_bits = LAC_INDEX_KIND == 3 ? 16 : LAC_INDEX_BITS;
constexpr int index_bits = LAC_INDEX_KIND == 0   ? 0
                           : LAC_INDEX_KIND == 2 ? LAC_SLOTS / LAC_GROUP_SLOTS * LAC_GROUP_INPUTS
                                                 : LAC_SLOTS * entry_bits;
constexpr int index_words = (index_bits + 31) / 32;
constexpr int step_bytes = value_loads * 512 + (LAC_INDEX_SHARED ? 0 : index_words * 128);
constexpr int shared_index_words = (index_words + 3) / 4 * 4;

/* What one step brings to a lane. */
struct step_data {
    u32 values[value_loads * 4];
    u32 index[index_words > 0 ? index_words : 1];
};

__device__ __forceinline__ void load_step(step_data &d, const lac_vector_weight &w, i64 tile, int lane)
{
    const u8 *at = w.tiles + tile * step_bytes;
#pragma unroll
    for (int i = 0; i < value_loads; ++i) {
        uint4 v = lac_stream_16(at + i * 512 + lane * 16);
        d.values[4 * i] = v.x, d.values[4 * i + 1] = v.y, d.values[4 * i + 2] = v.z, d.values[4 * i + 3] = v.w;
    }
#if LAC_INDEX_SHARED
    const u32 *from = w.index + tile * shared_index_words;
#pragma unroll
    for (int i = 0; i < index_words; ++i) d.index[i] = from[i];
#else
    /* Sixteens of bytes first, the rest word by word: [load][lane][16 B], then [word][lane][4 B]. */
    const u8 *from = at + value_loads * 512;
#pragma unroll
    for (int i = 0; i < index_words / 4; ++i) {
        uint4 v = lac_stream_16(from + i * 512 + lane * 16);
        d.index[4 * i] = v.x, d.index[4 * i + 1] = v.y, d.index[4 * i + 2] = v.z, d.index[4 * i + 3] = v.w;
    }
#pragma unroll
    for (int i = index_words / 4 * 4; i < index_words; ++i) d.index[i] = lac_stream_4(from + i * 128 + lane * 4);
#endif
}

/* `bits` bits of the index from bit `first` on, at bit `place` of the result. All but `d` are known when compiling. */
__device__ __forceinline__ u32 index_field(const step_data &d, int first, int bits, int place)
{
    const u32 mask = (bits == 32 ? 0xffffffffu : (1u << bits) - 1) << place;
    const int word = first / 32, shift = first % 32;
    if (shift + bits > 32) return __funnelshift_r(d.index[word], d.index[word + 1 < index_words ? word + 1 : word], shift) << place & mask;
    return (shift >= place ? d.index[word] >> (shift - place) : d.index[word] << (place - shift)) & mask;
}

/* The tiles [first, end) of row block `row_block` in `chunk`; none past the last row. */
__device__ __forceinline__ void chunk_tiles(const lac_vector_weight &w, i64 row_block, int chunk, i64 &first, i64 &end)
{
    first = end = 0;
    if (row_block * 32 >= w.rows) return;
#if LAC_INDEX_KIND == 3
    const u32 *begin = w.begin + row_block * (w.chunks + 1) + chunk;
    first = begin[0], end = begin[1];
#else
    first = row_block * w.steps + (i64)chunk * LAC_CHUNK_STEPS;
    end = first + LAC_CHUNK_STEPS;
    if (end > (row_block + 1) * w.steps) end = (row_block + 1) * w.steps;
#endif
}

/* X[token][stored column `column`]; zero past the last column. */
__device__ __forceinline__ x_element x_at(const lac_gpu_call &call, const lac_vector_weight &w, int token, int column)
{
    if (column >= w.cols) return 0;
#if LAC_HAS_COL_PERM
    const i64 input = w.col_perm[column];
#else
    const i64 input = column;
#endif
#if LAC_X_TOKEN_MAJOR
    return ((const x_element *)call.x)[(i64)token * call.ldx + input];
#else
    return ((const x_element *)call.x)[input * call.ldx + token];
#endif
}

/* Where block `blockIdx.x` begins its way round `count` pieces of 16 bytes of X: all blocks read the same x at the same time,
 * and would else ask the same slice of L2 for it. */
__device__ __forceinline__ int first_piece(int count) { return count < 16 ? 0 : (int)(blockIdx.x * 104u % (u32)count) & ~7; }

__device__ __forceinline__ int split_rank()
{
#if LAC_SPLIT > 1
    return (int)lac_cluster_rank();
#else
    return 0;
#endif
}

/* The row block of this block's first row of warps, in round `round`. */
__device__ __forceinline__ i64 first_row_block(int round)
{
    return (i64)((blockIdx.x + round * gridDim.x) / LAC_SPLIT) * LAC_ROW_WARPS;
}

/* The place of output n of those that a block adds up: its round, token and row, and of its warps' sums in partial the first. */
struct output_place {
    int token, row, first;
};

constexpr int block_outputs = LAC_ROW_WARPS * 32 * LAC_TOKENS;

__device__ __forceinline__ output_place place_of(int n)
{
    const int round = n / block_outputs, i = n % block_outputs;
#if LAC_Y_TOKEN_MAJOR
    const int token = i / (LAC_ROW_WARPS * 32), row = i % (LAC_ROW_WARPS * 32);
#else
    const int token = i % LAC_TOKENS, row = i / LAC_TOKENS;
#endif
    return {token, (int)first_row_block(round) * 32 + row,
            ((round * LAC_ROW_WARPS + row / 32) * (LAC_K_WARPS * LAC_TOKENS) + token) * 32 + row % 32};
}

__device__ __forceinline__ float add_warps(const float *at)
{
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < LAC_K_WARPS; ++j) sum += at[j * (LAC_TOKENS * 32)];
    return sum;
}

/* partial[round][warp][token][32 rows] of every block of the cluster -> Y: first the warps, then the blocks, in the order of k.
 * All threads call it, having written their part. */
__device__ __forceinline__ void reduce_and_store(const lac_gpu_call &call, const lac_vector_weight &w, float *partial)
{
    __syncthreads();
#if LAC_SPLIT > 1
    for (int n = threadIdx.x; n < LAC_ROUNDS * block_outputs; n += LAC_THREADS) {
        float *at = partial + place_of(n).first;
        *at = add_warps(at);
    }
    lac_cluster_sync();
#endif
    /* The blocks of a cluster share the outputs between them. */
    for (int n = threadIdx.x + split_rank() * LAC_THREADS; n < LAC_ROUNDS * block_outputs; n += LAC_THREADS * LAC_SPLIT) {
        const output_place place = place_of(n);
        const int token = place.token, row = place.row;
        if (row >= w.rows) continue;
#if LAC_SPLIT > 1
        float sum = 0.0f;
#pragma unroll
        for (int r = 0; r < LAC_SPLIT; ++r) sum += lac_cluster_read_float(lac_shared_address(partial + place.first), r);
#else
        const float sum = add_warps(partial + place.first);
#endif
#if LAC_HAS_ROW_PERM
        const int output = (int)w.row_perm[row];
#else
        const int output = row;
#endif
        lac_store(call, token, output, lac_finish(call, token, output, sum, lac_bias(call, output)));
    }
#if LAC_SPLIT > 1
    lac_cluster_sync(); /* no block leaves while another reads its sums */
#endif
}

#endif
