/* gpu.c - time from work and rates. The kernels' cost() calls it; docs/model.md explains it.
 *
 * Device memory and the chip work at the same time, so the slower of the two counts. Kernels that only stream reach the rate of
 * a copy; on the chip the longest level counts at what kernels reach of it, with a share of the others that pipelines do not
 * hide. What a multiprocessor does by itself takes longer when the last wave of blocks leaves some of them idle; device memory
 * does not care who asks, as long as enough do. */
#include "model/gpu.h"

#include <math.h>

/* Of the chip's levels that are not its longest, what shows nevertheless. */
static const double OVERLAP_LOST = 0.1;
/* Of the rate of the chip's longest level, what a kernel reaches that does not say otherwise. */
static const double EFFICIENCY = 0.95;
/* A multiprocessor takes 64 bytes a clock from L2, half of what it reads from its shared memory. */
static const double PORT_SHARE = 0.5;

/* Of a launch that begins while the kernel before it ends, what shows nevertheless. */
static const double EARLY_SHARE = 0.5;

/* Of L2, what a pass finds and leaves there; of the rate of memory, what it reaches beyond. */
static const double KEPT_SHARE = 0.5, PASS_SHARE = 0.8;

/* Blocks that add up sums of parts wait for plain loads: of what a multiprocessor takes from L2 they take so much. */
static const double ADDED_SHARE = 0.6;

/* The clock of an H200 begins to fall after the first of these times of a call's work, and has fallen after the second. */
static const double HOT_FROM = 25e-6, HOT_TO = 75e-6;

enum { MEMORY, L2, SHARED, ISSUE, TENSOR, WAVES, LATENCY, LAUNCH, LEVELS };
_Static_assert((int)LEVELS <= (int)LAC_COST_MOST_LEVELS, "a cost has room for the levels of a GPU");

static lac_level make_level(const char *name, const char *unit, double amount, double rate, const char *remedy)
{
    return (lac_level){.name = name,
                       .unit = unit,
                       .remedy = remedy,
                       .amount = amount,
                       .rate = rate,
                       .seconds = amount > 0.0 ? amount / rate : 0.0};
}

/* What the kernel asks of each resource. */
static void fill_resources(lac_level *level, const lac_gpu_rates *rates, const lac_gpu_work *work)
{
    level[MEMORY] = make_level("memory", "bytes", work->memory_bytes, rates->memory,
                               "It would have to move fewer bytes: a sparser pattern, 16-bit operands, or more tokens for each "
                               "reading of W.");
    level[L2] = make_level("l2", "bytes", work->l2_bytes, rates->l2,
                           "Blocks pull the same operands again and again: larger tiles, operands shared by a cluster, or "
                           "longer vectors would pull less.");
    level[SHARED] = make_level("shared", "bytes", work->shared_bytes, rates->shared,
                               "Warps read their operands from shared memory too often: larger tiles for each thread would use "
                               "each operand more.");
    level[ISSUE] = make_level("issue", "warp instructions", work->instructions, rates->issue,
                              "The multiprocessors cannot issue more: a sparser pattern has fewer products, tensor cores "
                              "(precision fast) do them without issue slots.");
    level[TENSOR] = make_level("tensor", "operations", work->mma_flops, rates->mma_f16,
                               "The tensor cores are busy: a sparser pattern has fewer products.");
}

/* What is lost around them. `waves` of blocks go over the GPU, `lost` is what a last one that is not full costs, and `between` what
 * of memory's and the chip's work does not overlap, or what stages wait for each other. */
static void fill_losses(lac_level *level, const lac_gpu_rates *rates, const lac_gpu_work *work, double waves, double lost,
                        double between)
{
    level[WAVES] = (lac_level){.name = "waves",
                               .unit = "waves",
                               .remedy = "Multiprocessors are idle in the last wave: smaller tiles, a split of k, or more "
                                         "tokens would fill it.",
                               .amount = waves,
                               .seconds = lost};
    level[LATENCY] = (lac_level){.name = "latency",
                                 .unit = "seconds",
                                 .remedy = "Pipelines fill and drain: a longer k, or fewer and larger blocks, would hide it.",
                                 .amount = work->fill_seconds + between,
                                 .seconds = work->fill_seconds + between};
    level[LAUNCH] = make_level("launch", "launches", work->launches - (1.0 - EARLY_SHARE) * work->early, 1.0 / rates->launch,
                               "Starting the kernel takes longer than its work: more tokens at a time, or a CUDA graph of "
                               "several calls, would hide it.");
}

double lac_model_gpu_heat(double seconds) { return fmin(1.0, fmax(0.0, (seconds - HOT_FROM) / (HOT_TO - HOT_FROM))); }

/* They are written when the products are over and read before Y is, so nothing hides either. However many multiprocessors stand idle,
 * a block reads no more than one takes in: of few tiles the sums are added up slowly. */
double lac_model_gpu_parts(const lac_gpu_rates *rates, double bytes, double blocks)
{
    double share = ADDED_SHARE * fmin(1.0, blocks / rates->multiprocessors);
    return bytes > 0.0 ? bytes / rates->memory + bytes / fmin(rates->memory, share * rates->l2) : 0.0;
}

/* The level that takes longest. */
static const char *find_bound(const lac_cost *cost)
{
    const lac_level *bound = cost->level;
    for (int i = 0; i < cost->levels; ++i)
        if (cost->level[i].seconds > bound->seconds) bound = &cost->level[i];
    return bound->name;
}

/* All of it goes through L2, and through memory what L2 does not have of the kernel before and cannot keep of this one. What it loses of
 * memory's rate counts as latency, so that a level's time stays its amount at its rate. */
void lac_model_gpu_pass(const lac_gpu_rates *rates, double bytes, lac_cost *cost)
{
    lac_level *memory = &cost->level[MEMORY], *l2 = &cost->level[L2], *latency = &cost->level[LATENCY],
              *launch = &cost->level[LAUNCH];
    double far = fmax(0.0, bytes - KEPT_SHARE * (double)rates->l2_bytes), moved = far / rates->memory;
    double lost = moved / PASS_SHARE - moved, passed = bytes / rates->l2, started = EARLY_SHARE * rates->launch;
    memory->amount += far;
    memory->seconds += moved;
    l2->amount += bytes;
    l2->seconds += passed;
    latency->amount += lost;
    latency->seconds += lost;
    launch->amount += EARLY_SHARE;
    launch->seconds += started;
    cost->seconds += moved + lost + passed + started;
    cost->ceiling += moved + passed;
    cost->bound = find_bound(cost);
}

lac_cost lac_model_gpu_cost(const lac_gpu_rates *rates, const lac_gpu_work *work)
{
    lac_cost cost = {.levels = LEVELS};
    lac_level *level = cost.level;
    fill_resources(level, rates, work);
    double longest = 0.0, sum = 0.0, own = (work->l2_bytes + work->memory_bytes) / (PORT_SHARE * rates->shared);
    for (int i = L2; i <= TENSOR; ++i) {
        longest = fmax(longest, level[i].seconds);
        sum += level[i].seconds;
        if (i >= SHARED) own = fmax(own, level[i].seconds); /* what each multiprocessor does by itself */
    }
    double efficiency = work->efficiency > 0.0 ? work->efficiency : EFFICIENCY;
    double waves = work->blocks_at_once > 0.0 ? work->blocks / work->blocks_at_once : 1.0;
    double uneven = waves > 0.0 ? ceil(waves) / waves : 1.0;
    double rest = OVERLAP_LOST * (sum - longest), memory = level[MEMORY].seconds;
    double even = fmax(memory, (longest + rest) / efficiency);
    double chip = (fmax(longest, own * uneven) + rest) / efficiency, busy = fmax(memory, chip);
    double between = fmax(work->exposed * fmin(memory, chip), work->chain_seconds - busy);
    fill_losses(level, rates, work, waves, busy - even, between);
    cost.seconds = busy + level[LATENCY].seconds + level[LAUNCH].seconds;
    cost.bound = find_bound(&cost);
    /* Better blocks could avoid the rest. Kernels that reach more than the rate was measured at are not held to it. */
    cost.ceiling = fmax(fmax(memory, longest / fmax(1.0, efficiency)), level[LAUNCH].seconds);
    return cost;
}
