/* dense.c - kernels cpu_<unit>_f32_dense: W with its zeros, for when sparsity does not pay. Dense is N = M: preparing
 * writes W out as one vector-wise weight that keeps everything, `vw<n>:1:1`, and the dataflow "broadcast" does the rest. */
#include "cpu/dense.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "cpu/broadcast.h"
#include "format/weight.h"

typedef struct dense_state {
    lac_weight *weight; /* the dense W */
    void *broadcast;
} dense_state;

/* A shard of a permuted weight writes only its own outputs, which a dense product would not know. */
bool lac_cpu_dense_applies(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    return unit->is_supported() && w->n_out == w->geometry.n && w->k_in == w->geometry.k;
}

/* W[n][k] in its own dtype, then the same as values [k][n] of a weight that keeps every unit. */
static lac_status write_out(const lac_weight *w, int32_t threads, lac_weight **out)
{
    const lac_geometry *g = &w->geometry;
    uint64_t bytes = (uint64_t)g->n * (uint64_t)g->k * lac_dtype_size(w->dtype); /* both below 2^31, and W was in memory */
    void *values = lac_allocate(bytes);
    if (!values) return lac_fail_memory("dense weight", bytes);
    lac_matrix by_columns = {.data = values, .dtype = w->dtype, .layout = LAC_LAYOUT_COLUMN_MAJOR, .rows = g->n, .cols = g->k};
    lac_status status = lac_weight_decompress_by(w, &by_columns, threads);
    if (!status) {
        lac_weight_info info = {.size = sizeof info,
                                .pattern = {.family = LAC_FAMILY_VECTOR, .unit_k = 1, .n = 1, .m = 1},
                                .n = g->n,
                                .k = g->k,
                                .dtype = w->dtype,
                                .encoding = LAC_INDEX_ENCODING_IMPLICIT};
        info.pattern.unit_n = g->n ? (int32_t)g->n : 1;
        lac_span parts[LAC_PART_COUNT] = {[LAC_PART_VALUES] = {values, bytes}};
        status = lac_weight_from_parts(&info, parts, out);
    }
    lac_release(values);
    return status;
}

/* The same problem with the dense W in place of the sparse one. */
static lac_problem with_weight(const lac_problem *problem, const lac_weight *weight)
{
    lac_problem dense = *problem;
    dense.weight = weight;
    return dense;
}

/* Counted over the dense W, which preparing will make: a sparse one may have fewer panels in an item, or, where its last units are
 * partial, more values than there are weights. */
size_t lac_cpu_dense_workspace(const lac_problem *problem)
{
    const lac_geometry *g = &problem->weight->geometry;
    const lac_pattern pattern = {.family = LAC_FAMILY_VECTOR, .unit_n = g->n ? (int32_t)g->n : 1, .unit_k = 1, .n = 1, .m = 1};
    lac_weight weight = {.pattern = pattern, .dtype = problem->weight->dtype, .n_out = g->n, .k_in = g->k, .kept = g->n * g->k};
    (void)lac_geometry_make(&pattern, g->n, g->k, &weight.geometry); /* the sizes are those of a weight that is there */
    lac_problem dense = with_weight(problem, &weight);
    return lac_cpu_broadcast_workspace(&dense);
}

lac_status lac_cpu_dense_prepare(const lac_problem *problem, void **out)
{
    dense_state *state = lac_allocate_zeroed(sizeof *state);
    if (!state) return lac_fail_memory("dense kernel", sizeof *state);
    lac_status status = write_out(problem->weight, problem->options.threads, &state->weight);
    if (!status) {
        lac_problem dense = with_weight(problem, state->weight);
        status = lac_cpu_broadcast_prepare(&dense, &state->broadcast);
    }
    if (status) {
        lac_cpu_dense_release(state);
        return status;
    }
    *out = state;
    return LAC_STATUS_OK;
}

lac_status lac_cpu_dense_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const dense_state *state = opaque;
    lac_problem dense = with_weight(problem, state->weight);
    return lac_cpu_broadcast_execute(&dense, state->broadcast, call);
}

void lac_cpu_dense_release(void *opaque)
{
    dense_state *state = opaque;
    if (!state) return;
    lac_cpu_broadcast_release(state->broadcast);
    lac_weight_free(state->weight);
    lac_release(state);
}
