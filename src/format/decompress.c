/* decompress.c - compressed weight -> dense W with its zeros, in any dtype and layout. Called by users and files. */
#include <string.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/convert.h"
#include "format/index.h"
#include "format/values.h"
#include "format/weight.h"

enum { PIECE_VALUES = 8192 };

typedef struct decompress_scratch {
    void *block;
    uint32_t *units;  /* [selected] kept units                         */
    uint32_t *cols;   /* [lanes] the matrix's column of each lane      */
    uint32_t *rows;   /* [unit_n] the matrix's row of each row         */
    void *converted;  /* [piece] of the matrix's dtype                 */
    void *row_values; /* [slots] of the weight's dtype: a row of VNM   */
} decompress_scratch;

typedef struct decompress_job {
    lac_matrix dense; /* resolved */
    const lac_weight *weight;
    const uint32_t *row_perm, *col_perm; /* NULL: in stored order */
} decompress_job;

static uint64_t align_up(uint64_t bytes) { return (bytes + 63) & ~UINT64_C(63); }

static lac_status allocate_scratch(const decompress_job *job, decompress_scratch *s)
{
    const lac_geometry *g = &job->weight->geometry;
    uint64_t lanes = (uint64_t)g->slots * (uint64_t)g->unit_k;
    uint64_t piece = job->weight->pattern.family == LAC_FAMILY_VNM ? lanes
                     : (uint64_t)g->unit_n > PIECE_VALUES          ? (uint64_t)g->unit_n
                                                                   : PIECE_VALUES;
    uint64_t units = align_up((uint64_t)g->selected * 4), cols = align_up(lanes * 4), rows = align_up((uint64_t)g->unit_n * 4);
    uint64_t converted = align_up(piece * 8), bytes = units + cols + rows + converted + align_up(lanes * 4);
    char *block = lac_allocate(bytes);
    if (!block) return lac_fail_memory("decompress", bytes);
    s->block = block;
    s->units = (uint32_t *)(void *)block;
    s->cols = (uint32_t *)(void *)(block += units);
    s->rows = (uint32_t *)(void *)(block += cols);
    s->converted = block += rows;
    s->row_values = block + converted;
    return LAC_STATUS_OK;
}

static inline uint32_t column_of(const decompress_job *job, int64_t stored)
{
    return job->col_perm ? job->col_perm[stored] : (uint32_t)stored;
}

static void decompress_vnm(const decompress_job *job, decompress_scratch *s, int64_t group, const char *values)
{
    const lac_weight *w = job->weight;
    const lac_geometry *g = &w->geometry;
    int64_t rows = lac_geometry_rows(g, group);
    size_t size = lac_dtype_size(w->dtype);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t slot = 0; slot < g->slots; slot++) {
            int64_t entry = slot / g->slot_n * g->group_n + lac_weight_position(w, group, slot, r);
            s->cols[slot] = column_of(job, s->units[entry]);
        }
        lac_values_copy(values + (size_t)r * size, rows, s->row_values, 1, g->slots, size);
        lac_convert_run(s->row_values, w->dtype, s->converted, job->dense.dtype, g->slots, false);
        lac_values_scatter(&job->dense, s->rows + r, 1, s->cols, g->slots, s->converted);
    }
}

static void decompress_group(const decompress_job *job, decompress_scratch *s, int64_t group)
{
    const lac_weight *w = job->weight;
    const lac_geometry *g = &w->geometry;
    int64_t rows = lac_geometry_rows(g, group), lanes = 0, count = lac_weight_units(w, group, s->units);
    size_t size = lac_dtype_size(w->dtype);
    const char *values = (const char *)w->part[LAC_PART_VALUES].data + (size_t)lac_weight_first_value(w, group) * size;
    for (int64_t r = 0; r < rows; r++) {
        int64_t stored = group * g->unit_n + r;
        s->rows[r] = job->row_perm ? job->row_perm[stored] : (uint32_t)stored;
    }
    if (w->pattern.family == LAC_FAMILY_VNM) {
        decompress_vnm(job, s, group, values);
        return;
    }
    for (int64_t e = 0; e < count; e++) {
        int64_t start = s->units[e] * g->unit_k, inputs = lac_geometry_inputs(g, s->units[e]);
        for (int64_t c = 0; c < inputs; c++) s->cols[lanes++] = column_of(job, start + c);
    }
    if (job->dense.dtype == w->dtype) {
        lac_values_scatter(&job->dense, s->rows, rows, s->cols, lanes, values);
        return;
    }
    int64_t piece = rows < PIECE_VALUES ? PIECE_VALUES / rows : 1;
    for (int64_t l = 0; l < lanes; l += piece) {
        int64_t step = lanes - l < piece ? lanes - l : piece;
        lac_convert_run(values + (size_t)(l * rows) * size, w->dtype, s->converted, job->dense.dtype, step * rows, false);
        lac_values_scatter(&job->dense, s->rows, rows, s->cols + l, step, s->converted);
    }
}

/* Finds the value that does not fit, to name it; where it lies in the stored order decides which comes first. */
static lac_status fail_overflow(const decompress_job *job, decompress_scratch *s, int64_t number)
{
    const lac_weight *w = job->weight;
    const lac_geometry *g = &w->geometry;
    int64_t group = 0;
    while (group + 1 < g->row_groups && lac_weight_first_value(w, group + 1) <= number) group++;
    int64_t rows = lac_geometry_rows(g, group), inside = number - lac_weight_first_value(w, group);
    int64_t lane = inside / rows, row = inside % rows, slot = lane / g->unit_k;
    lac_weight_units(w, group, s->units);
    int64_t entry = slot;
    if (w->pattern.family == LAC_FAMILY_VNM) {
        entry = slot / g->slot_n * g->group_n + lac_weight_position(w, group, slot, row);
    }
    int64_t stored_col = s->units[entry] * g->unit_k + lane % g->unit_k, stored_row = group * g->unit_n + row;
    return lac_fail(LAC_STATUS_VALUE_OUT_OF_RANGE, "weight: row %lld, column %lld is %.9g, but the largest %s is %.9g",
                    (long long)(job->row_perm ? job->row_perm[stored_row] : stored_row), (long long)column_of(job, stored_col),
                    lac_load_f64(w->part[LAC_PART_VALUES].data, w->dtype, number), lac_dtype_name(job->dense.dtype),
                    lac_dtype_max(job->dense.dtype));
}

/* Before anything is written: does every value fit? */
static lac_status check_overflow(const decompress_job *job, decompress_scratch *s)
{
    const lac_weight *w = job->weight;
    const char *values = w->part[LAC_PART_VALUES].data;
    size_t size = lac_dtype_size(w->dtype);
    uint32_t sink[256];
    if (!lac_convert_may_overflow(w->dtype, job->dense.dtype)) return LAC_STATUS_OK;
    for (int64_t i = 0; i < w->kept; i += 256) {
        int64_t count = w->kept - i < 256 ? w->kept - i : 256;
        if (!lac_convert_run(values + (size_t)i * size, w->dtype, sink, job->dense.dtype, count, false)) continue;
        while (!lac_convert_run(values + (size_t)i * size, w->dtype, sink, job->dense.dtype, 1, false)) i++;
        return fail_overflow(job, s, i);
    }
    return LAC_STATUS_OK;
}

static void clear(const lac_matrix *dense, int threads)
{
    bool row_major = dense->layout == LAC_LAYOUT_ROW_MAJOR;
    int64_t lines = row_major ? dense->rows : dense->cols, length = row_major ? dense->cols : dense->rows;
    size_t size = lac_dtype_size(dense->dtype);
    if (!lines || !length) return;
    LAC_OMP(omp parallel for num_threads(threads) schedule(static))
    for (int64_t i = 0; i < lines; i++) {
        memset((char *)dense->data + (size_t)(i * dense->ld) * size, 0, (size_t)length * size);
    }
    (void)threads;
}

static lac_status prepare(const lac_weight *w, const lac_matrix *dense, decompress_job *job)
{
    lac_status status = lac_matrix_check("dense", dense, 1, &job->dense);
    if (status) return status;
    const lac_geometry *g = &w->geometry;
    const lac_matrix *m = &job->dense;
    if (!(m->rows == g->n && m->cols == g->k) && !(m->rows == w->n_out && m->cols == w->k_in)) {
        if (w->n_out == g->n && w->k_in == g->k) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "dense is %lld x %lld, but the weight is %lld x %lld",
                            (long long)m->rows, (long long)m->cols, (long long)g->n, (long long)g->k);
        }
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "dense is %lld x %lld, but the weight is %lld x %lld, of a whole of %lld x %lld", (long long)m->rows,
                        (long long)m->cols, (long long)g->n, (long long)g->k, (long long)w->n_out, (long long)w->k_in);
    }
    job->weight = w;
    job->row_perm = m->rows == w->n_out ? w->part[LAC_PART_ROW_PERM].data : NULL;
    job->col_perm = m->cols == w->k_in ? w->part[LAC_PART_COL_PERM].data : NULL;
    return LAC_STATUS_OK;
}

lac_status lac_weight_decompress_by(const lac_weight *weight, const lac_matrix *dense, int32_t wanted)
{
    decompress_job job = {0};
    if (!weight) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "weight is NULL");
    lac_status status = prepare(weight, dense, &job);
    if (status) return status;
    int64_t row_groups = weight->geometry.units ? weight->geometry.row_groups : 0;
    int threads = lac_parallel_threads_for(wanted, row_groups, job.dense.rows * job.dense.cols), ready = 0;
    decompress_scratch *scratch = lac_allocate_zeroed((uint64_t)threads * sizeof *scratch);
    if (!scratch) return lac_fail_memory("decompress", (uint64_t)threads * sizeof *scratch);
    while (!status && ready < threads) {
        status = allocate_scratch(&job, &scratch[ready]);
        if (!status) ready++;
    }
    if (!status) status = check_overflow(&job, scratch);
    if (!status) {
        clear(&job.dense, threads);
        LAC_OMP(omp parallel for num_threads(threads) schedule(static))
        for (int64_t group = 0; group < row_groups; group++) {
            decompress_group(&job, &scratch[lac_parallel_number()], group);
        }
    }
    for (int t = 0; t < ready; t++) lac_release(scratch[t].block);
    lac_release(scratch);
    return status;
}

lac_status lac_weight_decompress(const lac_weight *weight, const lac_matrix *dense)
{
    return lac_weight_decompress_by(weight, dense, lac_parallel_unsaid());
}
