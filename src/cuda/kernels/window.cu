/* window.cu - fp32 SpMM on tensor cores: whole windows of X in shared memory, each vector of W selects its inputs on the way
 * to registers.
 *
 * Y[64 tokens][2 * LAC_VECTORS vectors of LAC_WIDTH outputs] is a tile; blocks run over tiles (times parts of k) until none is
 * left. One thread brings windows of X (window_tile.cuh) through LAC_STAGES stages, another W in chunks of LAC_CHUNK steps
 * through a ring of LAC_RING, both by bulk copies; two warpgroups compute, each all 64 tokens of its LAC_VECTORS vectors.
 *
 * Thread to data: warp w of a warpgroup has tokens 16 w to 16 w + 15. The fragments of 16 selected inputs come by ldmatrix,
 * transposed: each of the 16 row addresses is free, and lanes 0-15 and 16-31 give those of inputs 0-7 and 8-15, at the first
 * and the last eight tokens.
 *
 * A step is 16 slots of a vector: one wgmma, or three with two planes. The steps of all vectors of a window are one pipeline:
 * LAC_PENDING steps are in the tensor cores, LAC_FRAGMENTS - LAC_PENDING steps' fragments are on their way from shared memory.
 * A vector's steps are cut into chains that begin with sums of zero; a finished chain is added to fp32 registers in the
 * ordinary way, times the factor of the token and the window (the tensor cores' own accumulator truncates). With one plane
 * and factors that are the same in all windows of a token, everything stays in the tensor cores' sums until the end.
 *
 * A chunk of W: [warpgroup][LAC_PLACES steps][16 slots][step] halves, where the inputs lie (in 16-byte units, swizzle included), so
 * that a lane reads its places of two or four steps at once, padded to 128 bytes; then [warpgroup][step][plane] matrices
 * of LAC_WIDTH outputs x 16 inputs in core matrices of 8 x 16 bytes.
 *
 * Products: with two planes x w = xhi whi + xhi wlo + xlo whi; with one, xhi whi. Where X or W is not finite, a
 * block keeps the cross products apart and drops them where the main one is not finite. With LAC_LOW_SHIFT they are always kept apart, for
 * they are 2^LAC_LOW_SHIFT times too large.
 *
 * Constants: LAC_TOKENS (64), LAC_WINDOW inputs, LAC_STEPS steps of 16 slots a window, LAC_WIDTH (8, 16, 24, 32), LAC_VECTORS,
 * LAC_CHUNK (divides LAC_VECTORS * LAC_STEPS), LAC_PLACES (2, 4), LAC_RING, LAC_STAGES, LAC_PLANES, LAC_LOW_SHIFT, LAC_UNIT, LAC_ZERO_ROWS,
 * LAC_PARTS (1: k is not split), LAC_EARLY (1: started before split.cu has ended), and those of
 * epilogue.cuh. Bottleneck: shared memory (gathered X, W once per 64 tokens, the copies). */
#define LAC_OPERAND 2
#include "cursor.cuh"
#include "pipeline.cuh"
#include "wgmma.cuh"
#include "window_common.cuh"

/* The fragments in registers: as many as divide the steps of a window, so that each window begins with the first. */
constexpr int lac_fragment_count(int most)
{
    return LAC_TURN % most == 0 ? most : lac_fragment_count(most - 1);
}
constexpr int lac_least(int a, int b) { return a < b ? a : b; }
enum { LAC_FRAGMENTS = lac_fragment_count(LAC_PLANES == 2 ? 4 : 8), LAC_MOST_PENDING = LAC_PLANES == 2 ? 1 : 2 };
/* A chain's sums must have been added before the chain after the next begins. */
enum { LAC_PENDING = lac_least(LAC_MOST_PENDING, lac_least(LAC_FRAGMENTS - 1, LAC_SHORT_CHAIN)) };
enum { LAC_AHEAD = LAC_FRAGMENTS - LAC_PENDING };

struct lac_fragment { /* A of a step */
    u32 plane[LAC_PLANES][4];
};

/* Behind the barriers: places and factors of the tile's outputs. */
#define LAC_NOTES (LAC_STAGES * LAC_X_STAGE + LAC_RING * LAC_W_CHUNK + 16 * (LAC_STAGES + LAC_RING))

struct lac_shared { /* shared addresses */
    u32 x, w, barriers;
    __device__ __forceinline__ u32 x_full(u32 slot) const { return barriers + 8 * slot; }
    __device__ __forceinline__ u32 x_empty(u32 slot) const { return barriers + 8 * (LAC_STAGES + slot); }
    __device__ __forceinline__ u32 w_full(u32 slot) const { return barriers + 8 * (2 * LAC_STAGES + slot); }
    __device__ __forceinline__ u32 w_empty(u32 slot) const { return barriers + 8 * (2 * LAC_STAGES + LAC_RING + slot); }
    __device__ __forceinline__ u32 stage(u32 slot) const { return x + slot * LAC_X_STAGE; }
    __device__ __forceinline__ u32 chunk(u32 slot) const { return w + slot * LAC_W_CHUNK; }
};

/* What a warpgroup keeps from window to window. */
struct lac_reader {
    lac_cursor<LAC_STAGES> x; /* the window that is multiplied                        */
    lac_cursor<LAC_RING> w;   /* the chunk that is multiplied                         */
    u32 places[LAC_PLACES / 2], next_places[LAC_PLACES / 2]; /* of the steps that are fetched, of the next ones */
};

/* This warp has read its last of a buffer: says so to the thread that copies into it. */
__device__ __forceinline__ void lac_release(u32 barrier)
{
#if !LAC_EACH_ARRIVES
    __syncwarp();
    if ((threadIdx.x & 31) != 0) return;
#endif
    lac_barrier_arrive(barrier);
}

/* The number of a step among those whose places are read at once; these begin anew with each chunk. */
__device__ __forceinline__ constexpr int lac_place_of(int step) { return step % LAC_TURN % LAC_CHUNK % LAC_PLACES; }
/* The first step of those after the ones that `step` is among. */
__device__ __forceinline__ constexpr int lac_next_places(int step)
{
    const int in = step % LAC_CHUNK, next = in - in % LAC_PLACES + LAC_PLACES;
    return step - in + (next < LAC_CHUNK ? next : LAC_CHUNK);
}

/* Reads the places of LAC_PLACES steps from `step` on, when their chunk is there. `now` is the step that is multiplied; steps of the
 * next window count on. */
__device__ __forceinline__ void lac_locate(lac_reader &reader, const lac_shared &shared, const lac_view &view, int now, int step)
{
    const lac_cursor<LAC_RING> w = reader.w.after(step / LAC_CHUNK - now / LAC_CHUNK);
    if (step % LAC_CHUNK == 0) lac_barrier_wait(shared.w_full(w.slot), w.parity);
    const u32 from = shared.chunk(w.slot) + view.index + step % LAC_CHUNK * 32;
#if LAC_PLACES == 4
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(reader.next_places[0]), "=r"(reader.next_places[1]) : "r"(from));
#else
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(reader.next_places[0]) : "r"(from));
#endif
}

/* Starts the loads of a step's fragment, and of the next places (`more`: also when these are in a later window). */
__device__ __forceinline__ void lac_fetch(lac_fragment &f, lac_reader &reader, const lac_shared &shared, const lac_view &view,
                                          int now, int step, bool more)
{
    const lac_cursor<LAC_STAGES> x = reader.x.after(step / LAC_TURN);
    const int next = lac_next_places(step), at = lac_place_of(step);
    if (step % LAC_TURN == 0) lac_barrier_wait(shared.x_full(x.slot), x.parity);
    if (at == 0) {
#pragma unroll
        for (int i = 0; i < LAC_PLACES / 2; i++) reader.places[i] = reader.next_places[i];
        if (next % LAC_TURN != 0 || more) lac_locate(reader, shared, view, now, next);
    }
    const u32 two = reader.places[at / 2];
    const u32 row = lac_row_address(view, shared.stage(x.slot), at % 2 ? two >> 16 : two & 0xffffu);
    lac_load_turned<0>(f.plane[0], row);
#if LAC_PLANES == 2
    lac_load_turned<LAC_X_PLANE>(f.plane[1], row);
#endif
}

/* The products of a step; the small cross products first, while they are not yet lost beside the main ones. */
__device__ __forceinline__ void lac_products(float (&sum)[LAC_SUMS], const lac_fragment &f, u64 matrix, bool begin)
{
#if LAC_PLANES == 2
    lac_wgmma<LAC_WIDTH>::run(sum, f.plane[1], matrix, begin);
    lac_wgmma<LAC_WIDTH>::run(sum, f.plane[0], matrix + (LAC_MATRIX >> 4), 0);
    lac_wgmma<LAC_WIDTH>::run(sum, f.plane[0], matrix, 0);
#else
    lac_wgmma<LAC_WIDTH>::run(sum, f.plane[0], matrix, begin);
#endif
}

/* A step that has left the tensor cores while step `now` is in them: a chunk is given back after its last step. */
__device__ __forceinline__ void lac_give_back(const lac_reader &reader, const lac_shared &shared, int now, int step)
{
    if (step % LAC_CHUNK == LAC_CHUNK - 1)
        lac_release(shared.w_empty(reader.w.before(now / LAC_CHUNK - step / LAC_CHUNK)));
}

/* The same, and a chain is added after its last step. */
__device__ __forceinline__ void lac_retire(float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS], float (&sum)[2][LAC_SUMS],
                                           const float (&factor)[LAC_BANDS][2], const lac_reader &reader,
                                           const lac_shared &shared, int now, int step)
{
    lac_give_back(reader, shared, now, step);
    if (lac_chain_ends(step)) {
        const int chain = lac_chain_of(step);
        lac_wgmma_results(sum[chain & 1]);
        lac_promote(total[step / LAC_STEPS][0], sum[chain & 1], factor[0]);
    }
}

/* Where the rows of B of a step lie. */
__device__ __forceinline__ u64 lac_matrix_of(const lac_reader &reader, const lac_shared &shared, const lac_view &view, int step)
{
    return lac_wgmma_descriptor(shared.chunk(reader.w.slot) + view.matrices) +
           step % LAC_CHUNK * (LAC_PLANES * LAC_MATRIX >> 4);
}

#if !LAC_LOW_SHIFT
/* Adds the windows of an item to `total`, overlapped as the head of this file says. */
__device__ __forceinline__ void lac_consume(float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS], const lac_view &view, int windows,
                                            const lac_shared &shared, lac_reader &reader)
{
    float sum[2][LAC_SUMS], factor[LAC_BANDS][2];
    lac_fragment fragment[LAC_FRAGMENTS];
    lac_locate(reader, shared, view, 0, 0);
#pragma unroll
    for (int step = 0; step < LAC_AHEAD; step++) lac_fetch(fragment[step], reader, shared, view, 0, step, windows > 1);
    for (int left = windows; left > 0; left--) {
        lac_factors(factor, shared.stage(reader.x.slot));
#pragma unroll
        for (int step = 0; step < LAC_TURN; step++) {
            const int ahead = step + LAC_AHEAD;
            lac_wgmma_fence();
            lac_products(sum[lac_chain_of(step) & 1], fragment[step % LAC_FRAGMENTS],
                         lac_matrix_of(reader, shared, view, step), lac_chain_begins(step));
            lac_wgmma_commit();
            if (step == LAC_TURN - 1) lac_release(shared.x_empty(reader.x.slot));
            lac_wgmma_wait<LAC_PENDING>();
            if (ahead < LAC_TURN || left > 1)
                lac_fetch(fragment[ahead % LAC_FRAGMENTS], reader, shared, view, step, ahead, left > (ahead < LAC_TURN ? 1 : 2));
            if (step >= LAC_PENDING) lac_retire(total, sum, factor, reader, shared, step, step - LAC_PENDING);
            if (step % LAC_CHUNK == LAC_CHUNK - 1) reader.w.next();
        }
        lac_wgmma_wait<0>();
#pragma unroll
        for (int step = LAC_TURN - LAC_PENDING; step < LAC_TURN; step++)
            lac_retire(total, sum, factor, reader, shared, LAC_TURN, step);
        reader.x.next();
    }
}
#endif

#if LAC_PLANES == 1
enum { LAC_STRAIGHT_PENDING = lac_least(3, LAC_FRAGMENTS - 1), LAC_STRAIGHT_AHEAD = LAC_FRAGMENTS - LAC_STRAIGHT_PENDING };

/* The same when the factors of each token are alike in all windows: everything stays in the tensor cores' sums until the end.
 * That they truncate is little beside the rounding of one plane. */
__device__ __forceinline__ void lac_consume_straight(float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS], const lac_view &view,
                                                     int windows, const lac_shared &shared, lac_reader &reader)
{
    enum { PENDING = LAC_STRAIGHT_PENDING, AHEAD = LAC_STRAIGHT_AHEAD };
    float factor[LAC_BANDS][2];
    lac_fragment fragment[LAC_FRAGMENTS];
    lac_locate(reader, shared, view, 0, 0);
#pragma unroll
    for (int step = 0; step < AHEAD; step++) lac_fetch(fragment[step], reader, shared, view, 0, step, windows > 1);
    lac_factors(factor, shared.stage(reader.x.slot));
    for (int left = windows; left > 0; left--) {
#pragma unroll
        for (int step = 0; step < LAC_TURN; step++) {
            const int ahead = step + AHEAD;
            lac_wgmma_fence();
            lac_products(total[step / LAC_STEPS][0], fragment[step % LAC_FRAGMENTS], lac_matrix_of(reader, shared, view, step), false);
            lac_wgmma_commit();
            if (step == LAC_TURN - 1) lac_release(shared.x_empty(reader.x.slot));
            lac_wgmma_wait<PENDING>();
            if (ahead < LAC_TURN || left > 1)
                lac_fetch(fragment[ahead % LAC_FRAGMENTS], reader, shared, view, step, ahead, left > (ahead < LAC_TURN ? 1 : 2));
            if (step >= PENDING)
                lac_give_back(reader, shared, step, step - PENDING);
            else if (left < windows)
                lac_give_back(reader, shared, step + LAC_TURN, step + LAC_TURN - PENDING);
            if (step % LAC_CHUNK == LAC_CHUNK - 1) reader.w.next();
        }
        reader.x.next();
    }
    lac_wgmma_wait<0>();
#pragma unroll
    for (int step = LAC_TURN - PENDING; step < LAC_TURN; step++) lac_give_back(reader, shared, LAC_TURN, step);
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++) {
        lac_wgmma_results(total[v][0]);
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) total[v][0][i] *= factor[0][i >> 1 & 1];
    }
}
#endif

#if LAC_PLANES == 2
/* The same where something is not finite, or lo is scaled: main and cross products apart, one step after the other. `vectors`:
 * how many of the warpgroup's vectors are not padding. The others are skipped, which also keeps the compiler from mixing the
 * chains for more registers than there are. */
__device__ __forceinline__ void lac_consume_apart(float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS], const lac_view &view,
                                                  int windows, int vectors, const lac_shared &shared, lac_reader &reader)
{
    for (int window = 0; window < windows; window++) {
        const u32 stage = shared.stage(reader.x.slot);
        float factor[LAC_BANDS][2], main[LAC_SUMS], cross[LAC_SUMS], tiny[LAC_SUMS];
        lac_barrier_wait(shared.x_full(reader.x.slot), reader.x.parity);
        lac_factors(factor, stage);
#pragma unroll
        for (int step = 0; step < LAC_TURN; step++) {
            if (step % LAC_CHUNK == 0) lac_barrier_wait(shared.w_full(reader.w.slot), reader.w.parity);
            const u32 chunk = shared.chunk(reader.w.slot);
            if (step / LAC_STEPS < vectors) {
                const u32 row = lac_row_address(view, stage, lac_place(view, chunk, step % LAC_CHUNK));
                const u64 b =
                    lac_wgmma_descriptor(chunk + view.matrices + step % LAC_CHUNK * LAC_PLANES * LAC_MATRIX);
                u32 high[4], low[4];
                lac_load_turned<0>(high, row);
                lac_load_turned<LAC_X_PLANE>(low, row);
                lac_wgmma_fence();
                lac_wgmma<LAC_WIDTH>::run(main, high, b, lac_chain_begins(step));
                lac_wgmma<LAC_WIDTH>::run(cross, low, b, lac_chain_begins(step));
                lac_wgmma<LAC_WIDTH>::run(cross, high, b + (LAC_MATRIX >> 4), 0);
                if (LAC_LOW_SHIFT) lac_wgmma<LAC_WIDTH>::run(tiny, low, b + (LAC_MATRIX >> 4), lac_chain_begins(step));
                lac_wgmma_commit();
                lac_wgmma_wait<0>();
                lac_wgmma_results(main);
                lac_wgmma_results(cross);
                if (LAC_LOW_SHIFT) lac_wgmma_results(tiny);
                if (lac_chain_ends(step)) {
                    lac_join(main, cross, tiny);
                    lac_promote(total[step / LAC_STEPS][0], main, factor[0]);
                }
            }
            if (step % LAC_CHUNK == LAC_CHUNK - 1) {
                lac_release(shared.w_empty(reader.w.slot));
                reader.w.next();
            }
        }
        lac_release(shared.x_empty(reader.x.slot));
        reader.x.next();
    }
}
#endif

/* Streams windows of X into the stages, for as long as the block has tiles. */
__device__ __forceinline__ void lac_produce_x(const lac_window_args &args, const lac_shared &shared)
{
    const int items = lac_item_count(args);
    lac_cursor<LAC_STAGES> at = {0, 1};
    for (int index = blockIdx.x; index < items; index += gridDim.x) {
        const lac_item item = lac_item_of(args, index);
        const u8 *from = args.tiles + ((i64)item.token_tile * args.windows + item.begin) * LAC_X_TILE;
        for (int window = item.begin; window < item.end; window++, from += LAC_X_TILE, at.next()) {
            lac_barrier_wait(shared.x_empty(at.slot), at.parity);
            lac_barrier_expect(shared.x_full(at.slot), LAC_X_TILE);
            lac_copy_bulk(shared.stage(at.slot), from, LAC_X_TILE, shared.x_full(at.slot));
        }
    }
}

/* The same for the chunks of W. */
__device__ __forceinline__ void lac_produce_w(const lac_window_args &args, const lac_shared &shared)
{
    const int items = lac_item_count(args);
    lac_cursor<LAC_RING> at = {0, 1};
    for (int index = blockIdx.x; index < items; index += gridDim.x) {
        const lac_item item = lac_item_of(args, index);
        const u8 *from = args.weight + ((i64)item.output_tile * args.windows + item.begin) * LAC_W_TILE;
        for (int chunk = 0; chunk < (item.end - item.begin) * LAC_CHUNKS; chunk++, from += LAC_W_CHUNK, at.next()) {
            lac_barrier_wait(shared.w_empty(at.slot), at.parity);
            lac_barrier_expect(shared.w_full(at.slot), LAC_W_CHUNK);
            lac_copy_bulk(shared.chunk(at.slot), from, LAC_W_CHUNK, shared.w_full(at.slot));
        }
    }
}

/* From here on what split.cu wrote may be read. */
__device__ __forceinline__ void lac_wait_for_split()
{
#if LAC_EARLY
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Whether W or a tile of tokens of this block is odd. The same for every thread of the block. */
__device__ __forceinline__ bool lac_block_odd(const lac_window_args &args)
{
    u32 odd = args.weight_odd;
    for (int index = blockIdx.x; index < lac_item_count(args); index += gridDim.x) {
        lac_gather_odd(odd, args, lac_item_of(args, index).token_tile);
    }
    return __any_sync(0xffffffffu, odd);
}

/* Who wait for each other and copy together at the ends of a tile: the warps of a warpgroup, so that the two end their tiles apart;
 * with two planes both, whose sums leave no registers for the difference. */
#if LAC_PLANES == 2
#define LAC_TEAM 256
__device__ __forceinline__ void lac_meet(int) { asm volatile("bar.sync 1, 256;" ::: "memory"); }
#else
#define LAC_TEAM 128
__device__ __forceinline__ void lac_meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }
#endif

/* Starts the copy of what the end of a tile wants to know of a team's outputs, when nobody reads that of the tile before. */
__device__ __forceinline__ void lac_copy_notes(const lac_window_args &args, int output_tile, int group, u32 to)
{
    enum { BYTES = LAC_TILE_WIDTH * 4, PART = BYTES * LAC_TEAM / 256 };
    const int first = LAC_TEAM == 256 ? 0 : group * PART;
    lac_meet(group);
    for (int at = first + threadIdx.x % LAC_TEAM * 16; at < first + PART; at += LAC_TEAM * 16) {
        lac_copy_16<0>(to + at, (const u8 *)(args.output + (i64)output_tile * LAC_TILE_WIDTH) + at);
        lac_copy_16<0>(to + BYTES + at, (const u8 *)(args.factor + (i64)output_tile * LAC_TILE_WIDTH) + at);
    }
    lac_copy_commit();
}

enum lac_way { LAC_CHAINED, LAC_APART, LAC_STRAIGHT };

/* Two warpgroups: the block's tiles, one after the other. */
template <lac_way way>
__device__ __forceinline__ void lac_compute(const lac_gpu_call &call, const lac_window_args &args, const lac_shared &shared,
                                            const u8 *memory)
{
    const int *notes = (const int *)(memory + LAC_NOTES);
    const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0);
    const lac_view view = lac_view_of(group);
    lac_reader reader = {};
    for (int index = blockIdx.x; index < lac_item_count(args); index += gridDim.x) {
        const lac_item item = lac_item_of(args, index);
        lac_copy_notes(args, item.output_tile, group, shared.x + LAC_NOTES);
        float total[LAC_VECTORS][LAC_BANDS][LAC_SUMS];
#pragma unroll
        for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) total[v][0][i] = 0.0f;
#if LAC_PLANES == 2
        if (way == LAC_APART)
            lac_consume_apart(total, view, item.end - item.begin, args.vectors - (item.output_tile * 2 + group) * LAC_VECTORS,
                              shared, reader);
#endif
#if LAC_PLANES == 1
        if (way == LAC_STRAIGHT) lac_consume_straight(total, view, item.end - item.begin, shared, reader);
#endif
#if !LAC_LOW_SHIFT
        if (way == LAC_CHAINED) lac_consume(total, view, item.end - item.begin, shared, reader);
#endif
        lac_copy_wait<0>();
        lac_meet(group);
        lac_tile_finish(call, args, item, notes, (const float *)(notes + LAC_TILE_WIDTH), total);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1) lac_window(lac_gpu_call call, lac_window_args args)
{
    extern __shared__ __align__(128) u8 memory[];
    const u32 first = lac_shared_address(memory);
    const lac_shared shared = {first, first + LAC_STAGES * LAC_X_STAGE, first + LAC_STAGES * LAC_X_STAGE + LAC_RING * LAC_W_CHUNK};
    const int thread = threadIdx.x;
    for (int i = 0; i < LAC_STAGES; i++) lac_zero_rows(memory + i * LAC_X_STAGE, 384);
    if (thread == 0) {
        for (int i = 0; i < LAC_STAGES; i++) {
            lac_barrier_init(shared.x_full(i), 1);
            lac_barrier_init(shared.x_empty(i), 8 * LAC_ARRIVALS);
        }
        for (int i = 0; i < LAC_RING; i++) {
            lac_barrier_init(shared.w_full(i), 1);
            lac_barrier_init(shared.w_empty(i), 8 * LAC_ARRIVALS);
        }
        lac_barrier_init_fence();
    }
    __syncthreads();

    if (thread >= 256) {
        lac_registers_fewer<40>();
        if (thread == 256) {
            lac_wait_for_split();
            lac_produce_x(args, shared);
        }
        if (thread == 288) lac_produce_w(args, shared);
    } else {
        lac_registers_more<232>();
        lac_wait_for_split();
#if LAC_LOW_SHIFT
        lac_compute<LAC_APART>(call, args, shared, memory);
#else
        const bool odd = lac_block_odd(args);
        if (LAC_PLANES == 2 && odd)
            lac_compute<LAC_APART>(call, args, shared, memory);
        else if (LAC_PLANES == 2 || odd)
            lac_compute<LAC_CHAINED>(call, args, shared, memory);
        else
            lac_compute<LAC_STRAIGHT>(call, args, shared, memory);
#endif
    }
}
