/* mask.c - masks: made empty, from nonzeros, under a pattern; read, applied, measured, freed.
 * Whether bits obey a pattern is check.c's business. Called by users, pruning (lac_mask_create), files and compress. */
#include "format/mask.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/bits.h"
#include "format/check.h"

lac_status lac_mask_create(int64_t n, int64_t k, const lac_pattern *pattern, lac_mask **out)
{
    if (n < 0 || n > LAC_MAX_DIMENSION) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask: n is %lld", (long long)n);
    if (k < 0 || k > LAC_MAX_DIMENSION) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask: k is %lld", (long long)k);
    if (pattern) {
        lac_status status = lac_pattern_validate(pattern);
        if (status) return status;
    }
    lac_mask *mask = lac_allocate_zeroed(sizeof *mask);
    if (!mask) return lac_fail_memory("mask", sizeof *mask);
    mask->n = n;
    mask->k = k;
    mask->words = (k + 63) / 64;
    uint64_t bytes = (uint64_t)n * (uint64_t)mask->words * 8; /* below 2^31 * 2^25 * 8 */
    mask->bits = lac_allocate_zeroed(bytes);
    if (!mask->bits) {
        lac_release(mask);
        return lac_fail_memory("mask", bytes);
    }
    if (pattern) {
        mask->has_pattern = true;
        mask->pattern = *pattern;
    }
    *out = mask;
    return LAC_STATUS_OK;
}

void lac_mask_free(lac_mask *mask)
{
    if (!mask) return;
    lac_release(mask->bits);
    lac_release(mask->row_perm);
    lac_release(mask->col_perm);
    lac_release(mask);
}

/* A zero is +0.0 or -0.0: all bits but the sign are 0. DATA is [.][.] with the matrix's strides. */
#define LAC_NONZERO_BITS(NAME, TYPE, MAGNITUDE)                                                                                \
    static void NAME(const lac_matrix *dense, lac_mask *mask)                                                                  \
    {                                                                                                                          \
        const TYPE *data = dense->data;                                                                                        \
        if (dense->layout == LAC_LAYOUT_ROW_MAJOR) {                                                                           \
            for (int64_t r = 0; r < mask->n; r++) {                                                                            \
                uint64_t *row = lac_mask_row_writable(mask, r);                                                                \
                for (int64_t w = 0; w < mask->words; w++) {                                                                    \
                    const TYPE *from = data + r * dense->ld + w * 64;                                                          \
                    int64_t count = mask->k - w * 64 < 64 ? mask->k - w * 64 : 64;                                             \
                    uint64_t word = 0;                                                                                         \
                    for (int64_t c = 0; c < count; c++) word |= (uint64_t)((from[c] & (MAGNITUDE)) != 0) << c;                 \
                    row[w] = word;                                                                                             \
                }                                                                                                              \
            }                                                                                                                  \
        } else {                                                                                                               \
            for (int64_t c = 0; c < mask->k; c++) {                                                                            \
                const TYPE *from = data + c * dense->ld;                                                                       \
                for (int64_t r = 0; r < mask->n; r++) {                                                                        \
                    lac_mask_row_writable(mask, r)[c >> 6] |= (uint64_t)((from[r] & (MAGNITUDE)) != 0) << (c & 63);            \
                }                                                                                                              \
            }                                                                                                                  \
        }                                                                                                                      \
    }

LAC_NONZERO_BITS(nonzero_bits_16, uint16_t, 0x7fffu)
LAC_NONZERO_BITS(nonzero_bits_32, uint32_t, 0x7fffffffu)
LAC_NONZERO_BITS(nonzero_bits_64, uint64_t, UINT64_C(0x7fffffffffffffff))

lac_status lac_mask_from_nonzeros(const lac_matrix *dense, lac_mask **out)
{
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_matrix matrix;
    lac_status status = lac_matrix_check("dense", dense, 1, &matrix);
    if (status) return status;
    lac_mask *mask = NULL;
    status = lac_mask_create(matrix.rows, matrix.cols, NULL, &mask);
    if (status) return status;
    switch (lac_dtype_size(matrix.dtype)) {
    case 2:
        nonzero_bits_16(&matrix, mask);
        break;
    case 4:
        nonzero_bits_32(&matrix, mask);
        break;
    default:
        nonzero_bits_64(&matrix, mask);
        break;
    }
    *out = mask;
    return LAC_STATUS_OK;
}

lac_status lac_mask_from_matrix(const lac_matrix *dense, const lac_pattern *pattern, lac_mask **out)
{
    if (!pattern) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_mask *mask = NULL;
    lac_status status = lac_mask_from_nonzeros(dense, &mask);
    if (status) return status;
    status = lac_mask_conform("dense", mask, pattern, NULL);
    if (status) {
        lac_mask_free(mask);
        return status;
    }
    *out = mask;
    return LAC_STATUS_OK;
}

static lac_status copy_numbers(const uint32_t *from, int64_t count, uint32_t **to)
{
    if (!from) return LAC_STATUS_OK;
    *to = lac_allocate((uint64_t)count * sizeof **to);
    if (!*to) return lac_fail_memory("permutation", (uint64_t)count * sizeof **to);
    if (count) memcpy(*to, from, (size_t)count * sizeof **to);
    return LAC_STATUS_OK;
}

lac_status lac_mask_with_pattern(const lac_mask *mask, const lac_pattern *pattern, lac_mask **out)
{
    if (!mask) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    if (!pattern) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_mask *copy = NULL;
    lac_status status = lac_mask_create(mask->n, mask->k, NULL, &copy);
    if (status) return status;
    if (mask->n > 0 && mask->words > 0) memcpy(copy->bits, mask->bits, (size_t)(mask->n * mask->words) * 8);
    status = copy_numbers(mask->row_perm, mask->n, &copy->row_perm);
    if (!status) status = copy_numbers(mask->col_perm, mask->k, &copy->col_perm);
    if (!status) status = lac_mask_conform("mask", copy, pattern, NULL);
    if (status) {
        lac_mask_free(copy);
        return status;
    }
    *out = copy;
    return LAC_STATUS_OK;
}

lac_status lac_mask_get_info(const lac_mask *mask, lac_mask_info *info)
{
    if (!mask) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    lac_mask_info full = {.size = sizeof full, .n = mask->n, .k = mask->k};
    for (int64_t i = 0; i < mask->n * mask->words; i++) full.kept += lac_bits_popcount(mask->bits[i]);
    full.has_pattern = mask->has_pattern;
    if (mask->has_pattern) full.pattern = mask->pattern;
    full.row_perm = mask->row_perm;
    full.col_perm = mask->col_perm;
    return lac_write_struct("info", info, &full, sizeof full);
}

int lac_mask_get(const lac_mask *mask, int64_t row, int64_t col)
{
    if (!mask || row < 0 || row >= mask->n || col < 0 || col >= mask->k) return 0;
    return lac_mask_test(mask, row, col);
}

static lac_status check_shape(const lac_mask *mask, const lac_matrix *matrix)
{
    if (matrix->rows == mask->n && matrix->cols == mask->k) return LAC_STATUS_OK;
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "dense is %lld x %lld, but the mask is %lld x %lld", (long long)matrix->rows,
                    (long long)matrix->cols, (long long)mask->n, (long long)mask->k);
}

lac_status lac_mask_apply(const lac_mask *mask, const lac_matrix *dense)
{
    if (!mask) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    lac_matrix matrix;
    lac_status status = lac_matrix_check("dense", dense, 1, &matrix);
    if (!status) status = check_shape(mask, &matrix);
    if (status) return status;
    size_t size = lac_dtype_size(matrix.dtype);
    for (int64_t r = 0; r < mask->n; r++) {
        const uint64_t *row = lac_mask_row(mask, r);
        for (int64_t w = 0; w < mask->words; w++) {
            uint64_t dropped = ~row[w] & lac_bits_low(mask->k - w * 64);
            while (dropped) {
                int64_t c = w * 64 + __builtin_ctzll(dropped);
                memset((char *)matrix.data + (size_t)lac_matrix_at(&matrix, r, c) * size, 0, size);
                dropped &= dropped - 1;
            }
        }
    }
    return LAC_STATUS_OK;
}

/* What eight bits keep of eight numbers: 0 or 1 for each, to multiply by. */
#define BIT_ROW(b)                                                                                                             \
    {                                                                                                                          \
        (b) & 1, (b) >> 1 & 1, (b) >> 2 & 1, (b) >> 3 & 1, (b) >> 4 & 1, (b) >> 5 & 1, (b) >> 6 & 1, (b) >> 7                  \
    }
#define BIT_ROWS_4(b)  BIT_ROW(b), BIT_ROW((b) + 1), BIT_ROW((b) + 2), BIT_ROW((b) + 3)
#define BIT_ROWS_16(b) BIT_ROWS_4(b), BIT_ROWS_4((b) + 4), BIT_ROWS_4((b) + 8), BIT_ROWS_4((b) + 12)
#define BIT_ROWS_64(b) BIT_ROWS_16(b), BIT_ROWS_16((b) + 16), BIT_ROWS_16((b) + 32), BIT_ROWS_16((b) + 48)
static const float kept_of_eight[256][8] = {BIT_ROWS_64(0), BIT_ROWS_64(64), BIT_ROWS_64(128), BIT_ROWS_64(192)};

/* Rows whose sums are kept until they are added up, in their order: the result does not depend on the threads. */
enum { ENERGY_ROWS = 256, LANES = 8 };

typedef struct energy_state {
    const lac_mask *mask;
    const lac_matrix *matrix;
    int64_t first;
    double kept[ENERGY_ROWS], total[ENERGY_ROWS];
} energy_state;

/* Squares of 64 floats into 8 sums. */
static void add_word_exactly(const float *values, uint64_t bits, double kept[LANES], double total[LANES])
{
    for (int c = 0; c < 64; c += LANES) {
        const float *keeps = kept_of_eight[bits >> c & 255];
        for (int i = 0; i < LANES; i++) {
            double square = (double)values[c + i] * (double)values[c + i];
            total[i] += square;
            kept[i] += square * (double)keeps[i];
        }
    }
}

/* The same where the values had 16 bits: their squares are exact in a float, and eight of them are added up in floats, to 5e-7, before they go into the sums. That halves the work. False,
 * and nothing added, when the squares leave the range of a float, which a BF16 may. */
static bool add_word(const float *values, uint64_t bits, double kept[LANES], double total[LANES])
{
    float some[LANES] = {0}, all[LANES] = {0}, sum = 0;
    for (int c = 0; c < 64; c += LANES) {
        const float *keeps = kept_of_eight[bits >> c & 255];
        for (int i = 0; i < LANES; i++) {
            float square = values[c + i] * values[c + i];
            all[i] += square;
            some[i] += square * keeps[i];
        }
    }
    for (int i = 0; i < LANES; i++) sum += all[i];
    if (!(sum >= 0x1p-80f && sum <= FLT_MAX)) return false; /* what is lost below the range is then lost in rounding too */
    for (int i = 0; i < LANES; i++) total[i] += (double)all[i], kept[i] += (double)some[i];
    return true;
}

static void add_row(void *state, int thread, int64_t index)
{
    energy_state *s = state;
    const lac_mask *mask = s->mask;
    const lac_matrix *m = s->matrix;
    const uint64_t *row = lac_mask_row(mask, s->first + index);
    double kept[LANES] = {0}, total[LANES] = {0}; /* sums of rows first: smaller rounding errors in large matrices */
    int64_t stride = lac_matrix_col_stride(m);
    (void)thread;
    for (int64_t w = 0; w < mask->words; w++) {
        int64_t count = mask->k - w * 64 < 64 ? mask->k - w * 64 : 64, start = lac_matrix_at(m, s->first + index, w * 64);
        if (m->dtype == LAC_DTYPE_F64) {
            for (int64_t i = 0; i < count; i++) {
                double value = ((const double *)m->data)[start + i * stride];
                double square = fabs(value) <= DBL_MAX ? value * value : 0;
                total[i % LANES] += square;
                if (row[w] >> i & 1) kept[i % LANES] += square;
            }
            continue;
        }
        float values[64] = {0}; /* every other dtype is a float */
        lac_load_run_f32(m->data, m->dtype, start, stride, count, values);
        for (int i = 0; i < 64; i++) values[i] = fabsf(values[i]) <= FLT_MAX ? values[i] : 0;
        if (m->dtype == LAC_DTYPE_F32 || !add_word(values, row[w], kept, total)) add_word_exactly(values, row[w], kept, total);
    }
    s->kept[index] = s->total[index] = 0;
    for (int i = 0; i < LANES; i++) s->kept[index] += kept[i], s->total[index] += total[i];
}

lac_status lac_mask_energy_by(const lac_mask *mask, const lac_matrix *dense, int threads, double *kept, double *total)
{
    lac_matrix matrix;
    lac_status status = lac_matrix_check("dense", dense, 1, &matrix);
    if (!status) status = check_shape(mask, &matrix);
    if (status) return status;
    energy_state s = {.mask = mask, .matrix = &matrix};
    double kept_sum = 0, total_sum = 0;
    for (s.first = 0; mask->k > 0 && s.first < mask->n; s.first += ENERGY_ROWS) { /* 2^31 empty rows are a file of 100 bytes */
        int64_t count = mask->n - s.first < ENERGY_ROWS ? mask->n - s.first : ENERGY_ROWS;
        lac_parallel_for_each(count, lac_parallel_threads_for(threads, count, count * mask->k), add_row, &s);
        for (int64_t i = 0; i < count; i++) kept_sum += s.kept[i], total_sum += s.total[i];
    }
    *kept = kept_sum;
    *total = total_sum;
    return LAC_STATUS_OK;
}

lac_status lac_mask_energy(const lac_mask *mask, const lac_matrix *dense, double *kept, double *total)
{
    if (!mask) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    if (!kept) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "kept is NULL");
    if (!total) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "total is NULL");
    return lac_mask_energy_by(mask, dense, 1, kept, total);
}
