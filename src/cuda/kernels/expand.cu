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
 * A piece of W is 64 outputs x 64 inputs. Thread t of 128 has 32 neighbouring inputs of one row: inputs 32 (t / 64) ... of row t % 64. In
 * memory they are LAC_WORDS words of it: the kept values, then a word that tells which are kept. A run of LAC_RUN inputs (8,
 * 16 or 32) has LAC_PER places for values, its own in ascending order from the first on.
 *
 *   bit 8 (2 (p & 1) + e) + 7 - p / 2 of the last word: element e (0, 1) of pair p (0 - 15) of the 32 inputs is kept
 *
 * so that a shift and a byte permutation that copies signs make a pair's mask of 16 bits each. Values wait in a queue of registers; a
 * pair takes the first word of the queue, spread by its mask, and moves the queue on by 0, 16 or 32 bits. To start at inputs 8, 16
 * and 24 the queue is moved on by as many values as bits are set before.
 *
 * X feature-major comes in boxes of 64 rows x 64 tokens, token-major in boxes of 64 inputs x LAC_BOX tokens; what lies outside is
 * zero. Preconditions: X and its rows aligned to 16 bytes, unless LAC_X_BY_HAND. Bottleneck: the tensor cores, then shared memory. */
#define LAC_SPARSE 0
#define LAC_SHARES_X 0
#define LAC_GATHERS 0
#define LAC_ROWS 64
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR)
#include "tile_product.cuh"

#include "stream_load.cuh"
#include "tensor_copy.cuh"

#define LAC_WORDS ((32 / LAC_RUN * LAC_PER + 1) / 2 + 1)
#define LAC_VALUES (LAC_WORDS - 1) /* words of values */
#define LAC_W_PIECE (LAC_WORDS * 512)
#define LAC_W_PIECES (LAC_TILE_OUTPUTS / 64)
#define LAC_MINE (LAC_W_PIECES / LAC_CLUSTER) /* pieces that a block spreads; the others spread the rest */
#define LAC_W_PIECE_STAGE (64 * LAC_W_ROW)
#define LAC_BOX (LAC_TILE_TOKENS < 256 ? LAC_TILE_TOKENS : 256)

static_assert(LAC_MINE * LAC_CLUSTER == LAC_W_PIECES, "blocks share the pieces evenly");

/* ---- W */

__device__ __forceinline__ u32 lac_permute(u32 low, u32 high, u32 selector)
{
    u32 result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}

/* The low word of (high, low) moved on by `bits`, 0 to 32. */
__device__ __forceinline__ u32 lac_move_on(u32 low, u32 high, u32 bits)
{
    u32 result;
    asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
    return result;
}

/* The queue without its first `count` values, 0 to `most`. What lies behind the values that there are is of no meaning. */
template <int most, int words> __device__ __forceinline__ void lac_queue_drop(u32 (&queue)[words], int count)
{
    if (most > 2) {
        enum { STEP = most / 4 * 2 > 0 ? most / 4 * 2 : 2, REST = most - STEP > STEP - 1 ? most - STEP : STEP - 1 };
        const bool far = count >= STEP;
#pragma unroll
        for (int i = 0; i + STEP / 2 < words; i++) queue[i] = far ? queue[i + STEP / 2] : queue[i];
        lac_queue_drop<(most > 2 ? REST : 2), words>(queue, far ? count - STEP : count);
    } else {
#pragma unroll
        for (int i = 0; i < words; i++) queue[i] = lac_move_on(queue[i], i + 1 < words ? queue[i + 1] : 0, 16 * count);
    }
}

/* `words` words of the values from number `first` on. */
template <int first, int words> __device__ __forceinline__ void lac_queue_begin(u32 (&queue)[words], const u32 (&word)[LAC_WORDS])
{
#pragma unroll
    for (int i = 0; i < words; i++) {
        const int at = first / 2 + i;
        const u32 low = at < LAC_VALUES ? word[at < LAC_VALUES ? at : 0] : 0;
        const u32 high = at + 1 < LAC_VALUES ? word[at + 1 < LAC_VALUES ? at + 1 : 0] : 0;
        queue[i] = first & 1 ? lac_permute(low, high, 0x5432) : low;
    }
}

/* Pairs `pair` to `pair` + 3 out of the queue. */
template <int pair, int words> __device__ __forceinline__ void lac_spread_8(u32 (&out)[16], u32 (&queue)[words], u32 kept)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int p = pair + i;
        const u32 mask = lac_permute(kept << (p >> 1), 0, p & 1 ? 0xbbaa : 0x9988); /* signs of two bytes, each twice */
        /* The second element is the second value where the first element is kept, else the first. */
        out[p] = lac_permute(queue[0], 0, (mask & 0x2200) | 0x1010) & mask;
        const int bits = __dp4a((int)mask, 0x00f000f0, 0); /* 16 for each kept one */
#pragma unroll
        for (int j = 0; j < words && j < 3 - i; j++) queue[j] = lac_move_on(queue[j], j + 1 < words ? queue[j + 1] : 0, bits);
    }
}

#define LAC_MOST(inputs) (LAC_PER < (inputs) ? LAC_PER : (inputs)) /* values of so many neighbours of a run */
#define LAC_LEAST(a, b) ((a) < (b) ? (a) : (b))

/* 16 inputs from pair `pair` on. Their values begin the queue of `words` words; runs of 8 begin at places known before. */
template <int pair, int words>
__device__ __forceinline__ void lac_spread_16(u32 (&out)[16], const u32 (&queue)[words], const u32 (&word)[LAC_WORDS])
{
    enum { SHORT = LAC_LEAST(words, (LAC_MOST(8) + 1) / 2) };
    const u32 kept = word[LAC_VALUES];
    u32 low[SHORT];
#pragma unroll
    for (int i = 0; i < SHORT; i++) low[i] = queue[i];
    lac_spread_8<pair>(out, low, kept);
#if LAC_RUN == 8
    u32 second[SHORT];
    lac_queue_begin<(pair / 4 + 1) * LAC_PER>(second, word);
    lac_spread_8<pair + 4>(out, second, kept);
#else
    u32 high[words];
#pragma unroll
    for (int i = 0; i < words; i++) high[i] = queue[i];
    lac_queue_drop<LAC_MOST(8)>(high, __popc(kept & (pair ? 0x0c0c0c0cu : 0xc0c0c0c0u)));
    lac_spread_8<pair + 4>(out, high, kept);
#endif
}

/* The 32 inputs that a thread has, as 16 pairs. */
__device__ __forceinline__ void lac_spread_32(u32 (&out)[16], const u32 (&word)[LAC_WORDS])
{
    enum { LONG = LAC_LEAST(LAC_VALUES, (LAC_MOST(16) + 1) / 2) };
    u32 low[LONG], high[LONG];
    lac_queue_begin<0>(low, word);
    lac_spread_16<0>(out, low, word);
#if LAC_RUN <= 16
    lac_queue_begin<16 / LAC_RUN * LAC_PER>(high, word);
#else
    u32 all[LAC_VALUES];
    lac_queue_begin<0>(all, word);
    lac_queue_drop<LAC_MOST(16)>(all, __popc(word[LAC_VALUES] & 0xf0f0f0f0u));
#pragma unroll
    for (int i = 0; i < LONG; i++) high[i] = all[i];
#endif
    lac_spread_16<8>(out, high, word);
}

/* What a thread has of a stage of W. */
struct lac_share {
    u32 word[LAC_MINE][LAC_WORDS];
};

/* The number of this block's piece `i` among all of them. */
__device__ __forceinline__ u32 lac_piece_number(u32 i) { return LAC_CLUSTER > 1 ? lac_cluster_rank() * LAC_MINE + i : i; }

/* This block's piece `i` of stage `stage`: sections of 16, 8 and 4 bytes for each thread. */
__device__ __forceinline__ void lac_piece_load(lac_share &share, const lac_gather_args &args, int stage, int i)
{
    const u8 *piece = args.weight + ((i64)stage * LAC_W_PIECES + lac_piece_number(i)) * LAC_W_PIECE;
    const u32 thread = threadIdx.x & 127;
    u32(&word)[LAC_WORDS] = share.word[i];
#pragma unroll
    for (int j = 0; j + 4 <= LAC_WORDS; j += 4) {
        const uint4 v = lac_stream_16(piece + j * 512 + thread * 16);
        word[j] = v.x, word[j + 1] = v.y, word[j + 2] = v.z, word[j + 3] = v.w;
    }
    if (LAC_WORDS & 2) {
        const uint2 v = lac_stream_8(piece + LAC_WORDS / 4 * 2048 + thread * 8);
        word[LAC_WORDS & ~3] = v.x, word[(LAC_WORDS & ~3) + 1] = v.y;
    }
    if (LAC_WORDS & 1) word[LAC_WORDS - 1] = lac_stream_4(piece + LAC_WORDS / 2 * 1024 + thread * 4);
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
        lac_registers_fewer<104>();
        lac_make(call, args, &map, stages, full, empty);
    } else {
        lac_registers_more<200>();
        lac_consume(call, args, stages, full, empty);
    }
    __syncwarp();
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
