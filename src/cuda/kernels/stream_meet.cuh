/* stream_meet.cuh - the parts of a tile add up (LAC_PUSHES): each block sends every other one of its cluster the sums of the tokens that
 * this one finishes, and waits for its own. Nobody reads out of another block's memory, which takes a way there and back. Sums go into
 * room that is kept for them (LAC_PUSHES 1), or, where that would cost a stage (2), into the stage that the other is done with for
 * good the first, of which it has told in the meantime: either way nobody waits for the end of another's stages. Used by stream_few.cu,
 * behind tile_product.cuh.
 *
 * Preconditions: LAC_PARTS divides the sums of a thread; LAC_MEET_ROOM bytes of shared memory stand behind the stages, or a stage has as
 * many. Thread to data: a share is LAC_SUMS / LAC_PARTS sums of each thread, its tokens in order; block r finishes the r-th.
 *
 *   room | [sender, without oneself][4 sums of the share][thread] 16 bytes |
 */
#ifndef LAC_CUDA_KERNELS_STREAM_MEET_CUH
#define LAC_CUDA_KERNELS_STREAM_MEET_CUH

#include "cluster.cuh"
#include "pipeline.cuh"

#define LAC_MEET_SHARE (LAC_SUMS / LAC_PARTS)
#define LAC_MEET_ROOM ((LAC_PARTS - 1) * LAC_MEET_SHARE * 1024)
static_assert(LAC_BLOCKS == 1 && LAC_SUMS % LAC_PARTS == 0 && LAC_MEET_SHARE % (LAC_Y_TOKEN_MAJOR ? 8 : 16) == 0,
              "a share is 16 tokens at least, or 32");
static_assert(LAC_PUSHES == 1 || LAC_MEET_ROOM <= LAC_RUN_STAGE, "a stage has room for the sums of all others");

/* Where a part's block gets the others' sums: behind its stages, or in the stage after its last, its first of the last round. */
__device__ __forceinline__ u32 lac_meet_room(const lac_gather_args &args, u32 stages, int part)
{
    const i64 steps = args.stages_a_tile;
    if (LAC_PUSHES == 1) return stages + LAC_STAGES * LAC_RUN_STAGE;
    return stages + lac_stages_of((int)(steps * (part + 1) / LAC_PARTS - steps * part / LAC_PARTS)) % LAC_STAGES * LAC_RUN_STAGE;
}

/* Four sums into the memory of block `rank`, at the place that this one has at `to`; its barrier at the place of `barrier` gets the bytes. */
__device__ __forceinline__ void lac_send(u32 to, float a, float b, float c, float d, u32 barrier, u32 rank)
{
    asm volatile("{\n"
                 ".reg .b32 there, told;\n"
                 "mapa.shared::cluster.u32 there, %0, %6;\n"
                 "mapa.shared::cluster.u32 told, %5, %6;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%1, %2, %3, %4}, [told];\n"
                 "}\n" ::"r"(to),
                 "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier), "r"(rank)
                 : "memory");
}

/* Where the sums i to i + 3 of a share from the sender-th of the others arrive. */
__device__ __forceinline__ u32 lac_meet_place(u32 room, int sender, int i)
{
    return room + ((sender * (LAC_MEET_SHARE / 4) + i / 4) * 256 + threadIdx.x) * 16;
}

/* Before anything is sent every block must know its barriers: lac_cluster_arrive when they are there, and lac_cluster_wait before this.
 * `ready`: all warps of the others are done with the stage that they get sums in. */
__device__ __forceinline__ void lac_stream_meet(const lac_gpu_call &call, const lac_gather_args &args, const lac_item &item,
                                                const lac_outputs &outputs, const float (&sum)[LAC_SUMS], u32 stages, u32 ready, u32 arrived)
{
    float share[LAC_MEET_SHARE];
    const u32 mine = lac_meet_room(args, stages, item.part);
    if (LAC_PUSHES == 2) lac_barrier_wait(ready, 0);
#pragma unroll
    for (int part = 0; part < LAC_PARTS; part++) {
        if (part == item.part) continue;
        const u32 room = lac_meet_room(args, stages, part);
#pragma unroll
        for (int i = 0; i < LAC_MEET_SHARE; i += 4) {
            const int at = part * LAC_MEET_SHARE + i;
            lac_send(lac_meet_place(room, item.part - (item.part > part), i), sum[at], sum[at + 1], sum[at + 2], sum[at + 3], arrived, part);
        }
    }
#pragma unroll
    for (int i = 0; i < LAC_MEET_SHARE; i++) {
        share[i] = sum[i];
#pragma unroll
        for (int part = 1; part < LAC_PARTS; part++)
            if (part == item.part) share[i] = sum[part * LAC_MEET_SHARE + i];
    }
    lac_barrier_wait(arrived, 0);
#pragma unroll
    for (int i = 0; i < LAC_MEET_SHARE; i += 4) { /* the parts in their order */
        const float own[4] = {share[i], share[i + 1], share[i + 2], share[i + 3]};
        float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int part = 0; part < LAC_PARTS; part++) {
            uint4 v = make_uint4(__float_as_uint(own[0]), __float_as_uint(own[1]), __float_as_uint(own[2]), __float_as_uint(own[3]));
            if (part != item.part) v = lac_shared_load_16(lac_meet_place(mine, part - (part > item.part), i));
            total[0] += __uint_as_float(v.x), total[1] += __uint_as_float(v.y);
            total[2] += __uint_as_float(v.z), total[3] += __uint_as_float(v.w);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) share[i + j] = total[j];
    }
    const int token = item.token_tile * LAC_TILE_TOKENS + (LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N);
    int places[16]; /* of this warp's outputs, the first and the last: loaded they would be waited for */
    places[0] = __shfl_sync(0xffffffffu, outputs.place[0][0], 0), places[15] = __shfl_sync(0xffffffffu, outputs.place[0][1], 28);
    lac_block_write(call, share, places, outputs.place[0], outputs.bias[0], token + item.part * LAC_MEET_SHARE * 2);
}

#endif
