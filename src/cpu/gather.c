/* gather.c - cpu_scalar_f32_gather: every family, in plain C. A work item is 8 stored rows: they are decoded once for a
 * panel of tokens, and then each row gathers the packed activations of its columns, tile by tile. It reads the compressed
 * form; nothing is ever expanded to k columns.
 *
 * Workspace:  packed panel | for each thread: units [selected], columns [8][capacity], values [8][capacity]
 * Bottleneck: loads of packed X, one for each product; decoding when there are few tokens. */
#include "cpu/kernels.h"
#include "cpu/panel.h"
#include "format/weight.h"

static uint64_t rounded_up(uint64_t bytes) { return (bytes / 64 + 1) * 64; }

static uint64_t units_bytes(const lac_weight *weight)
{
    return rounded_up((uint64_t)weight->geometry.selected * sizeof(uint32_t));
}

static uint64_t rows_bytes(const lac_weight *weight)
{
    return rounded_up((uint64_t)lac_weight_row_capacity(weight) * LAC_CPU_ITEM_ROWS * sizeof(float));
}

static uint64_t scratch_bytes(const lac_weight *weight) { return units_bytes(weight) + 2 * rows_bytes(weight); }

size_t lac_cpu_gather_workspace(const lac_problem *problem)
{
    uint64_t threads = (uint64_t)lac_cpu_threads(problem);
    return lac_cpu_packed_bytes(problem, lac_cpu_tile_tokens(problem->m)) + threads * scratch_bytes(problem->weight);
}

static void multiply_item(const lac_problem *problem, const void *state, const lac_call *call, const lac_cpu_panel *panel,
                          int64_t item, int thread)
{
    (void)state;
    const lac_weight *weight = problem->weight;
    const lac_geometry *g = &weight->geometry;
    unsigned char *scratch = call->workspace;
    scratch += lac_cpu_packed_bytes(problem, lac_cpu_tile_tokens(problem->m)) + (uint64_t)thread * scratch_bytes(weight);
    uint32_t *units = (uint32_t *)(void *)scratch;                                         /* [selected]            */
    uint32_t *columns = (uint32_t *)(void *)(scratch + units_bytes(weight));               /* [LAC_CPU_ITEM_ROWS][capacity] */
    float *values = (float *)(void *)(scratch + units_bytes(weight) + rows_bytes(weight)); /* [LAC_CPU_ITEM_ROWS][capacity] */

    int64_t capacity = lac_weight_row_capacity(weight);
    int64_t first = item * LAC_CPU_ITEM_ROWS;
    int64_t rows = g->n - first < LAC_CPU_ITEM_ROWS ? g->n - first : LAC_CPU_ITEM_ROWS;
    lac_weight_row row[LAC_CPU_ITEM_ROWS];
    for (int64_t r = 0; r < rows; ++r) {
        bool same_group = r > 0 && (first + r) / g->unit_n == (first + r - 1) / g->unit_n;
        row[r] = (lac_weight_row){values + r * capacity, columns + r * capacity, 0};
        lac_weight_decode_row(weight, first + r, same_group ? &row[r - 1] : NULL, units, &row[r]);
    }
    for (int64_t tile = 0; tile < panel->tiles; ++tile) {
        const float *packed = panel->packed + tile * g->k * panel->tile; /* [k][tile] */
        for (int64_t r = 0; r < rows; ++r) {
            float sums[LAC_CPU_TILE_TOKENS];
            lac_cpu_tile_sums(panel->tile, packed, row[r].values, row[r].columns, row[r].count, sums);
            lac_cpu_store(problem, call, panel, tile, first + r, sums);
        }
    }
}

lac_status lac_cpu_gather_execute(const lac_problem *problem, const void *state, const lac_call *call)
{
    lac_cpu_run(problem, state, call, multiply_item);
    return LAC_STATUS_OK;
}
