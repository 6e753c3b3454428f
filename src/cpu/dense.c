/* dense.c - cpu_scalar_f32_dense: the product that ignores the sparsity, for weights so dense that gathering does not pay.
 * Preparing expands W to fp32 [n][k], rows and columns in stored order; zeros are multiplied like all the rest.
 *
 * Bottleneck: loads of packed X, one for each of the n * k products. */
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "cpu/kernels.h"
#include "cpu/panel.h"
#include "format/weight.h"

size_t lac_cpu_dense_workspace(const lac_problem *problem)
{
    return lac_cpu_packed_bytes(problem, lac_cpu_tile_tokens(problem->m));
}

lac_status lac_cpu_dense_prepare(const lac_problem *problem, void **state)
{
    const lac_weight *weight = problem->weight;
    const lac_geometry *g = &weight->geometry;
    uint64_t capacity = (uint64_t)lac_cpu_row_capacity(weight);
    uint64_t dense_bytes, scratch_bytes = (2 * capacity + (uint64_t)g->selected) * sizeof(uint32_t);
    if (!lac_multiply_u64((uint64_t)g->n * (uint64_t)g->k, sizeof(float), &dense_bytes))
        return lac_fail_memory("the dense copy of the weight", UINT64_MAX);
    float *dense = lac_allocate_zeroed(dense_bytes); /* [n][k] */
    if (!dense) return lac_fail_memory("the dense copy of the weight", dense_bytes);
    uint32_t *scratch = lac_allocate(scratch_bytes);
    if (!scratch) {
        lac_release(dense);
        return lac_fail_memory("a row of the weight", scratch_bytes);
    }
    lac_cpu_row row = {(float *)(void *)scratch, scratch + capacity, 0};
    for (int64_t stored = 0; stored < g->n; ++stored) {
        lac_cpu_decode_row(weight, stored, NULL, scratch + 2 * capacity, &row);
        for (int64_t i = 0; i < row.count; ++i) dense[stored * g->k + row.columns[i]] = row.values[i];
    }
    lac_release(scratch);
    *state = dense;
    return LAC_STATUS_OK;
}

void lac_cpu_dense_release(void *state) { lac_release(state); }

static void multiply_item(const lac_problem *problem, const void *state, const lac_call *call, const lac_cpu_panel *panel,
                          int64_t item, int thread)
{
    (void)thread;
    const float *dense = state; /* [n][k] */
    const lac_geometry *g = &problem->weight->geometry;
    int64_t first = item * LAC_CPU_ITEM_ROWS;
    int64_t rows = g->n - first < LAC_CPU_ITEM_ROWS ? g->n - first : LAC_CPU_ITEM_ROWS;
    for (int64_t tile = 0; tile < panel->tiles; ++tile) {
        const float *packed = panel->packed + tile * g->k * panel->tile; /* [k][tile] */
        for (int64_t r = 0; r < rows; ++r) {
            float sums[LAC_CPU_TILE_TOKENS];
            lac_cpu_tile_sums(panel->tile, packed, dense + (first + r) * g->k, NULL, g->k, sums);
            lac_cpu_store(problem, call, panel, tile, first + r, sums);
        }
    }
}

lac_status lac_cpu_dense_execute(const lac_problem *problem, const void *state, const lac_call *call)
{
    lac_cpu_run(problem, state, call, multiply_item);
    return LAC_STATUS_OK;
}
