/* window_mma.cu - the dataflow of window.cu for GPUs without wgmma: mma.sync instead, cp.async (or plain loads) instead of
 * bulk copies. Tiles, fragments and epilogue are the same, so the weight is re-tiled in the same way.
 *
 * A block of 256 threads does one item: its eight warps are the two warpgroups of window.cu. All of them copy windows into
 * LAC_STAGES stages, LAC_STAGES - 1 ahead. A tile has 128 tokens, two bands of 64: a warp multiplies its 16 rows of both before
 * the next vector, so each fragment of W is used twice.
 *
 * Constants: those of window.cu; LAC_TOKENS is 128, a window of W is one chunk. Bottleneck: shared memory on GPUs with fast tensor cores, else these. */
#define LAC_OPERAND 2
#define LAC_STAGES_BY_BARRIER
#include "async_copy.cuh"
#include "window_common.cuh"

#define LAC_TILES (LAC_WIDTH / 8) /* of eight outputs in a vector */
#define LAC_STAGE (LAC_X_STAGE + LAC_W_TILE)

/* The first step of chain `chain`, counted over all vectors, and how many it has. */
__device__ __forceinline__ constexpr int lac_chain_first(int chain)
{
    const int in = chain % LAC_CHAINS;
    return chain / LAC_CHAINS * LAC_STEPS + in * LAC_SHORT_CHAIN + (in < LAC_LONG_CHAINS ? in : LAC_LONG_CHAINS);
}
__device__ __forceinline__ constexpr int lac_chain_steps(int chain)
{
    return LAC_SHORT_CHAIN + (chain % LAC_CHAINS < LAC_LONG_CHAINS);
}

/* d += a * b, 16 x 16 times 16 x 8: fragments as in mma.cuh. */
__device__ __forceinline__ void lac_multiply(float *d, const u32 (&a)[4], u32 b0, u32 b1)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

/* The fragments of one plane of W: tile j's are b[2j] and b[2j + 1]. */
__device__ __forceinline__ void lac_load_weights(u32 (&b)[2 * LAC_TILES], u32 matrix)
{
    const u32 address = matrix + (threadIdx.x & 31) * 16;
#pragma unroll
    for (int j = 0; j + 1 < LAC_TILES; j += 2) {
        u32 four[4];
        lac_load_straight<0>(four, address + j * 256);
#pragma unroll
        for (int i = 0; i < 4; i++) b[2 * j + i] = four[i];
    }
    if (LAC_TILES % 2) {
        u32 two[2];
        lac_load_straight_two<0>(two, matrix + (LAC_TILES - 1) * 256 + (threadIdx.x & 15) * 16);
        b[2 * LAC_TILES - 2] = two[0];
        b[2 * LAC_TILES - 1] = two[1];
    }
}

/* sum += a * W for one product's 16 rows. */
__device__ __forceinline__ void lac_rows_times(float (&sum)[LAC_SUMS], const u32 (&a)[4], const u32 (&b)[2 * LAC_TILES])
{
#pragma unroll
    for (int j = 0; j < LAC_TILES; j++) lac_multiply(sum + 4 * j, a, b[2 * j], b[2 * j + 1]);
}

/* One step of a vector: main products to `main`, cross products to `cross` (which may be the same), those of two scaled lo to
 * `tiny`. */
__device__ __forceinline__ void lac_step(float (&main)[2][LAC_SUMS], float (&cross)[2][LAC_SUMS], float (&tiny)[2][LAC_SUMS],
                                         const lac_view &view, u32 stage, int step)
{
    const u32 chunk = stage + LAC_X_STAGE, row = lac_row_address(view, stage, lac_place(view, chunk, step));
    const u32 matrix = chunk + view.matrices + step * LAC_PLANES * LAC_MATRIX;
    u32 a[LAC_PLANES][4], b[LAC_PLANES][2 * LAC_TILES];
#pragma unroll
    for (int p = 0; p < LAC_PLANES; p++) lac_load_weights(b[p], matrix + p * LAC_MATRIX);
#pragma unroll
    for (int u = 0; u < 2; u++) {
#pragma unroll
        for (int p = 0; p < LAC_PLANES; p++) lac_load_turned<0>(a[p], row + u * 128 + p * LAC_X_PLANE);
#if LAC_PLANES == 2 /* the small products first, while they are not yet lost beside the main ones */
        if (LAC_LOW_SHIFT) lac_rows_times(tiny[u], a[1], b[1]);
        lac_rows_times(cross[u], a[1], b[0]);
        lac_rows_times(cross[u], a[0], b[1]);
#endif
        lac_rows_times(main[u], a[0], b[0]);
    }
}

__device__ __forceinline__ void lac_clear(float (&sum)[2][LAC_SUMS])
{
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) sum[u][i] = 0.0f;
}

/* A stage's window, chain by chain. */
__device__ __forceinline__ void lac_window_add(float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS], const lac_view &view, u32 stage)
{
    float factor[2][2];
    lac_factors(factor, stage);
#pragma unroll
    for (int chain = 0; chain < LAC_VECTORS * LAC_CHAINS; chain++) {
        float sum[2][LAC_SUMS];
        lac_clear(sum);
#pragma unroll
        for (int s = lac_chain_first(chain); s < lac_chain_first(chain) + lac_chain_steps(chain); s++)
            lac_step(sum, sum, sum, view, stage, s);
#pragma unroll
        for (int u = 0; u < 2; u++) lac_promote(total[chain / LAC_CHAINS][u], sum[u], factor[u]);
    }
}

#if LAC_PLANES == 2
/* The same where something is not finite, or lo is scaled: cross products are dropped where the main one is not finite. `vectors` as in window.cu. */
__device__ __forceinline__ void lac_window_add_apart(float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS], const lac_view &view, u32 stage,
                                                   int vectors)
{
    float factor[2][2];
    lac_factors(factor, stage);
#pragma unroll
    for (int chain = 0; chain < LAC_VECTORS * LAC_CHAINS; chain++) {
        if (chain / LAC_CHAINS >= vectors) continue;
        float main[2][LAC_SUMS], cross[2][LAC_SUMS], tiny[2][LAC_SUMS];
        lac_clear(main);
        lac_clear(cross);
        lac_clear(tiny);
#pragma unroll 1
        for (int s = lac_chain_first(chain); s < lac_chain_first(chain) + lac_chain_steps(chain); s++)
            lac_step(main, cross, tiny, view, stage, s);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            lac_join(main[u], cross[u], tiny[u]);
            lac_promote(total[chain / LAC_CHAINS][u], main[u], factor[u]);
        }
    }
}
#endif

/* Starts the copy of a window; an empty group past the last one. */
__device__ __forceinline__ void lac_copy_window(const lac_window_args &args, const lac_item &item, int window, u32 stage)
{
    if (window < item.end) {
        const u8 *x = args.tiles + ((i64)item.token_tile * args.windows + window) * LAC_X_TILE;
        const u8 *w = args.weight + ((i64)item.output_tile * args.windows + window) * LAC_W_TILE;
        for (int i = threadIdx.x * 16; i < LAC_X_TILE; i += 256 * 16) lac_copy_16<0>(stage + i, x + i);
        for (int i = threadIdx.x * 16; i < LAC_W_TILE; i += 256 * 16) lac_copy_16<0>(stage + LAC_X_STAGE + i, w + i);
    }
    lac_copy_commit();
}

extern "C" __global__ void __launch_bounds__(256, 1) lac_window_mma(lac_gpu_call call, lac_window_args args)
{
    extern __shared__ __align__(128) u8 shared[];
    const u32 stages = lac_shared_address(shared);
    const lac_item item = lac_item_of(args, blockIdx.x);
    const int group = threadIdx.x >> 7;
    const lac_view view = lac_view_of(group);
    for (int i = 0; i < LAC_STAGES; i++) lac_zero_rows(shared + i * LAC_STAGE, 256);
    for (int i = 0; i < LAC_STAGES - 1; i++) lac_copy_window(args, item, item.begin + i, stages + i * LAC_STAGE);
    float total[LAC_VECTORS][LAC_BANDS][LAC_SUMS];
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++) lac_clear(total[v]);
#if LAC_PLANES == 2
    u32 odd = args.weight_odd;
    lac_gather_odd(odd, args, item.token_tile);
    const bool apart = LAC_LOW_SHIFT || __any_sync(0xffffffffu, odd);
    const int vectors = args.vectors - (item.output_tile * 2 + group) * LAC_VECTORS;
#endif
    u32 now = 0, ahead = LAC_STAGES - 1;
    for (int window = item.begin; window < item.end; window++) {
        lac_copy_wait<LAC_STAGES - 2>();
        __syncthreads(); /* the window has landed for everybody, and everybody is done with the one before it */
        lac_copy_window(args, item, window + LAC_STAGES - 1, stages + ahead * LAC_STAGE);
#if LAC_PLANES == 2
        if (apart)
            lac_window_add_apart(total, view, stages + now * LAC_STAGE, vectors);
        else
#endif
            lac_window_add(total, view, stages + now * LAC_STAGE);
        if (++now == LAC_STAGES) now = 0;
        if (++ahead == LAC_STAGES) ahead = 0;
    }
    lac_tile_finish(call, args, item, args.output + (i64)item.output_tile * LAC_TILE_WIDTH,
                    args.factor + (i64)item.output_tile * LAC_TILE_WIDTH, total);
}
