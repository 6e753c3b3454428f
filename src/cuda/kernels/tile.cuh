/* tile.cuh - tiles of Y and stages of shared memory, which tile_product.cuh multiplies and tile_write.cuh writes; how blocks walk
 * over them. What gather.cu, gather_block.cu, stream.cu and the expanding kernels have in common. sm_90a; fp16 and bf16.
 *
 * A tile is LAC_TILE_OUTPUTS outputs that read the same rows of X, x LAC_TILE_TOKENS tokens. Blocks run over tiles (times
 * parts of k) until none is left; the blocks of a cluster have neighbouring tokens of the same outputs, or (LAC_SHARES_X)
 * neighbouring outputs of the same tokens.
 *
 *   stage: X, swizzled | W [outputs][LAC_W_ROW], swizzled | sparse: places, a word for each thread and 64 outputs
 *     X turned (feature-major): [tokens / 64][LAC_ROWS][128 bytes]; straight (token-major): [tokens][2 * LAC_ROWS]
 *   full[stage] tells that it has come, empty[stage] that 8 warps of each block of the cluster are done with it.
 *
 * Thread to data: lane 4g + q of warp w of a warpgroup has sums [4j + 2h + e] of output 16w + 8h + g (of 64) and token
 * 8j + 2q + e. A warpgroup has LAC_BLOCKS blocks of 64 outputs x LAC_N tokens.
 *
 * Constants: LAC_ROWS of X a stage (32, 64), LAC_TILE_OUTPUTS (64, 128, 256), LAC_TILE_TOKENS, LAC_N (64, 128, 192, 256), LAC_STAGES, LAC_RESIDENT (blocks of a multiprocessor: 1, 2), LAC_CLUSTER (1, 2, 4),
 * LAC_PAIRED (two row groups of up to 64 outputs each have a tile together: the rows of X that only the first reads come first, then
 * those that both read, then those that only the second reads; each warpgroup multiplies its own), LAC_STORES_Y (Y leaves by the copy engine, gather_store.cuh) and LAC_STAGING_PIECES,
 * LAC_FEW (gather.cu alone: few tokens, see there), LAC_SHARES_X, LAC_GATHERS (X comes by cp.async), LAC_TURNED, LAC_SPARSE (W keeps two of four rows: wgmma.sp), LAC_PACKED (streams alone, see stream.cu), LAC_PARTS (1: k is not split), LAC_MEETS (1: the
 * parts of a tile are blocks of one cluster, which add up through its shared memory), and those of
 * epilogue.cuh. */
#ifndef LAC_CUDA_KERNELS_TILE_CUH
#define LAC_CUDA_KERNELS_TILE_CUH

#define LAC_OPERAND LAC_X_DTYPE
#include "chain.cuh"
#include "cluster.cuh"
#include "epilogue.cuh"
#include "gather_arguments.h"
#include "gather_copy.cuh"
#include "gather_store.cuh"
#include "pipeline.cuh"
#include "shared_access.cuh"
#include "wgmma.cuh"
#include "wgmma_tile.cuh"

#define LAC_X_BLOCK (LAC_ROWS * 128)
#define LAC_X_STAGE ((LAC_TILE_TOKENS + 63) / 64 * LAC_X_BLOCK)
#define LAC_X_STEP ((LAC_TURNED ? 2048 : 32) >> 4) /* 16 rows further */
#ifndef LAC_PACKED /* only stream.cu's W may be */
#define LAC_PACKED 0
#endif
#define LAC_W_ROW (LAC_PACKED ? LAC_ROWS / 2 : LAC_ROWS * (LAC_SPARSE ? 1 : 2))
#define LAC_PLACES (LAC_SPARSE ? LAC_TILE_OUTPUTS * LAC_ROWS / 8 : 0)
#define LAC_CODES (LAC_PACKED ? LAC_TILE_OUTPUTS * LAC_ROWS / 16 : 0)
/* The swizzle that rows of so many bytes have, by its number in an operand. */
#define LAC_SWIZZLE(bytes) ((bytes) == 128 ? 1 : (bytes) == 64 ? 2 : 3)
#define LAC_W_STAGE (LAC_TILE_OUTPUTS * LAC_W_ROW + LAC_PLACES + LAC_CODES)
#define LAC_STAGE ((LAC_X_STAGE + LAC_W_STAGE + 1023) / 1024 * 1024)

/* The two warpgroups share the outputs where there are two blocks of 64, else the tokens. */
#define LAC_SPLITS_OUTPUTS (LAC_TILE_OUTPUTS >= 128)
#define LAC_BLOCKS (LAC_SPLITS_OUTPUTS ? LAC_TILE_OUTPUTS / 128 : 1)
#define LAC_SUMS (LAC_N / 2)

#ifndef LAC_FEW /* only gather.cu knows tiles for few tokens */
#define LAC_FEW 0
#endif
/* Where there is neither a second block of outputs nor one of tokens, the warpgroups have the stages in turns: the first those in even
 * slots, the second those in odd ones. Each then has all sums of its own stages, and both finish half of the tokens. */
#define LAC_IN_TURNS (LAC_FEW && !LAC_SPLITS_OUTPUTS && LAC_TILE_TOKENS == LAC_N)
#if LAC_FEW
static_assert(!LAC_IN_TURNS || (LAC_STAGES % 2 == 0 && LAC_N == 64 && LAC_PARTS == 1), "a slot is always the same warpgroup's");
#endif

#ifndef LAC_TOKEN_TEAMS /* only expand_ring.cu's: all outputs for the tokens of a team of blocks, then for those of the next */
#define LAC_TOKEN_TEAMS 0
#endif
#ifndef LAC_MEETS /* only parts of few tokens do, stream_few.cu's and gather.cu's */
#define LAC_MEETS 0
#endif
/* Only gather.cu's and expand_ring.cu's: so many stages of the next tile are put into the tensor cores before the last pieces of this one,
 * packed, are stored. */
#ifndef LAC_EARLY
#define LAC_EARLY 0
#endif
/* Blocks of a launched cluster. */
#define LAC_CLUSTER_BLOCKS (LAC_MEETS ? LAC_PARTS : LAC_CLUSTER)
static_assert(!LAC_MEETS || LAC_CLUSTER == 1, "a cluster's blocks have neighbouring tiles, or parts of one");

/* Registers of a thread that brings stages and of one that multiplies: 384 threads have 168 each to share or, two blocks on a
 * multiprocessor, 80; with few tokens 128. Tiles of three times a power of two tokens have more addresses and fewer sums. */
#ifndef LAC_TEAMS /* only gather.cu's producers are several teams */
#define LAC_TEAMS 1
#endif
#define LAC_PRODUCER_REGISTERS (LAC_RESIDENT > 1 ? 48 : LAC_FEW ? 72 : LAC_N == 192 ? 120 : LAC_TEAMS > 1 ? 72 : 56)
#define LAC_CONSUMER_REGISTERS (LAC_RESIDENT > 1 ? 96 : LAC_FEW ? 152 : LAC_N == 192 ? 192 : LAC_TEAMS > 1 ? 216 : 224)

/* Y leaves in so many pieces a warpgroup; staging has room for one, two or three. Where it has none, Y leaves through the last stage of
 * its tile, all pieces at once. */
#define LAC_PIECES (LAC_BLOCKS * LAC_N / 64)
#if LAC_STORES_Y
#define LAC_BY_LAST (LAC_STAGING_PIECES == 0)
#define LAC_ROOMS (LAC_BY_LAST ? LAC_PIECES : LAC_STAGING_PIECES)
static_assert(!LAC_BY_LAST || (LAC_CLUSTER == 1 && 2 * LAC_PIECES * LAC_PIECE <= LAC_STAGE), "a stage has room for a tile");
#else
#define LAC_BY_LAST 0
#endif

static_assert(LAC_IN_TURNS || LAC_TILE_TOKENS == (LAC_SPLITS_OUTPUTS ? 1 : 2) * LAC_N, "a warpgroup has all tokens, or half of them");

struct lac_item { /* what a block does next: a tile, some of its stages */
    int output_tile, token_tile, part, begin, end;
    int before; /* stages of the tile before `begin` */
#if LAC_PAIRED
    int first_end, second_begin; /* where the first 64 outputs' stages end and the second's begin */
#endif
};

__device__ __forceinline__ bool lac_item_of(const lac_gather_args &args, int index, lac_item &item)
{
    enum { WIDE = LAC_SHARES_X ? LAC_CLUSTER : 1, LONG = LAC_SHARES_X ? 1 : LAC_CLUSTER }; /* tiles of a cluster */
    const int groups = args.token_tiles / LONG, tiles = args.output_tiles / WIDE;
    if (index >= groups * tiles * (LAC_MEETS ? 1 : LAC_PARTS)) return false;
#if LAC_MEETS
    const int rank = 0;
    item.part = (int)lac_cluster_rank();
#else
    const int rank = LAC_CLUSTER > 1 ? (int)lac_cluster_rank() : 0;
    item.part = index % LAC_PARTS;
    index /= LAC_PARTS;
#endif
#if LAC_TOKEN_TEAMS
    const int row = index / args.band, group = row / tiles;
    item.token_tile = group * args.band + index - row * args.band;
    item.output_tile = (row - group * tiles) * WIDE + rank;
#else
    int first = 0, wide = tiles;
    if (args.band < tiles) { /* divisions are slow */
        first = index / (args.band * groups) * args.band, wide = min(tiles - first, args.band);
        index -= first * groups;
    }
    const int across = index / wide;
    item.token_tile = across * LONG + (LAC_SHARES_X ? 0 : rank);
    item.output_tile = (first + index - across * wide) * WIDE + (LAC_SHARES_X ? rank : 0);
#endif
    /* A load here would be waited for at once. */
    const int even = args.stages_a_tile, begin = even ? item.output_tile * even : args.range[2 * item.output_tile];
    const int count = even ? even : args.range[2 * item.output_tile + 1] - begin;
    item.before = (int)((i64)count * item.part / LAC_PARTS);
    item.begin = begin + item.before;
    item.end = begin + (int)((i64)count * (item.part + 1) / LAC_PARTS);
#if LAC_PAIRED
    const int *own = args.range + 2 * (args.output_tiles + item.output_tile);
    item.first_end = max(item.begin, min(item.end, own[0]));
    item.second_begin = max(item.begin, min(item.end, own[1]));
#endif
    return true;
}

/* Stages one after the other, over the block's items. */
struct lac_walk {
    lac_item item;
    int index, stage;
    bool more;
};

__device__ __forceinline__ void lac_walk_settle(const lac_gather_args &args, lac_walk &walk)
{
    while (walk.more && walk.stage >= walk.item.end) {
        walk.index += gridDim.x / LAC_CLUSTER_BLOCKS;
        walk.more = lac_item_of(args, walk.index, walk.item);
        walk.stage = walk.item.begin;
    }
}

__device__ __forceinline__ lac_walk lac_walk_begin(const lac_gather_args &args)
{
    lac_walk walk;
    walk.index = blockIdx.x / LAC_CLUSTER_BLOCKS;
    walk.more = lac_item_of(args, walk.index, walk.item);
    if (walk.more) walk.stage = walk.item.begin;
    lac_walk_settle(args, walk);
    return walk;
}

#endif
