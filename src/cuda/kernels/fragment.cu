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
 *     stage       X  [LAC_ROWS][LAC_TILE_TOKENS] 16-bit, chunks of 16 bytes swizzled (lac_swizzle)
 *                 W  dense, sparse: [step][16 outputs][lane][16 bytes], a lane's fragment; sparse then [16 outputs][lane] places
 *                    expand: [8 outputs][lane] kept words and masks (lac_expand)
 *     rows        [2 * LAC_STAGES][LAC_ROWS] numbers of the rows of X, LAC_STAGES stages ahead of the copies that use them
 *     spread      expand: 2 x [step][16 outputs][word][lane], fragments of this stage and of the next
 *
 * The order of a stage's rows is the host's: expand puts the 4 inputs of a lane's places side by side (fragment_tile.h).
 * X is feature-major here, whatever the caller's is, and m a multiple of 8 where its rows are aligned to 16 bytes: both by a
 * copy in the workspace where need be (turn.cu).
 *
 * Constants beside those of every kernel: LAC_KIND, LAC_ROWS, LAC_WARP_OUTPUTS, LAC_WARP_TOKENS, LAC_WARPS_OUTPUTS,
 * LAC_WARPS_TOKENS, LAC_STAGES, LAC_PARTS, LAC_BLOCKS (at once on a multiprocessor), LAC_SHARED_INDEX, LAC_KEPT (expand: kept
 * weights of a lane and row in a stage).
 * Bottleneck: the tensor cores at 50%, L2 to shared memory above; few tokens: device memory. */
#include "async_copy.cuh"
#include "epilogue.cuh"
#include "fragment_arguments.h"
#include "matrix_load.cuh"
#include "mma.cuh"
#include "shared_access.cuh"

#define LAC_THREADS (LAC_WARPS_OUTPUTS * LAC_WARPS_TOKENS * 32)
#define LAC_TILE_OUTPUTS (LAC_WARPS_OUTPUTS * LAC_WARP_OUTPUTS)
#define LAC_TILE_TOKENS (LAC_WARPS_TOKENS * LAC_WARP_TOKENS)
#define LAC_HIGH (LAC_WARP_OUTPUTS / 16)  /* products of a warp along the outputs ... */
#define LAC_WIDE (LAC_WARP_TOKENS / 8)    /* ... and along the tokens                 */
#define LAC_STEP (LAC_KIND == 1 ? 32 : 16) /* rows of X in a product                  */
#define LAC_STEPS (LAC_ROWS / LAC_STEP)
#define LAC_BANDS (LAC_TILE_OUTPUTS / 16) /* of 16 outputs, in a tile */

#define LAC_X_ROW (LAC_TILE_TOKENS * 2)
#define LAC_X_STAGE (LAC_ROWS * LAC_X_ROW)
#define LAC_KEPT_WORDS ((LAC_KEPT + 1) / 2)
#define LAC_EIGHT (LAC_KEPT_WORDS * 128 + LAC_ROWS) /* 8 outputs of an expanding stage */
#define LAC_W_STAGE                                                                                                            \
    (LAC_KIND == 2 ? 2 * LAC_BANDS * LAC_EIGHT : LAC_STEPS * LAC_BANDS * 512 + (LAC_KIND == 1 ? LAC_BANDS * (LAC_ROWS / 64) * 128 : 0))
#define LAC_STAGE (LAC_X_STAGE + LAC_W_STAGE)
#define LAC_SPREAD (LAC_STEPS * LAC_BANDS * 512)
#define LAC_NUMBERS (LAC_STAGES * LAC_STAGE) /* where the numbers of rows begin */
#define LAC_SPREAD_AT (LAC_NUMBERS + 2 * LAC_STAGES * LAC_ROWS * 4)

#define LAC_SLAB_ROW (LAC_WARP_TOKENS + 8) /* floats: neighbouring outputs 8 banks apart */

/* ---- tiles */

struct lac_item {
    int token_tile, output_tile, begin, end; /* stages */
};

/* Bands of outputs, in each all tokens, in each all parts. */
__device__ __forceinline__ lac_item lac_item_of(const lac_fragment_args &args, int index)
{
    lac_item item;
    const int part = index % LAC_PARTS;
    index /= LAC_PARTS;
    const int first = index / (args.band * args.token_tiles) * args.band;
    const int wide = min(args.band, args.output_tiles - first);
    index -= first * args.token_tiles;
    item.token_tile = index / wide;
    item.output_tile = first + index % wide;
    const int begin = args.range[2 * item.output_tile], count = args.range[2 * item.output_tile + 1] - begin;
    item.begin = begin + (int)((i64)count * part / LAC_PARTS);
    item.end = begin + (int)((i64)count * (part + 1) / LAC_PARTS);
    return item;
}

/* ---- copies */

/* Which bits of a row's number its chunks trade places by: eight rows that are read together lie in different banks. */
__device__ __forceinline__ u32 lac_swizzle(u32 row)
{
    return LAC_TILE_TOKENS >= 64 ? row & 7 : LAC_TILE_TOKENS == 32 ? row >> 1 & 3 : row >> 2 & 1;
}

/* Eight tokens of a row, `count` of them there, where X's rows are not aligned to 16 bytes. */
__device__ __forceinline__ void lac_copy_slowly(u32 to, const u16 *from, int count)
{
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) word[i >> 1] |= (u32)from[i] << 16 * (i & 1);
    lac_shared_store_16(to, make_uint4(word[0], word[1], word[2], word[3]));
}

template <bool aligned>
__device__ __forceinline__ void lac_copy_rows(const lac_fragment_args &args, u32 stage, u32 numbers, int token_begin, int m)
{
    enum { CHUNKS = LAC_TILE_TOKENS / 8, AT_ONCE = LAC_THREADS / CHUNKS, PASSES = LAC_ROWS / AT_ONCE };
    static_assert(LAC_THREADS % CHUNKS == 0 && LAC_ROWS % AT_ONCE == 0, "threads share the rows evenly");
    const u32 chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS;
    const int token = token_begin + (int)chunk * 8;
    const u16 *x = (const u16 *)args.x + token;
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
        const u32 row = first + i * AT_ONCE;
        const int number = (int)lac_shared_load(numbers + row * 4);
        const u32 to = stage + row * LAC_X_ROW + (chunk ^ lac_swizzle(row)) * 16;
        if (aligned)
            lac_copy_16_or_zeros(to, number < 0 || token >= m ? args.x : x + (i64)number * args.ldx, number < 0 || token >= m);
        else
            lac_copy_slowly(to, x + (i64)number * args.ldx, number < 0 ? 0 : m - token);
    }
}

__device__ __forceinline__ i64 lac_numbers_of(const lac_fragment_args &args, int stage, int output_tile)
{
    return (i64)(LAC_SHARED_INDEX ? stage - args.range[2 * output_tile] : stage) * LAC_ROWS;
}

/* What a block knows of its copies. */
struct lac_copies {
    u32 stages, numbers; /* in shared memory */
    u32 slot, ring;      /* of the next stage to copy */
    int next, end;
    int token_begin;
    i64 index; /* of the next stage's numbers, from the first of args.index on */
    bool aligned;
};

/* Starts the copy of the next stage, and of the numbers LAC_STAGES later; an empty group past the last one. */
__device__ __forceinline__ void lac_copy_stage(const lac_gpu_call &call, const lac_fragment_args &args, lac_copies &c)
{
    if (c.next < c.end) {
        const u32 stage = c.stages + c.slot * LAC_STAGE, numbers = c.numbers + c.ring * (LAC_ROWS * 4);
        if (c.aligned)
            lac_copy_rows<true>(args, stage, numbers, c.token_begin, call.m);
        else
            lac_copy_rows<false>(args, stage, numbers, c.token_begin, call.m);
        const u8 *w = args.weight + (i64)c.next * LAC_W_STAGE;
#pragma unroll
        for (int i = 0; i < (LAC_W_STAGE + LAC_THREADS * 16 - 1) / (LAC_THREADS * 16); i++) {
            const u32 at = (i * LAC_THREADS + threadIdx.x) * 16;
            if (LAC_W_STAGE % (LAC_THREADS * 16) == 0 || at < LAC_W_STAGE) lac_copy_16<0>(stage + LAC_X_STAGE + at, w + at);
        }
        if (c.next + LAC_STAGES < c.end && threadIdx.x < LAC_ROWS / 4) {
            const u32 later = c.ring < LAC_STAGES ? c.ring + LAC_STAGES : c.ring - LAC_STAGES;
            lac_copy_16<0>(c.numbers + later * (LAC_ROWS * 4) + threadIdx.x * 16,
                           args.index + c.index + LAC_STAGES * LAC_ROWS + threadIdx.x * 4);
        }
    }
    lac_copy_commit();
    c.next++;
    c.index += LAC_ROWS;
    if (++c.slot == LAC_STAGES) c.slot = 0;
    if (++c.ring == 2 * LAC_STAGES) c.ring = 0;
}

/* The numbers of the first stages by hand, then their copies. */
__device__ __forceinline__ lac_copies lac_copies_begin(const lac_gpu_call &call, const lac_fragment_args &args, const lac_item &item,
                                                       u32 memory)
{
    lac_copies c;
    c.stages = memory;
    c.numbers = memory + LAC_NUMBERS;
    c.slot = c.ring = 0;
    c.next = item.begin;
    c.end = item.end;
    c.token_begin = item.token_tile * LAC_TILE_TOKENS;
    c.index = lac_numbers_of(args, item.begin, item.output_tile);
    c.aligned = ((u64)args.x | (u64)args.ldx * 2) % 16 == 0;
    for (int i = threadIdx.x; i < LAC_STAGES * LAC_ROWS; i += LAC_THREADS)
        if (item.begin + i / LAC_ROWS < item.end) lac_shared_store(c.numbers + i * 4, (u32)args.index[c.index + i]);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < LAC_STAGES - 1; i++) lac_copy_stage(call, args, c);
    return c;
}

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
#if LAC_KIND == 1 /* 32 rows, 8 tokens */
    view.x = lane * LAC_X_ROW + ((chunk ^ lac_swizzle(lane)) * 16);
#else /* rows 0-15 of 8 tokens, then of the next 8 */
    view.x = (lane & 15) * LAC_X_ROW + (((chunk | lane >> 4) ^ lac_swizzle(lane & 15)) * 16);
#endif
    view.w = band * 512 + lane * (LAC_KIND == 2 ? 4 : 16);
    view.places = LAC_STEPS * LAC_BANDS * 512 + band * (LAC_ROWS / 64) * 128 + lane * 4;
    return view;
}

struct lac_operands {
    u32 a[LAC_HIGH][4];
    u32 b[LAC_WIDE][LAC_KIND == 1 ? 4 : 2];
};

/* Fragments of step `step`; `w` is where W's fragments lie. */
__device__ __forceinline__ void lac_load_operands(lac_operands &o, const lac_view &view, u32 stage, u32 w, int step)
{
#pragma unroll
    for (int i = 0; i < LAC_HIGH; i++) {
        const u32 at = w + view.w + (step * LAC_BANDS + i) * 512;
#if LAC_KIND == 2
#pragma unroll
        for (int j = 0; j < 4; j++) o.a[i][j] = lac_shared_load(at + j * 128);
#else
        const uint4 v = lac_shared_load_16(at);
        o.a[i][0] = v.x, o.a[i][1] = v.y, o.a[i][2] = v.z, o.a[i][3] = v.w;
#endif
    }
    const u32 x = stage + step * (LAC_STEP * LAC_X_ROW);
#if LAC_KIND == 1
#pragma unroll
    for (int j = 0; j < LAC_WIDE; j++) lac_load_turned<0>(o.b[j], x + (view.x ^ j * 16));
#else
#pragma unroll
    for (int j = 0; j < LAC_WIDE; j += 2) {
        u32 f[4];
        lac_load_turned<0>(f, x + (view.x ^ j * 16));
        o.b[j][0] = f[0], o.b[j][1] = f[1], o.b[j + 1][0] = f[2], o.b[j + 1][1] = f[3];
    }
#endif
}

template <int selector>
__device__ __forceinline__ void lac_multiply(float (&sum)[LAC_HIGH][LAC_WIDE][4], const lac_operands &o, const u32 (&places)[LAC_HIGH])
{
#pragma unroll
    for (int i = 0; i < LAC_HIGH; i++)
#pragma unroll
        for (int j = 0; j < LAC_WIDE; j++)
#if LAC_KIND == 1
            lac_mma_sparse_16x8x32<LAC_X_DTYPE, selector>(sum[i][j], o.a[i][0], o.a[i][1], o.a[i][2], o.a[i][3], o.b[j], places[i]);
#else
            lac_mma_16x8x16<LAC_X_DTYPE>(sum[i][j], o.a[i][0], o.a[i][1], o.a[i][2], o.a[i][3], o.b[j][0], o.b[j][1]);
#endif
}

/* The products of a stage. */
__device__ __forceinline__ void lac_stage_products(float (&sum)[LAC_HIGH][LAC_WIDE][4], const lac_view &view, u32 stage, u32 w)
{
    u32 places[LAC_HIGH] = {};
#if LAC_KIND == 1
#pragma unroll
    for (int pair = 0; pair < LAC_STEPS / 2; pair++) {
#pragma unroll
        for (int i = 0; i < LAC_HIGH; i++) places[i] = lac_shared_load(w + view.places + (i * (LAC_ROWS / 64) + pair) * 128);
        lac_operands o;
        lac_load_operands(o, view, stage, w, 2 * pair);
        lac_multiply<0>(sum, o, places);
        lac_load_operands(o, view, stage, w, 2 * pair + 1);
        lac_multiply<1>(sum, o, places);
    }
#else
    lac_operands o[2];
    lac_load_operands(o[0], view, stage, w, 0);
#pragma unroll
    for (int step = 0; step < LAC_STEPS; step++) {
        if (step + 1 < LAC_STEPS) lac_load_operands(o[(step + 1) & 1], view, stage, w, step + 1);
        lac_multiply<0>(sum, o[step & 1], places);
    }
#endif
}

/* ---- expanding */

#if LAC_KIND == 2
#define LAC_UNIT (LAC_ROWS / 4) /* inputs of a lane and row in a stage: 16 or 32 */

/* Spreads a stage of W. A warp takes 8 outputs at a time; lane 4g + t has input 4 * step + i of its unit at place i of the
 * step's fragment, so it stores its own words alone: bank = lane, no barrier. */
__device__ __forceinline__ void lac_expand(u32 from, u32 to)
{
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (int e = 0; e < (2 * LAC_BANDS + LAC_THREADS / 32 - 1) / (LAC_THREADS / 32); e++) {
        const u32 eight = e * (LAC_THREADS / 32) + (threadIdx.x >> 5);
        if (2 * LAC_BANDS % (LAC_THREADS / 32) && eight >= 2 * LAC_BANDS) break;
        const u32 source = from + eight * LAC_EIGHT;
        const u32 target = to + (eight >> 1) * 512 + (eight & 1) * 128 + lane * 4;
        u32 kept[LAC_KEPT_WORDS], mask;
#pragma unroll
        for (int i = 0; i < LAC_KEPT_WORDS; i++) kept[i] = lac_shared_load(source + i * 128 + lane * 4);
        if (LAC_UNIT == 32)
            mask = lac_shared_load(source + LAC_KEPT_WORDS * 128 + lane * 4);
        else
            mask = lac_shared_load_half(source + LAC_KEPT_WORDS * 128 + lane * 2);
#pragma unroll
        for (int step = 0; step < LAC_STEPS; step++)
#pragma unroll
            for (int half = 0; half < 2; half++) lac_shared_store(target + step * (LAC_BANDS * 512) + half * 256, 0);
        /* The kept weights come from the highest input down. */
#pragma unroll
        for (int i = 0; i < LAC_KEPT; i++) {
            const u32 input = 31 - __clz(mask);
            mask ^= 1u << input;
            const u32 at = target + (input >> 2) * (LAC_BANDS * 512) + (input & 2) * 128 + (input & 1) * 2;
            lac_shared_store_half(at, (u16)(kept[i >> 1] >> 16 * (i & 1)));
        }
    }
}
#endif

/* ---- from sums to Y */

__device__ __forceinline__ void lac_store_eight(void *to, const float (&v)[8])
{
#if LAC_Y_DTYPE == LAC_F32
    ((float4 *)to)[0] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4 *)to)[1] = make_float4(v[4], v[5], v[6], v[7]);
#else
    u32 word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) word[i] = lac_narrow<LAC_Y_DTYPE>(v[2 * i]) | (u32)lac_narrow<LAC_Y_DTYPE>(v[2 * i + 1]) << 16;
    *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
#endif
}

/* A warp's 16 outputs x LAC_WARP_TOKENS to Y, through shared memory of its own: a thread then has eight neighbours of Y. */
__device__ __forceinline__ void lac_slab_finish(const lac_gpu_call &call, const int *output, int token_begin, float *slab,
                                                const float (&sum)[LAC_WIDE][4])
{
    const int lane = threadIdx.x & 31;
    const bool aligned = ((u64)call.y | (u64)call.ldy * sizeof(lac_element<LAC_Y_DTYPE>::type)) % 16 == 0;
#pragma unroll
    for (int j = 0; j < LAC_WIDE; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(float2 *)(slab + (lane / 4 + 8 * h) * LAC_SLAB_ROW + j * 8 + lane % 4 * 2) = make_float2(sum[j][2 * h], sum[j][2 * h + 1]);
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 2 * LAC_WARP_TOKENS; i += 32) {
        float v[8];
#if LAC_Y_TOKEN_MAJOR
        const int token = token_begin + i / 2, row = i % 2 * 8, first = output[row];
        const float *from = slab + row * LAC_SLAB_ROW + i / 2;
        bool whole = !LAC_HAS_ROW_PERM && aligned && first >= 0 && first % 8 == 0 && output[row + 7] >= 0;
        if (token >= call.m) continue;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int place = output[row + e];
            v[e] = place < 0 ? 0.0f : lac_finish(call, token, place, from[e * LAC_SLAB_ROW], lac_bias(call, place));
            if (!whole && place >= 0) lac_store(call, token, place, v[e]);
        }
        if (whole) lac_store_eight((lac_element<LAC_Y_DTYPE>::type *)call.y + lac_at(call.ldy, token, first), v);
#else
        const int row = i / LAC_WIDE, token = token_begin + i % LAC_WIDE * 8, place = output[row];
        const float *from = slab + row * LAC_SLAB_ROW + i % LAC_WIDE * 8;
        if (place < 0) continue;
        const float bias = lac_bias(call, place);
        const bool whole = aligned && token + 8 <= call.m;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            v[e] = token + e < call.m ? lac_finish(call, token + e, place, from[e], bias) : 0.0f;
            if (!whole && token + e < call.m) lac_store(call, token + e, place, v[e]);
        }
        if (whole) lac_store_eight((lac_element<LAC_Y_DTYPE>::type *)call.y + lac_at(call.ldy, token, place), v);
#endif
    }
    __syncwarp();
}

/* Where the sums of a warp's slab i of a part lie: [tile][part][slab][sum][thread]. */
__device__ __forceinline__ i64 lac_partial_at(const lac_fragment_args &args, int output_tile, int token_tile, int part, int i)
{
    const i64 tile = (i64)output_tile * args.token_tiles + token_tile;
    return ((tile * LAC_PARTS + part) * LAC_HIGH + i) * (LAC_WIDE * 4 * LAC_THREADS) + threadIdx.x;
}

/* Slab i of this warp. */
__device__ __forceinline__ void lac_write(const lac_gpu_call &call, const lac_fragment_args &args, int output_tile, int token_tile,
                                          int i, float *slabs, const float (&sum)[LAC_WIDE][4])
{
    const int warp = threadIdx.x >> 5;
    const int *output = args.output + (i64)output_tile * LAC_TILE_OUTPUTS + warp / LAC_WARPS_TOKENS * LAC_WARP_OUTPUTS + i * 16;
    lac_slab_finish(call, output, token_tile * LAC_TILE_TOKENS + warp % LAC_WARPS_TOKENS * LAC_WARP_TOKENS,
                    slabs + warp * (16 * LAC_SLAB_ROW), sum);
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, LAC_BLOCKS)
    lac_fragment(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_fragment_args args)
{
    extern __shared__ __align__(1024) u8 memory[];
    const u32 base = lac_shared_address(memory);
    const lac_item item = lac_item_of(args, blockIdx.x);
    const lac_view view = lac_view_of();
    lac_copies copies = lac_copies_begin(call, args, item, base);
    float sum[LAC_HIGH][LAC_WIDE][4] = {};
    u32 slot = 0;
#if LAC_KIND == 2
    u32 side = 0;
    lac_copy_wait<LAC_STAGES - 2>();
    __syncthreads();
    if (item.begin < item.end) lac_expand(base + LAC_X_STAGE, base + LAC_SPREAD_AT);
#endif
#pragma unroll 1
    for (int stage = item.begin; stage < item.end; stage++) {
#if LAC_KIND == 2 /* the next stage too must be there, to be spread while this one is multiplied */
        lac_copy_wait<LAC_STAGES - 3>();
        __syncthreads();
        lac_copy_stage(call, args, copies);
        const u32 next = slot + 1 == LAC_STAGES ? 0 : slot + 1;
        if (stage + 1 < item.end) lac_expand(base + next * LAC_STAGE + LAC_X_STAGE, base + LAC_SPREAD_AT + (side ^ 1) * LAC_SPREAD);
        lac_stage_products(sum, view, base + slot * LAC_STAGE, base + LAC_SPREAD_AT + side * LAC_SPREAD);
        side ^= 1;
#else
        lac_copy_wait<LAC_STAGES - 2>();
        __syncthreads(); /* the stage has landed for everybody, and everybody is done with the one before it */
        lac_copy_stage(call, args, copies);
        lac_stage_products(sum, view, base + slot * LAC_STAGE, base + slot * LAC_STAGE + LAC_X_STAGE);
#endif
        if (++slot == LAC_STAGES) slot = 0;
    }
#if LAC_PARTS > 1
    const int part = blockIdx.x % LAC_PARTS;
#pragma unroll
    for (int i = 0; i < LAC_HIGH; i++) {
        const i64 at = lac_partial_at(args, item.output_tile, item.token_tile, part, i);
#pragma unroll
        for (int j = 0; j < LAC_WIDE * 4; j++) args.partial[at + j * LAC_THREADS] = sum[i][j / 4][j % 4];
    }
#else
    __syncthreads(); /* the stages are free */
#pragma unroll
    for (int i = 0; i < LAC_HIGH; i++) lac_write(call, args, item.output_tile, item.token_tile, i, (float *)memory, sum[i]);
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
    float sum[LAC_WIDE][4] = {};
#pragma unroll
    for (int part = 0; part < LAC_PARTS; part++) {
        const i64 at = lac_partial_at(args, output_tile, token_tile, part, i);
#pragma unroll
        for (int j = 0; j < LAC_WIDE * 4; j++) sum[j / 4][j % 4] += args.partial[at + j * LAC_THREADS];
    }
    lac_write(call, args, output_tile, token_tile, i, (float *)memory, sum);
}
#endif
