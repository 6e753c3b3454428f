/* gpu.c - time from work and rates. Levels overlap within a block, so the longest one counts, with a share of the rest that
 * pipelines do not hide; a last wave that does not fill the GPU takes as long as a full one. */
#include "model/gpu.h"

#include <math.h>

/* Of the levels that are not the bound, what shows nevertheless. */
static const double OVERLAP_LOST = 0.1;
/* Of a level's rate, what a well-written kernel reaches. */
static const double EFFICIENCY = 0.88;

static lac_level make_level(const char *name, const char *unit, double amount, double rate, const char *remedy)
{
    return (lac_level){.name = name,
                       .unit = unit,
                       .remedy = remedy,
                       .amount = amount,
                       .rate = rate,
                       .seconds = amount > 0.0 ? amount / rate : 0.0};
}

lac_cost lac_model_gpu_cost(const lac_gpu_rates *rates, const lac_gpu_work *work)
{
    enum { MEMORY, L2, SHARED, ISSUE, TENSOR, LAUNCH };
    lac_cost cost = {
        .levels = LAC_COST_LEVELS,
        .level = {[MEMORY] = make_level("memory", "bytes", work->memory_bytes, rates->memory,
                                        "It would have to move fewer bytes: a sparser pattern, 16-bit operands, or more tokens "
                                        "for each reading of W."),
                  [L2] = make_level("l2", "bytes", work->l2_bytes, rates->l2,
                                    "Blocks pull the same operands again and again: larger tiles, operands shared by a "
                                    "cluster, or longer vectors would pull less."),
                  [SHARED] = make_level("shared", "bytes", work->shared_bytes, rates->shared,
                                        "Warps read their operands from shared memory too often: larger tiles for each thread "
                                        "would use each operand more."),
                  [ISSUE] = make_level("issue", "warp instructions", work->instructions, rates->issue,
                                       "The multiprocessors cannot issue more: a sparser pattern has fewer products, tensor "
                                       "cores (precision fast) do them without issue slots."),
                  [TENSOR] = make_level("tensor", "operations", work->mma_flops, rates->mma_f16,
                                        "The tensor cores are busy: a sparser pattern has fewer products."),
                  [LAUNCH] = make_level("launch", "seconds", work->launches * rates->launch, 1.0,
                                        "Starting the kernel takes longer than its work: more tokens at a time, or a CUDA "
                                        "graph of several calls, would hide it.")}};
    const lac_level *bound = cost.level;
    double sum = 0.0;
    for (int i = 0; i < LAUNCH; ++i) {
        if (cost.level[i].seconds > bound->seconds) bound = &cost.level[i];
        sum += cost.level[i].seconds;
    }
    double waves = work->blocks_at_once > 0.0 ? work->blocks / work->blocks_at_once : 1.0;
    double uneven = waves > 0.0 ? fmax(ceil(waves) / waves, 1.0) : 1.0;
    double busy = (bound->seconds + OVERLAP_LOST * (sum - bound->seconds)) / EFFICIENCY;
    if (cost.level[LAUNCH].seconds > bound->seconds) bound = &cost.level[LAUNCH];
    cost.bound = bound->name;
    cost.ceiling = bound->seconds;
    cost.seconds = busy * uneven + work->fill_seconds + cost.level[LAUNCH].seconds;
    return cost;
}
