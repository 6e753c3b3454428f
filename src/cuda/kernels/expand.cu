/* expand.cu - fp16 and bf16 SpMM on the tensor cores of sm_90a for element-wise patterns of any N:M: X streams into shared memory, W
 * lies compressed in memory and is spread out in registers on its way there. tile_product.cuh has tiles, products and
 * epilogue.
 *
 *   warps 0-7    two warpgroups: the products of a stage (wgmma), sums in registers, then the tile's epilogue
 *   warps 8-11   load pieces of W two stages ahead, spread them and store them as rows of zeros and values; one thread fetches
 *                X by tensor copies. LAC_X_BY_HAND: all of them carry X instead
 *   full[stage]: 1 for the bytes that come by copies (128 threads' when X is carried), 4 for the warps that have spread W.
 *
 * Spreading keeps the integer pipes busier than the products keep the tensor cores. So two blocks of a cluster, which have
 * neighbouring tokens of the same outputs, share it: block r spreads piece r and copies it into the other's shared memory.
 *
 * expand_spread.cuh has the way of W.
 *
 * X feature-major comes in boxes of 64 rows x 64 tokens, token-major in boxes of 64 inputs x LAC_BOX tokens; what lies outside is
 * zero. Preconditions: X and its rows aligned to 16 bytes, unless LAC_X_BY_HAND. Bottleneck: the tensor cores, then shared memory. */
#define LAC_SPARSE 0
#define LAC_SHARES_X 0
#define LAC_GATHERS 0
#define LAC_ROWS 64
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR)
#include "tile_product.cuh"

#include "expand_spread.cuh"
#include "tensor_copy.cuh"

#define LAC_W_PIECES (LAC_TILE_OUTPUTS / 64)
#define LAC_MINE (LAC_W_PIECES / LAC_CLUSTER) /* pieces that a block spreads; the others spread the rest */
#define LAC_W_PIECE_STAGE (64 * LAC_W_ROW)
#define LAC_BOX (LAC_TILE_TOKENS < 256 ? LAC_TILE_TOKENS : 256)

static_assert(LAC_MINE * LAC_CLUSTER == LAC_W_PIECES, "blocks share the pieces evenly");

/* ---- W */

/* What a thread has of a stage of W. */
struct lac_share {
    u32 word[LAC_MINE][LAC_WORDS];
};

/* The number of this block's piece `i` among all of them. */
__device__ __forceinline__ u32 lac_piece_number(u32 i) { return LAC_CLUSTER > 1 ? lac_cluster_rank() * LAC_MINE + i : i; }

/* This block's piece `i` of stage `stage`. */
__device__ __forceinline__ void lac_piece_load(lac_share &share, const lac_gather_args &args, int stage, int i)
{
    lac_words_load(share.word[i], args.weight + ((i64)stage * LAC_W_PIECES + lac_piece_number(i)) * LAC_W_PIECE, threadIdx.x & 127);
}

/* A thread's 32 inputs of row t % 64 to their chunks. Eight neighbouring lanes have other rows, hence other banks. */
__device__ __forceinline__ void lac_piece_store(u32 to, const u32 (&out)[16])
{
    const u32 row = threadIdx.x & 63, chunk = (threadIdx.x >> 6 & 1) * 4;
#pragma unroll
    for (u32 c = 0; c < 4; c++)
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + row * 128 + ((chunk + c ^ row) & 7) * 16), "r"(out[4 * c]),
                     "r"(out[4 * c + 1]), "r"(out[4 * c + 2]), "r"(out[4 * c + 3])
                     : "memory");
}

/* ---- X */

#if LAC_X_BY_HAND
/* 8 neighbours in memory from (line, at) on; zeros outside. */
__device__ __forceinline__ uint4 lac_neighbours(const lac_gpu_call &call, int line, int lines, int at, int length)
{
    const u16 *from = (const u16 *)call.x + (i64)line * call.ldx + at;
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (line < lines && at + i < length) word[i >> 1] |= (u32)from[i] << 16 * (i & 1);
    return make_uint4(word[0], word[1], word[2], word[3]);
}

__device__ __forceinline__ void lac_carry_x(const lac_gpu_call &call, u32 stage, u32 barrier, int row, int token)
{
    for (int i = threadIdx.x & 127; i < LAC_TILE_TOKENS * 8; i += 128) {
#if LAC_TURNED
        const int c = i % (LAC_TILE_TOKENS / 8), line = i / (LAC_TILE_TOKENS / 8);
        const uint4 v = lac_neighbours(call, row + line, call.k, token + c * 8, call.m);
        const u32 to = stage + c / 8 * LAC_X_BLOCK + line * 128 + ((c ^ line) & 7) * 16;
#else
        const int c = i % 8, line = i / 8;
        const uint4 v = lac_neighbours(call, token + line, call.m, row + c * 8, call.k);
        const u32 to = stage + line * 128 + ((c ^ line) & 7) * 16;
#endif
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    }
    lac_async_fence();
    lac_barrier_arrive(barrier);
}
#else
__device__ __forceinline__ void lac_fetch_x(const lac_tensor_map *map, u32 stage, u32 barrier, int row, int token)
{
    lac_barrier_expect(barrier, LAC_X_STAGE + (LAC_W_PIECES - LAC_MINE) * LAC_W_PIECE_STAGE);
#if LAC_TURNED
#pragma unroll
    for (int block = 0; block < LAC_TILE_TOKENS; block += 64) lac_copy_tensor(stage + block * 128, map, token + block, row, barrier, 1);
#else
#pragma unroll
    for (int block = 0; block < LAC_TILE_TOKENS; block += LAC_BOX)
        lac_copy_tensor(stage + block * 128, map, row, token + block, barrier, 1);
#endif
}
#endif

/* ---- stages */

/* The warps that spread wait for each other where one of them copies what all have stored. */
__device__ __forceinline__ void lac_spreaders_sync()
{
    if (LAC_CLUSTER > 1)
        asm volatile("bar.sync 1, 128;" ::: "memory");
    else
        __syncwarp();
}

/* Starts the copy of `bytes` to the same place in block `rank` of the cluster, whose barrier at the same place is told. */
__device__ __forceinline__ void lac_copy_to_block(u32 shared, u32 bytes, u32 barrier, u32 rank)
{
    asm volatile("{\n"
                 ".reg .b32 to, told;\n"
                 "mapa.shared::cluster.u32 to, %0, %3;\n"
                 "mapa.shared::cluster.u32 told, %2, %3;\n"
                 "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [to], [%0], %1, [told];\n"
                 "}\n" ::"r"(shared),
                 "r"(bytes), "r"(barrier), "r"(rank)
                 : "memory");
}

struct lac_maker {
    lac_walk now, ahead; /* the stage that is made, and the one whose pieces are loaded next */
    u32 slot, parity;
};

__device__ __forceinline__ void lac_walk_next(const lac_gather_args &args, lac_walk &walk)
{
    if (!walk.more) return;
    walk.stage++;
    lac_walk_settle(args, walk);
}

__device__ __forceinline__ void lac_share_load(lac_share &share, const lac_gather_args &args, lac_maker &maker)
{
#pragma unroll
    for (int i = 0; i < LAC_MINE; i++)
        if (maker.ahead.more) lac_piece_load(share, args, maker.ahead.stage, i);
    lac_walk_next(args, maker.ahead);
}

/* Piece `i` of `share` as pairs; what comes two stages later is loaded in its place. */
__device__ __forceinline__ void lac_share_spread(u32 (&out)[16], lac_share &share, int i, const lac_gather_args &args, const lac_maker &maker)
{
    lac_spread_32(out, share.word[i]);
    if (maker.ahead.more) lac_piece_load(share, args, maker.ahead.stage, i);
}

/* Makes the next stage out of `share`, and loads into that what comes two stages later. */
__device__ __forceinline__ void lac_stage_make(const lac_gpu_call &call, const lac_gather_args &args, const lac_tensor_map *map,
                                               u32 stages, u32 full, u32 empty, lac_maker &maker, lac_share &share)
{
    const u32 stage = stages + maker.slot * LAC_STAGE, barrier = full + 8 * maker.slot;
    const int row = (maker.now.stage - args.range[2 * maker.now.item.output_tile]) * 64,
              token = maker.now.item.token_tile * LAC_TILE_TOKENS;
    u32 out[16];
    if (LAC_MINE == 1) lac_share_spread(out, share, 0, args, maker); /* while the slot is still in use */
    lac_barrier_wait(empty + 8 * maker.slot, maker.parity);
#if LAC_X_BY_HAND
    lac_carry_x(call, stage, barrier, row, token);
#else
    if (threadIdx.x == 256) lac_fetch_x(map, stage, barrier, row, token);
#endif
#pragma unroll
    for (int i = 0; i < LAC_MINE; i++) {
        if (LAC_MINE > 1) lac_share_spread(out, share, i, args, maker);
        lac_piece_store(stage + LAC_X_STAGE + lac_piece_number(i) * LAC_W_PIECE_STAGE, out);
    }
    lac_async_fence();
    lac_spreaders_sync();
    if ((threadIdx.x & 31) == 0) lac_barrier_arrive(barrier);
    if (LAC_CLUSTER > 1 && threadIdx.x == 256)
        lac_copy_to_block(stage + LAC_X_STAGE + lac_piece_number(0) * LAC_W_PIECE_STAGE, LAC_MINE * LAC_W_PIECE_STAGE, barrier,
                          lac_cluster_rank() ^ 1);
    lac_walk_next(args, maker.ahead);
    lac_walk_next(args, maker.now);
    if (++maker.slot == LAC_STAGES) maker.slot = 0, maker.parity ^= 1;
}

__device__ __forceinline__ void lac_make(const lac_gpu_call &call, const lac_gather_args &args, const lac_tensor_map *map,
                                         u32 stages, u32 full, u32 empty)
{
    lac_maker maker = {lac_walk_begin(args), lac_walk_begin(args), 0, 1};
    lac_share even = {}, odd = {};
    lac_share_load(even, args, maker);
    lac_share_load(odd, args, maker);
    while (maker.now.more) {
        lac_stage_make(call, args, map, stages, full, empty, maker, even);
        if (maker.now.more) lac_stage_make(call, args, map, stages, full, empty, maker, odd);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    lac_expand(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    lac_barriers_begin(full, empty, (LAC_X_BY_HAND ? 128 : 1) + 4);
    if (threadIdx.x >= 256) {
        if (LAC_N > 128) lac_registers_fewer<104>(); /* with fewer sums all have enough */
        lac_make(call, args, &map, stages, full, empty);
    } else {
        if (LAC_N > 128) lac_registers_more<200>();
        lac_consume(call, args, stages, full, empty);
    }
    __syncwarp();
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
