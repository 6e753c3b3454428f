/* matrix.h - dense matrices for tests: any dtype and layout, padded and guarded by canaries, with conversions of our own
 * that use nothing of the library, so that they can check it. */
#ifndef TEST_SUPPORT_MATRIX_H
#define TEST_SUPPORT_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

#include "lacuna.h"
#include "support/random.h"

typedef struct test_matrix {
    lac_matrix view;
    unsigned char *block;      /* the whole allocation, guards included */
    unsigned char *is_element; /* [bytes] 1 where a byte belongs to an element */
    size_t bytes;
} test_matrix;

/* Every byte is a canary until it is set. `padding` elements lie between lines; the data begins `offset` elements past
 * a multiple of 64 bytes. */
test_matrix test_matrix_make(int64_t rows, int64_t cols, lac_dtype dtype, lac_layout layout, int64_t padding, int64_t offset);
/* The same with a random layout, padding and offset. */
test_matrix test_matrix_random(test_random *random, int64_t rows, int64_t cols, lac_dtype dtype);
void test_matrix_free(test_matrix *matrix);

double test_matrix_get(const test_matrix *matrix, int64_t row, int64_t col);
/* Rounds to nearest even, infinity past the largest value. */
void test_matrix_set(const test_matrix *matrix, int64_t row, int64_t col, double value);
/* True when no byte outside the elements was written. */
bool test_matrix_intact(const test_matrix *matrix);
/* A copy of all bytes, and whether they are all still the same. */
unsigned char *test_matrix_snapshot(const test_matrix *matrix);
bool test_matrix_unchanged(const test_matrix *matrix, const unsigned char *snapshot);

typedef enum test_fill {
    TEST_FILL_GAUSSIAN,
    TEST_FILL_INTEGER,    /* -8 to 8: products and sums are exact in any dtype's arithmetic */
    TEST_FILL_HEAVY_TAIL, /* magnitudes over many binades, finite in f16 */
    TEST_FILL_SPARSE,     /* many +0.0 and -0.0 */
    TEST_FILL_DENORMAL,   /* with the smallest values of the dtype, and -0.0 */
    TEST_FILL_TIES,       /* few distinct magnitudes */
    TEST_FILL_FINITE_COUNT,
    TEST_FILL_NONFINITE = TEST_FILL_FINITE_COUNT /* with infinities and NaNs */
} test_fill;

void test_matrix_fill(test_random *random, const test_matrix *matrix, test_fill fill);

/* One number of a dtype as bits, and back: exact arithmetic in double, by the definition of the formats. */
double test_decode(lac_dtype dtype, uint64_t bits);
/* Round to nearest even; past the largest value infinity. */
uint64_t test_encode(lac_dtype dtype, double value);
/* The value that `value` becomes when it is stored as `dtype`. */
double test_rounded(lac_dtype dtype, double value);

#endif
