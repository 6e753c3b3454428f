/* source.c - rows of the dense matrix for pruning. Row-major F32 and F64 are read in place; the rest is converted a
 * panel of rows at a time. Called by units.c, vnm.c, shuffle.c. */
#include "prune/source.h"

#include <math.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/parallel.h"
#include "prune/select.h"

/* The scaled largest F64 weight is near 2^400: its square, summed over any matrix, fits, and so does the square of a
 * weight 2^-900 times as large. */
enum { SCALED_EXPONENT = 400 };

typedef struct peak_state {
    const lac_matrix *matrix;
    int64_t lines, length; /* runs of adjacent elements */
    int64_t peak[LAC_PARALLEL_MOST];
} peak_state;

static void find_peak(void *state, int thread, int64_t line)
{
    peak_state *s = state;
    const double *run = (const double *)s->matrix->data + line * s->matrix->ld;
    const int64_t infinity = lac_key_f64(INFINITY);
    int64_t peak = s->peak[thread];
    for (int64_t i = 0; i < s->length; i++) {
        int64_t key = lac_key_f64(run[i]);
        if (key != infinity && key > peak) peak = key;
    }
    s->peak[thread] = peak;
}

static double find_scale(const lac_matrix *matrix, int wanted)
{
    bool by_row = matrix->layout == LAC_LAYOUT_ROW_MAJOR;
    peak_state s = {
        .matrix = matrix, .lines = by_row ? matrix->rows : matrix->cols, .length = by_row ? matrix->cols : matrix->rows};
    int threads = lac_parallel_threads(wanted, s.lines);
    lac_parallel_for_each(s.lines, threads, find_peak, &s);
    int64_t key = 0;
    for (int t = 0; t < threads; t++)
        if (s.peak[t] > key) key = s.peak[t];
    if (key == 0) return 1.0;
    double peak;
    memcpy(&peak, &key, sizeof peak);
    /* At most 2^1023: a matrix of denormals alone ends lower than 2^400, which its squares survive. */
    int exponent = SCALED_EXPONENT - ilogb(peak);
    return ldexp(1.0, exponent > 1023 ? 1023 : exponent);
}

void lac_source_make(const lac_matrix *matrix, int threads, lac_source *out)
{
    out->matrix = *matrix;
    out->wide = matrix->dtype == LAC_DTYPE_F64;
    out->direct = matrix->layout == LAC_LAYOUT_ROW_MAJOR && (out->wide || matrix->dtype == LAC_DTYPE_F32);
    out->scale = out->wide && matrix->rows > 0 && matrix->cols > 0 ? find_scale(matrix, threads) : 1.0;
}

uint64_t lac_source_buffer_bytes(const lac_source *source, int64_t rows, int64_t cols)
{
    if (source->direct) return 0;
    return (uint64_t)(rows < LAC_PANEL_ROWS ? rows : LAC_PANEL_ROWS) * (uint64_t)cols *
           (source->wide ? sizeof(double) : sizeof(float));
}

/* Column-major: runs down the columns are adjacent in memory, so they are read and then spread over the rows. */
static void read_columns(const lac_source *source, const uint32_t *perm, int64_t first, int64_t count, int64_t col,
                         int64_t cols, void *buffer)
{
    const lac_matrix *m = &source->matrix;
    for (int64_t c = 0; c < cols; c++) {
        int64_t at = (col + c) * m->ld;
        if (source->wide) {
            const double *column = (const double *)m->data + at;
            for (int64_t i = 0; i < count; i++) ((double *)buffer)[i * cols + c] = column[perm ? perm[first + i] : first + i];
            continue;
        }
        float run[LAC_PANEL_ROWS];
        if (perm)
            for (int64_t i = 0; i < count; i++) lac_load_run_f32(m->data, m->dtype, at + perm[first + i], 1, 1, run + i);
        else
            lac_load_run_f32(m->data, m->dtype, at + first, 1, count, run);
        for (int64_t i = 0; i < count; i++) ((float *)buffer)[i * cols + c] = run[i];
    }
}

void lac_source_read(const lac_source *source, const uint32_t *perm, int64_t first, int64_t count, int64_t col, int64_t cols,
                     void *buffer, const void *row[LAC_PANEL_ROWS])
{
    const lac_matrix *m = &source->matrix;
    size_t element = source->wide ? sizeof(double) : sizeof(float);
    bool by_column = m->layout == LAC_LAYOUT_COLUMN_MAJOR;
    if (by_column) read_columns(source, perm, first, count, col, cols, buffer);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = (perm ? perm[first + i] : first + i) * m->ld + col;
        if (source->direct) {
            row[i] = (const char *)m->data + (size_t)at * element;
            continue;
        }
        row[i] = (char *)buffer + (size_t)(i * cols) * element;
        if (!by_column) lac_load_run_f32(m->data, m->dtype, at, 1, cols, (float *)buffer + i * cols);
    }
}

void lac_source_add_scores(const lac_source *source, lac_score score, const void *row, int64_t cols, double *sums)
{
    const float *narrow = row;
    const double *wide = row;
    double scale = source->scale;
    if (source->wide && score == LAC_SCORE_L1)
        for (int64_t c = 0; c < cols; c++) sums[c] += fabs(wide[c] * scale);
    else if (source->wide)
        for (int64_t c = 0; c < cols; c++) sums[c] += (wide[c] * scale) * (wide[c] * scale);
    else if (score == LAC_SCORE_L1)
        for (int64_t c = 0; c < cols; c++) sums[c] += (double)fabsf(narrow[c]);
    else
        for (int64_t c = 0; c < cols; c++) sums[c] += (double)narrow[c] * (double)narrow[c];
}
