/* linear.c - blocked linear algebra on top of one product. A factor of 11,008 columns is a trillion operations: nine tenths of
 * them are in the product, which OpenBLAS does at the machine's speed (blas.c); the loops here keep the rest small. Called by
 * calibration.c and obs.c. */
#include "prune/linear.h"

#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/parallel.h"
#include "prune/blas.h"

/* Columns of a strip of the trailing matrix: wide enough for the product, narrow enough that little above the diagonal is
 * computed in vain. */
enum { BLOCK = LAC_LINEAR_BLOCK, STRIP = 512 };
/* The own product: rows of C a task, columns that stay in the first-level cache. */
enum { TASK_ROWS = 8, TASK_COLS = 512 };

static void multiply_rows(void *state, int thread, int64_t task)
{
    const lac_product *p = state;
    int64_t first = task * TASK_ROWS, end = lac_smaller(first + TASK_ROWS, p->rows);
    (void)thread;
    for (int64_t from = 0; from < p->cols; from += TASK_COLS) {
        int64_t count = lac_smaller(TASK_COLS, p->cols - from);
        for (int64_t i = first; i < end; i++) {
            float *c = p->c + i * p->ldc + from;
            if (p->turn_b) { /* rows of op(B)^T are adjacent: dot products */
                for (int64_t j = 0; j < count; j++) {
                    const float *b = p->b + (from + j) * p->ldb;
                    float sum = 0;
                    for (int64_t d = 0; d < p->depth; d++) sum += p->a[p->turn_a ? d * p->lda + i : i * p->lda + d] * b[d];
                    c[j] += p->alpha * sum;
                }
                continue;
            }
            for (int64_t d = 0; d < p->depth; d++) {
                float a = p->alpha * p->a[p->turn_a ? d * p->lda + i : i * p->lda + d];
                const float *b = p->b + d * p->ldb + from;
                for (int64_t j = 0; j < count; j++) c[j] += a * b[j];
            }
        }
    }
}

void lac_linear_multiply(const lac_product *product)
{
    if (product->rows <= 0 || product->cols <= 0 || product->depth <= 0) return;
    if (lac_blas_multiply(product)) return;
    lac_product copy = *product;
    int64_t tasks = (copy.rows + TASK_ROWS - 1) / TASK_ROWS;
    int threads = lac_parallel_threads_for(copy.threads, tasks, copy.rows * copy.cols * copy.depth / 16);
    lac_parallel_for_each(tasks, threads, multiply_rows, &copy);
}

/* The triangle on the diagonal, sums in double: its rounding goes into everything that follows. */
static int64_t factor_diagonal(float *a, int64_t ld, int64_t size)
{
    for (int64_t j = 0; j < size; j++) {
        double pivot = a[j * ld + j];
        for (int64_t p = 0; p < j; p++) pivot -= (double)a[j * ld + p] * a[j * ld + p];
        if (!(pivot > 0) || !isfinite(pivot)) return j;
        double root = sqrt(pivot);
        a[j * ld + j] = (float)root;
        for (int64_t i = j + 1; i < size; i++) {
            double sum = a[i * ld + j];
            for (int64_t p = 0; p < j; p++) sum -= (double)a[i * ld + p] * a[j * ld + p];
            a[i * ld + j] = (float)(sum / root);
        }
    }
    return size;
}

typedef struct panel_state {
    float *rows;           /* [..][ld]: the panel below the triangle */
    const float *triangle; /* [size][ld] */
    int64_t ld, size, count;
} panel_state;

enum { PANEL_ROWS = 16 };

/* Rows of the panel: x L^T = row. */
static void solve_panel(void *state, int thread, int64_t task)
{
    const panel_state *s = state;
    (void)thread;
    for (int64_t r = task * PANEL_ROWS; r < lac_smaller((task + 1) * PANEL_ROWS, s->count); r++) {
        float *row = s->rows + r * s->ld;
        for (int64_t c = 0; c < s->size; c++) {
            const float *l = s->triangle + c * s->ld;
            float sum = row[c];
            for (int64_t p = 0; p < c; p++) sum -= row[p] * l[p];
            row[c] = sum / l[c];
        }
    }
}

int64_t lac_linear_cholesky(float *a, int64_t size, int threads)
{
    for (int64_t j = 0; j < size; j += BLOCK) {
        int64_t width = lac_smaller(BLOCK, size - j), below = size - j - width;
        int64_t done = factor_diagonal(a + j * size + j, size, width);
        if (done < width) return j + done;
        if (below == 0) break;
        float *panel = a + (j + width) * size + j; /* [below][width] */
        panel_state s = {.rows = panel, .triangle = a + j * size + j, .ld = size, .size = width, .count = below};
        int64_t tasks = (below + PANEL_ROWS - 1) / PANEL_ROWS;
        lac_parallel_for_each(tasks, lac_parallel_threads_for(threads, tasks, below * width * width / 16), solve_panel, &s);
        for (int64_t c = 0; c < below; c += STRIP) {
            lac_product update = {.turn_b = true,
                                  .rows = below - c,
                                  .cols = lac_smaller(STRIP, below - c),
                                  .depth = width,
                                  .alpha = -1,
                                  .a = panel + c * size,
                                  .lda = size,
                                  .b = panel + c * size,
                                  .ldb = size,
                                  .c = a + (j + width + c) * size + j + width + c,
                                  .ldc = size,
                                  .threads = threads};
            lac_linear_multiply(&update);
        }
    }
    return size;
}

/* The triangle on the diagonal becomes its inverse. */
static void invert_diagonal(float *a, int64_t ld, int64_t size)
{
    for (int64_t j = 0; j < size; j++) {
        a[j * ld + j] = 1 / a[j * ld + j];
        for (int64_t i = j + 1; i < size; i++) {
            double sum = 0; /* of L[i][p] X[p][j], p from j to i - 1 */
            for (int64_t p = j; p < i; p++) sum += (double)a[i * ld + p] * a[p * ld + j];
            a[i * ld + j] = (float)(-sum / a[i * ld + i]);
        }
    }
}

void lac_linear_invert_lower(float *a, int64_t size, float *scratch, int threads)
{
    for (int64_t r = 0; r < size; r++) memset(a + r * size + r + 1, 0, (size_t)(size - r - 1) * sizeof *a);
    for (int64_t i = 0; i < size; i += BLOCK) {
        int64_t height = lac_smaller(BLOCK, size - i);
        float *row = a + i * size; /* block row i: [height][i] left of the diagonal */
        invert_diagonal(row + i, size, height);
        memset(scratch, 0, (size_t)(height * i) * sizeof *scratch);
        for (int64_t c = 0; c < i; c += STRIP) { /* L[i][c..i] X[c..i][c..]: X has zeros above its diagonal */
            int64_t width = lac_smaller(STRIP, i - c);
            for (int64_t d = c; d < i; d += STRIP) {
                int64_t depth = lac_smaller(STRIP, i - d);
                lac_product part = {.rows = height,
                                    .cols = width,
                                    .depth = depth,
                                    .alpha = 1,
                                    .a = row + d,
                                    .lda = size,
                                    .b = a + d * size + c,
                                    .ldb = size,
                                    .c = scratch + c,
                                    .ldc = i,
                                    .threads = threads};
                if (d > c) {
                    lac_linear_multiply(&part);
                    continue;
                }
                for (int64_t e = 0; e < width; e += BLOCK) { /* the strip's own triangle, a block of columns at a time */
                    lac_product piece = part;
                    piece.cols = lac_smaller(BLOCK, width - e);
                    piece.depth = depth - e;
                    piece.a = row + d + e;
                    piece.b = a + (d + e) * size + c + e;
                    piece.c = scratch + c + e;
                    lac_linear_multiply(&piece);
                }
            }
        }
        for (int64_t r = 0; r < height; r++) memset(row + r * size, 0, (size_t)i * sizeof *row);
        lac_product finish = {.rows = height,
                              .cols = i,
                              .depth = height,
                              .alpha = -1,
                              .a = row + i,
                              .lda = size,
                              .b = scratch,
                              .ldb = i,
                              .c = row,
                              .ldc = size,
                              .threads = threads};
        lac_linear_multiply(&finish);
    }
}

bool lac_linear_cholesky_small(double *a, int size, int ld)
{
    for (int j = 0; j < size; j++) {
        double pivot = a[j * ld + j];
        for (int p = 0; p < j; p++) pivot -= a[j * ld + p] * a[j * ld + p];
        if (!(pivot > 0)) return false;
        a[j * ld + j] = sqrt(pivot);
        for (int i = j + 1; i < size; i++) {
            double sum = a[i * ld + j];
            for (int p = 0; p < j; p++) sum -= a[i * ld + p] * a[j * ld + p];
            a[i * ld + j] = sum / a[j * ld + j];
        }
    }
    return true;
}

void lac_linear_solve_small(const double *l, int size, int ld, double *x)
{
    for (int i = 0; i < size; i++) {
        for (int p = 0; p < i; p++) x[i] -= l[i * ld + p] * x[p];
        x[i] /= l[i * ld + i];
    }
    for (int i = size - 1; i >= 0; i--) {
        for (int p = i + 1; p < size; p++) x[i] -= l[p * ld + i] * x[p];
        x[i] /= l[i * ld + i];
    }
}
