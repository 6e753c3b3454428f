/* gather.cu - fp16 and bf16 SpMM on the tensor cores of sm_90a: the selected rows of X are gathered on the way to shared
 * memory, then multiplied densely (wgmma) or, inside V:2:M, 2:4-sparsely (wgmma.sp). tile_product.cuh has tiles, stages,
 * products and epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage, sums in registers, then the tile's epilogue
 *   warps 8-11  gather X row by row with cp.async, row numbers asked for four stages ahead or eight; one thread fetches W by bulk copies,
 *               its share of it for all blocks of the cluster, whose outputs are the same
 *   full[stage]: 128 threads' cp.async, 1 for W and W's bytes.
 *
 * X is feature-major here, whatever the caller's is, and m a multiple of 8 where its rows are aligned to 16 bytes: both by a
 * copy in the workspace where need be (turn.cu). Bottleneck: L2 to shared memory,
 * 2 * (LAC_TILE_TOKENS + w * LAC_TILE_OUTPUTS / LAC_CLUSTER) bytes for each row, w = 1, or 0.56 when sparse. */
#define LAC_SHARES_X 0
#define LAC_GATHERS 1
#define LAC_TURNED 1
#include "tile_product.cuh"

#define LAC_WARP_ROWS (LAC_ROWS / 4)

/* Row numbers of this lane for the walk's stage, and on to the next one. */
__device__ __forceinline__ int lac_rows_ahead(const lac_gather_args &args, lac_walk &ahead)
{
    if (!ahead.more) return 0;
    const int row = args.index[ahead.stage * LAC_ROWS + (threadIdx.x >> 5 & 3) * LAC_WARP_ROWS + (threadIdx.x & (LAC_WARP_ROWS - 1))];
    ahead.stage++;
    lac_walk_settle(args, ahead);
    return row;
}

/* One row's chunk, `count` of its elements, where X's rows are not aligned to 16 bytes. */
__device__ __forceinline__ void lac_copy_slowly(u32 to, const u16 *from, int count)
{
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) word[i >> 1] |= (u32)from[i] << 16 * (i & 1);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}

/* How this warp's rows of a stage come: all lanes' tokens exist; some may not; X's rows are not aligned to 16 bytes. */
enum { LAC_WHOLE, LAC_PARTIAL, LAC_SLOWLY };

/* One step: a row, or as many as the lanes have room for. `rows` of lane i is row i's number; `from` is row 0 at this lane's first
 * token, `count` of which and its followers exist. The copies share a port with the tensor cores' reads, and every instruction
 * beside them is time. */
template <int how, typename bytes>
__device__ __forceinline__ void lac_gather_step(const u8 *from, bytes row_bytes, u32 x_stage, int rows, int i, int count)
{
    enum { LANES = LAC_TILE_TOKENS / 8 < 32 ? LAC_TILE_TOKENS / 8 : 32, /* a row's, in one pass */
           PASSES = LAC_TILE_TOKENS / 256 > 1 ? LAC_TILE_TOKENS / 256 : 1 };
    const u32 warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31, chunk = lane % LANES, r = i + lane / LANES;
    const u32 to = x_stage + chunk / 8 * LAC_X_BLOCK + warp * LAC_WARP_ROWS * 128 + r * 128 + ((chunk & 7) ^ (r & 7)) * 16;
    const u8 *row = from + (u64)(u32)__shfl_sync(0xffffffffu, rows, r) * row_bytes;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        if (how == LAC_SLOWLY)
            lac_copy_slowly(to + pass * 4 * LAC_X_BLOCK, (const u16 *)row + pass * 256, count - pass * 256);
        else
            lac_copy_chunk(to + pass * 4 * LAC_X_BLOCK, row + pass * 512, how == LAC_PARTIAL && pass * 256 >= count);
    }
}

/* The same for tiles of three times a power of two tokens: three copies by all lanes bring two rows or four. `from` is row 0 at the
 * tile's first token. */
template <int how, typename bytes>
__device__ __forceinline__ void lac_gather_three(const u8 *from, bytes row_bytes, u32 x_stage, int rows, int i, int count)
{
    enum { CHUNKS = LAC_TILE_TOKENS / 8 };
    const u32 warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
#pragma unroll
    for (int third = 0; third < 3; third++) {
        const u32 unit = third * 32 + lane, chunk = unit % CHUNKS, r = i + unit / CHUNKS;
        const u32 to = x_stage + chunk / 8 * LAC_X_BLOCK + warp * LAC_WARP_ROWS * 128 + r * 128 + ((chunk & 7) ^ (r & 7)) * 16;
        const bool none = how != LAC_WHOLE && (int)chunk * 8 >= count; /* row 0 is somewhere inside: nothing is read */
        const u8 *row = from + (u64)(u32)__shfl_sync(0xffffffffu, rows, r) * row_bytes + (none ? 0 : chunk * 16);
        if (how == LAC_SLOWLY)
            lac_copy_slowly(to, (const u16 *)row, count - (int)chunk * 8);
        else
            lac_copy_chunk(to, row, none);
    }
}

/* This warp's rows of a stage; tells `full` when they are there. */
__device__ __forceinline__ void lac_gather_rows(const lac_gather_args &args, u32 x_stage, int rows, int token_begin, int m, bool aligned,
                                                u32 full)
{
    enum { THREE = LAC_TILE_TOKENS % 3 == 0, STEP = THREE ? 768 / LAC_TILE_TOKENS : LAC_TILE_TOKENS < 256 ? 256 / LAC_TILE_TOKENS : 1 };
    const int token = token_begin + (THREE ? 0 : (threadIdx.x & 31) % (LAC_TILE_TOKENS / 8 < 32 ? LAC_TILE_TOKENS / 8 : 32) * 8);
    const u8 *from = (const u8 *)args.x + (i64)token * 2;
    const u32 row_bytes = (u32)args.ldx * 2;
    if (!aligned) {
#pragma unroll 1
        for (int i = 0; i < LAC_WARP_ROWS; i += STEP)
            if (THREE)
                lac_gather_three<LAC_SLOWLY>(from, (u64)args.ldx * 2, x_stage, rows, i, m - token);
            else
                lac_gather_step<LAC_SLOWLY>(from, (u64)args.ldx * 2, x_stage, rows, i, m - token);
        lac_async_fence();
        lac_barrier_arrive(full);
        return;
    }
    if (token_begin + LAC_TILE_TOKENS <= m) {
#pragma unroll
        for (int i = 0; i < LAC_WARP_ROWS; i += STEP)
            if (THREE)
                lac_gather_three<LAC_WHOLE>(from, row_bytes, x_stage, rows, i, m - token);
            else
                lac_gather_step<LAC_WHOLE>(from, row_bytes, x_stage, rows, i, m - token);
    } else {
        if (token >= m) from = (const u8 *)args.x; /* somewhere inside: nothing is read */
#pragma unroll 4
        for (int i = 0; i < LAC_WARP_ROWS; i += STEP)
            if (THREE)
                lac_gather_three<LAC_PARTIAL>(from, row_bytes, x_stage, rows, i, m - token);
            else
                lac_gather_step<LAC_PARTIAL>(from, row_bytes, x_stage, rows, i, m - token);
    }
    lac_barrier_arrive_copies(full);
}

/* W and X of a stage into a slot that is empty, or will be. */
__device__ __forceinline__ void lac_produce_stage(const lac_gpu_call &call, const lac_gather_args &args, const lac_walk &now, int rows,
                                                  bool aligned, u32 stage, u32 full, u32 empty, u32 parity)
{
    lac_barrier_wait(empty, parity);
    if ((threadIdx.x & 127) == 0) {
        u32 share = LAC_W_STAGE / LAC_CLUSTER, at = LAC_CLUSTER > 1 ? lac_cluster_rank() * share : 0;
#if LAC_PAIRED /* the outputs of one warpgroup where the other's read nothing of this stage */
        if (now.stage < now.item.second_begin || now.stage >= now.item.first_end) share = LAC_W_STAGE / 2;
        if (now.stage >= now.item.first_end) at = LAC_W_STAGE / 2;
#endif
        const u8 *from = args.weight + (i64)now.stage * LAC_W_STAGE + at;
        lac_barrier_expect(full, share * LAC_CLUSTER);
        if (LAC_CLUSTER > 1)
            lac_copy_bulk_all(stage + LAC_X_STAGE + at, from, share, full, (u16)((1u << LAC_CLUSTER) - 1));
        else
            lac_copy_bulk(stage + LAC_X_STAGE + at, from, share, full);
    }
    lac_gather_rows(args, stage, rows, now.item.token_tile * LAC_TILE_TOKENS, call.m, aligned, full);
}

__device__ __forceinline__ void lac_produce(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty)
{
    /* Each stage's row numbers in a register of their own: a move would wait for its load, which comes behind the copies of all stages
     * that are under way. */
    enum { AHEAD = LAC_STAGES < 4 ? 8 : 4 };
    const bool aligned = ((u64)args.x | (u64)args.ldx * 2) % 16 == 0 && args.ldx < 1ll << 31; /* a row's bytes in 32 bits */
    lac_walk now = lac_walk_begin(args), ahead = now;
    lac_wait_for_inputs(); /* behind the row numbers it would put them on the stack */
    int rows[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) rows[i] = lac_rows_ahead(args, ahead);
    u32 slot = 0, parity = 1;
    for (;;) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (!now.more) return;
            lac_produce_stage(call, args, now, rows[i], aligned, stages + slot * LAC_STAGE, full + 8 * slot, empty + 8 * slot, parity);
            rows[i] = lac_rows_ahead(args, ahead);
            if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
            now.stage++;
            lac_walk_settle(args, now);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, LAC_RESIDENT)
    lac_gather(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    lac_barriers_begin(full, empty, 128 + 1);
    lac_let_next_begin();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<LAC_PRODUCER_REGISTERS>();
        lac_produce(call, args, stages, full, empty);
    } else {
        lac_registers_more<LAC_CONSUMER_REGISTERS>();
        lac_wait_for_inputs(); /* the bias is one */
        lac_consume(call, args, stages, full, empty, &y_map);
    }
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
