/* gather.cu - fp16 and bf16 SpMM on the tensor cores of sm_90a: the selected rows of X are gathered on the way to shared
 * memory, then multiplied densely (wgmma) or, inside V:2:M, 2:4-sparsely (wgmma.sp). tile_product.cuh has tiles, stages,
 * products and epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage, sums in registers, then the tile's epilogue
 *   warps 8-11  gather X row by row with cp.async, row numbers asked for eight stages ahead, into shared memory; one thread fetches W
 *               by bulk copies, its share of it for all blocks of the cluster, whose outputs are the same
 *   full[stage]: cp.async of a team's threads, 1 for W and W's bytes.
 *
 * Few tokens (LAC_FEW): a tile's weight is much of what it reads, and the time is that of memory and of L2. A block has as many stages as
 * fit, and so few registers that it can start beside the kernel before it. With 64 tokens and 64 outputs the two warpgroups have the
 * stages in turns; with 128 outputs k may be split between two blocks that meet.
 *
 * X is feature-major here, whatever the caller's is, and m a multiple of 8 where its rows are aligned to 16 bytes: both by a
 * copy in the workspace where need be (turn.cu). Bottleneck: L2 to shared memory,
 * 2 * (LAC_TILE_TOKENS + w * LAC_TILE_OUTPUTS / LAC_CLUSTER) bytes for each row, w = 1, or 0.56 when sparse. */
#define LAC_SHARES_X 0
#define LAC_GATHERS 1
#define LAC_TURNED 1
/* The producers' warps are so many teams, which have the stages in turns: a warp then has twice the rows of every second stage, and
 * what it does once a stage beside its copies counts half. Which is quicker was measured tile by tile; two teams take registers, and
 * leave too few for an epilogue that reads a residual. */
#define LAC_TEAMS (LAC_FEW && LAC_TILE_TOKENS == 64 || LAC_TILE_TOKENS == 256 && (LAC_SPARSE || LAC_PAIRED || LAC_TILE_OUTPUTS == 64) && !LAC_HAS_RESIDUAL ? 2 : 1)
#include "tile_product.cuh"
#include "async_copy.cuh"

#ifndef LAC_HOLES /* 1: slots may have no row; its number is negative, and nothing is read */
#define LAC_HOLES 0
#endif
__device__ __forceinline__ bool lac_is_hole(u32 number) { return LAC_HOLES && (int)number < 0; }

#define LAC_TEAM_WARPS (4 / LAC_TEAMS)
#define LAC_WARP_ROWS (LAC_ROWS / LAC_TEAM_WARPS)

/* A team's stages ahead for which row numbers are asked, and where a warp's lie: [LAC_AHEAD][LAC_WARP_ROWS] of them for each warp. The
 * answer comes behind the copies of all stages that are under way; hence more of them than there are stages, where there is room. */
#define LAC_AHEAD ((LAC_STAGES < 8 ? 8 : LAC_STAGES < 10 ? LAC_STAGES : 10) / LAC_TEAMS)
#define LAC_NUMBERS (LAC_WARP_ROWS * 4)

/* This warp's place in its team. */
__device__ __forceinline__ u32 lac_team_warp() { return (threadIdx.x >> 5) % LAC_TEAM_WARPS; }

/* To the team's next stage. */
__device__ __forceinline__ void lac_team_next(const lac_gather_args &args, lac_walk &walk)
{
#pragma unroll
    for (int i = 0; i < LAC_TEAMS; i++) {
        walk.stage++;
        lac_walk_settle(args, walk);
    }
}

/* Asks for this warp's row numbers of the walk's stage, and goes on to the next one. The group of copies that this closes has come
 * when the numbers are needed: all stages' before it have. */
__device__ __forceinline__ void lac_rows_ask(const lac_gather_args &args, lac_walk &ahead, u32 numbers)
{
    const u32 lane = threadIdx.x & 31;
    if (ahead.more) {
        if (lane < LAC_WARP_ROWS / 4)
            lac_copy_16<0>(numbers + lane * 16, args.index + (i64)ahead.stage * LAC_ROWS + lac_team_warp() * LAC_WARP_ROWS + lane * 4);
        lac_team_next(args, ahead);
    }
    lac_copy_commit();
}

/* The byte of X where a row begins at this lane's token: one instruction, which the compiler makes two of. */
__device__ __forceinline__ const u8 *lac_row_at(const u8 *from, u32 row, u32 row_bytes)
{
    u64 at;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(at) : "r"(row), "r"(row_bytes), "l"((u64)from));
    return (const u8 *)at;
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

/* A row has so many lanes in one pass of copies; the warp's lanes have so many rows at a time, LAC_LANE_ROWS of them one behind the
 * other. */
#define LAC_ROW_LANES (LAC_TILE_TOKENS / 8 < 32 ? LAC_TILE_TOKENS / 8 : 32)
#define LAC_LANE_ROWS (LAC_WARP_ROWS * LAC_ROW_LANES / 32)

/* Row r of the warp, whose number in X is `number`. `from` is row 0 at this lane's first token, `count` of which and its followers
 * exist. The copies share a port with the tensor cores' reads, and every instruction beside them is time. */
template <int how> __device__ __forceinline__ void lac_gather_row(const u8 *from, i64 ldx, u32 x_stage, u32 number, u32 r, int count)
{
    enum { PASSES = LAC_TILE_TOKENS / 256 > 1 ? LAC_TILE_TOKENS / 256 : 1 };
    const u32 warp = lac_team_warp(), chunk = (threadIdx.x & 31) % LAC_ROW_LANES;
    const u32 to = x_stage + chunk / 8 * LAC_X_BLOCK + warp * LAC_WARP_ROWS * 128 + r * 128 + ((chunk & 7) ^ (r & 7)) * 16;
    const u8 *row = how == LAC_SLOWLY ? from + (u64)number * (u64)ldx * 2 : lac_row_at(from, number, (u32)ldx * 2);
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        if (how == LAC_SLOWLY)
            lac_copy_slowly(to + pass * 4 * LAC_X_BLOCK, (const u16 *)row + pass * 256, lac_is_hole(number) ? 0 : count - pass * 256);
        else
            lac_copy_chunk(to + pass * 4 * LAC_X_BLOCK, row + pass * 512, lac_is_hole(number) || how == LAC_PARTIAL && pass * 256 >= count);
    }
}

#if LAC_TILE_TOKENS % 3
/* Some row numbers of this lane's, which are the same for all lanes of a row. */
template <int count> __device__ __forceinline__ void lac_numbers_load(u32 (&number)[count], u32 at)
{
    static_assert(count == 2 || count % 4 == 0, "one load of two or some of four");
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        if (count == 2) {
            const uint2 two = lac_shared_load_8(at);
            number[0] = two.x, number[1] = two.y;
        } else {
            const uint4 four = lac_shared_load_16(at + i * 4);
            number[i] = four.x, number[i + 1] = four.y, number[i + 2] = four.z, number[i + 3] = four.w;
        }
    }
}

/* This warp's rows, whose numbers lie at `numbers`: eight at a time, the next ones' numbers on their way. */
template <int how> __device__ __forceinline__ void lac_gather_all(const u8 *from, i64 ldx, u32 x_stage, u32 numbers, int count)
{
    enum { STEP = LAC_LANE_ROWS < 8 ? LAC_LANE_ROWS : 8 };
    const u32 first = (threadIdx.x & 31) / LAC_ROW_LANES * LAC_LANE_ROWS;
    u32 number[2][STEP];
    lac_numbers_load(number[0], numbers + first * 4);
#pragma unroll
    for (int i = 0; i < LAC_LANE_ROWS; i += STEP) {
        if (i + STEP < LAC_LANE_ROWS) lac_numbers_load(number[i / STEP + 1 & 1], numbers + (first + i + STEP) * 4);
#pragma unroll
        for (int j = 0; j < STEP; j++) lac_gather_row<how>(from, ldx, x_stage, number[i / STEP & 1][j], first + i + j, count);
    }
}

__device__ __forceinline__ void lac_gather_slowly(const u8 *from, i64 ldx, u32 x_stage, u32 numbers, int count)
{
    const u32 first = (threadIdx.x & 31) / LAC_ROW_LANES * LAC_LANE_ROWS;
#pragma unroll 1
    for (int i = 0; i < LAC_LANE_ROWS; i++)
        lac_gather_row<LAC_SLOWLY>(from, ldx, x_stage, lac_shared_load(numbers + (first + i) * 4), first + i, count);
}
#else
/* Tiles of three times a power of two tokens: three copies by all lanes bring two rows or four, from row i on. `from` is row 0 at the
 * tile's first token. */
enum { LAC_THREE_ROWS = 768 / LAC_TILE_TOKENS, LAC_THREE_CHUNKS = LAC_TILE_TOKENS / 8 };

__device__ __forceinline__ u32 lac_three_row(int third) { return (third * 32 + (threadIdx.x & 31)) / LAC_THREE_CHUNKS; }

template <int how> __device__ __forceinline__ void lac_three_copy(const u8 *from, i64 ldx, u32 x_stage, u32 number, int i, int third, int count)
{
    const u32 chunk = (third * 32 + (threadIdx.x & 31)) % LAC_THREE_CHUNKS, r = i + lac_three_row(third);
    const u32 to = x_stage + chunk / 8 * LAC_X_BLOCK + lac_team_warp() * LAC_WARP_ROWS * 128 + r * 128 + ((chunk & 7) ^ (r & 7)) * 16;
    const bool none = how != LAC_WHOLE && (int)chunk * 8 >= count; /* row 0 is somewhere inside: nothing is read */
    const u8 *at = from + (none ? 0 : chunk * 16);
    if (how == LAC_SLOWLY)
        lac_copy_slowly(to, (const u16 *)(at + (u64)number * (u64)ldx * 2), lac_is_hole(number) ? 0 : count - (int)chunk * 8);
    else
        lac_copy_chunk(to, lac_row_at(at, number, (u32)ldx * 2), lac_is_hole(number) || none);
}

/* Numbers first, for twelve copies at a time: one behind the other, each would wait for its own. */
template <int how> __device__ __forceinline__ void lac_gather_all(const u8 *from, i64 ldx, u32 x_stage, u32 numbers, int count)
{
    enum { STEPS = 4 };
#pragma unroll
    for (int i = 0; i < LAC_WARP_ROWS; i += STEPS * LAC_THREE_ROWS) {
        u32 number[STEPS * 3];
#pragma unroll
        for (int j = 0; j < STEPS * 3; j++)
            if (i + j / 3 * LAC_THREE_ROWS < LAC_WARP_ROWS)
                number[j] = lac_shared_load(numbers + (i + j / 3 * LAC_THREE_ROWS + lac_three_row(j % 3)) * 4);
#pragma unroll
        for (int j = 0; j < STEPS * 3; j++)
            if (i + j / 3 * LAC_THREE_ROWS < LAC_WARP_ROWS)
                lac_three_copy<how>(from, ldx, x_stage, number[j], i + j / 3 * LAC_THREE_ROWS, j % 3, count);
    }
}

__device__ __forceinline__ void lac_gather_slowly(const u8 *from, i64 ldx, u32 x_stage, u32 numbers, int count)
{
#pragma unroll 1
    for (int i = 0; i < LAC_WARP_ROWS; i += LAC_THREE_ROWS)
        for (int third = 0; third < 3; third++)
            lac_three_copy<LAC_SLOWLY>(from, ldx, x_stage, lac_shared_load(numbers + (i + lac_three_row(third)) * 4), i, third, count);
}
#endif

/* This warp's rows of a stage; tells `full` when they are there. */
__device__ __forceinline__ void lac_gather_rows(const lac_gather_args &args, u32 x_stage, u32 numbers, int token_begin, int m, bool aligned,
                                                u32 full)
{
    const int token = token_begin + (LAC_TILE_TOKENS % 3 ? (threadIdx.x & 31) % LAC_ROW_LANES * 8 : 0);
    const u8 *from = (const u8 *)args.x + (i64)token * 2;
    if (!aligned) {
        lac_gather_slowly(from, args.ldx, x_stage, numbers, m - token);
        lac_async_fence();
        lac_barrier_arrive(full);
        return;
    }
    if (token_begin + LAC_TILE_TOKENS <= m) {
        lac_gather_all<LAC_WHOLE>(from, args.ldx, x_stage, numbers, m - token);
    } else {
        if (token >= m) from = (const u8 *)args.x; /* somewhere inside: nothing is read */
        lac_gather_all<LAC_PARTIAL>(from, args.ldx, x_stage, numbers, m - token);
    }
    lac_barrier_arrive_copies(full);
}

/* W and X of a stage into a slot that is empty, or will be. */
__device__ __forceinline__ void lac_produce_stage(const lac_gpu_call &call, const lac_gather_args &args, const lac_walk &now, u32 numbers,
                                                  bool aligned, u32 stage, u32 full, u32 empty, u32 parity)
{
    lac_barrier_wait(empty, parity);
    if (threadIdx.x % (LAC_TEAM_WARPS * 32) == 0) {
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
    lac_gather_rows(args, stage, numbers, now.item.token_tile * LAC_TILE_TOKENS, call.m, aligned, full);
}

/* `numbers` is this warp's room for row numbers. */
__device__ __forceinline__ void lac_produce(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty,
                                            u32 numbers)
{
    const bool aligned = ((u64)args.x | (u64)args.ldx * 2) % 16 == 0 && args.ldx < 1ll << 31; /* a row's bytes in 32 bits */
    const u32 team = (threadIdx.x >> 5 & 3) / LAC_TEAM_WARPS;
    lac_walk now = lac_walk_begin(args);
    for (u32 i = 0; i < team; i++) {
        now.stage++;
        lac_walk_settle(args, now);
    }
    lac_walk ahead = now;
#pragma unroll 1
    for (int i = 0; i < LAC_AHEAD; i++) lac_rows_ask(args, ahead, numbers + i * LAC_NUMBERS);
    lac_wait_for_inputs();
    u32 slot = team, parity = 1, place = 0;
    static_assert(LAC_TEAMS <= LAC_STAGES, "a team has a slot");
#pragma unroll 1
    while (now.more) {
        lac_copy_wait<LAC_AHEAD - 1>();
        __syncwarp(); /* other lanes have copied the numbers */
        lac_produce_stage(call, args, now, numbers + place * LAC_NUMBERS, aligned, stages + slot * LAC_STAGE, full + 8 * slot,
                          empty + 8 * slot, parity);
        __syncwarp(); /* and have read them */
        lac_rows_ask(args, ahead, numbers + place * LAC_NUMBERS);
        if (++place == LAC_AHEAD) place = 0;
        if ((slot += LAC_TEAMS) >= LAC_STAGES) slot -= LAC_STAGES, parity ^= 1;
        lac_team_next(args, now);
    }
}

/* As if there were more threads: 128 registers each leave room for blocks of the kernel before this one. */
#define LAC_BOUND (LAC_FEW && LAC_RESIDENT == 1 ? 512 : 384)
static_assert(LAC_PRODUCER_REGISTERS + 2 * LAC_CONSUMER_REGISTERS <= 3 * (LAC_RESIDENT > 1 ? 80 : LAC_FEW ? 128 : 168),
              "setmaxnreg would wait for registers that never come");

extern "C" __global__ void __launch_bounds__(LAC_BOUND, LAC_RESIDENT)
    lac_gather(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    __shared__ __align__(16) u8 numbers[4][LAC_AHEAD * LAC_NUMBERS];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    lac_barriers_begin(full, empty, LAC_TEAM_WARPS * 32 + 1);
    lac_let_next_begin();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<LAC_PRODUCER_REGISTERS>();
        lac_produce(call, args, stages, full, empty, lac_shared_address(numbers[threadIdx.x >> 5 & 3]));
#if LAC_MEETS
        __syncwarp();
        lac_cluster_sync(), lac_cluster_arrive(); /* as in lac_tile_meet */
#endif
    } else {
        lac_registers_more<LAC_CONSUMER_REGISTERS>();
        lac_wait_for_inputs(); /* the bias is one */
        lac_consume(call, args, stages, full, empty, &y_map);
    }
#if LAC_MEETS
    __syncwarp();
    lac_cluster_wait();
#else
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
#endif
}
