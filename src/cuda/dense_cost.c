/* dense_cost.c - how long the vendor's dense product takes, by the performance model. Which of its kernels the library runs is
 * its own affair; it is taken to choose well among a few tiles and splits of k. The constants are fitted by
 * bench/fit_dense.py; docs/kernels/dense.md tells how well. */
#include <math.h>

#include "core/dtype.h"
#include "cuda/dense_product.h"
#include "cuda/runtime.h"

typedef struct dense_tile {
    int tokens, outputs;
    bool fp32, tensor; /* for which arithmetic there is such a one */
} dense_tile;

/* The library has tiles of nearly every multiple of 32 for the tensor cores; these are enough for a product to fit its waves. */
static const dense_tile tiles[] = {
    {256, 128, false, true}, {128, 128, true, true},  {64, 128, true, true},  {64, 64, true, true},    {32, 64, true, false},
    {160, 128, false, true}, {192, 128, false, true}, {96, 128, false, true}, {128, 160, false, true}, {128, 192, false, true},
    {128, 256, false, true}, {64, 160, false, true},  {64, 192, false, true}, {64, 256, false, true},  {128, 64, false, true},
    {64, 96, false, true},   {96, 64, false, true}};
enum { TILES = sizeof tiles / sizeof *tiles, MOST_PARTS = 16, LEAST_INPUTS = 256 };

/* What the library's kernels reach with one kind of operands. */
typedef struct dense_reach {
    double compute; /* of the rate of products, with tiles of 128 x 128 or more ...              */
    double small;   /* ... and what smaller ones reach of that                                   */
    double odd;     /* ... and what tiles reach whose sides are no powers of two; 0: there are none  */
    double hot;     /* by how much more time long products take, under which the clock falls     */
    double memory;  /* of a copy's rate                                                          */
    double l2;      /* of what tiles read, what comes out of L2: neighbouring blocks share loads */
    double fill;    /* seconds before the first product and after the last                       */
    double y;       /* of the time in which Y is written, what no product hides                  */
    double exposed; /* of the time in which X and W are read, or of the chip's if shorter, what the other does not hide */
} dense_reach;

static const dense_reach in_fp32 = {.compute = 0.92, .small = 0.95, .memory = 0.5, .l2 = 0.75, .fill = 6e-6};
static const dense_reach in_tf32 = {.compute = 0.9, .small = 0.6, .memory = 1.0, .l2 = 0.5, .fill = 3e-6};
/* Reading W alone is faster than a copy, which turns from reads to writes. The first stages come before any product, and
 * loads that take as long as the products are late for some; of Y, `y` counts that. */
static const dense_reach in_16_bits = {.compute = 1.0,
                                       .small = 1.0,
                                       .odd = 0.98,
                                       .hot = 0.15,
                                       .memory = 1.08,
                                       .l2 = 0.25,
                                       .fill = 0.75e-6,
                                       .y = 0.6,
                                       .exposed = 0.15};
/* For one token the library has kernels that only stream W. */
static const dense_reach of_vector = {.compute = 1.0, .small = 1.0, .memory = 1.0, .l2 = 0.0, .fill = 1e-6};

static const dense_reach *reach_of(const lac_dense_product *p)
{
    if (p->operand != LAC_DTYPE_F32) return &in_16_bits;
    if (p->m == 1) return &of_vector;
    return p->compute == LAC_LT_COMPUTE_TF32 ? &in_tf32 : &in_fp32;
}

static bool is_odd(int side) { return side & (side - 1); }

/* Bytes that kernels/finish.cu moves. */
static double finish_bytes(const lac_problem *problem, const lac_dense_product *p)
{
    const lac_plan_options *o = &problem->options;
    double y = (double)lac_dtype_size(o->y_dtype), outputs = (double)p->m * (double)p->n;
    if (p->finish == LAC_DENSE_FINISH_LIBRARY) return 0.0;
    if (p->finish == LAC_DENSE_FINISH_IN_PLACE) return 2.0 * y * outputs;
    return (sizeof(float) + y + (o->has_residual ? (double)lac_dtype_size(o->c_dtype) : 0.0)) * outputs;
}

lac_cost lac_dense_product_cost(const lac_problem *problem, const lac_dense_product *p)
{
    const dense_reach *reach = reach_of(p);
    lac_gpu_rates rates = *lac_cuda_rates_of(problem->device);
    rates.memory *= reach->memory;
    double m = (double)p->m, n = (double)p->n, k = (double)p->k, size = (double)lac_dtype_size(p->operand);
    double y_bytes = m * n * (double)lac_dtype_size(p->result) * (p->has_residual ? 2.0 : 1.0);
    bool vector = reach == &of_vector, tensor = !vector && reach != &in_fp32;
    lac_cost best = {0};
    for (int i = 0; i < TILES; ++i) {
        bool odd = is_odd(tiles[i].tokens) || is_odd(tiles[i].outputs);
        if (!(tensor ? tiles[i].tensor : tiles[i].fp32) || (odd && reach->odd <= 0.0)) continue;
        double across = ceil(n / tiles[i].outputs), down = ceil(m / tiles[i].tokens);
        double products = (vector ? 1.0 : down * tiles[i].tokens) * across * tiles[i].outputs * k;
        double efficiency = reach->compute * (tiles[i].tokens * tiles[i].outputs >= 128 * 128 ? 1.0 : reach->small);
        if (odd) efficiency *= reach->odd;
        double flops = tensor ? products * (p->operand == LAC_DTYPE_F32 ? 4.0 : 2.0) : 0.0;
        efficiency /= 1.0 + reach->hot * lac_model_gpu_heat(flops / rates.mma_f16 / efficiency);
        for (int parts = 1; parts <= MOST_PARTS; parts *= 2) {
            if (parts > 1 && (k / parts < LEAST_INPUTS || across * down * parts > rates.multiprocessors)) break;
            double read = (m * k + n * k) * size, moved = read + y_bytes + finish_bytes(problem, p);
            lac_gpu_work work = {.memory_bytes = moved,
                                 .l2_bytes = reach->l2 * products * size * (1.0 / tiles[i].tokens + 1.0 / tiles[i].outputs),
                                 .instructions = tensor ? 0.0 : products / 32.0,
                                 .mma_flops = flops,
                                 .blocks = across * down * parts,
                                 .blocks_at_once = rates.multiprocessors,
                                 .fill_seconds = reach->fill + reach->y * y_bytes / rates.memory,
                                 .exposed = moved > 0.0 ? reach->exposed * read / moved : 0.0,
                                 .efficiency = efficiency,
                                 .launches = 1 + (parts > 1) + (p->finish != LAC_DENSE_FINISH_LIBRARY)};
            lac_cost cost = lac_model_gpu_cost(&rates, &work);
            if (!best.levels || cost.seconds < best.seconds) best = cost;
        }
    }
    return best;
}
