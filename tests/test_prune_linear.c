/* test_prune_linear.c - the linear algebra of second-order pruning against plain sums in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prune/linear.h"
#include "support/support.h"

static float *random_floats(test_random *random, int64_t count)
{
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)test_random_gaussian(random);
    return values;
}

/* A A^T + size * I: as far from singular as one likes. */
static float *random_definite(test_random *random, int64_t size)
{
    float *a = random_floats(random, size * size), *h = malloc((size_t)(size * size) * sizeof *h);
    assert_non_null(h);
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++) {
            double sum = i == j ? (double)size : 0;
            for (int64_t p = 0; p < size; p++) sum += (double)a[i * size + p] * a[j * size + p];
            h[i * size + j] = (float)sum;
        }
    free(a);
    return h;
}

static void test_product(void **state)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {33, 17, 9}, {70, 600, 40}, {129, 65, 130}};
    test_random random = test_random_make("prune_linear", (int64_t)(1));
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int turned = 0; turned < 4; turned++) {
            int rows = sizes[s][0], cols = sizes[s][1], depth = sizes[s][2];
            bool turn_a = turned & 1, turn_b = turned >> 1;
            float *a = random_floats(&random, rows * depth), *b = random_floats(&random, depth * cols);
            float *c = random_floats(&random, rows * cols), *before = malloc((size_t)(rows * cols) * sizeof *before);
            assert_non_null(before);
            memcpy(before, c, (size_t)(rows * cols) * sizeof *c);
            lac_product p = {.turn_a = turn_a,
                             .turn_b = turn_b,
                             .rows = rows,
                             .cols = cols,
                             .depth = depth,
                             .alpha = -0.5f,
                             .a = a,
                             .lda = turn_a ? rows : depth,
                             .b = b,
                             .ldb = turn_b ? depth : cols,
                             .c = c,
                             .ldc = cols,
                             .threads = 2};
            lac_linear_multiply(&p);
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < cols; j++) {
                    double sum = 0;
                    for (int d = 0; d < depth; d++)
                        sum += (double)a[turn_a ? d * rows + i : i * depth + d] * b[turn_b ? j * depth + d : d * cols + j];
                    assert_true(fabs(before[i * cols + j] - 0.5 * sum - c[i * cols + j]) < 1e-4);
                }
            free(a), free(b), free(c), free(before);
        }
}

static void test_factor_and_inverse(void **state)
{
    static const int sizes[] = {1, 2, 63, 128, 129, 300, 700};
    test_random random = test_random_make("prune_linear", (int64_t)(2));
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t size = sizes[s];
        float *h = random_definite(&random, size), *l = malloc((size_t)(size * size) * sizeof *l);
        float *scratch = malloc((size_t)(LAC_LINEAR_BLOCK * size) * sizeof *scratch);
        assert_non_null(l);
        assert_non_null(scratch);
        memcpy(l, h, (size_t)(size * size) * sizeof *l);
        assert_int_equal(lac_linear_cholesky(l, size, 2), size);
        for (int64_t i = 0; i < size; i += 7)
            for (int64_t j = 0; j <= i; j += 3) {
                double sum = 0;
                for (int64_t p = 0; p <= j; p++) sum += (double)l[i * size + p] * l[j * size + p];
                assert_true(fabs(sum - h[i * size + j]) <= 1e-5 * (double)size * 3);
            }
        memcpy(h, l, (size_t)(size * size) * sizeof *l); /* h: the factor, l: its inverse */
        lac_linear_invert_lower(l, size, scratch, 2);
        for (int64_t i = 0; i < size; i += 5)
            for (int64_t j = 0; j < size; j += 3) {
                double sum = 0;
                for (int64_t p = j; p <= i; p++) sum += (double)h[i * size + p] * l[p * size + j];
                assert_true(fabs(sum - (i == j)) < 1e-4);
                if (j > i) assert_true(l[i * size + j] == 0);
            }
        free(h), free(l), free(scratch);
    }
    float singular[] = {1, 0, 0, 1, 1, 0, 0, 0, -1};
    assert_int_equal(lac_linear_cholesky(singular, 3, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_factor_and_inverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
