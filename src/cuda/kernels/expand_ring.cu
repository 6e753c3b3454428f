/* expand_ring.cu - fp16 and bf16 SpMM on the tensor cores of sm_90a for element-wise patterns of any N:M on many tokens: W lies
 * compressed in memory, and each part of it is spread out once for all tokens of a team, into a small ring that stays in L2; from
 * there and from X the copy engine fills the stages. tile_product.cuh has tiles, products and epilogue, expand_spread.cuh
 * the spreading.
 *
 *   warps 0-7   two warpgroups: the products of a stage (wgmma), sums in registers, then the tile's epilogue
 *   warp 8      one thread fetches X by tensor copies, its share of the tokens for both blocks of the cluster, which have neighbouring
 *               outputs of the same tokens, and W out of the ring by bulk copies
 *   warps 9-    LAC_SPREADERS (3, 7) of them spread W into the ring, ahead of the products of the whole team
 *   full[stage]: 1 for the bytes of X and W.
 *
 * A team is ring.team clusters that have the same 256 outputs of neighbouring tokens and walk along k together; all of them must be
 * running at once. Its ring has LAC_RING_SLOTS slots of LAC_RING_STEPS steps of 64 inputs. Slot q % LAC_RING_SLOTS takes the q-th such
 * part of W of all that the team multiplies, one tile's behind the other's:
 *
 *   spread[slot]  units that have been spread into it, all told: part q is there at (q / LAC_RING_SLOTS + 1) * LAC_UNITS
 *   done[slot]    blocks that have read it, all told: part q may be written at (q / LAC_RING_SLOTS) * blocks of the team
 *
 * A unit is what a warp spreads at a time: 16 outputs x 64 inputs; lane l has 32 inputs from 32 (l / 16) on of output l % 16. A block has
 * read a part when the products of its last stage are done, which the thread that fetches knows LAC_STAGES stages later.
 *
 * Preconditions: X and its rows aligned to 16 bytes; counters 0 at the start; a launch whose blocks all run at once.
 * Bottleneck: the tensor cores, then the port of shared memory. */
#define LAC_SPARSE 0
#define LAC_SHARES_X 1
#define LAC_GATHERS 0
#define LAC_ROWS 64
#define LAC_PARTS 1
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR)
#define LAC_TOKEN_TEAMS 1
#define LAC_PAIRED 0
#include "tile_product.cuh"

#include "chain.cuh"
#include "expand_arguments.h"
#include "expand_spread.cuh"
#include "stream_x.cuh"

static_assert(LAC_CLUSTER == 2 && LAC_TILE_OUTPUTS == 128 && LAC_W_STAGE == LAC_RING_TILE, "a step of the ring has two tiles");
static_assert(LAC_SPREADERS == 3 || LAC_SPREADERS == 7, "with warp 8 a whole number of warpgroups");
static_assert(LAC_RING_SLOTS > LAC_STAGES, "each stage may belong to a slot of its own");
static_assert(!LAC_EARLY || LAC_TURNED, "tile_early.cuh knows feature-major X alone");

/* Registers of a thread that spreads and of one that multiplies: with three spreading warps 384 threads have 168 each to share, with seven
 * all have 128. A tile that is stored under the next one's products is held in eight more. */
#define LAC_SPREADING_REGISTERS (LAC_EARLY ? 88 : 104)
#define LAC_MULTIPLYING_REGISTERS (LAC_EARLY ? 208 : 200)
static_assert(LAC_SPREADING_REGISTERS + 2 * LAC_MULTIPLYING_REGISTERS <= 3 * 168, "setmaxnreg would wait for registers that never come");

#define LAC_UNITS (LAC_RING_STEPS * 16) /* of a slot: 8 of each tile a step */

struct lac_team {
    int number, teams;     /* its own, of all                                           */
    int items;             /* that it multiplies: 256 outputs of its tokens each        */
    int member, blocks;    /* this block's number in the team; blocks of the team       */
    int parts;             /* of the ring that an item fills                            */
    u8 *ring;              /* [LAC_RING_SLOTS][LAC_RING_STEPS][2][LAC_RING_TILE]        */
    u32 *spread, *done;    /* [LAC_RING_SLOTS][LAC_RING_COUNTER]                        */
};

__device__ __forceinline__ lac_team lac_team_of(const lac_gather_args &args, const lac_ring_args &ring)
{
    lac_team team;
    team.blocks = ring.team * LAC_CLUSTER;
    team.number = blockIdx.x / team.blocks;
    team.member = blockIdx.x - team.number * team.blocks;
    team.teams = gridDim.x / team.blocks;
    const int items = args.output_tiles / LAC_CLUSTER * (args.token_tiles / ring.team);
    team.items = (items - team.number + team.teams - 1) / team.teams;
    team.parts = (ring.steps + LAC_RING_STEPS - 1) / LAC_RING_STEPS;
    team.ring = ring.ring + (i64)team.number * (LAC_RING_SLOTS * LAC_RING_STEPS * 2 * LAC_RING_TILE);
    team.spread = ring.counters + team.number * (2 * LAC_RING_SLOTS * LAC_RING_COUNTER);
    team.done = team.spread + LAC_RING_SLOTS * LAC_RING_COUNTER;
    return team;
}

/* ---- counters that the blocks of a team share */

/* Behind a fence of the same thread. */
__device__ __forceinline__ void lac_counter_add(u32 *counter)
{
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/* Waits until the counter has reached `least`. */
__device__ __forceinline__ void lac_counter_wait(const u32 *counter, u32 least)
{
    u32 now;
    for (;;) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
        if ((int)(now - least) >= 0) return;
        __nanosleep(40);
    }
}

/* What ordinary stores have written to global memory is seen by the copy engine, and the other way round. */
__device__ __forceinline__ void lac_global_fence() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ __forceinline__ u32 lac_counter_read(const u32 *counter)
{
    u32 now;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    return now;
}

/* What the stream had before may still be running until it returns; the next kernel of the stream may be started from here on, if it
 * waits likewise. */
__device__ __forceinline__ void lac_ring_begin()
{
    lac_wait_for_inputs(); /* and the counters are 0 */
    lac_let_next_begin();
}

/* ---- warp 8 */

/* Gives back the parts whose last stage lies `LAC_STAGES` or more before stage number `now` of this block. */
struct lac_parts_read {
    int slot, part; /* the next one to be given back; `part` within its item */
    int end;        /* behind its last stage                                 */
};

__device__ __forceinline__ void lac_parts_give_back(const lac_team &team, int steps, lac_parts_read &read, int now)
{
    while (read.end + LAC_STAGES <= now + 1) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(team.done + read.slot * LAC_RING_COUNTER) : "memory");
        if (++read.slot == LAC_RING_SLOTS) read.slot = 0;
        if (++read.part == team.parts) read.part = 0;
        read.end += read.part + 1 == team.parts ? steps - read.part * LAC_RING_STEPS : LAC_RING_STEPS;
    }
}

/* X and W of a stage are told to the same barrier. */
__device__ __forceinline__ void lac_fetch_x(const lac_walk &walk, const lac_tensor_map *map, u32 stage, u32 barrier)
{
    lac_barrier_expect(barrier, LAC_X_STAGE + LAC_W_STAGE);
    lac_stream_x(map, stage, barrier, (walk.stage - walk.item.begin) * LAC_ROWS, walk.item.token_tile * LAC_TILE_TOKENS);
}

__device__ __forceinline__ void lac_produce(const lac_gather_args &args, const lac_ring_args &ring, const lac_tensor_map *map, u32 stages,
                                            u32 full, u32 empty)
{
    const lac_team team = lac_team_of(args, ring);
    u32 slot = 0, parity = 1, place = 0, use = 1; /* of a stage; of a part of the ring, and how often that has been used */
    int number = 0, ahead = 0;
    /* X of the first stages comes while the first of W is still being spread. */
    for (lac_walk first = lac_walk_begin(args); first.more && ahead < LAC_STAGES; ahead++) {
        lac_fetch_x(first, map, stages + ahead * LAC_STAGE, full + 8 * ahead);
        first.stage++;
        lac_walk_settle(args, first);
    }
    lac_parts_read read = {0, 0, min(ring.steps, LAC_RING_STEPS)};
    for (lac_walk now = lac_walk_begin(args); now.more; lac_walk_settle(args, now)) {
        const u32 stage = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
        const int step = now.stage - now.item.begin, within = step % LAC_RING_STEPS;
        lac_barrier_wait(empty + 8 * slot, parity);
        lac_parts_give_back(team, ring.steps, read, number);
        if (number++ >= ahead) lac_fetch_x(now, map, stage, barrier);
        if (within == 0) {
            lac_counter_wait(team.spread + place * LAC_RING_COUNTER, use * LAC_UNITS);
            lac_global_fence();
        }
        lac_copy_bulk(stage + LAC_X_STAGE,
                      team.ring + ((place * LAC_RING_STEPS + within) * 2 + lac_cluster_rank()) * LAC_RING_TILE, LAC_W_STAGE, barrier);
        if (within == LAC_RING_STEPS - 1 || step == ring.steps - 1)
            if (++place == LAC_RING_SLOTS) place = 0, use++;
        if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        now.stage++;
    }
}

/* ---- warps 9 and up */

/* A warp's way through the units of its team, of which it has every so many. Divisions are slow, and made here only before the
 * first. */
struct lac_units {
    int part, within;            /* of all that the team multiplies; the unit's number within it */
    int more_parts, more_within; /* to the warp's next unit                                      */
    int turn, in_item;           /* items of the team before; the part's number in its item      */
    int pair, more_pairs, pairs; /* of output tiles: this item's, to the next item's, of all     */
};

__device__ __forceinline__ void lac_units_settle(const lac_team &team, lac_units &units)
{
    for (; units.in_item >= team.parts; units.in_item -= team.parts) {
        units.turn++;
        units.pair += units.more_pairs;
        if (units.pair >= units.pairs) units.pair -= units.pairs;
    }
}

__device__ __forceinline__ lac_units lac_units_begin(const lac_gather_args &args, const lac_team &team)
{
    lac_units units;
    const int number = team.member * LAC_SPREADERS + (threadIdx.x >> 5) - 9, more = team.blocks * LAC_SPREADERS;
    units.part = units.in_item = number / LAC_UNITS, units.within = number % LAC_UNITS;
    units.more_parts = more / LAC_UNITS, units.more_within = more % LAC_UNITS;
    units.turn = 0;
    units.pairs = args.output_tiles / LAC_CLUSTER;
    units.pair = team.number % units.pairs, units.more_pairs = team.teams % units.pairs;
    lac_units_settle(team, units);
    return units;
}

__device__ __forceinline__ void lac_units_next(const lac_team &team, lac_units &units)
{
    units.within += units.more_within;
    const int carry = units.within >= LAC_UNITS;
    units.within -= carry * LAC_UNITS;
    units.part += units.more_parts + carry;
    units.in_item += units.more_parts + carry;
    lac_units_settle(team, units);
}

/* Where a unit goes. */
struct lac_target {
    bool more;     /* there is such a unit                                            */
    bool real;     /* it lies within k                                                */
    u32 slot, use; /* of the ring; how often that was used before                     */
    u32 at;        /* its first byte in the ring                                      */
};

/* The warp's next unit: its words are asked for, and the warp goes on. */
__device__ __forceinline__ lac_target lac_unit_begin(u32 (&word)[LAC_WORDS], const lac_gather_args &args, const lac_ring_args &ring,
                                                     const lac_team &team, lac_units &units)
{
    const int step = units.in_item * LAC_RING_STEPS + units.within / 16, output_tile = units.pair * LAC_CLUSTER + (units.within >> 3 & 1);
    lac_target target;
    target.more = units.turn < team.items;
    target.real = step < ring.steps;
    target.slot = (u32)units.part % LAC_RING_SLOTS, target.use = (u32)units.part / LAC_RING_SLOTS;
    target.at = (target.slot * LAC_RING_STEPS * 2 + units.within / 8) * LAC_RING_TILE + (units.within & 7) * (16 * 128);
    if (target.more && target.real)
        lac_words_load(word, args.weight + (((i64)output_tile * ring.steps + step) * 2 + (units.within >> 2 & 1)) * LAC_W_PIECE,
                       (threadIdx.x >> 4 & 1) * 64 + (units.within & 3) * 16 + (threadIdx.x & 15));
    lac_units_next(team, units);
    return target;
}

/* A lane's 32 inputs to the chunks of its row. */
__device__ __forceinline__ void lac_unit_store(u8 *to, const u32 (&out)[16])
{
    const u32 row = threadIdx.x & 15, chunk = (threadIdx.x >> 4 & 1) * 4;
#pragma unroll
    for (u32 c = 0; c < 4; c++)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to + row * 128 + ((chunk + c ^ row) & 7) * 16), "r"(out[4 * c]),
                     "r"(out[4 * c + 1]), "r"(out[4 * c + 2]), "r"(out[4 * c + 3])
                     : "memory");
}

/* Tells the team of the units that this warp has stored in these slots; LAC_RING_SLOTS: of none. The fence also stands between what the
 * first lane has read of counters before and what the warp stores afterwards. */
__device__ __forceinline__ void lac_units_tell(const lac_team &team, u32 slot, u32 other)
{
    lac_global_fence();
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        if (slot < LAC_RING_SLOTS) lac_counter_add(team.spread + slot * LAC_RING_COUNTER);
        if (other < LAC_RING_SLOTS) lac_counter_add(team.spread + other * LAC_RING_COUNTER);
    }
}

/* A spread unit to its place, as soon as everybody has read what was there. `seen` is what the first lane knows of that. Returns the slot, if
 * the team has yet to be told. */
__device__ __forceinline__ u32 lac_unit_end(const lac_team &team, const lac_target &target, u32 seen, const u32 (&out)[16])
{
    const u32 least = target.use * team.blocks;
    if ((threadIdx.x & 31) == 0 && (int)(seen - least) < 0) lac_counter_wait(team.done + target.slot * LAC_RING_COUNTER, least);
    __syncwarp();
    if (target.real) lac_unit_store(team.ring + target.at, out);
    if (target.use > 0) return target.slot;
    lac_units_tell(team, target.slot, LAC_RING_SLOTS);
    return LAC_RING_SLOTS;
}

/* Two units at a time. The team is told of them when the first of the next two has been spread: by then their stores have arrived, and the
 * fence, which costs more than a unit, waits for nothing. Those that fill the ring for the first time, for which everybody waits, are told of at
 * once. Counters are asked for before the spreading, whose time hides the answer's. */
__device__ __forceinline__ void lac_spread(const lac_gather_args &args, const lac_ring_args &ring)
{
    const lac_team team = lac_team_of(args, ring);
    lac_units units = lac_units_begin(args, team);
    u32 word[2][LAC_WORDS] = {}, out[16], untold[2] = {LAC_RING_SLOTS, LAC_RING_SLOTS};
    lac_target first = lac_unit_begin(word[0], args, ring, team, units), second = lac_unit_begin(word[1], args, ring, team, units);
    lac_ring_begin();
    while (first.more) {
        const bool tells = untold[0] < LAC_RING_SLOTS || untold[1] < LAC_RING_SLOTS;
        u32 seen[2] = {0, 0};
        if (tells && (threadIdx.x & 31) == 0) {
            seen[0] = lac_counter_read(team.done + first.slot * LAC_RING_COUNTER);
            seen[1] = lac_counter_read(team.done + second.slot * LAC_RING_COUNTER);
        }
        lac_spread_32(out, word[0]);
        if (tells) lac_units_tell(team, untold[0], untold[1]);
        const lac_target third = lac_unit_begin(word[0], args, ring, team, units);
        untold[0] = lac_unit_end(team, first, seen[0], out);
        untold[1] = LAC_RING_SLOTS;
        if (second.more) {
            lac_spread_32(out, word[1]);
            const lac_target fourth = lac_unit_begin(word[1], args, ring, team, units);
            /* Nobody waits with a unit untold: the others might wait for that one. */
            if (untold[0] < LAC_RING_SLOTS && __any_sync(~0u, (threadIdx.x & 31) == 0 && (int)(seen[1] - second.use * team.blocks) < 0)) {
                lac_units_tell(team, untold[0], LAC_RING_SLOTS);
                untold[0] = LAC_RING_SLOTS;
            }
            untold[1] = lac_unit_end(team, second, seen[1], out);
            second = fourth;
        }
        first = third;
    }
    lac_units_tell(team, untold[0], untold[1]);
}

extern "C" __global__ void __launch_bounds__(256 + 32 * (LAC_SPREADERS + 1), 1)
    lac_expand_ring(const lac_gpu_call call, const lac_gather_args args, const lac_ring_args ring,
                    const __grid_constant__ lac_tensor_map map, const __grid_constant__ lac_tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    lac_barriers_begin(full, empty, 1);
    if (threadIdx.x >= 256) {
        if (LAC_SPREADERS == 3) lac_registers_fewer<LAC_SPREADING_REGISTERS>();
        if (threadIdx.x >= 288) {
            lac_spread(args, ring);
        } else {
            lac_ring_begin();
            if (threadIdx.x == 256) lac_produce(args, ring, &map, stages, full, empty);
        }
    } else {
        lac_ring_begin();
        if (LAC_SPREADERS == 3) lac_registers_more<LAC_MULTIPLYING_REGISTERS>();
        lac_consume(call, args, stages, full, empty, &y_map);
    }
    __syncwarp();
    lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
