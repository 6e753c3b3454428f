/* plain.c - cuda_f32_plain: decodes the weight into rows of columns and values, uploads them, and runs kernels/plain.cu. It
 * applies to everything, so that a GPU can always answer. */
#include "cuda/plain.h"

#include <string.h>

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "cuda/plan.h"
#include "format/row.h"

enum { BLOCK = 256, MOST_BLOCKS = 1 << 20 };
enum { ROWS, COLUMNS, VALUES, PARTS };

/* As in plain.cu. */
typedef struct plain_row {
    int64_t values, columns;
    int32_t count, output;
} plain_row;

typedef struct plain_weight {
    const void *rows, *columns, *values;
    int32_t row_count;
} plain_weight;

bool lac_cuda_plain_applies(const lac_problem *problem)
{
    (void)problem;
    return true;
}

/* Neighbouring threads read neighbouring tokens where X has them side by side, and there are enough to fill a warp. */
static bool lanes_are_tokens(const lac_problem *problem)
{
    return problem->options.x_layout == LAC_LAYOUT_FEATURE_MAJOR && problem->m >= 16;
}

static lac_status requests(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count)
{
    lac_cuda_request_begin(&requests[0], "plain.cu", "lac_plain");
    lac_cuda_request_define_problem(&requests[0], problem);
    lac_cuda_request_define(&requests[0], "LAC_LANES_ARE_TOKENS", lanes_are_tokens(problem));
    *count = 1;
    return LAC_STATUS_OK;
}

const lac_cuda_flow lac_cuda_plain_flow = {requests};

/* About a dozen instructions for a product, and each of its three loads a sector of L2 for a quarter of the warp. */
lac_cost lac_cuda_plain_cost(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    double m = (double)problem->m, products = m * (double)w->kept;
    double x_bytes = m * (double)w->k_in * (double)lac_dtype_size(o->x_dtype);
    double y_bytes = m * (double)w->n_out * (double)lac_dtype_size(o->y_dtype) * (o->has_residual ? 2 : 1);
    lac_gpu_work work = {.memory_bytes = x_bytes + y_bytes + (double)w->kept * 8.0,
                         .l2_bytes = products * 8.0,
                         .instructions = products / 32.0 * 12.0,
                         .blocks = m * (double)w->n_out / BLOCK,
                         .blocks_at_once = 8.0 * rates->multiprocessors,
                         .launches = 1};
    return lac_model_gpu_cost(rates, &work);
}

/* ---- preparing */

typedef struct plain_tables {
    plain_row *rows;   /* [n]                                     */
    uint32_t *columns; /* [column_count] inputs, permuted already */
    float *values;     /* [value_count]                           */
    int64_t column_count, value_count;
} plain_tables;

static void free_tables(plain_tables *tables)
{
    lac_release(tables->rows);
    lac_release(tables->columns);
    lac_release(tables->values);
}

/* Rows of a group read the same inputs, but for V:N:M. */
static bool shares_columns(const lac_weight *w) { return w->pattern.family != LAC_FAMILY_VNM; }

static lac_status allocate_tables(const lac_weight *w, plain_tables *tables)
{
    const lac_geometry *g = &w->geometry;
    uint64_t most = (uint64_t)lac_weight_row_capacity(w), columns = most, values = most, bytes;
    bool fits = lac_multiply_u64(most, (uint64_t)g->n, &values) &&
                lac_multiply_u64(most, (uint64_t)(shares_columns(w) ? g->row_groups : g->n), &columns) &&
                lac_multiply_u64(values, sizeof(float), &bytes) && bytes <= INT64_MAX;
    if (!fits) return lac_fail(LAC_STATUS_OUT_OF_MEMORY, "the weight does not fit memory as rows of columns and values");
    tables->rows = lac_allocate((uint64_t)g->n * sizeof *tables->rows);
    tables->columns = lac_allocate(columns * sizeof *tables->columns);
    tables->values = lac_allocate(values * sizeof *tables->values);
    if (tables->rows && tables->columns && tables->values) return LAC_STATUS_OK;
    free_tables(tables);
    return lac_fail_memory("rows of columns and values", bytes);
}

static void fill_tables(const lac_weight *w, uint32_t *units, plain_tables *t)
{
    const lac_geometry *g = &w->geometry;
    const uint32_t *row_perm = w->part[LAC_PART_ROW_PERM].data, *col_perm = w->part[LAC_PART_COL_PERM].data;
    lac_weight_row before = {0};
    int64_t shared_columns = 0;
    for (int64_t r = 0; r < g->n; ++r) {
        bool first = r % g->unit_n == 0;
        bool reuse = !first && shares_columns(w);
        if (!reuse) shared_columns = t->column_count;
        lac_weight_row row = {t->values + t->value_count, t->columns + shared_columns, 0};
        lac_weight_decode_row(w, r, first ? NULL : &before, units, &row);
        t->rows[r] = (plain_row){t->value_count, shared_columns, (int32_t)row.count, (int32_t)(row_perm ? row_perm[r] : r)};
        t->value_count += row.count;
        if (!reuse) t->column_count += row.count;
        before = row;
    }
    for (int64_t i = 0; col_perm && i < t->column_count; ++i) t->columns[i] = col_perm[t->columns[i]];
}

static lac_status make_tables(const lac_weight *w, plain_tables *tables)
{
    uint64_t bytes = (uint64_t)w->geometry.selected * sizeof(uint32_t);
    uint32_t *units = lac_allocate(bytes);
    if (!units) return lac_fail_memory("units of a row group", bytes);
    lac_status status = allocate_tables(w, tables);
    if (!status) fill_tables(w, units, tables);
    lac_release(units);
    return status;
}

static lac_status upload_tables(const plain_tables *t, int64_t rows, lac_cuda_plan *plan)
{
    const lac_cuda_part parts[PARTS] = {
        [ROWS] = {"rows of the weight", t->rows, (uint64_t)rows * sizeof *t->rows},
        [COLUMNS] = {"columns of the weight", t->columns, (uint64_t)t->column_count * sizeof *t->columns},
        [VALUES] = {"values of the weight", t->values, (uint64_t)t->value_count * sizeof *t->values},
    };
    return lac_cuda_plan_upload(plan, parts, PARTS);
}

lac_status lac_cuda_plain_prepare(const lac_problem *problem, void **out)
{
    lac_cuda_plan *plan = lac_cuda_plan_allocate(problem, sizeof *plan);
    if (!plan) return LAC_STATUS_OUT_OF_MEMORY;
    plain_tables tables = {0};
    lac_status status = lac_cuda_plan_load(plan, problem, NULL);
    if (!status && !(status = make_tables(problem->weight, &tables))) {
        status = upload_tables(&tables, problem->weight->geometry.n, plan);
        free_tables(&tables);
    }
    return lac_cuda_plan_finish(plan, status, out);
}

/* ---- executing */

lac_status lac_cuda_plain_execute(const lac_problem *problem, const void *opaque, const lac_call *call)
{
    const lac_cuda_plan *plan = opaque;
    int64_t rows = problem->weight->geometry.n;
    lac_gpu_call gpu_call;
    lac_status status = lac_cuda_call_make(problem, call, &gpu_call);
    if (status || !rows) return status;
    int64_t blocks = (problem->m * rows + BLOCK - 1) / BLOCK;
    lac_cuda_launch launch = {
        .function = plan->program[0], .grid = {(unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 1, 1}, .block = BLOCK};
    plain_weight weight = {
        .rows = plan->part[ROWS], .columns = plan->part[COLUMNS], .values = plan->part[VALUES], .row_count = (int32_t)rows};
    return lac_cuda_launch_on(problem->device, &launch, call->stream, (void *[]){&gpu_call, &weight});
}
