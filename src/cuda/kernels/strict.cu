/* strict.cu - fp32 on CUDA cores for weights whose rows share their columns in vectors of LAC_LANES_N * LAC_THREAD_N outputs.
 *
 * A block computes block_n outputs x block_m tokens; a warp one vector of outputs x warp_m tokens, so that the input that a
 * slot (a kept column of the vector) reads is the same for the whole warp; a thread LAC_THREAD_N x LAC_THREAD_M sums in
 * registers. X is feature-major: a slot's operand is a run of tokens in one row of X.
 *
 * The host has cut each block's columns into steps (strict_tile.c). A step brings up to LAC_ROWS rows of X into shared memory
 * and up to LAC_SLOTS slots for each vector:
 *   direct   LAC_ROWS consecutive inputs from first[step] on, whether used or not (low sparsity)
 *            LAC_EVERY: all of them are used, slot i is row i, and no offsets are read (dense)
 *   packed   the inputs of columns[step][LAC_ROWS], which the vectors of this block use; 0xffffffff: none (high sparsity)
 *
 * One stage of shared memory, of LAC_STAGES:
 *
 *     X        [LAC_ROWS][block_m]            rows of tokens
 *     W        [LAC_SLOTS][block_n]           as in records[step]
 *     offsets  [LAC_WARPS_N][LAC_SLICES][LAC_SLOTS / LAC_SLICES + 4]   bytes from X to the slot's row, and behind the last slot
 *                                             the first 4 of the next step
 *              LAC_UNEVEN: 4 more, of which the first two are the number of slots in the next step and in this one
 *
 * LAC_ROWWISE: rows of W share nothing (element-wise patterns); see multiply_rows.
 *
 * Copies run LAC_STAGES - 1 steps ahead; the fragments of a slot are loaded while the slot before is multiplied, and its
 * offset one more slot earlier, four at a time. Where tokens and outputs are too few to fill the GPU, the inputs are shared out as well: LAC_SLICES
 * groups of warps take their part of each step's slots, LAC_SPLIT blocks of a cluster their part of the steps. Their sums are
 * added through shared memory, each other's in a cluster, always in the same order.
 *
 * Bottleneck: issue slots. With 8 x 16 sums a thread, a slot takes 128 FFMA, 6 shared loads of 16 bytes, 1 add and a quarter
 * of a load. */
#include "async_copy.cuh"
#include "cluster.cuh"
#include "strict_tile.cuh"

namespace {

/* Copying X: so many lanes side by side on a row, each with so many pieces; so many rows by a warp and by the block in a pass. */
constexpr int piece = LAC_X_ALIGNED ? 16 : 4;
constexpr int row_lanes = row_bytes / piece < 32 ? row_bytes / piece : 32;
constexpr int row_pieces = row_bytes / piece / row_lanes;
constexpr int warp_rows = 32 / row_lanes, pass_rows = threads / row_lanes;
constexpr int passes = (rows + pass_rows - 1) / pass_rows;
static_assert(slots % slices == 0 && slice_slots % LAC_UNROLL == 0 && LAC_UNROLL % 4 == 0, "slots come in groups");
static_assert(passes * warp_rows <= 32, "a lane holds one column");
static_assert(LAC_SPLIT * slices == 1 || stages * stage_bytes >= slices * block_n * block_m * 4, "sums are exchanged in the stages");

__device__ __forceinline__ void load_fragment(fragment &f, const char *x, const char *w)
{
#pragma unroll
    for (int i = 0; i < thread_m; i += 4) {
        float4 v = *(const float4 *)(x + i * lanes_m * 4);
        f.x[i] = v.x, f.x[i + 1] = v.y, f.x[i + 2] = v.z, f.x[i + 3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < thread_n; i += 4) {
        float4 v = *(const float4 *)(w + i * lanes_n * 4);
        f.w[i] = v.x, f.w[i + 1] = v.y, f.w[i + 2] = v.z, f.w[i + 3] = v.w;
    }
}

__device__ __forceinline__ void load_offsets(u32 (&offset)[4], const char *from)
{
    uint4 v = *(const uint4 *)from;
    offset[0] = v.x, offset[1] = v.y, offset[2] = v.z, offset[3] = v.w;
}

/* Which tile, and which part of it, a thread works on. */
struct place {
    int tile_m, tile_n, rank; /* of the block                */
    int warp, slice, warp_n, warp_m, lane;
};

/* Read anew wherever it is wanted: none of it should hold a register while the block multiplies. */
__device__ __forceinline__ place find_place(const lac_strict_weight &weight)
{
    int block, thread;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    place p;
    /* Tiles that run at the same time share rows of X and records of W: group_m tiles of tokens, then the next outputs. */
    int tile = block / LAC_SPLIT, group = tile / (weight.group_m * weight.blocks);
    int in_group = tile - group * (weight.group_m * weight.blocks), width = min(weight.group_m, weight.tiles_m - group * weight.group_m);
    p.tile_n = in_group / width;
    p.tile_m = group * weight.group_m + in_group - p.tile_n * width;
    p.rank = block % LAC_SPLIT;
    int warp = thread >> 5;
    p.warp = warp;
    p.lane = thread & 31;
    p.slice = slices == 1 ? 0 : warp / (LAC_WARPS_N * LAC_WARPS_M);
    p.warp_n = warp / LAC_WARPS_M % LAC_WARPS_N;
    p.warp_m = warp % LAC_WARPS_M;
    return p;
}

/* A value that the compiler must keep in a register rather than make again from its parts wherever it is used. */
template <typename type> __device__ __forceinline__ void keep(type &value)
{
    if (sizeof(type) == 8)
        asm volatile("" : "+l"(*(u64 *)&value));
    else
        asm volatile("" : "+r"(*(u32 *)&value));
}

/* The copies of one thread. Pointers move on with each step. */
struct copier {
    u32 shared_x;           /* this lane's place in its first row of stage 0                               */
    const char *x;          /* this lane's tokens in row 0 of X (direct: in row `row`)                     */
    const char *record;     /* this thread's place in the record of the step that is copied next          */
    const u32 *columns;     /* packed: this lane's entry of the step after that; direct: the step's       */
    u64 pitch;              /* bytes from row to row of X; less than 2^32 when aligned                    */
    u32 tokens;             /* bit p: piece p is inside X                                                 */
    u32 column;             /* packed: the input that this lane stands for; direct: the first one         */
    int step;               /* that is copied next: packed, record and columns are made of it anew         */
};

__device__ __forceinline__ void copier_next_column(copier &c)
{
    c.column = *c.columns;
    c.columns += LAC_PACKED ? rows : 1;
}

/* Where this lane copies from and to. */
__device__ __forceinline__ void copier_aim(copier &c, const lac_gpu_call &call, const lac_strict_weight &weight, const char *shared)
{
    const place here = find_place(weight);
    int token = here.tile_m * block_m + here.lane % row_lanes * (piece / 4), row = here.warp * warp_rows + here.lane / row_lanes;
    c.shared_x = lac_shared_address(shared) + row * row_bytes + here.lane % row_lanes * piece;
    c.pitch = LAC_X_ALIGNED ? (u32)call.ldx * 4u : (u64)call.ldx * 4;
    c.tokens = 0;
#pragma unroll
    for (int p = 0; p < row_pieces; ++p)
        if (token + p * row_lanes * (piece / 4) < call.m) c.tokens |= 1u << p;
    if (row_pieces == 1 && token >= call.m) token = 0; /* tokens past the end: any will do, for nobody stores them */
    c.x = (const char *)call.x + (i64)token * 4 + (LAC_PACKED ? 0 : row * c.pitch);
}

/* This thread's place in the record of a step, and this lane's entry of the step's columns. */
__device__ __forceinline__ const char *record_of(const lac_strict_weight &weight, int step)
{
    return (const char *)weight.records + (i64)step * record_bytes + threadIdx.x * 16;
}
__device__ __forceinline__ const u32 *columns_of(const lac_strict_weight &weight, int step)
{
#if LAC_PACKED
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int entry = min(warp * warp_rows + lane % warp_rows + lane / warp_rows * pass_rows, rows - 1);
    return weight.columns + (i64)step * rows + entry;
#else
    return weight.columns + step;
#endif
}

__device__ __forceinline__ copier copier_begin(const lac_gpu_call &call, const lac_strict_weight &weight, const char *shared, int step)
{
    copier c;
    copier_aim(c, call, weight, shared);
    c.step = step;
    c.record = record_of(weight, step);
    c.columns = columns_of(weight, step);
    copier_next_column(c);
    keep(c.x);
    keep(c.shared_x);
    return c;
}

template <int offset> __device__ __forceinline__ void copy_piece(u32 shared, const char *from)
{
    if (LAC_X_ALIGNED)
        lac_copy_16<offset>(shared, from);
    else
        lac_copy_4<offset>(shared, from);
}

/* Row `pass` of this lane, which begins at `from`. */
template <int pass, int p = 0> __device__ __forceinline__ void copy_row(const copier &c, u32 to, const char *from)
{
    if constexpr (p < row_pieces) {
        if (row_pieces == 1 || (c.tokens >> p & 1))
            copy_piece<pass * pass_rows * row_bytes + p * row_lanes * piece>(to, from + p * row_lanes * piece);
        copy_row<pass, p + 1>(c, to, from);
    }
}

/* Whether the stage has a row for this lane in pass `pass`. */
__device__ __forceinline__ bool has_row(int pass)
{
    return rows % pass_rows == 0 || (pass + 1) * pass_rows <= rows || (int)(threadIdx.x / row_lanes) + pass * pass_rows < rows;
}

/* Packed: the input of this lane's row in pass `pass`, of which another lane knows. */
__device__ __forceinline__ u32 column_of(const copier &c, int pass)
{
    return __shfl_sync(0xffffffffu, c.column, pass * warp_rows + (warp_rows > 1 ? (threadIdx.x & 31) / row_lanes : 0));
}

template <int pass = 0> __device__ __forceinline__ void copy_rows(const copier &c, u32 to, const char *first)
{
    if constexpr (pass < passes) {
#if LAC_PACKED
        u32 column = column_of(c, pass);
        if (has_row(pass) && column != 0xffffffffu) copy_row<pass>(c, to, c.x + column * c.pitch);
#else
        if (has_row(pass)) copy_row<pass>(c, to, first + pass * (pass_rows * c.pitch));
#endif
        copy_rows<pass + 1>(c, to, first);
    }
}

template <int base, int at = 0> __device__ __forceinline__ void copy_record(u32 to, const char *from)
{
    if constexpr (at < record_bytes) {
        if (at + threads * 16 <= record_bytes || at + (int)threadIdx.x * 16 < record_bytes) lac_copy_16<base + at>(to, from + at);
        copy_record<base, at + threads * 16>(to, from);
    }
}

/* Starts the copies of the next step into the stage that begins at byte `stage`. Its column has been read; that of the step after
 * it is read here, unless the caller has it already. */
__device__ __forceinline__ void copy_step(copier &c, const lac_gpu_call &call, const lac_strict_weight &weight, const char *shared,
                                          u32 stage, bool read_column = true)
{
    if (!LAC_X_ALIGNED) copier_aim(c, call, weight, shared); /* anew: copies by 4 bytes need every register */
    if (LAC_PACKED && LAC_X_ALIGNED) { /* these too: held, they would be three registers more than there are */
        c.record = record_of(weight, c.step++);
        if (read_column) c.columns = columns_of(weight, c.step);
    }
    u32 to = c.shared_x + stage;
    keep(to);
    copy_rows(c, to, c.x + c.column * c.pitch);
    if (row_pieces == 1 && LAC_X_ALIGNED) { /* then a thread's place in the rows is 16 bytes a thread too */
        copy_record<x_bytes>(to, c.record);
    } else {
        u32 shared_w = lac_shared_address(shared) + threadIdx.x * 16 + stage;
        copy_record<x_bytes>(shared_w, c.record);
    }
    c.record += record_bytes;
    if (read_column) copier_next_column(c);
}

constexpr int runs_at_once = stages * stage_bytes >= runs * threads * 16 ? runs : runs / 4;
static_assert(stages * stage_bytes >= runs_at_once * threads * 16, "sums go through the stages");

#if LAC_ROWWISE
/* Every row of W has columns of its own: a lane's tokens of one row of X meet a single weight, so shared memory is the bound. A
 * step's weights and offsets are [LAC_WARPS_N][LAC_THREAD_N][LAC_SLOTS], read four at a time by all lanes at once. */
__device__ __forceinline__ void multiply_rows(float (&sum)[thread_n][thread_m], copier &c, const lac_gpu_call &call,
                                              const lac_strict_weight &weight, const char *shared, int left)
{
    const place here = find_place(weight);
    const u32 lane_x = (u32)(here.warp_m * warp_m + lane_m(here.lane) * 4) * 4;
    const u32 warp_w = x_bytes + (u32)(here.warp_n * thread_n * slots) * 4;
    for (u32 stage = 0; left > 0; --left) {
        lac_copy_wait<stages - 2>();
        __syncthreads();
        if (left >= stages) copy_step(c, call, weight, shared, stage ? stage - stage_bytes : (stages - 1) * stage_bytes);
        lac_copy_commit();
        const char *x = shared + stage + lane_x, *w = shared + stage + warp_w;
#pragma unroll
        for (int i = 0; i < thread_n; ++i)
#pragma unroll
            for (int s = 0; s < slots; s += 4) {
                float4 v = *(const float4 *)(w + (i * slots + s) * 4);
                const float value[4] = {v.x, v.y, v.z, v.w};
                u32 offset[4];
                load_offsets(offset, w + w_bytes + (i * slots + s) * 4);
#pragma unroll
                for (int t = 0; t < 4; ++t)
#pragma unroll
                    for (int j = 0; j < thread_m; j += 4) {
                        float4 y = *(const float4 *)(x + offset[t] + j * lanes_m * 4);
                        sum[i][j] = fmaf(value[t], y.x, sum[i][j]), sum[i][j + 1] = fmaf(value[t], y.y, sum[i][j + 1]);
                        sum[i][j + 2] = fmaf(value[t], y.z, sum[i][j + 2]), sum[i][j + 3] = fmaf(value[t], y.w, sum[i][j + 3]);
                    }
            }
        stage = stage == (stages - 1) * stage_bytes ? 0 : stage + stage_bytes;
    }
}
#else
__device__ __forceinline__ void multiply_vectors(float (&sum)[thread_n][thread_m], copier &c, const lac_gpu_call &call,
                                                 const lac_strict_weight &weight, const char *shared, int step, int left)
{
    const place here = find_place(weight);
    /* Offsets into shared memory: this lane's tokens, its outputs, its warp's offsets (from the fifth on), in the stage
     * that is multiplied. */
    const u32 lane_x = (u32)(here.warp_m * warp_m + lane_m(here.lane) * 4) * 4 +
                       (LAC_EVERY ? here.slice * slice_slots * row_bytes : 0);
    const u32 lane_w = x_bytes + (u32)(here.slice * slice_slots * block_n + here.warp_n * warp_n + lane_n(here.lane) * 4) * 4;
    const u32 lane_o = x_bytes + w_bytes + (u32)(here.warp_n * slices + here.slice) * (slice_offsets * 4) + 16;
    u32 stage = 0;
    u32 count = slice_slots;
#if LAC_UNEVEN
    count = *(const u32 *)((const char *)weight.records + (i64)step * record_bytes + lane_o - x_bytes + (slice_slots + 1) * 4);
#endif
    u32 offset[4];
    load_offsets(offset, (const char *)weight.records + (i64)step * record_bytes + lane_o - x_bytes - 16);
    if (LAC_EVERY) offset[0] = 0;

    lac_copy_wait<stages - 2>();
    __syncthreads();
    fragment f[2];
    load_fragment(f[0], shared + (lane_x + offset[0]), shared + lane_w);

    constexpr bool whole = !LAC_UNEVEN && LAC_UNROLL == slice_slots; /* the slots of a step are unrolled, all of them */
    for (u32 group = 0; left > 0; --left) {
        do {
            u32 at = whole ? 0 : group; /* the slot that is s = 0; in the next stage it may lie before the first */
#pragma unroll
            for (int s = 0; s < LAC_UNROLL; ++s) {
                if (s == LAC_UNROLL - 1 && (whole || at == count - LAC_UNROLL)) { /* on to the next stage */
#if LAC_UNEVEN
                    count = *(const u32 *)(shared + stage + lane_o + slice_slots * 4);
#endif
                    stage = stage == (stages - 1) * stage_bytes ? 0 : stage + stage_bytes;
                    at = 0u - LAC_UNROLL;
                    lac_copy_wait<stages - 2>();
                    __syncthreads();
                }
                /* What is added last is known when compiling, and part of the load. */
                load_fragment(f[(s + 1) % 2],
                              shared + (stage + lane_x + (LAC_EVERY ? at * row_bytes : offset[(s + 1) % 4])) +
                                  (LAC_EVERY ? (s + 1) * row_bytes : 0),
                              shared + (stage + lane_w + at * (block_n * 4)) + (s + 1) * (block_n * 4));
                if (!LAC_EVERY && s % 4 == 2) /* of the 4 slots after these */
                    load_offsets(offset, shared + (stage + lane_o + at * 4) + (s - 2) * 4);
                if (s == 0 && at == 0) {
                    if (left >= stages) copy_step(c, call, weight, shared, stage ? stage - stage_bytes : (stages - 1) * stage_bytes);
                    lac_copy_commit();
                }
                multiply(sum, f[s % 2]);
            }
            group = at + LAC_UNROLL;
        } while (!whole && group);
    }
}
#endif

} // namespace

extern "C" __global__ void __launch_bounds__(threads, LAC_BLOCKS_AT_ONCE)
    lac_strict(const lac_gpu_call call, const lac_strict_weight weight)
{
    extern __shared__ __align__(128) char shared[];
    int step, last;
    {
        place here = find_place(weight);
        step = here.tile_n * weight.steps, last = step + weight.steps;
        if (!weight.steps) step = (int)weight.first_step[here.tile_n], last = (int)weight.first_step[here.tile_n + 1];
        if (LAC_SPLIT > 1) {
            int all = last - step, begin = step;
            step = begin + (int)((i64)all * here.rank / LAC_SPLIT);
            last = begin + (int)((i64)all * (here.rank + 1) / LAC_SPLIT);
        }
    }
    copier c;
    if (step < last) {
        c = copier_begin(call, weight, shared, step);
        u32 columns[stages]; /* read side by side: at a cold start each takes a microsecond */
#pragma unroll
        for (int s = 0; s < stages; ++s) {
            columns[s] = c.column;
            if (s < stages - 1) copier_next_column(c);
        }
#pragma unroll
        for (int s = 0; s < stages - 1; ++s) {
            c.column = columns[s];
            if (step + s < last) copy_step(c, call, weight, shared, s * stage_bytes, false);
            lac_copy_commit();
        }
        c.column = columns[stages - 1];
    }
    float sum[thread_n][thread_m];
#pragma unroll
    for (int i = 0; i < thread_n; ++i)
#pragma unroll
        for (int j = 0; j < thread_m; ++j) sum[i][j] = 0.0f;
#if LAC_ROWWISE
    if (step < last) multiply_rows(sum, c, call, weight, shared, last - step);
#else
    if (step < last) multiply_vectors(sum, c, call, weight, shared, step, last - step);
#endif

    const place here = find_place(weight);
    const int lane = here.lane;
    const int first_row = here.tile_n * block_n + here.warp_n * warp_n, first_token = here.tile_m * block_m + here.warp_m * warp_m;
    const bool wide = ((u64)call.y & 15) == 0 && (call.ldy & 3) == 0;
    const int thread = threadIdx.x % tile_threads;
    float4 *exchange = (float4 *)shared;
    lac_copy_wait<0>();
    __syncthreads();
#if LAC_SPLIT * LAC_SLICES > 1
    /* Every thread leaves its sums in its block's shared memory, run by run; each slice of each block adds up and stores its
     * share of the runs. */
#pragma unroll
    for (int r = 0; r < runs; ++r) exchange[(here.slice * runs + r) * tile_threads + thread] = run_of(sum, r);
#if LAC_SPLIT > 1
    lac_cluster_sync();
#else
    __syncthreads();
#endif
    constexpr int parts = LAC_SPLIT * slices;
    const int part = here.rank * slices + here.slice;
#pragma unroll 1
    for (int r = runs * part / parts; r < runs * (part + 1) / parts; ++r) {
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int other = 0; other < parts; ++other) {
            const float4 *at = exchange + (other % slices * runs + r) * tile_threads + thread;
#if LAC_SPLIT > 1
            float4 v = lac_cluster_read(lac_shared_address(at), other / slices);
#else
            float4 v = *at;
#endif
            total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
        }
        store_run(call, weight, first_row + row_in_warp(run_n(r), lane), first_token + token_in_warp(run_m(r), lane), in_order(total), wide);
    }
#if LAC_SPLIT > 1
    lac_cluster_sync(); /* nobody leaves while others read */
#endif
#else
    /* A thread's own sums go through shared memory too, a few runs at a time: a loop can then count through them, and the code
     * stays short. */
#pragma unroll
    for (int first = 0; first < runs; first += runs_at_once) {
#pragma unroll
        for (int r = 0; r < runs_at_once; ++r) exchange[r * threads + thread] = run_of(sum, first + r);
#pragma unroll 1
        for (int r = 0; r < runs_at_once; ++r)
            store_run(call, weight, first_row + row_in_warp(run_n(first + r), lane), first_token + token_in_warp(run_m(first + r), lane),
                      in_order(exchange[r * threads + thread]), wide);
    }
#endif
}
