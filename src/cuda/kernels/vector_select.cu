/* vector_select.cu - few tokens in 16 bits where rows share their inputs, keep two of four, or at most 8 of 32 of their own: the weight is
 * streamed once, as fragments or packed. Requested by cuda/vector_select.c.
 *
 * Preconditions: W and X have the same 16-bit dtype; sm_80 or later; weights cut by cuda/vector_select_tile.c.
 *
 * A unit of LAC_UNIT_ROWS rows, all of one row group, is a warp's. Its weights lie in memory as the lanes' fragments, in steps of 32
 * inputs; a batch of LAC_BATCH steps is loaded straight into registers, and two batches take turns, so that a warp always has one
 * or two on their way. An input of X is a row of 16 bytes in shared memory for every 8 tokens, wherever a step wants it: lane i
 * of ldmatrix.trans gives the address of the i-th input of a step, and what comes back are the fragments of X. So selecting
 * costs nothing, and no weight is ever decoded.
 *
 *     x         [LAC_X_RING chunks][token tile of 8][LAC_CHUNK_INPUTS in eights, each of 8 rows of 16 bytes and 16 bytes of padding]
 *     ring      packed: [warp][LAC_RING] batches
 *     strips    token-major X on its way: [warp that brings it][LAC_X_STRIPS][token][64 inputs]
 *     barriers  [LAC_X_RING] a chunk is there, it has been read
 *     sums      [warp][token][LAC_UNIT_ROWS + 4], in the place of all of them
 *     batch     values [loads][lane][16 B], codes [words][lane] (packed: of two rows a word), places of the kept [words][lane], inputs
 *               [words][lane] (two steps a word; packed: four)
 *
 * X comes in one of two ways. Streamed (LAC_X_WARPS; vector_select_stream.cuh): warps of their own bring chunk after chunk while the others multiply.
 * Resident (vector_select_resident.cuh): all warps bring a chunk as large as there is room for, then all multiply.
 *
 * Where each row keeps inputs of its own (LAC_PACKED), a step is two fours of each of four neighbouring 32 inputs: lane 4g + t has, of rows g, g+8,
 * g+16 and g+24, the weights of the t-th 32 inputs in four steps, packed, and spreads them in registers (vector_pack.cuh). The inputs of a step
 * are the same for the unit's 32 rows; weights that do not fit two of a four come in a batch of their own behind the others (w.more). Spreading
 * takes registers, so batches wait in shared memory: a warp has a ring of LAC_RING there. Each lane copies what it alone will read, so nobody
 * waits for anybody, and as soon as a batch is in registers, the next one is asked for in its place, that of the next chunk too.
 *
 * The padding lets token-major X be turned round on its way and stored without bank conflicts.
 *
 * Constants beside those of every kernel:
 * LAC_TOKENS         m
 * LAC_UNIT_ROWS      16 or 32
 * LAC_SPARSE         1: two of every four selected inputs stay in a row, by mma.sp
 * LAC_PACKED         kept weights of a row in 32 inputs, as many as there is room for, even; 0: rows share their inputs or keep two of four
 * LAC_ALL_INPUTS     1: a step is 32 inputs as they follow each other, there is no list of them
 * LAC_BATCH          steps of a batch
 * LAC_ROW_WARPS, LAC_K_WARPS, LAC_SPLIT as in vector.cuh: units side by side, warps and blocks of the same unit
 * LAC_CHUNK_INPUTS   inputs of X in shared memory at a time, a multiple of 32
 * LAC_CHUNK_BATCHES  batches of a unit in a chunk; 0: each has its own number, see begin
 * LAC_RING           packed: batches of a warp in shared memory; LAC_RING_FIRST of them are asked for before X (streamed)
 * LAC_X_WARPS        warps that bring X, 0: resident
 * LAC_X_RING         chunks of X in shared memory; 1 when resident
 * LAC_X_STRIPS       streamed, token-major: strips of 64 inputs that such a warp has on their way
 * LAC_EARLY          1: the kernel may start before the one before it on the stream has ended
 * LAC_HAS_COL_PERM
 *
 * Bottleneck: device memory; with many tokens shared memory, which gives 16 bytes of every selected input to a unit for 8 tokens. */
#include "epilogue.cuh"
#if LAC_X_WARPS
#include "vector_select_stream.cuh"
#else
#include "vector_select_resident.cuh"
#endif

constexpr int sum_stride = LAC_UNIT_ROWS + 4; /* lanes of a fragment of sums are then in different banks */

/* ---- sums */

__device__ __forceinline__ void meet()
{
#if LAC_SPLIT > 1
    lac_cluster_sync();
#else
    __syncthreads();
#endif
}

/* Four sums that block `rank` of the cluster has at `at`. */
__device__ __forceinline__ float4 sums_of(const float *at, int rank)
{
#if LAC_SPLIT > 1
    return lac_cluster_read(lac_shared_address(at), rank);
#else
    return *(const float4 *)at;
#endif
}

/* partial[warp][token][row] of every block of the cluster -> Y: first the warps, then the blocks, in the order of k. */
__device__ __forceinline__ void reduce_and_store(const lac_gpu_call &call, const lac_select_weight &w, const float *partial)
{
    constexpr int fours = LAC_ROW_WARPS * LAC_UNIT_ROWS / 4; /* of rows */
    /* The blocks of a cluster share the outputs between them. */
    for (int i = threadIdx.x + split_rank() * LAC_THREADS; i < fours * LAC_TOKENS; i += LAC_THREADS * LAC_SPLIT) {
#if LAC_Y_TOKEN_MAJOR
        const int token = i / fours, four = i % fours;
#else
        const int token = i % LAC_TOKENS, four = i / LAC_TOKENS;
#endif
        constexpr int unit_fours = LAC_UNIT_ROWS / 4;
        const float *at = partial + (four / unit_fours * LAC_K_WARPS * LAC_TOKENS + token) * sum_stride + four % unit_fours * 4;
        float sum[4] = {};
#pragma unroll
        for (int r = 0; r < LAC_SPLIT; ++r)
#pragma unroll
            for (int j = 0; j < LAC_K_WARPS; ++j) {
                const float4 v = sums_of(at + j * (LAC_TOKENS * sum_stride), r);
                sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
            }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = ((int)(blockIdx.x / LAC_SPLIT) * fours + four) * 4 + e;
            if (row >= w.rows) break;
#if LAC_HAS_ROW_PERM
            const int output = (int)w.row_perm[row];
#else
            const int output = row;
#endif
            lac_store(call, token, output, lac_finish(call, token, output, sum[e], lac_bias(call, output)));
        }
    }
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, 1)
    lac_vector_select(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_select_weight w)
{
    extern __shared__ __align__(1024) u8 memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 x = lac_shared_address(memory);
    const i64 unit = (i64)(blockIdx.x / LAC_SPLIT) * LAC_ROW_WARPS + warp / LAC_K_WARPS;
    float sums[row_tiles][token_tiles][4] = {};
#if LAC_EARLY && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;"); /* the next kernel, if it waits as this one does, may come while this one ends */
#endif
#if LAC_X_WARPS
    make_barriers(x);
    if (warp < workers)
        multiply_streamed(sums, w, x, unit, warp, lane);
    else
        bring_x(call, w, x, split_rank(), warp - workers, lane);
    wait_for_x();
#else
    multiply_resident(sums, call, w, x, unit, warp, lane);
    if (w.chunks <= split_rank()) wait_for_x();
#endif
    __syncthreads();
    float *partial = (float *)memory;
    if (warp < workers) {
#pragma unroll
        for (int r = 0; r < row_tiles; ++r)
#pragma unroll
            for (int n = 0; n < token_tiles; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const int row = r * 16 + c / 2 * 8 + lane / 4, token = n * 8 + lane % 4 * 2 + c % 2;
                    if (token < LAC_TOKENS) partial[(warp * LAC_TOKENS + token) * sum_stride + row] = sums[r][n][c];
                }
    }
    meet();
    reduce_and_store(call, w, partial);
    if (LAC_SPLIT > 1) meet(); /* no block leaves while another reads its sums */
}
