/* scatter_cost.c - what token-major Y costs where its outputs stand in another order than W's rows, by the performance model: the
 * neighbours of a thread's sums are elsewhere in Y then, and every kernel writes them one by one. The kernels' cost functions add it. */
#include "cuda/runtime.h"
#include "format/weight.h"

/* Elements a second on an H200. With it 37 runs of five kernels (bench/results/h200_scattered.csv), which were up to five times off,
 * are predicted within 10% in the median and 28% at the 90th percentile. */
static const double SCATTERED_RATE = 85e9;

double lac_cuda_scatter_seconds(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    if (!w->part[LAC_PART_ROW_PERM].data || problem->options.y_layout != LAC_LAYOUT_TOKEN_MAJOR) return 0.0;
    return (double)problem->m * (double)w->n_out / SCATTERED_RATE;
}
