/* compress.c - dense W + mask -> compressed weight. Called by users and by the pruning of checkpoints.
 * Row groups are independent: threads share them out, and each writes only its own bytes, so the result does not depend on
 * their number. Failures inside are noted per thread and reported afterwards, the lowest row group first. */
#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/bits.h"
#include "format/check.h"
#include "format/compress_row.h"
#include "format/convert.h"
#include "format/index.h"
#include "format/mask.h"
#include "format/values.h"
#include "format/weight.h"

/* Lanes are converted in pieces of about so many values. */
enum { PIECE_VALUES = 8192 };

typedef struct compress_job {
    lac_matrix dense; /* resolved */
    const lac_mask *mask;
    lac_geometry geometry;
    lac_weight *weight;
    bool saturate;
    bool is_vnm;
    const lac_row_table *rows; /* of single weights, which go the quick way; or NULL */
} compress_job;

/* What one thread works with. */
typedef struct compress_scratch {
    void *block;
    uint64_t *raw;       /* [words] columns in W's order              */
    uint64_t *stored;    /* [words] columns in stored order           */
    uint64_t *unit_bits; /* [words]                                   */
    uint32_t *units;     /* [selected + 1] kept units                 */
    uint32_t *cols;      /* [lanes] W's column of each lane           */
    uint32_t *rows;      /* [unit_n] W's row of each row of the group */
    void *gathered;      /* [piece] of the matrix's dtype             */
    void *converted;     /* [slots] of the weight's dtype: VNM rows   */
    int64_t bad_group;   /* the first that breaks the pattern, or -1  */
    bool overflow;
} compress_scratch;

static uint64_t align_up(uint64_t bytes) { return (bytes + 63) & ~UINT64_C(63); }

static lac_status allocate_scratch(const compress_job *job, compress_scratch *s)
{
    const lac_geometry *g = &job->geometry;
    uint64_t words = align_up((uint64_t)job->mask->words * 8), lanes = (uint64_t)g->slots * (uint64_t)g->unit_k;
    uint64_t piece = job->is_vnm ? lanes : (uint64_t)g->unit_n > PIECE_VALUES ? (uint64_t)g->unit_n : PIECE_VALUES;
    uint64_t list = align_up(((uint64_t)g->selected + 1) * 4), cols = align_up(lanes * 4),
             rows = align_up((uint64_t)g->unit_n * 4);
    uint64_t gathered = align_up(piece * lac_dtype_size(job->dense.dtype)), converted = job->is_vnm ? align_up(lanes * 4) : 0;
    uint64_t bytes = 3 * words + list + cols + rows + gathered + converted;
    char *block = lac_allocate(bytes);
    if (!block) return lac_fail_memory("compress", bytes);
    s->block = block;
    s->raw = (uint64_t *)(void *)block;
    s->stored = (uint64_t *)(void *)(block += words);
    s->unit_bits = (uint64_t *)(void *)(block += words);
    s->units = (uint32_t *)(void *)(block += words);
    s->cols = (uint32_t *)(void *)(block += list);
    s->rows = (uint32_t *)(void *)(block += cols);
    s->gathered = block += rows;
    s->converted = block + gathered;
    s->bad_group = -1;
    s->overflow = false;
    return LAC_STATUS_OK;
}

/* The units that row group `group` keeps (VNM: the inputs it selects), ascending, into s->units. Returns how many, or -1
 * when the mask does not obey its pattern there. */
static int64_t find_units(const compress_job *job, compress_scratch *s, int64_t group)
{
    const lac_geometry *g = &job->geometry;
    const lac_mask *mask = job->mask;
    int64_t first = group * g->unit_n, rows = lac_geometry_rows(g, group), unit_words = (g->units + 63) / 64;
    lac_group_columns(mask, g, group, s->raw);
    if (!job->is_vnm) {
        for (int64_t r = 0; r < rows; r++) {
            if (memcmp(s->raw, lac_mask_row(mask, lac_mask_stored_row(mask, first + r)), (size_t)mask->words * 8) != 0)
                return -1;
        }
    }
    lac_columns_to_stored(mask, s->raw, s->stored);
    lac_columns_to_units(g, s->stored, s->unit_bits);
    if (job->is_vnm && lac_units_fill(g, s->unit_bits) >= 0) return -1;
    int64_t count = lac_bits_list(s->unit_bits, unit_words, g->selected + 1, s->units);
    if (g->unit_k > 1) { /* every column of a kept unit must be kept */
        int64_t columns = 0;
        for (int64_t e = 0; e < count; e++) columns += lac_geometry_inputs(g, s->units[e]);
        if (columns != lac_bits_count(s->stored, 0, g->k)) return -1;
    }
    if (g->is_free) return count <= g->selected ? count : -1;
    return lac_index_is_exact(g, s->units, count) ? count : -1;
}

static void compress_lanes(const compress_job *job, compress_scratch *s, int64_t group, int64_t slots)
{
    const lac_geometry *g = &job->geometry;
    lac_weight *w = job->weight;
    int64_t rows = lac_geometry_rows(g, group), lanes = 0, all = slots * g->unit_k;
    size_t size = lac_dtype_size(w->dtype);
    char *values = (char *)lac_weight_writable(w, LAC_PART_VALUES) + (size_t)lac_weight_first_value(w, group) * size;
    for (int64_t e = 0; e < slots; e++) {
        int64_t start = s->units[e] * g->unit_k, inputs = lac_geometry_inputs(g, s->units[e]);
        for (int64_t c = 0; c < inputs; c++) s->cols[lanes++] = (uint32_t)lac_mask_stored_col(job->mask, start + c);
    }
    if (job->dense.dtype == w->dtype) {
        lac_values_gather(&job->dense, s->rows, rows, s->cols, lanes, values);
    } else {
        int64_t piece = rows < PIECE_VALUES ? PIECE_VALUES / rows : 1;
        for (int64_t l = 0; l < lanes; l += piece) {
            int64_t count = lanes - l < piece ? lanes - l : piece;
            lac_values_gather(&job->dense, s->rows, rows, s->cols + l, count, s->gathered);
            s->overflow |= lac_convert_run(s->gathered, job->dense.dtype, values + (size_t)(l * rows) * size, w->dtype,
                                           count * rows, job->saturate);
        }
    }
    /* Only the last unit can be partial, so the columns past k come last. */
    memset(values + (size_t)(lanes * rows) * size, 0, (size_t)((all - lanes) * rows) * size);
}

/* VNM: each row has its own columns among the selected ones. False when a row keeps another one, or too few or many. */
static bool compress_vnm(const compress_job *job, compress_scratch *s, int64_t group)
{
    const lac_geometry *g = &job->geometry;
    lac_weight *w = job->weight;
    int64_t rows = lac_geometry_rows(g, group);
    size_t size = lac_dtype_size(w->dtype);
    char *values = (char *)lac_weight_writable(w, LAC_PART_VALUES) + (size_t)lac_weight_first_value(w, group) * size;
    uint8_t *positions = (uint8_t *)(uintptr_t)lac_weight_group_positions(w, group);
    if (positions) memset(positions, 0, (size_t)lac_positions_group_bytes(g, rows));
    for (int64_t r = 0; r < rows; r++) {
        lac_columns_to_stored(job->mask, lac_mask_row(job->mask, s->rows[r]), s->stored);
        if (lac_bits_count(s->stored, 0, g->k) != g->slots) return false;
        lac_bits_list(s->stored, job->mask->words, g->slots, s->cols);
        for (int64_t q = 0, slot = 0; q < g->groups; q++) {
            const uint32_t *selected = s->units + q * g->group_n;
            int64_t units = lac_geometry_group_units(g, q), kept = units < g->slot_n ? units : g->slot_n;
            int64_t position = 0, count = units < g->group_n ? units : g->group_n;
            for (int64_t end = slot + kept; slot < end; slot++, position++) {
                while (position < count && selected[position] != s->cols[slot]) position++;
                if (position == count) return false;
                if (positions) lac_position_set(positions, slot * rows + r, (int)position);
            }
        }
        for (int64_t slot = 0; slot < g->slots; slot++) s->cols[slot] = (uint32_t)lac_mask_stored_col(job->mask, s->cols[slot]);
        lac_values_gather(&job->dense, s->rows + r, 1, s->cols, g->slots, s->gathered);
        s->overflow |= lac_convert_run(s->gathered, job->dense.dtype, s->converted, w->dtype, g->slots, job->saturate);
        lac_values_copy(s->converted, 1, values + (size_t)r * size, rows, g->slots, size);
    }
    return true;
}

static bool compress_row(const compress_job *job, int64_t group)
{
    lac_weight *w = job->weight;
    int64_t row = lac_mask_stored_row(job->mask, group);
    size_t size = lac_dtype_size(w->dtype);
    char *values = (char *)lac_weight_writable(w, LAC_PART_VALUES) + (size_t)lac_weight_first_value(w, group) * size;
    return lac_row_compress(job->rows, lac_mask_row(job->mask, row), job->geometry.k,
                            (const char *)job->dense.data + (size_t)(row * job->dense.ld) * size, size, values,
                            (uint8_t *)(uintptr_t)lac_weight_group_index(w, group));
}

/* Whether rows go the quick way, by the table that is then made: the values must lie as they are stored. */
static bool find_rows(const compress_job *job, lac_row_table *table)
{
    return !job->is_vnm && !job->mask->col_perm && job->dense.layout == LAC_LAYOUT_ROW_MAJOR &&
           job->dense.dtype == job->weight->dtype && lac_row_table_make(&job->geometry, job->weight->encoding, table);
}

static bool compress_group(const compress_job *job, compress_scratch *s, int64_t group)
{
    const lac_geometry *g = &job->geometry;
    lac_weight *w = job->weight;
    if (job->rows) return compress_row(job, group);
    int64_t count = find_units(job, s, group);
    if (count < 0 || (g->is_free && count != lac_weight_slots(w, group))) return false;
    for (int64_t r = 0, rows = lac_geometry_rows(g, group); r < rows; r++) {
        s->rows[r] = (uint32_t)lac_mask_stored_row(job->mask, group * g->unit_n + r);
    }
    if (g->is_free) {
        uint32_t *columns = lac_weight_writable(w, LAC_PART_COLUMNS);
        if (count) memcpy(columns + w->first_slot[group], s->units, (size_t)count * sizeof *columns);
    } else {
        lac_index_encode(g, w->encoding, s->units, (uint8_t *)(uintptr_t)lac_weight_group_index(w, group));
    }
    if (job->is_vnm) return compress_vnm(job, s, group);
    compress_lanes(job, s, group, count);
    return true;
}

/* The first kept element, in row order, that does not fit the weight's dtype. */
static lac_status fail_overflow(const compress_job *job)
{
    for (int64_t r = 0; r < job->mask->n; r++) {
        for (int64_t c = 0; c < job->mask->k; c++) {
            if (!lac_mask_test(job->mask, r, c)) continue;
            double value = lac_load_f64(job->dense.data, job->dense.dtype, lac_matrix_at(&job->dense, r, c));
            uint64_t stored;
            if (!lac_convert_run(&value, LAC_DTYPE_F64, &stored, job->weight->dtype, 1, false)) continue;
            return lac_fail(LAC_STATUS_VALUE_OUT_OF_RANGE, "dense: row %lld, column %lld is %.9g, but the largest %s is %.9g",
                            (long long)r, (long long)c, value, lac_dtype_name(job->weight->dtype),
                            lac_dtype_max(job->weight->dtype));
        }
    }
    return lac_fail(LAC_STATUS_INTERNAL, "compress: a value overflowed, but none was found");
}

static lac_status fail_mask(const compress_job *job, int64_t group)
{
    char text[LAC_PATTERN_TEXT_SIZE];
    lac_status status = lac_pattern_format(&job->mask->pattern, text, sizeof text);
    if (status) return status;
    return lac_fail(LAC_STATUS_PATTERN_VIOLATED, "mask: row group %lld does not keep what its pattern %s keeps",
                    (long long)group, text);
}

/* Free distributions: how many units each row group keeps, which fixes the sizes. first_slot[row_groups + 1]. */
static lac_status count_slots(const compress_job *job, compress_scratch *s, int64_t *first_slot)
{
    first_slot[0] = 0;
    for (int64_t group = 0; group < job->geometry.row_groups; group++) {
        int64_t count = job->geometry.units ? find_units(job, s, group) : 0;
        if (count < 0) return fail_mask(job, group);
        first_slot[group + 1] = first_slot[group] + count;
    }
    return LAC_STATUS_OK;
}

static lac_status create_weight(compress_job *job, const lac_weight_info *info, compress_scratch *scratch)
{
    const lac_geometry *g = &job->geometry;
    uint64_t bytes[LAC_PART_COUNT], table = (uint64_t)(g->row_groups + 1) * 8;
    int64_t kept, slots = 0, last = 0, *first_slot = NULL;
    lac_status status = LAC_STATUS_OK;
    if (g->is_free) {
        first_slot = lac_allocate(table);
        if (!first_slot) return lac_fail_memory("compress", table);
        status = count_slots(job, scratch, first_slot);
        slots = status ? 0 : first_slot[g->row_groups];
        last = status || !g->row_groups ? 0 : slots - first_slot[g->row_groups - 1];
    }
    if (!status) status = lac_weight_sizes(info, g, slots, last, bytes, &kept);
    if (!status) status = lac_weight_create(info, g, bytes, kept, &job->weight);
    if (!status && g->is_free) {
        uint32_t *counts = lac_weight_writable(job->weight, LAC_PART_COUNTS);
        memcpy(job->weight->first_slot, first_slot, (size_t)table);
        for (int64_t i = 0; i < g->row_groups; i++) counts[i] = (uint32_t)(first_slot[i + 1] - first_slot[i]);
    }
    if (!status && info->has_row_perm && info->n) {
        memcpy(lac_weight_writable(job->weight, LAC_PART_ROW_PERM), job->mask->row_perm, (size_t)info->n * 4);
    }
    if (!status && info->has_col_perm && info->k) {
        memcpy(lac_weight_writable(job->weight, LAC_PART_COL_PERM), job->mask->col_perm, (size_t)info->k * 4);
    }
    lac_release(first_slot);
    return status;
}

static lac_status compress_groups(compress_job *job, compress_scratch *scratch, int threads, bool check_overflow)
{
    int64_t row_groups = job->geometry.units ? job->geometry.row_groups : 0;
    LAC_OMP(omp parallel for num_threads(threads) schedule(static))
    for (int64_t group = 0; group < row_groups; group++) {
        compress_scratch *s = &scratch[lac_parallel_number()];
        if (s->bad_group < 0 && !compress_group(job, s, group)) s->bad_group = group;
    }
    (void)threads;
    int64_t bad = -1;
    bool overflow = false;
    for (int t = 0; t < threads; t++) {
        if (scratch[t].bad_group >= 0 && (bad < 0 || scratch[t].bad_group < bad)) bad = scratch[t].bad_group;
        overflow |= scratch[t].overflow;
    }
    if (bad >= 0) return fail_mask(job, bad);
    return overflow && check_overflow ? fail_overflow(job) : LAC_STATUS_OK;
}

/* Everything that can be wrong with the arguments; fills in job (without its weight) and info. */
static lac_status prepare(const lac_matrix *dense, const lac_mask *mask, const lac_compress_options *options, compress_job *job,
                          lac_weight_info *info)
{
    lac_status status = lac_matrix_check("dense", dense, 1, &job->dense);
    if (status) return status;
    if (job->dense.rows != mask->n || job->dense.cols != mask->k) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "dense is %lld x %lld, but the mask is %lld x %lld",
                        (long long)job->dense.rows, (long long)job->dense.cols, (long long)mask->n, (long long)mask->k);
    }
    if (!mask->has_pattern) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask has no pattern; lac_mask_with_pattern gives it one");
    }
    if (options->threads < 0) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: threads is %d", (int)options->threads);
    if (options->overflow != LAC_OVERFLOW_ERROR && options->overflow != LAC_OVERFLOW_SATURATE) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: overflow is %d, which is none", (int)options->overflow);
    }
    lac_dtype own = job->dense.dtype == LAC_DTYPE_F64 ? LAC_DTYPE_F32 : job->dense.dtype;
    *info = (lac_weight_info){.size = sizeof *info, .pattern = mask->pattern, .n = mask->n, .k = mask->k};
    info->dtype = options->dtype == LAC_DTYPE_NONE ? own : options->dtype;
    info->encoding = options->encoding;
    info->has_row_perm = mask->row_perm != NULL;
    info->has_col_perm = mask->col_perm != NULL;
    job->mask = mask;
    job->saturate = options->overflow == LAC_OVERFLOW_SATURATE;
    job->is_vnm = mask->pattern.family == LAC_FAMILY_VNM;
    status = lac_weight_resolve(info, &job->geometry);
    return status ? lac_fail_in(status, "options") : LAC_STATUS_OK;
}

lac_status lac_weight_compress(const lac_matrix *dense, const lac_mask *mask, const lac_compress_options *options,
                               lac_weight **out)
{
    lac_compress_options full;
    lac_weight_info info;
    lac_row_table table;
    compress_job job = {0};
    if (!mask) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = lac_read_struct("options", options, &full, sizeof full);
    if (!status) status = prepare(dense, mask, &full, &job, &info);
    if (status) return status;
    int threads = lac_parallel_threads_for(full.threads, job.geometry.row_groups, mask->n * mask->k), ready = 0;
    compress_scratch *scratch = lac_allocate_zeroed((uint64_t)threads * sizeof *scratch);
    if (!scratch) return lac_fail_memory("compress", (uint64_t)threads * sizeof *scratch);
    while (!status && ready < threads) {
        status = allocate_scratch(&job, &scratch[ready]);
        if (!status) ready++;
    }
    if (!status) status = create_weight(&job, &info, scratch);
    if (!status && find_rows(&job, &table)) job.rows = &table;
    if (!status) status = compress_groups(&job, scratch, threads, !job.saturate);
    for (int t = 0; t < ready; t++) lac_release(scratch[t].block);
    lac_release(scratch);
    if (status) {
        lac_weight_free(job.weight);
        return status;
    }
    *out = job.weight;
    return LAC_STATUS_OK;
}
