/* expand.c - kernels cpu_<unit>_f32_expand: the product of W with 1 to 8 tokens, every family. So few tokens make reading W
 * the whole cost, so W is kept as small as it gets and is read once, front to back. Preparing writes, row by row:
 *
 *     masks    [n][words]   a bit a stored column
 *     values   [n][kept]    in the weight's own dtype, one run a row; a vector of padding behind the last
 *
 * Workspace:  x [token][k, rounded up to whole vectors] in fp32 | for each thread: sums [row of the item][token]
 * Bottleneck: memory bandwidth. */
#include "cpu/expand.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cpu/finish.h"
#include "cpu/kernels.h"
#include "cpu/panel.h"
#include "format/row.h"

/* Rows in a work item. */
enum { ITEM_ROWS = 32 };
/* The widest vector, in elements. */
enum { MOST_LANES = 16 };

typedef struct expand_state {
    int64_t words;   /* 64-bit words in a row of the mask             */
    uint64_t *masks; /* [n][words]                                    */
    int64_t *first;  /* [n] the number of the row's first value       */
    char *values;    /* [kept]; behind a row that ends with a partial unit some that nobody reads */
} expand_state;

bool lac_cpu_expand_applies(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    return unit->is_supported() && problem->m <= LAC_CPU_EXPAND_TOKENS;
}

/* ---- preparing */

typedef struct writer {
    const lac_weight *weight;
    expand_state *state;
    lac_row_room *rooms; /* [thread] */
} writer;

/* A row's run begins where its values would if the weight had them row by row. */
static void write_row(void *opaque, int thread, int64_t r)
{
    const writer *job = opaque;
    const lac_weight *w = job->weight;
    const lac_geometry *g = &w->geometry;
    const int64_t group = r / g->unit_n;
    lac_weight_row *row = &job->rooms[thread].row;
    lac_weight_decode_row(w, r, NULL, job->rooms[thread].units, row);
    int64_t at = lac_weight_first_value(w, group) + (r - group * g->unit_n) * lac_weight_slots(w, group) * g->unit_k;
    job->state->first[r] = at;
    uint64_t *mask = job->state->masks + r * job->state->words;
    for (int64_t i = 0; i < row->count; ++i) mask[row->columns[i] >> 6] |= UINT64_C(1) << (row->columns[i] & 63);
    lac_store_run_f32(job->state->values, w->dtype, at, 1, row->count, row->values);
}

lac_status lac_cpu_expand_prepare(const lac_problem *problem, void **out)
{
    const lac_weight *w = problem->weight;
    int64_t n = w->geometry.n, words = (w->geometry.k + 63) / 64;
    uint64_t mask_bytes = (uint64_t)(n * words) * sizeof(uint64_t);
    uint64_t value_bytes = ((uint64_t)w->kept + MOST_LANES) * lac_dtype_size(w->dtype);
    const int threads = lac_parallel_threads_for(problem->options.threads, n, w->kept);
    lac_row_room *rooms = lac_row_rooms_make(w, threads);
    expand_state *s = lac_allocate_zeroed(sizeof *s);
    if (s) {
        s->words = words;
        s->masks = lac_allocate_zeroed(mask_bytes);
        s->first = lac_allocate((uint64_t)n * sizeof *s->first);
        s->values = lac_allocate_zeroed(value_bytes);
    }
    if (!s || !rooms || !s->masks || !s->first || !s->values) {
        lac_release(rooms);
        lac_cpu_expand_release(s);
        return lac_fail_memory("re-tiled weight", mask_bytes + value_bytes);
    }
    writer job = {w, s, rooms};
    lac_parallel_for_each(n, threads, write_row, &job);
    lac_release(rooms);
    *out = s;
    return LAC_STATUS_OK;
}

void lac_cpu_expand_release(void *state)
{
    expand_state *s = state;
    if (!s) return;
    lac_release(s->masks);
    lac_release(s->first);
    lac_release(s->values);
    lac_release(s);
}

/* ---- executing */

static int64_t x_stride(const lac_problem *problem)
{
    return (problem->weight->geometry.k + MOST_LANES - 1) / MOST_LANES * MOST_LANES;
}

static uint64_t x_bytes(const lac_problem *problem)
{
    return ((uint64_t)problem->m * (uint64_t)x_stride(problem) * sizeof(float) + 63) / 64 * 64;
}

size_t lac_cpu_expand_workspace(const lac_problem *problem)
{
    return x_bytes(problem) + (uint64_t)problem->options.threads * ITEM_ROWS * LAC_CPU_EXPAND_TOKENS * sizeof(float);
}

static void widen_token(const lac_problem *problem, const lac_call *call, int64_t token, float *x)
{
    int64_t k = problem->weight->geometry.k;
    lac_cpu_load_token(problem, call, token, 0, k, x);
    for (int64_t j = k; j < x_stride(problem); ++j) x[j] = 0.0f;
}

static void multiply_rows(const lac_problem *problem, const expand_state *s, const lac_call *call, int64_t first, int64_t last,
                          float *sums)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    const int tokens = (int)problem->m;
    size_t size = lac_dtype_size(w->dtype);
    lac_cpu_expand_call row = {
        .tokens = tokens, .dtype = w->dtype, .columns = w->geometry.k, .x = call->workspace, .x_stride = x_stride(problem)};
    for (int64_t r = first; r < last; ++r) {
        row.mask = (const uint8_t *)(s->masks + r * s->words);
        row.values = s->values + (size_t)s->first[r] * size;
        row.sums = sums + (r - first) * tokens;
        unit->expand(&row);
    }
    lac_cpu_panel all = {.first = 0, .tokens = tokens, .tiles = 1, .tile = tokens};
    lac_cpu_tile result = {.first_row = first,
                           .rows = (int)(last - first),
                           .first_token = 0,
                           .sums = sums,
                           .row_stride = tokens,
                           .token_stride = 1};
    lac_cpu_finish_tile(unit, problem, call, &all, &result);
}

lac_status lac_cpu_expand_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const expand_state *s = opaque;
    const int64_t n = problem->weight->geometry.n;
    float *x = call->workspace;
    float *scratch = (float *)(void *)((char *)call->workspace + x_bytes(problem));
    const int threads = problem->options.threads;
    (void)threads; /* unused without OpenMP */
    LAC_OMP(omp parallel num_threads(threads) if (threads > 1))
    {
        float *sums = scratch + (int64_t)lac_parallel_number() * ITEM_ROWS * LAC_CPU_EXPAND_TOKENS;
        LAC_OMP(omp for schedule(static))
        for (int64_t token = 0; token < problem->m; ++token) widen_token(problem, call, token, x + token * x_stride(problem));
        LAC_OMP(omp for schedule(static))
        for (int64_t first = 0; first < n; first += ITEM_ROWS)
            multiply_rows(problem, s, call, first, first + ITEM_ROWS < n ? first + ITEM_ROWS : n, sums);
    }
    return LAC_STATUS_OK;
}
