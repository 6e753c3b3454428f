/* fragment.cu - fp16 and bf16 SpMM by mma.sync and mma.sp, from sm_75 on: the rows of X that a tile of outputs reads are
 * gathered into shared memory, the weight comes beside them in the order of the fragments. cuda/fragment.c launches it.
 *
 * LAC_KIND 0  dense: mma on the selected rows (vector-wise, block-wise, shuffled; V:N:M with N = 3, 4)
 *          1  sparse: mma.sp, two of every four rows (V:N:M with N = 1, 2; 2:4 and its kin); sm_80 and later
 *          2  expand: element-wise patterns; a mask and the kept weights, spread to dense fragments in shared memory
 *
 * A block does one tile of LAC_TILE_OUTPUTS x LAC_TILE_TOKENS, or a part of its stages. All threads copy, LAC_STAGES - 1
 * stages ahead (cp.async; before sm_80 a load and a store), and all multiply: a warp LAC_WARP_OUTPUTS x LAC_WARP_TOKENS, W as
 * A, X as B.
 *
 *     stage       X  [LAC_ROWS][LAC_TILE_TOKENS] 16-bit, chunks of 16 bytes swizzled (lac_place); direct: [token][row]
 *                 W  dense, sparse: [step][16 outputs][lane][16 bytes], a lane's fragment; sparse then [16 outputs][lane] places
 *                    expand: [8 outputs], kept words [pair][lane] and masks [lane]
 *     rows        [2 * LAC_STAGES][LAC_ROWS] numbers of the rows of X, LAC_STAGES stages ahead of the copies that use them
 *     spread      expand: 2 x [8 outputs][pair of inputs][lane], fragments of this stage and of the next
 *
 * The order of a stage's rows is the host's: expand puts the 4 inputs of a lane's places side by side (fragment_tile.h).
 * X is feature-major here, whatever the caller's is, and m a multiple of 8 where its rows are aligned to 16 bytes: both by a
 * copy in the workspace where need be (turn.cu). LAC_DIRECT: X is token-major and all its inputs are read, so it comes as it is.
 *
 * Constants beside those of every kernel: LAC_KIND, LAC_ROWS, LAC_WARP_OUTPUTS, LAC_WARP_TOKENS, LAC_WARPS_OUTPUTS,
 * LAC_WARPS_TOKENS, LAC_STAGES, LAC_PARTS, LAC_BLOCKS (at once on a multiprocessor), LAC_EVEN (all tiles have as many stages),
 * LAC_SHARED_INDEX (all tiles read the same rows in the same order), LAC_DIRECT, LAC_KEPT (expand: kept weights of a lane and row in a stage).
 * Bottleneck: the tensor cores at 50%, L2 to shared memory above; few tokens: device memory. */
#include "fragment_copy.cuh"
#include "matrix_load.cuh"
#include "mma.cuh"

/* ---- expanding */

#if LAC_KIND == 2
#define LAC_UNIT (LAC_ROWS / 4) /* inputs of a lane and row in a stage: 16 or 32 */
#define LAC_SPREAD_EIGHT (LAC_UNIT * 64)
enum {
    WARPS = LAC_THREADS / 32,
    EIGHTS = (2 * LAC_BANDS + WARPS - 1) / WARPS, /* of outputs, for each warp */
    SPREADS = EIGHTS * (LAC_KEPT + 1)
};

struct lac_spread {
    u32 from, to; /* of this lane, in shared memory: its first eight's kept weights, and the words that they are spread to */
    u32 kept[LAC_KEPT_WORDS], mask;
};

/* Piece number `i` of SPREADS of a stage of W. A warp takes 8 outputs at a time; lane 4g + t has input 4 * step + j of its unit
 * at place j of the step's fragment, so it stores into its own words alone: bank = lane, no barrier. */
__device__ __forceinline__ void lac_spread_some(lac_spread &s, int i)
{
    const int e = i / (LAC_KEPT + 1), number = i % (LAC_KEPT + 1) - 1;
    if (2 * LAC_BANDS % WARPS && e * WARPS + (threadIdx.x >> 5) >= 2 * LAC_BANDS) return;
    const u32 target = s.to + e * (WARPS * LAC_SPREAD_EIGHT);
    if (number < 0) { /* what is kept, and zeros everywhere */
        const u32 source = s.from + e * (WARPS * LAC_EIGHT);
#pragma unroll
        for (int j = 0; j < LAC_KEPT_WORDS; j++) s.kept[j] = lac_shared_load(source + j * 128);
        s.mask = LAC_UNIT == 32 ? lac_shared_load(source + LAC_KEPT_WORDS * 128)
                                : lac_shared_load_half(source + LAC_KEPT_WORDS * 128 - (threadIdx.x & 31) * 2);
#pragma unroll
        for (int pair = 0; pair < LAC_UNIT / 2; pair++) lac_shared_store(target + pair * 128, 0);
    } else { /* the kept weights come from the highest input down */
        u32 input;
        asm("bfind.u32 %0, %1;" : "=r"(input) : "r"(s.mask));
        s.mask ^= 1u << input;
        lac_shared_store_half(target + input * 64 - (input & 1) * 62, (u16)(s.kept[number >> 1] >> 16 * (number & 1)));
    }
}
#endif

/* ---- products */

struct lac_view { /* a warp's place in a stage */
    u32 x;        /* this lane's row of the first product's B            */
    u32 w;        /* this lane's fragment of the first product's A       */
    u32 places;   /* sparse: this lane's places of the first 16 outputs  */
};

__device__ __forceinline__ lac_view lac_view_of()
{
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 band = warp / LAC_WARPS_TOKENS * LAC_HIGH, chunk = warp % LAC_WARPS_TOKENS * LAC_WIDE;
    lac_view view;
#if LAC_DIRECT && LAC_KIND == 1 /* 8 tokens, of each 32 inputs */
    const u32 token = chunk * 8 + (lane & 7);
    view.x = token * LAC_X_LINE + lac_place(token, lane >> 3) * 16;
#elif LAC_DIRECT /* 8 tokens, of each 8 inputs of a lane's unit */
    const u32 token = chunk * 8 + lane / 4;
    view.x = token * LAC_X_LINE + lac_place(token, lane % 4 * (LAC_ROWS / 32)) * 16;
#elif LAC_KIND == 1 /* 32 rows, of each 8 tokens */
    view.x = lane * LAC_X_LINE + lac_place(lane, chunk) * 16;
#else /* 16 rows, of each 8 tokens, then the next 8 */
    view.x = (lane & 15) * LAC_X_LINE + lac_place(lane & 15, chunk | lane >> 4) * 16;
#endif
    view.w = band * 512 * (LAC_KIND == 2 ? LAC_STEPS : 1) + lane * (LAC_KIND == 2 ? 4 : 16);
    view.places = LAC_STEPS * LAC_BANDS * 512 + band * 128 + lane * 4;
    return view;
}

/* The products of a stage go in units: a step, and of a wide sparse step, whose B takes many registers, half of its tokens, or
 * a quarter before sm_90, for which the compiler wants more of them. */
enum {
    SHARES = LAC_KIND != 1 || LAC_WIDE < 4 ? 1 : LAC_WIDE >= 8 && __CUDA_ARCH__ < 900 ? 4 : 2,
    UNITS = LAC_STEPS * SHARES,
    UNIT_WIDE = LAC_WIDE / SHARES,
    SETS = LAC_DIRECT && LAC_KIND == 2 ? 4 : 2,
    PAUSES = (UNITS - 1) * LAC_HIGH /* in which copies are made and weights spread: the tensor cores are busy meanwhile */
};
static_assert(LAC_STEPS % 2 == 0, "fragments of a stage begin in the first of two sets");

struct lac_operands {
    u32 a[2][LAC_HIGH][4];                         /* of two steps                             */
    u32 b[SETS][UNIT_WIDE][LAC_KIND == 1 ? 4 : 2]; /* of two units, or four where two come at once */
    u32 places[LAC_HIGH], next_places[LAC_HIGH];
};

/* Fragments of unit `unit`; `w` is where W's fragments lie. */
__device__ __forceinline__ void lac_load_operands(lac_operands &o, const lac_view &view, u32 stage, u32 w, int unit)
{
    const int step = unit / SHARES;
#pragma unroll
    for (int i = 0; i < LAC_HIGH && unit % SHARES == 0; i++) {
        u32(&a)[4] = o.a[step & 1][i];
#if LAC_KIND == 2
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = lac_shared_load(w + view.w + (2 * i + (j & 1)) * LAC_SPREAD_EIGHT + (2 * step + (j >> 1)) * 128);
#else
        const uint4 v = lac_shared_load_16(w + view.w + (step * LAC_BANDS + i) * 512);
        a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
#endif
    }
#if LAC_DIRECT && LAC_KIND == 1
#pragma unroll
    for (int j = 0; j < UNIT_WIDE; j++)
        lac_load_straight<0>(o.b[unit % SETS][j],
                             stage + (view.x ^ step * 64) + (unit % SHARES * UNIT_WIDE + j) * (8 * LAC_X_LINE));
#elif LAC_DIRECT /* two steps at once */
#pragma unroll
    for (int j = 0; j < LAC_WIDE && step % 2 == 0; j++) {
        const uint4 v = lac_shared_load_16(stage + (view.x ^ step / 2 * 16) + j * (8 * LAC_X_LINE));
        o.b[step % SETS][j][0] = v.x, o.b[step % SETS][j][1] = v.y, o.b[step % SETS + 1][j][0] = v.z, o.b[step % SETS + 1][j][1] = v.w;
    }
#elif LAC_KIND == 1
#pragma unroll
    for (int j = 0; j < UNIT_WIDE; j++)
        lac_load_turned<0>(o.b[unit % SETS][j], stage + step * (32 * LAC_X_LINE) + (view.x ^ (unit % SHARES * UNIT_WIDE + j) * 16));
#else
#pragma unroll
    for (int j = 0; j < LAC_WIDE; j += 2) {
        u32 f[4];
        lac_load_turned<0>(f, stage + step * (16 * LAC_X_LINE) + (view.x ^ j * 16));
        o.b[unit % SETS][j][0] = f[0], o.b[unit % SETS][j][1] = f[1], o.b[unit % SETS][j + 1][0] = f[2], o.b[unit % SETS][j + 1][1] = f[3];
    }
#endif
}

/* Sparse: the places of a stage, which those of the stage before must not make way for yet. */
__device__ __forceinline__ void lac_load_places(lac_operands &o, const lac_view &view, u32 w)
{
#pragma unroll
    for (int i = 0; i < LAC_HIGH && LAC_KIND == 1; i++) o.next_places[i] = lac_shared_load(w + view.places + i * 128);
}
__device__ __forceinline__ void lac_take_places(lac_operands &o)
{
#pragma unroll
    for (int i = 0; i < LAC_HIGH && LAC_KIND == 1; i++) o.places[i] = o.next_places[i];
}

/* 16 outputs of a unit. */
__device__ __forceinline__ void lac_multiply(float (&sum)[LAC_HIGH][LAC_WIDE][4], const lac_operands &o, int unit, int i)
{
    const int step = unit / SHARES;
    const u32(&a)[4] = o.a[step & 1][i];
#pragma unroll
    for (int j = 0; j < UNIT_WIDE; j++) {
        float(&d)[4] = sum[i][unit % SHARES * UNIT_WIDE + j];
#if LAC_KIND == 1
        if (step & 1)
            lac_mma_sparse_16x8x32<LAC_X_DTYPE, 1>(d, a[0], a[1], a[2], a[3], o.b[unit % SETS][j], o.places[i]);
        else
            lac_mma_sparse_16x8x32<LAC_X_DTYPE, 0>(d, a[0], a[1], a[2], a[3], o.b[unit % SETS][j], o.places[i]);
#else
        lac_mma_16x8x16<LAC_X_DTYPE>(d, a[0], a[1], a[2], a[3], o.b[unit % SETS][j][0], o.b[unit % SETS][j][1]);
#endif
    }
}

/* All stages of an item. Fragments are loaded a unit ahead, those of the next stage before the last unit of this one: then that
 * stage has landed for everybody, and everybody has loaded all that he needs of this one. */
__device__ __forceinline__ void lac_multiply_stages(const lac_fragment_args &args, const lac_item &item, lac_copies &copies, u32 base,
                                                    float (&sum)[LAC_HIGH][LAC_WIDE][4])
{
    const lac_view view = lac_view_of();
    lac_operands o;
    u32 slot = 0, w = base + LAC_X_STAGE;
#if LAC_KIND == 2 /* a stage is spread while the one before it is multiplied, so it comes one earlier */
    enum { UNDER_WAY = LAC_STAGES - 3 };
    lac_spread spread;
    const u32 from = (threadIdx.x >> 5) * LAC_EIGHT + (threadIdx.x & 31) * 4;
    const u32 to = (threadIdx.x >> 5) * LAC_SPREAD_EIGHT + (threadIdx.x & 31) * 4;
    w = base + LAC_SPREAD_AT;
    spread.from = base + LAC_X_STAGE + from;
    spread.to = w + to;
    lac_copy_wait<UNDER_WAY>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SPREADS; i++) lac_spread_some(spread, i);
    __syncthreads();
#else
    enum { UNDER_WAY = LAC_STAGES - 2 };
    lac_copy_wait<UNDER_WAY>();
    __syncthreads();
#endif
    lac_load_places(o, view, w);
    lac_load_operands(o, view, base, w, 0);
    lac_take_places(o);
#pragma unroll 1
    for (int stage = item.begin; stage < item.end; stage++) {
        const u32 at = base + slot * LAC_STAGE;
        if (++slot == LAC_STAGES) slot = 0;
        const u32 next = base + slot * LAC_STAGE;
#if LAC_KIND == 2
        const u32 next_w = w ^ (base + LAC_SPREAD_AT) ^ (base + LAC_SPREAD_AT + LAC_SPREAD);
        spread.from = (stage + 1 < item.end ? next : at) + LAC_X_STAGE + from; /* of no use past the last, but legal */
        spread.to = next_w + to;
#else
        const u32 next_w = next + LAC_X_STAGE;
#endif
        lac_copies_open(args, copies);
#pragma unroll
        for (int unit = 0; unit < UNITS; unit++) {
            const bool last = unit == UNITS - 1;
            if (last) {
                lac_copies_close(copies);
                lac_copy_wait<UNDER_WAY>();
                __syncthreads();
                lac_load_places(o, view, next_w);
            }
            lac_load_operands(o, view, last ? next : at, last ? next_w : w, last ? 0 : unit + 1);
#pragma unroll
            for (int i = 0; i < LAC_HIGH; i++) {
                lac_multiply(sum, o, unit, i);
                const int pause = unit * LAC_HIGH + i;
#pragma unroll
                for (int c = 0; c < COPIES; c++)
                    if (!last && c * PAUSES / COPIES == pause) lac_copy_some(args, copies, c);
#if LAC_KIND == 2
#pragma unroll
                for (int c = 0; c < SPREADS; c++)
                    if (!last && c * PAUSES / SPREADS == pause) lac_spread_some(spread, c);
#endif
            }
        }
        lac_take_places(o);
        w = next_w;
    }
    lac_copy_wait<0>();
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, LAC_BLOCKS)
    lac_fragment(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_fragment_args args)
{
    extern __shared__ __align__(1024) u8 memory[];
    lac_let_next_begin();
    const lac_item item = lac_item_of(args, blockIdx.x);
    lac_copies copies = lac_copies_begin(call, args, item, lac_shared_address(memory));
    float sum[LAC_HIGH][LAC_WIDE][4] = {};
    lac_multiply_stages(args, item, copies, lac_shared_address(memory), sum);
#if LAC_PARTS > 1
    const int part = blockIdx.x % LAC_PARTS;
#pragma unroll
    for (int i = 0; i < LAC_HIGH; i++) {
        const i64 at = lac_partial_at(args, item.output_tile, item.token_tile, part, i);
#pragma unroll
        for (int j = 0; j < LAC_WIDE * 4; j++) args.partial[at + j * LAC_THREADS] = sum[i][j / 4][j % 4];
    }
#else
    int places[LAC_HIGH];
#pragma unroll
    for (int i = 0; i < LAC_HIGH; i++) places[i] = lac_place_of(args, item.output_tile, i);
    __syncthreads(); /* the stages are free */
#pragma unroll
    for (int i = 0; i < LAC_HIGH; i++) lac_write(call, item.token_tile, places[i], (float *)memory, sum[i]);
#endif
}

#if LAC_PARTS > 1
/* Adds the parts in their order: block (slab, tile), threads as above. */
extern "C" __global__ void __launch_bounds__(LAC_THREADS)
    lac_fragment_reduce(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_fragment_args args)
{
    extern __shared__ __align__(1024) u8 memory[];
    const int i = blockIdx.x % LAC_HIGH, tile = blockIdx.x / LAC_HIGH;
    const int output_tile = tile / args.token_tiles, token_tile = tile % args.token_tiles;
    const int places = lac_place_of(args, output_tile, i);
    float sum[LAC_WIDE][4] = {};
#pragma unroll
    for (int part = 0; part < LAC_PARTS; part++) {
        const i64 at = lac_partial_at(args, output_tile, token_tile, part, i);
#pragma unroll
        for (int j = 0; j < LAC_WIDE * 4; j++) sum[j / 4][j % 4] += args.partial[at + j * LAC_THREADS];
    }
    lac_write(call, token_tile, places, (float *)memory, sum);
}
#endif
