/* fragment_copy.cuh - how the stages of fragment.cu come into shared memory: pieces of a copy, so that they can be made between
 * products. */
#ifndef LAC_CUDA_KERNELS_FRAGMENT_COPY_CUH
#define LAC_CUDA_KERNELS_FRAGMENT_COPY_CUH

#include "async_copy.cuh"
#include "chain.cuh"
#include "fragment_common.cuh"
#include "shared_access.cuh"

/* Eight tokens or inputs that are neighbours in X are a chunk of 16 bytes. A line of a stage is a row of X, with the tile's
 * tokens, or (LAC_DIRECT) a token, with the stage's inputs. */
enum {
    LINES = LAC_DIRECT ? LAC_TILE_TOKENS : LAC_ROWS,
    CHUNKS = (LAC_DIRECT ? LAC_ROWS : LAC_TILE_TOKENS) / 8,                  /* in a line                          */
    AT_ONCE = LAC_THREADS / CHUNKS < LINES ? LAC_THREADS / CHUNKS : LINES, /* lines that all threads copy together */
    X_COPIES = LINES / AT_ONCE,
    W_COPIES = (LAC_W_STAGE + LAC_THREADS * 16 - 1) / (LAC_THREADS * 16),
    COPIES = X_COPIES + W_COPIES + !LAC_DIRECT, /* the numbers of a later stage */
    BATCH = X_COPIES < 8 ? X_COPIES : 8
};
static_assert(LAC_THREADS % CHUNKS == 0 && LINES % AT_ONCE == 0, "threads share the lines evenly");
static_assert(X_COPIES % BATCH == 0, "numbers of rows come in whole batches");

/* Which place in its line a chunk has: eight that are read together lie in different banks. */
__device__ __forceinline__ u32 lac_place(u32 line, u32 chunk)
{
    if (LAC_DIRECT) return chunk ^ (line & 7) ^ (LAC_KIND == 2 ? chunk >> 3 << 1 : 0);
    return chunk ^ (CHUNKS >= 8 ? line & 7 : CHUNKS == 4 ? line >> 1 & 3 : line >> 2 & 1);
}

/* What a thread knows of the copies that it makes. */
struct lac_copies {
    u32 stages, stage;     /* in shared memory: the first, the next to copy                       */
    u32 chunk;             /* where in a stage this thread's first chunk goes                     */
    u32 numbers, ring;     /* in shared memory, and which of them are the next stage's            */
    int next, end;         /* stages                                                              */
    const u16 *x;          /* this thread's chunk: of row 0, or (direct) of its first token       */
    const u8 *w;           /* this thread's first chunk of the next stage                         */
    const int *index;      /* of the next stage                                                   */
    int left;              /* elements from that chunk of X on, in its line of X                  */
    int tokens;            /* direct: tokens from this thread's first one on                      */
    int number[BATCH];     /* rows of X that the next lines are                                   */
    bool aligned, go, go_x; /* X to 16 bytes; whether there is a next stage, and X copied at once */
};

/* Eight elements, `count` of them there, where X is not aligned to 16 bytes. */
__device__ __forceinline__ void lac_copy_slowly(u32 to, const u16 *from, int count)
{
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) word[i >> 1] |= (u32)from[i] << 16 * (i & 1);
    lac_shared_store_16(to, make_uint4(word[0], word[1], word[2], word[3]));
}

__device__ __forceinline__ bool lac_has_chunk() { return LAC_THREADS <= AT_ONCE * CHUNKS || threadIdx.x < AT_ONCE * CHUNKS; }

/* This thread's first line; one that has no chunk reads the number of the last, and copies nothing. */
__device__ __forceinline__ u32 lac_first_line()
{
    return LAC_THREADS <= AT_ONCE * CHUNKS ? threadIdx.x / CHUNKS : min(threadIdx.x / CHUNKS, (u32)AT_ONCE - 1);
}

/* Where in a stage this thread's chunk of its line number i goes: AT_ONCE is a power of two, so that the swizzle's bits add up. */
__device__ __forceinline__ u32 lac_chunk_to(const lac_copies &c, int i)
{
    return (c.chunk ^ lac_place(i * AT_ONCE, 0) * 16) + i * (AT_ONCE * LAC_X_LINE);
}
/* The numbers of the rows of X that its lines from number i on are: several at once, for none can be loaded before a copy that
 * stands above it. */
__device__ __forceinline__ void lac_load_numbers(lac_copies &c, int i)
{
#if !LAC_DIRECT
#pragma unroll
    for (int j = 0; j < BATCH; j++)
        c.number[j] = (int)lac_shared_load(c.numbers + (c.ring * LAC_ROWS + lac_first_line()) * 4 + (i + j) * (AT_ONCE * 4));
#endif
}

/* Copy number `i` of COPIES of the next stage. */
__device__ __forceinline__ void lac_copy_some(const lac_fragment_args &args, lac_copies &c, int i)
{
    if (i < X_COPIES) {
#if LAC_DIRECT
        const bool none = c.left <= 0 || i * AT_ONCE >= c.tokens;
        lac_copy_16_if(c.stage + lac_chunk_to(c, i), none ? args.x : c.x + (i64)(i * AT_ONCE) * (int)args.ldx, none, c.go_x);
#else
        const int number = c.number[i % BATCH];
        lac_copy_16_if(c.stage + lac_chunk_to(c, i), c.x + (i64)max(number, 0) * (int)args.ldx, number < 0 || c.left <= 0, c.go_x);
        if (i % BATCH == BATCH - 1 && i + 1 < X_COPIES) lac_load_numbers(c, i + 1);
#endif
    } else if (i < X_COPIES + W_COPIES) {
        const u32 first = (i - X_COPIES) * (LAC_THREADS * 16);
        lac_copy_16_if(c.stage + LAC_X_STAGE + threadIdx.x * 16 + first, c.w + first,
                       first + LAC_THREADS * 16 <= LAC_W_STAGE ? c.go : c.go && first + threadIdx.x * 16 < LAC_W_STAGE);
    } else {
        const u32 later = c.ring < LAC_STAGES ? c.ring + LAC_STAGES : c.ring - LAC_STAGES;
        lac_copy_16_if(c.numbers + later * (LAC_ROWS * 4) + threadIdx.x * 16, c.index + LAC_STAGES * LAC_ROWS + threadIdx.x * 4,
                       c.next + LAC_STAGES < c.end && threadIdx.x < LAC_ROWS / 4);
    }
}

/* Before the copies of a stage: what cannot be copied 16 bytes at a time. */
__device__ __forceinline__ void lac_copies_open(const lac_fragment_args &args, lac_copies &c)
{
    c.go = c.next < c.end;
    c.go_x = c.go && c.aligned && lac_has_chunk();
    lac_load_numbers(c, 0);
    if (!c.aligned && c.go && lac_has_chunk())
#pragma unroll 1
        for (int i = 0; i < X_COPIES; i++) {
#if LAC_DIRECT
            lac_copy_slowly(c.stage + lac_chunk_to(c, i), c.x + (i64)(i * AT_ONCE) * args.ldx, i * AT_ONCE < c.tokens ? c.left : 0);
#else
            const int number = (int)lac_shared_load(c.numbers + (c.ring * LAC_ROWS + lac_first_line() + i * AT_ONCE) * 4);
            lac_copy_slowly(c.stage + lac_chunk_to(c, i), c.x + (i64)number * args.ldx, number < 0 ? 0 : c.left);
#endif
        }
}

/* After them. */
__device__ __forceinline__ void lac_copies_close(lac_copies &c)
{
    lac_copy_commit(); /* an empty group past the last stage */
    c.next++;
    c.w += LAC_W_STAGE;
#if LAC_DIRECT
    c.x += LAC_ROWS;
    c.left -= LAC_ROWS;
#else
    c.index += LAC_ROWS;
    if (++c.ring == 2 * LAC_STAGES) c.ring = 0;
#endif
    c.stage += LAC_STAGE;
    if (c.stage == c.stages + LAC_STAGES * LAC_STAGE) c.stage = c.stages;
}

/* The numbers of the first stages by hand, then their copies. */
__device__ __forceinline__ lac_copies lac_copies_begin(const lac_gpu_call &call, const lac_fragment_args &args, const lac_item &item,
                                                       u32 memory)
{
    lac_copies c;
    c.stages = c.stage = memory;
    c.chunk = threadIdx.x / CHUNKS * LAC_X_LINE + lac_place(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS) * 16;
    c.next = item.begin;
    c.end = item.end;
    c.w = args.weight + (i64)item.begin * LAC_W_STAGE + threadIdx.x * 16;
    const int first_stage = LAC_SHARED_INDEX ? item.begin - item.output_tile * args.tile_stages : item.begin;
    const int token = item.token_tile * LAC_TILE_TOKENS + (LAC_DIRECT ? threadIdx.x / CHUNKS : threadIdx.x % CHUNKS * 8);
    c.aligned = ((u64)args.x | (u64)args.ldx * 2) % 16 == 0 && args.ldx < 1 << 30;
#if LAC_DIRECT
    const int input = first_stage * LAC_ROWS + threadIdx.x % CHUNKS * 8;
    c.x = (const u16 *)args.x + (i64)token * args.ldx + input;
    c.left = call.k - input;
    c.tokens = call.m - token;
    c.aligned = c.aligned && call.k % 8 == 0;
#else
    c.numbers = memory + LAC_NUMBERS;
    c.ring = 0;
    c.left = call.m - token;
    c.x = (const u16 *)args.x + (c.left > 0 ? token : 0);
    c.index = args.index + (i64)first_stage * LAC_ROWS;
    for (int i = threadIdx.x; i < LAC_STAGES * LAC_ROWS; i += LAC_THREADS)
        if (item.begin + i / LAC_ROWS < item.end) lac_shared_store(c.numbers + i * 4, (u32)c.index[i]);
    __syncthreads();
#endif
    lac_wait_for_inputs();
#pragma unroll 1
    for (int stage = 0; stage < LAC_STAGES - 1; stage++) {
        lac_copies_open(args, c);
#pragma unroll
        for (int i = 0; i < COPIES; i++) lac_copy_some(args, c, i);
        lac_copies_close(c);
    }
    return c;
}

#endif
