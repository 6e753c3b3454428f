/* cpu.c - the performance model of the CPU kernels. Each level takes amount / rate, with the rates that model/rates.c measured; the
 * constants were fitted (docs/model.md). What feeds the core (memory and the third-level cache) and what the core does (the second-level
 * cache, loads, FMAs: the slowest of them) overlap in part; packing comes before and after. cpu/kernels.c counts the amounts.
 *
 *     feed = memory + l3        work = max(l2, loads, fma) / reach
 *     seconds = max(feed, work) + 0.85 min(feed, work) + packing + start
 *
 * A kernel that asks for its weights far ahead (permute) loses next to nothing of the overlap: a twentieth of the minimum counts,
 * without which a narrower vector unit would seem as good as a wider one wherever memory is the bound. */
#include "model/cpu.h"

#include "model/rates.h"

static const double STREAMING = 1.45; /* of the rate of memory, that kernels reach: they stream for longer than was measured */
static const double OVERLAP_LOST = 0.85; /* of the shorter side                                 */
static const double LOST_AHEAD = 0.05;   /* the same, where a kernel asks for its weights ahead */
static const double START = 0.5e-6;      /* seconds: a call                                     */
static const double FORK = 5.0e-6;       /* seconds: waking the other threads                   */

static lac_level make_level(const char *name, const char *unit, double amount, double rate, const char *remedy)
{
    return (lac_level){.name = name, .unit = unit, .remedy = remedy, .amount = amount, .rate = rate, .seconds = amount / rate};
}

static double larger(double a, double b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }

lac_cost lac_model_cpu_cost(const lac_device_info *device, const lac_cpu_work *work)
{
    const lac_cpu_rates *rates = lac_cpu_rates_get();
    int unit = lac_cpu_rates_unit(work->lanes);
    double cores = work->threads < device->cores || device->cores < 1 ? work->threads : device->cores;
    double busy_cores = cores; /* what they are worth: the more of them work, the less each does */
    if (device->cores > 1) busy_cores *= 1.0 - (1.0 - rates->together) * (cores - 1.0) / (double)(device->cores - 1);
    double moves = rates->loads[0]; /* as fast as any unit loads: elements are moved by the vector, or one by one */
    for (int i = 1; i <= unit; ++i) moves = larger(moves, rates->loads[i]);
    enum { MEMORY, L3, L2, LOADS, FMA, PACKING };
    lac_cost cost = {
        .levels = LAC_COST_LEVELS,
        .level = {[MEMORY] = make_level("memory", "bytes", work->bytes, STREAMING * smaller(cores * rates->core, rates->memory),
                                        "It would have to move fewer bytes: a sparser pattern, 16-bit weights, or more tokens "
                                        "for each reading of W."),
                  [L3] = make_level("l3", "bytes", work->l3_bytes, STREAMING * cores * rates->l3,
                                    "W is read again for every tile of tokens: tiles of more tokens or fewer weights would "
                                    "read it less often."),
                  [L2] = make_level("l2", "bytes", work->l2_bytes, busy_cores * rates->l2,
                                    "Operands are read again past the first-level cache, W for every tile of tokens or X for "
                                    "every row of W: fewer tokens or a shorter k would fit."),
                  [LOADS] = make_level("loads", "vector loads", work->loads, busy_cores * rates->loads[unit],
                                       "Each FMA waits for its operands from the first-level cache: a pattern whose outputs "
                                       "share their columns (vw, bw, shfl) needs fewer loads."),
                  [FMA] = make_level("fma", "vector FMAs", work->fmas, busy_cores * rates->fma[unit],
                                     "The arithmetic itself is the limit: a sparser pattern has less of it, more cores do it "
                                     "faster."),
                  [PACKING] = make_level("packing", "element moves", work->packing, busy_cores * moves,
                                         "Bringing X into shape and writing Y takes longer than multiplying: more outputs for "
                                         "each input, or activations that are feature-major already, would pay for it.")}};
    const lac_level *level = cost.level, *bound = level;
    for (int i = 1; i < LAC_COST_LEVELS; ++i)
        if (level[i].seconds > bound->seconds) bound = &level[i];
    double feed = level[MEMORY].seconds + level[L3].seconds;
    double busy = larger(larger(level[L2].seconds, level[LOADS].seconds), level[FMA].seconds) / work->reach;
    cost.bound = bound->name;
    cost.ceiling = bound->seconds;
    double lost = work->runs_ahead ? LOST_AHEAD : OVERLAP_LOST;
    cost.seconds =
        larger(feed, busy) + lost * smaller(feed, busy) + level[PACKING].seconds + START + (work->threads > 1 ? FORK : 0.0);
    return cost;
}
